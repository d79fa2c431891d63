"""Versions, the places we rely on, and the command."""

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pytest

from medtasks.audit.doctor import harness, packages
from medtasks.audit.doctor.child_process import Told
from medtasks.audit.doctor.findings import State
from medtasks.errors import MedTasksError

from .conftest import expect, only

REAL_VERSION = importlib.metadata.version


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


def test_python(monkeypatch):
    assert only(harness.python_version()).state is State.OK
    monkeypatch.setattr(harness.platform, "python_version", lambda: "3.9.2")
    found = expect(only(harness.python_version()), State.PROBLEM, "3.9.2")
    assert ">=3.11" in found.found + found.fix


@pytest.mark.parametrize(
    ("installed", "state"), [({}, State.OK), ({"medtasks": "9.9"}, State.WARNING), ({"medtasks": None}, State.PROBLEM)]
)
def test_own_version(versions, installed, state):
    versions(**installed)
    assert only(harness.own_version()).state is state


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.7.3", State.OK), ("0.7.2", State.PROBLEM), ("0.8.0", State.PROBLEM), ("0.7.9.dev1", State.OK)],
)
def test_harness_version_against_the_declared_range(versions, version, state):
    versions(lmms_eval=version)
    found = expect(only(harness.harness_version()), state, version)
    assert state is State.OK or found.fix.startswith("pip install 'lmms_eval")


def test_harness_without_metadata(versions):
    versions(lmms_eval=None)
    assert only(harness.harness_version()).state is State.WARNING


def test_no_harness_at_all(monkeypatch):
    monkeypatch.setattr(harness.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MedTasksError, match=r"lmms-eval is not installed.*pip install 'lmms_eval"):
        list(harness.harness_version())


def test_seams_of_the_installed_harness_are_there():
    assert only(harness.seams()).state is State.OK


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the files of the harness in which seams are looked for."""
    for file in {file for file, *_ in harness.SEAMS.values()}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(harness.harness_folder() / file, tmp_path / file)
    monkeypatch.setattr(harness, "harness_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "lost"),
    [
        ("tasks/__init__.py", "def initialize_tasks", "def build_tasks", "TaskManager.initialize_tasks"),
        ("tasks/__init__.py", "        include_defaults: bool", "        with_defaults: bool", "include_defaults"),
        ("tasks/__init__.py", "def match_tasks", "def find_tasks", "TaskManager.match_tasks"),
        ("tasks/__init__.py", "def _get_config(self, name)", "def _get_config(self, task)", "_get_config(name)"),
        ("tasks/__init__.py", "class TaskManager", "class Tasks", "TaskManager"),
        ("api/task.py", "def override_metric", "def replace_metric", "ConfigurableTask.override_metric"),
        ("models/registry_v2.py", "class ModelManifest", "class Manifest", "ModelManifest"),
        ("api/model.py", "class lmms(", "class Model(", "lmms"),
    ],
)
def test_lost_seam_is_named_with_its_purpose(copied, file, old, new, lost):
    text = (copied / file).read_text()
    assert old in text
    (copied / file).write_text(text.replace(old, new))
    found = list(harness.seams())
    assert {one.state for one in found} == {State.PROBLEM}
    assert any(f"no {lost}" in one.found or lost in one.found for one in found)
    assert all(file in one.found and "lmms_eval" in one.fix for one in found)


def test_missing_file_of_a_seam(copied):
    (copied / "api/model.py").unlink()
    assert "api/model.py" in only(harness.seams()).found


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """Put an ``lmms_eval`` with this text first on PATH."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(text):
        path = folder / "lmms_eval"
        path.write_text(text)
        path.chmod(0o755)
        return path

    return put


def test_command_of_this_environment(on_path):
    path = on_path(f"#!{sys.executable}\nimport lmms_eval\n")
    expect(only(harness.command()), State.OK, str(path), "medtasks")


@pytest.mark.parametrize("text", ["#!{python}\n", '#!/bin/sh\n\'\'\'exec\' "{python}" "$0" "$@"\n', "#! {python} -P\n"])
def test_command_of_another_environment(on_path, other_python, text):
    on_path(text.format(python=other_python))
    expect(only(harness.command()), State.WARNING, str(other_python), fix=str(Path(sys.executable).parent))


def test_command_that_names_no_python(on_path):
    on_path("#!/bin/sh\nexec something\n")
    assert only(harness.command()).state is State.OK


def test_no_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    expect(only(harness.command()), State.WARNING, "-m lmms_eval", fix=str(Path(sys.executable).parent))


def test_command_that_starts_something_else(on_path, monkeypatch):
    on_path("#!/bin/sh\n")
    real = importlib.metadata.entry_points
    stranger = importlib.metadata.EntryPoint("lmms_eval", "stranger:main", "console_scripts")
    monkeypatch.setattr(
        importlib.metadata,
        "entry_points",
        lambda **wanted: importlib.metadata.EntryPoints([*real(**wanted), stranger]),
    )
    expect(only(harness.command()), State.WARNING, "stranger:main")


def test_autoload(monkeypatch):
    monkeypatch.delenv("MEDTASKS_AUTOLOAD", raising=False)
    assert list(harness.autoload()) == []
    monkeypatch.setenv("MEDTASKS_AUTOLOAD", "0")
    found = only(harness.autoload())
    assert (found.state, found.fix) == (State.WARNING, "unset MEDTASKS_AUTOLOAD")


@pytest.mark.parametrize(
    ("index", "state", "word"),
    [
        ({"error": "", "missing": []}, State.OK, "all 96"),
        ({"error": "", "missing": ["a", "b", "c", "d"]}, State.PROBLEM, "4 of 96 names of ours"),
        ({"error": "ImportError: no evaluate", "missing": []}, State.PROBLEM, "no evaluate"),
    ],
)
def test_started(index, state, word):
    expect(only(harness.started(Told({"index": index}), 96)), state, word)


def test_start_that_was_killed():
    with pytest.raises(MedTasksError, match="signal SIGKILL"):
        list(harness.started(Told({}, {"begun": "index"}, "signal SIGKILL"), 1))


def test_range_comes_from_the_metadata(monkeypatch):
    monkeypatch.setattr(packages.importlib.metadata, "requires", lambda name: ["lmms-eval<3,>=2"])
    assert str(packages.harness_requirement().specifier) == "<3,>=2"
