"""Versions, packages and extras as the installed metadata state them, the command, and the start of the harness."""

import email
import importlib.metadata
import os
import sys
from pathlib import Path

import pytest

from medtasks.audit.doctor import installed as checks
from medtasks.audit.doctor.children import Told
from medtasks.audit.doctor.findings import State
from medtasks.errors import MedTasksError

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


@pytest.mark.parametrize(
    ("look", "installed", "state", "fix"),
    [
        (checks.own_version, {}, State.OK, ""),
        (checks.own_version, {"medtasks": "9.9"}, State.WARNING, "pip install --force-reinstall --no-deps medtasks"),
        (checks.own_version, {"medtasks": None}, State.PROBLEM, "pip install medtasks"),
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
def on_path(tmp_path, monkeypatch):
    """Put an ``lmms_eval`` that names another Python in this form first on PATH; returns both."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    other = tmp_path / "other" / "bin" / "python3"  # as another virtual environment has it
    other.parent.mkdir(parents=True)
    os.symlink(sys.executable, other)

    def put(text):
        path = folder / "lmms_eval"
        path.write_text(text.format(python=other))
        path.chmod(0o755)
        return str(path), str(other)

    return put


@pytest.mark.parametrize("text", [f"#!{sys.executable}\nimport lmms_eval\n", "#!/bin/sh\nexec something\n"])
def test_command_of_this_environment_or_that_names_no_python(on_path, text):
    path, _ = on_path(text)
    expect(only(checks.command()), State.OK, path)


@pytest.mark.parametrize("text", ["#!{python}\n", '#!/bin/sh\n\'\'\'exec\' "{python}" "$0" "$@"\n', "#! {python} -P\n"])
def test_command_of_another_environment(on_path, text):
    _, other = on_path(text)
    expect(only(checks.command()), State.WARNING, other, fix=str(Path(sys.executable).parent))


def test_no_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    expect(only(checks.command()), State.WARNING, "-m lmms_eval", fix=str(Path(sys.executable).parent))


def test_autoload(monkeypatch):
    monkeypatch.delenv("MEDTASKS_AUTOLOAD", raising=False)
    assert list(checks.autoload()) == []
    monkeypatch.setenv("MEDTASKS_AUTOLOAD", "0")
    assert expect(only(checks.autoload()), State.WARNING).fix == "unset MEDTASKS_AUTOLOAD"


@pytest.mark.parametrize(
    ("index", "state", "word"),
    [
        ({"missing": []}, State.OK, "all 96"),
        ({"missing": ["a", "b", "c", "d"]}, State.PROBLEM, "4 of 96 names of ours"),
        ({"error": "ImportError: no evaluate"}, State.PROBLEM, "no evaluate"),
    ],
)
def test_started(index, state, word):
    told = Told({"index": {"error": "", "warnings": ["of somebody else's"], **index}})
    expect(only(checks.started(told, 96)), state, word)


def test_start_with_a_place_of_the_harness_that_is_gone():
    index = {"error": "", "missing": [], "warnings": ["medtasks could not watch over this lmms-eval."]}
    warning, fine = checks.started(Told({"index": index}), 96)
    expect(warning, State.WARNING, "could not watch over", fix="pip install 'lmms_eval")
    assert fine.state is State.OK


def test_start_that_was_killed():
    with pytest.raises(MedTasksError, match="signal SIGKILL"):
        list(checks.started(Told({}, {"begun": "index"}, "signal SIGKILL"), 1))


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


@pytest.mark.parametrize(
    ("versions", "state", "words", "fix"),
    [
        ({"present": "2.1rc1"}, State.OK, "all 1 packages that medtasks needs", ""),
        ({}, State.PROBLEM, "present>=2 (not installed)", "pip install 'present>=2'"),
        ({"present": "1.9"}, State.PROBLEM, "installed is 1.9", "pip install 'present>=2'"),
    ],
)
def test_required_packages(installed, everything, versions, state, words, fix):
    installed(**versions)
    assert expect(only(checks.packages(everything), "required"), state, words).fix == fix


def test_extras_without_tasks_are_notes(installed, everything):
    installed(present="2", wordlist="2", sums="1", lm_eval="0.4.13", slices="1")
    found = [one for one in checks.packages(everything) if one.name.startswith("extra")]
    assert [(one.name, str(one.state)) for one in found] == [
        ("extra report", "note"),
        ("extra lm-eval", "ok"),
        ("extra dicom", "ok"),
        ("extra new", "note"),
    ]
    assert "wordlist>=3 (installed is 2)" in found[0].found
    assert "metrics of reports" in found[0].found
    assert "sums" not in found[0].found
    assert found[0].fix == "pip install 'medtasks[report]'"
    assert "novelty (not installed)" in found[3].found


@pytest.mark.parametrize(
    ("task", "names"),
    [
        ("mediconfusion", []),
        ("multimedeval_mimic_cxr_report", [("extra report", State.WARNING)]),
        ("multimedeval_vindr_mammo", [("extra dicom", State.WARNING)]),
    ],
)
def test_extras_of_chosen_tasks(installed, scope, task, names):
    installed(present="2")
    assert [(one.name, one.state) for one in checks.packages(scope(task)) if one.name != "required"] == names


def test_every_extra_says_what_it_is_for(everything):
    found = [one for one in checks.packages(everything) if one.name.startswith("extra")]
    assert len(found) == len(checks.extras()) >= 4
    assert [one.name for one in found if ", for " not in one.found] == []


def test_nothing_is_known_of_a_package_that_is_not_installed(monkeypatch, everything):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    for function in ("requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, function, missing)
    assert (checks.required(), checks.extras(), list(checks.packages(everything))) == ([], [], [])
    assert str(checks.harness_requirement()) == "lmms_eval"
