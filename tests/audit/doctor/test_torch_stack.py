"""Torch, what is built against it, and GPUs, with fake packages in real child processes."""

import pytest

from medtasks.audit.doctor import torch_stack as checks
from medtasks.audit.doctor.child_process import Told
from medtasks.audit.doctor.findings import State
from medtasks.audit.doctor.torch_stack import torch_stack

from .conftest import only

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


@pytest.fixture
def stack(package, told, monkeypatch, tmp_path):
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
    ):
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(checks, "_DRIVER", tmp_path if driver else tmp_path / "none")
        fields = {"version": version, "cuda": cuda, "gpus": gpus, "free": free, "before": before}
        package("torch", TORCH.format(**fields) if torch is None else torch)
        package("torchvision", vision)
        package("transformers", TRANSFORMERS.format(uses=uses))
        return list(torch_stack(told("torch")))

    return look


def test_gpus(stack):
    found = stack(gpus=2)
    assert [one.state for one in found] == [State.OK] * 5
    assert only(found, "GPU 1").found == "NVIDIA Imagined, 70.0 of 80.0 GB free"
    assert only(found, "torch").found == "torch 2.9.0+cu130 can be imported"


def test_occupied_gpu(stack):
    found = only(stack(gpus=1, free=1), "GPU 0")
    assert (found.state, "1.0 of 80.0" in found.found, "nvidia-smi" in found.fix) == (State.WARNING, True, True)


def test_torchvision_of_another_build_breaks_its_import(stack):
    found = only(
        stack(version="2.9.0+cpu", vision="raise RuntimeError('operator torchvision::nms does not exist')"),
        "torchvision",
    )
    assert found.state is State.PROBLEM
    assert "torchvision::nms" in found.found
    assert "from one index" in found.fix


def test_builds_that_differ(stack):
    found = only(stack(version="2.9.0+cpu", cuda="None"), "builds")
    assert found.state is State.WARNING
    assert "torch 2.9.0+cpu and torchvision 0.24.0+cu130" in found.found


def test_builds_that_do_not_say(stack):
    assert "builds" not in {one.name for one in stack(version="2.9.0")}


def test_torch_that_cannot_be_imported(stack):
    found = stack(torch="raise OSError('libcudart.so.13: cannot open shared object file')")
    assert only(found, "torch").state is State.PROBLEM
    assert "libcudart" in only(found, "torch").found
    assert not any(one.name.startswith("GPU") for one in found)


def test_torch_that_kills_the_process(stack):
    found = only(stack(torch="import os, signal\nos.kill(os.getpid(), signal.SIGILL)"))
    assert (found.name, found.state, "SIGILL" in found.found) == ("torch", State.PROBLEM, True)


def test_transformers_that_does_without_torch(stack):
    found = only(stack(uses=False), "transformers")
    assert (found.state, "does not accept" in found.found) == (State.PROBLEM, True)


def test_driver_too_old(stack):
    words = "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
    found = only(stack(before=f"warnings.warn({words!r})", driver=True), "GPU")
    assert found.state is State.WARNING
    assert words.rstrip(".") in found.found
    assert "update the driver" in found.fix


def test_gpu_that_fails(stack):
    found = only(stack(before="raise RuntimeError('CUDA error: unknown error')"), "GPU")
    assert (found.state, "unknown error" in found.found) == (State.WARNING, True)


@pytest.mark.parametrize(
    ("fields", "visible", "state", "words"),
    [
        ({"driver": False}, None, State.NOTE, "finds no GPU"),
        ({"driver": True, "cuda": "None", "version": "2.9.0"}, None, State.WARNING, "built for the CPU"),
        ({"driver": True}, "", State.WARNING, "CUDA_VISIBLE_DEVICES is ''"),
        ({"driver": True}, None, State.WARNING, "built for CUDA 13.0"),
    ],
)
def test_no_gpu(stack, monkeypatch, fields, visible, state, words):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = only(stack(**fields), "GPU")
    assert (found.state, words in found.found) == (state, True), found


@pytest.mark.parametrize(("name", "states"), [("torch", [State.PROBLEM]), ("torchvision", [])])
def test_module_that_is_not_installed(name, states):
    steps = {module: {"installed": True, "error": "x"} for module in ("torch", "torchvision", "transformers")}
    found = torch_stack(
        Told({**steps, name: {"installed": False, "error": ""}, "devices": {"warnings": [], "error": "x"}})
    )
    assert [one.state for one in found if one.name == name] == states
