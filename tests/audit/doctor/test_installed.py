"""Versions, packages and extras as the installed metadata state them, and the start of the harness."""

import email
import importlib.metadata
import sys
from types import ModuleType, SimpleNamespace

import pytest

from medtasks.audit.doctor import machine as checks
from medtasks.audit.doctor.check_results import State

from ...tables import each_row
from .conftest import expect, only

REAL_VERSION = importlib.metadata.version
METADATA = """Metadata-Version: 2.1
Requires-Dist: lmms_eval<0.8,>=0.7.3
Requires-Dist: present>=2
Requires-Dist: only-elsewhere; sys_platform == "plan9"
Provides-Extra: report
Requires-Dist: wordlist>=3; extra == "report"
Requires-Dist: sums; extra == "report"
Provides-Extra: lm_eval
Requires-Dist: lm-eval>=0.4; extra == "lm-eval"
Provides-Extra: dicom
Requires-Dist: slices; extra == "dicom"
Provides-Extra: new
Requires-Dist: novelty; extra == "new"
Provides-Extra: dev
Requires-Dist: linter; extra == "dev"
"""


@pytest.fixture
def versions(monkeypatch):
    """Say that other versions of distributions are installed; None for one that is not."""

    def say(**wanted):
        def version(name):
            if name not in wanted:
                return REAL_VERSION(name)
            if wanted[name] is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return wanted[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    return say


@each_row(
    "look, installed, state, fix",
    [
        (checks.harness_version, {"lmms_eval": "0.7.3"}, State.OK, ""),
        (checks.harness_version, {"lmms_eval": "0.7.2"}, State.PROBLEM, "pip install 'lmms_eval"),
        (checks.harness_version, {"lmms_eval": "0.8.0"}, State.PROBLEM, "pip install 'lmms_eval"),
        (checks.harness_version, {"lmms_eval": "0.7.9.dev1"}, State.OK, ""),
        (checks.harness_version, {"lmms_eval": None}, State.WARNING, "pip install 'lmms_eval"),
    ],
)
def test_versions(versions, look, installed, state, fix):
    versions(**installed)
    expect(only(look()), state, *(version for version in installed.values() if version), fix=fix)


def test_no_harness_at_all(monkeypatch):
    monkeypatch.setattr(checks, "harness_folder", lambda: None)
    expect(only(checks.harness_version()), State.PROBLEM, "lmms-eval is not installed", fix="pip install 'lmms_eval")


def test_range_comes_from_the_metadata(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["lmms-eval<3,>=2"])
    assert str(checks.harness_requirement().specifier) == "<3,>=2"


@pytest.fixture
def index(monkeypatch):
    """Let the harness's task index hold these names, or fail with an error."""

    def hold(names):
        def manager():
            if isinstance(names, BaseException):
                raise names
            return SimpleNamespace(all_tasks=names)

        monkeypatch.setitem(sys.modules, "lmms_eval.models", ModuleType("models"))
        monkeypatch.setitem(sys.modules, "lmms_eval.tasks", SimpleNamespace(TaskManager=manager))

    return hold


@each_row(
    "held, state, word",
    [
        (["a", "b", "c", "d", "mme"], State.OK, "all 4"),
        (["mme"], State.PROBLEM, "4 of 4 names of ours are not in the harness's task index (a, b, c ...)"),
        (ImportError("no evaluate"), State.PROBLEM, "no evaluate"),
        (SystemExit("bye"), State.PROBLEM, "SystemExit: bye"),
    ],
)
def test_started(index, held, state, word):
    index(held)
    expect(only(checks.started("abcd")), state, word)


def test_switched_off_plug_in_is_not_looked_for_in_the_index(index, monkeypatch):
    index(["mme"])
    monkeypatch.setenv("MEDTASKS_AUTOLOAD", "0")
    assert only(checks.started("abcd")).state is State.OK


@pytest.mark.slow
def test_real_harness_finds_our_tasks():
    found = only(checks.started(["mediconfusion", "multimedeval_qa", "no_such_task"]))
    expect(found, State.PROBLEM, "1 of 3 names of ours", "(no_such_task)")


@pytest.fixture
def installed(monkeypatch):
    """Only these distributions are installed, beside our own with the metadata above."""
    message = email.message_from_string(METADATA)

    def say(**versions):
        def version(name):
            name = name.replace("-", "_")
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(importlib.metadata, "requires", lambda name: message.get_all("Requires-Dist"))
        monkeypatch.setattr(importlib.metadata, "metadata", lambda name: message)

    return say


@each_row(
    "versions, state, words, fix",
    [
        ({"present": "2.1rc1"}, State.OK, "all 1 packages that medtasks needs", ""),
        ({}, State.PROBLEM, "present>=2 (not installed)", "pip install 'present>=2'"),
        ({"present": "1.9"}, State.PROBLEM, "installed is 1.9", "pip install 'present>=2'"),
    ],
)
def test_required_packages(installed, everything, versions, state, words, fix):
    installed(**versions)
    assert expect(only(checks.packages(everything), "required"), state, words).fix == fix


def test_extras_without_tasks_are_not_looked_at(installed, everything):
    installed(present="2")
    assert [one.name for one in checks.packages(everything)] == ["required"]


@each_row(
    "task, names",
    [
        ("mediconfusion", []),
        ("multimedeval_mimic_cxr_report", [("extra report", State.WARNING)]),
        ("multimedeval_vindr_mammo", [("extra dicom", State.WARNING)]),
    ],
)
def test_extras_of_chosen_tasks(installed, scope, task, names):
    installed(present="2")
    assert [(one.name, one.state) for one in checks.packages(scope(task)) if one.name != "required"] == names


def test_nothing_is_known_of_a_package_that_is_not_installed(monkeypatch, everything):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    for function in ("requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, function, missing)
    assert (checks.required(), list(checks.packages(everything))) == ([], [])
    assert str(checks.harness_requirement()) == "lmms_eval"
