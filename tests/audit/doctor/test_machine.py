"""Version of the harness, disk, memory, and torch with what is built against it: fake modules in place of real ones."""

import errno
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from types import SimpleNamespace

import pytest

from medtasks.audit.doctor import machine
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.machine import disks, harness_version, memory, torch_stack

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


@each_row("gb, state", [(4.9, State.WARNING), (5.0, State.OK)])
def test_disks(free, gb, state):
    free(gb)
    found = list(disks())
    assert [(one.name, one.state) for one in found] == [(name, state) for name in NAMES]
    assert f"{gb} GB are free" in found[0].found
    assert state is State.OK or all(word in str(found) for word in ("MEDTASKS_HOME", "HF_HOME", "TMPDIR"))


def test_data_folder_that_is_not_there_or_a_file(free, tmp_path, monkeypatch):
    free(50)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "not" / "yet"))
    assert only(disks(), "data folder").state is State.OK
    assert os.listdir(tmp_path) == []  # it is not made
    (tmp_path / "not").write_text("")
    assert only(disks(), "data folder").state is State.PROBLEM


def test_data_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    real = tempfile.TemporaryFile

    def refuse(*arguments, dir=None, **rest):
        if str(dir) == str(tmp_path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*arguments, dir=dir, **rest)

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    expect(only(disks(), "data folder"), State.PROBLEM, os.strerror(errno.EROFS), fix="MEDTASKS_HOME")


@each_row(
    "available, limit, state, words",
    [
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

    def look(vision="__version__ = '0.24.0+cu130'", uses=True, driver=False, torch=TORCH, visible=None, **fields):
        if driver:
            (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
            (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        usual = {"version": "2.9.0+cu130", "cuda": "'13.0'", "gpus": 0, "free": 70, "before": "pass"}
        torch = torch.format(**{**usual, **fields})
        modules = {"torch": torch, "torchvision": vision, "transformers": TRANSFORMERS.format(uses=uses)}
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
    expect(only(found, "torch"), State.PROBLEM, "libcudart")
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


@each_row(
    "installed, state",
    [
        ("0.7.3", State.OK),
        ("0.7.9.dev1", State.OK),
        ("0.7.2", State.PROBLEM),
        ("0.8.0", State.PROBLEM),
        (None, State.WARNING),
    ],
)
def test_version_of_the_harness(monkeypatch, installed, state):
    monkeypatch.setattr(machine, "installed_version", lambda name: installed)
    fix = "" if state is State.OK else "pip install 'lmms_"
    found = expect(only(harness_version()), state, installed or "", fix=fix)
    assert "<0.8,>=0.7.3" in found.found + found.fix


def test_no_harness_and_no_metadata(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    monkeypatch.setattr(machine, "harness_folder", lambda: None)
    found = expect(only(harness_version()), State.PROBLEM, "lmms-eval is not installed")
    assert found.fix == "pip install 'lmms_eval'"
