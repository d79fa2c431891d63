"""Surroundings that are not as they should be: fake packages, fake harness folders, one finding picked out."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from medtasks.audit.doctor.children import Told, told_by
from medtasks.audit.doctor.findings import Finding, State
from medtasks.audit.doctor.scope import Scope, scope_of

EVERYTHING = Scope((), ())


def only(findings: Iterable[Finding], name: str | None = None) -> Finding:
    """The one finding there is, or the one with a name."""
    (found,) = [one for one in findings if name in (None, one.name)]
    assert (found.state is State.OK) == (found.fix == ""), found
    assert found.found, found
    assert "\n" not in found.found + found.fix, found
    return found


def expect(
    found: Finding, state: State, *words: str, called: str | None = None, fix: str | Iterable[str] = ()
) -> Finding:
    """That a finding is in this state, is about what it should be, and has these words in it and in its fix."""
    assert (found.state, found.name) == (state, called or found.name), found
    assert [word for word in words if word not in found.found] == [], found
    assert [word for word in ([fix] if isinstance(fix, str) else fix) if word not in found.fix] == [], found
    return found


@pytest.fixture
def everything() -> Scope:
    """No task chosen, and no task of ours looked at."""
    return EVERYTHING


@pytest.fixture
def scope() -> Callable[..., Scope]:
    """What some tasks need."""
    return lambda *names: scope_of(names)


def write_package(folder: Path, name: str, source: str, *, entry: str = "") -> None:
    """Write a module, and the metadata of a distribution with this entry point of the harness's models."""
    (folder / f"{name}.py").write_text(source)
    if entry:
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[lmms_eval.models]\n{entry} = {name}:manifests\n")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a package in front of what is installed, for child processes."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return partial(write_package, folder)


@pytest.fixture
def told() -> Callable[..., Told]:
    """What a real child process tells of a subject."""
    return lambda subject, *names: told_by(subject, names)
