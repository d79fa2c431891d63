"""Surroundings that are not as they should be: fake packages, fake harness folders, one finding picked out."""

import os
import subprocess
import sys

import pytest

from medtasks.audit.doctor import child_process
from medtasks.audit.doctor.findings import State
from medtasks.audit.doctor.scope import Scope, scope_of

EVERYTHING = Scope((), ())


def only(findings, name=None):
    """The one finding there is, or the one with a name."""
    (found,) = [one for one in findings if name in (None, one.name)]
    assert (found.state is State.OK) == (found.fix == ""), found
    assert found.found, found
    assert "\n" not in found.found + found.fix, found
    return found


def expect(found, state, *words, called=None, fix=()):
    """That a finding is in this state, is about what it should be, and has these words in it and in its fix."""
    assert (found.state, found.name) == (state, called or found.name), found
    assert [word for word in words if word not in found.found] == [], found
    assert [word for word in ([fix] if isinstance(fix, str) else fix) if word not in found.fix] == [], found
    return found


@pytest.fixture
def everything():
    """No task chosen, and no task of ours looked at."""
    return EVERYTHING


@pytest.fixture
def scope():
    """What some tasks need."""
    return lambda *names: scope_of(names)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put a module, and the metadata of a distribution, in front of what is installed, for child processes."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))

    def write(name, source, *, entry=None, version="1.0"):
        (folder / f"{name}.py").write_text(source)
        if entry:
            info = folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            (info / "entry_points.txt").write_text(f"[lmms_eval.models]\n{entry} = {name}:manifests\n")

    return write


@pytest.fixture
def told(monkeypatch):
    """What a real child process tells of a subject."""

    def run(subject, *names):
        with child_process.Child(subject, names) as child:
            return child.told()

    return run


@pytest.fixture
def other_python(tmp_path):
    """A link to this Python in a folder of its own, as another virtual environment has it."""
    folder = tmp_path / "other" / "bin"
    folder.mkdir(parents=True)
    os.symlink(sys.executable, folder / "python3")
    assert subprocess.run([folder / "python3", "-c", ""], check=False).returncode == 0
    return folder / "python3"
