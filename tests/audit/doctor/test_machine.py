"""Disk, memory, and torch with what is built against it and GPUs: fake modules in place of real ones."""

import errno
import importlib.util
import os
import sys
import tempfile
from types import SimpleNamespace

import pytest

from medtasks.audit.doctor import machine
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.machine import disks, memory, torch_stack

from ...tables import each_row
from .conftest import expect, only

NAMES = ["data folder", "Hub cache", "temporary folder"]
TORCH = """
import types, warnings
__version__ = "{version}"
version = types.SimpleNamespace(cuda={cuda})
def _available():
    {before}
    return {gpus} > 0
cuda = types.SimpleNamespace(
    is_available=_available,
    device_count=lambda: {gpus},
    mem_get_info=lambda index: ({free} * 10**9, 80 * 10**9),
    get_device_name=lambda index: "NVIDIA Imagined",
)
"""

TRANSFORMERS = """
import types
__version__ = "5.0"
utils = types.SimpleNamespace(is_torch_available=lambda: {uses})
"""

TOO_OLD = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
NMS = "raise RuntimeError('operator torchvision::nms does not exist')"


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


@each_row("gb, state", [(4.9, State.WARNING), (5.0, State.OK)])
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


@each_row("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_data_folder_that_cannot_be_written_to(tmp_path, monkeypatch, number):
    real = tempfile.TemporaryFile

    def refuse(*arguments, dir=None, **rest):
        if str(dir) == str(tmp_path):
            raise OSError(number, os.strerror(number))
        return real(*arguments, dir=dir, **rest)

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    expect(only(disks(), "data folder"), State.PROBLEM, os.strerror(number), fix="MEDTASKS_HOME")


@each_row(
    "available, limit, state, words",
    [
        (32, None, State.OK, "32.0 GB"),
        (3.9, None, State.WARNING, "3.9 GB"),
        (64, 2, State.WARNING, "2.0 GB"),
        (8, 64, State.OK, "8.0 GB"),
    ],
)
def test_memory(tmp_path, monkeypatch, available, limit, state, words):
    (tmp_path / "limit").write_text("max" if limit is None else str(int(limit * 1e9)))
    monkeypatch.setattr(machine, "_CONTAINER_LIMITS", (tmp_path / "limit", tmp_path / "none"))
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=int(available * 1e9)))
    expect(only(memory()), state, words)


@pytest.fixture
def stack(monkeypatch, tmp_path):
    """Findings on a fake stack, on a machine with or without an NVIDIA driver."""

    def look(
        version="2.9.0+cu130",
        vision="__version__ = '0.24.0+cu130'",
        cuda="'13.0'",
        gpus=0,
        free=70,
        before="pass",
        uses=True,
        driver=False,
        torch=None,
        visible=None,
    ):
        if driver:
            (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
            (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        fields = {"version": version, "cuda": cuda, "gpus": gpus, "free": free, "before": before}
        modules = {
            "torch": TORCH.format(**fields) if torch is None else torch,
            "torchvision": vision,
            "transformers": TRANSFORMERS.format(uses=uses),
        }
        monkeypatch.syspath_prepend(tmp_path)
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(source)
            monkeypatch.setitem(sys.modules, name, None)  # restored at the end
            del sys.modules[name]
        return list(torch_stack())

    return look


def test_gpus(stack):
    found = stack(gpus=2)
    assert [one.state for one in found] == [State.OK] * 5
    assert only(found, "GPU 1").found == "NVIDIA Imagined, 70.0 of 80.0 GB free"
    assert only(found, "torch").found == "torch 2.9.0+cu130 can be imported"


def test_torch_that_cannot_be_imported(stack):
    found = stack(torch="raise OSError('libcudart.so.13: cannot open shared object file')")
    assert only(found, "torch").state is State.PROBLEM
    assert "libcudart" in only(found, "torch").found
    assert not any(one.name.startswith("GPU") for one in found)


@pytest.mark.parametrize(
    ("fields", "name", "state", "words", "fix"),
    [
        ({"gpus": 1, "free": 1}, "GPU 0", State.WARNING, "1.0 of 80.0", "nvidia-smi"),
        ({"version": "2.9.0+cpu", "vision": NMS}, "torchvision", State.PROBLEM, "torchvision::nms", "from one index"),
        ({"uses": False}, "transformers", State.PROBLEM, "does not accept", ""),
        (
            *({"before": f"warnings.warn({TOO_OLD!r})", "driver": True}, "GPU", State.WARNING),
            *(TOO_OLD.rstrip("."), "update the driver"),
        ),
        ({"before": "raise RuntimeError('CUDA error: unknown error')"}, "GPU", State.WARNING, "unknown error", ""),
        ({"driver": False}, "GPU", State.NOTE, "finds no GPU", ""),
        ({"driver": True, "cuda": "None", "version": "2.9.0"}, "GPU", State.WARNING, "built for the CPU", ""),
        ({"driver": True, "visible": ""}, "GPU", State.WARNING, "CUDA_VISIBLE_DEVICES is ''", ""),
        ({"driver": True}, "GPU", State.WARNING, "built for CUDA 13.0", ""),
    ],
)
def test_what_is_wrong_with_the_stack(stack, fields, name, state, words, fix):
    expect(only(stack(**fields), name), state, words, called=name or "torch", fix=fix)


@each_row("name, states", [("torch", [State.PROBLEM]), ("torchvision", [])])
def test_module_that_is_not_installed(stack, monkeypatch, name, states):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == name else real(wanted))
    assert [one.state for one in stack() if one.name == name] == states
