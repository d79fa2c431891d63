"""Disk and memory."""

import errno
import os
import tempfile
from types import SimpleNamespace

import pytest

from medtasks.audit.doctor import machine
from medtasks.audit.doctor.findings import State
from medtasks.audit.doctor.machine import disks, memory

from .conftest import only

NAMES = ["data folder", "Hub cache", "temporary folder"]


@pytest.fixture
def free(monkeypatch):
    """So many GB are free on every disk."""
    return lambda gb: monkeypatch.setattr(
        machine.shutil, "disk_usage", lambda path: SimpleNamespace(free=int(gb * 1e9))
    )


def test_disks(free):
    free(50)
    found = list(disks())
    assert [one.name for one in found] == NAMES
    assert {one.state for one in found} == {State.OK}
    assert "50.0 GB are free" in found[0].found


@pytest.mark.parametrize(("gb", "state"), [(4.9, State.WARNING), (5.0, State.OK)])
def test_little_room(free, gb, state):
    free(gb)
    found = list(disks())
    assert [one.state for one in found] == [state] * 3
    assert (
        state is State.OK or [word for word in ("MEDTASKS_HOME", "HF_HOME", "TMPDIR") if word not in str(found)] == []
    )


def test_data_folder_that_is_not_there_is_not_made(free, tmp_path, monkeypatch):
    free(50)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "not" / "yet"))
    assert only(disks(), "data folder").state is State.OK
    assert os.listdir(tmp_path) == []


def test_data_folder_that_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file"))
    assert only(disks(), "data folder").state is State.PROBLEM


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_data_folder_that_cannot_be_written_to(tmp_path, monkeypatch, number):
    real = tempfile.TemporaryFile

    def refuse(*arguments, dir=None, **rest):
        if str(dir) == str(tmp_path):
            raise OSError(number, os.strerror(number))
        return real(*arguments, dir=dir, **rest)

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    found = only(disks(), "data folder")
    assert found.state is State.PROBLEM
    assert os.strerror(number) in found.found
    assert "MEDTASKS_HOME" in found.fix


def test_no_temporary_folder(monkeypatch):
    def none():
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert only(disks(), "temporary folder").state is State.PROBLEM


@pytest.fixture
def meminfo(tmp_path, monkeypatch):
    """The kernel and the container say this of memory, in GB."""

    def say(available, limit=None):
        (tmp_path / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {int(available * 1e9 / 1024)} kB\n")
        (tmp_path / "limit").write_text("max" if limit is None else str(int(limit * 1e9)))
        monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
        monkeypatch.setattr(machine, "_CONTAINER_LIMITS", (tmp_path / "limit", tmp_path / "none"))

    return say


@pytest.mark.parametrize(
    ("available", "limit", "state", "words"),
    [
        (32, None, State.OK, "32.0 GB"),
        (3.9, None, State.WARNING, "3.9 GB"),
        (64, 2, State.WARNING, "2.0 GB"),
        (8, 64, State.OK, "8.0 GB"),
    ],
)
def test_memory(meminfo, available, limit, state, words):
    meminfo(available, limit)
    found = only(memory())
    assert (found.state, words in found.found) == (state, True)


def test_memory_that_nobody_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "none")
    assert only(memory()).state is State.NOTE
