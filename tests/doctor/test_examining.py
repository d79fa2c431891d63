"""All checks together, and those of the machine: harness, disk, memory, and torch with fake modules."""

import errno
import importlib.metadata
import importlib.util
import os
import sys
import tempfile
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.doctor import examining, tasks_and_data
from medtasks.doctor.check_results import AREAS, MODEL, TORCH, State, findings_of, scope_of
from medtasks.doctor.examining import disks, examine, harness_version, importable_model, memory, torch_stack
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_files import task_files

from ..tables import each_row
from .findings import expect, only, states

KEY = "sk-canary-0123456789"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Torch, which takes long, is not imported; its finding quotes a secret."""
    loud = TORCH.problem("torch", f"ValueError: sent {KEY}-hf_token with api_key={KEY}", "install another")
    monkeypatch.setattr(examining, "torch_stack", lambda: [loud])


def areas(findings):
    return list(dict.fromkeys(finding.area for finding in findings))


def test_areas_in_order_without_secrets(monkeypatch):
    for name in ("MEDTASKS_JUDGE_API_KEY", "HF_TOKEN", "MY_SERVICE_TOKEN"):
        monkeypatch.setenv(name, f"{KEY}-{name.lower()}")
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    findings = examine(model_args="base_url=http://127.0.0.1:9/v1")
    assert areas(findings) == list(AREAS)
    assert [finding for finding in findings if (finding.state is State.OK) != (finding.fix == "")] == []
    assert [finding.name for finding in findings if finding.area == MODEL] == ["address", "server"]
    assert "ValueError: sent ***" in str(findings)
    assert KEY not in str(findings)
    findings = examine(["mediconfusion"])
    assert {"judge", "weights", MODEL} & {*areas(findings)} == set()
    assert [finding.name for finding in findings if finding.area == "datasets"] == ["mediconfusion"]


def test_failing_checks_cost_nothing_else(monkeypatch):
    fail = Mock(side_effect=RuntimeError("canary of a record"))
    usual = examine()
    monkeypatch.setattr(examining.shutil, "disk_usage", fail)
    monkeypatch.setattr(tasks_and_data, "prepared_data", fail)
    monkeypatch.setattr(examining, "harness_version", fail)
    findings = examine()
    failing = {finding.name for finding in findings if "could not be checked" in finding.found}
    assert {"disk", "prepared", "version"} <= failing
    assert "canary" not in str(findings)
    others = [item for item in usual if item.area not in ("machine", "datasets") and item.name != "version"]
    assert [finding for finding in others if finding not in findings] == []
    with pytest.raises(KeyboardInterrupt):
        findings_of("tasks", "second", Mock(side_effect=KeyboardInterrupt))


def test_a_model_of_the_harness_is_imported(monkeypatch):
    def found(name):
        (result,) = importable_model(name)
        return result.state, result.found, result.fix

    assert found("medtasks_tiny")[0] is State.OK
    assert found("medtasks_tiney")[:2] == (
        State.PROBLEM,
        "there is no model 'medtasks_tiney'; did you mean 'medtasks_tiny'?",
    )
    monkeypatch.setitem(sys.modules, "decord", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "lmms_eval.models.chat.qwen2_5_vl", raising=False)
    monkeypatch.delitem(sys.modules, "lmms_eval.models.simple.qwen2_5_vl", raising=False)
    state, sentence, fix = found("qwen2_5_vl")
    assert (state, fix) == (State.PROBLEM, "pip install decord")
    assert sentence == "the model 'qwen2_5_vl' needs the package 'decord', which is not installed"


def test_scope_of_names_and_a_malformed_own_file():
    everything = scope_of([])
    assert (everything.chosen, everything.datasets) == (False, tuple(CATALOGUE))
    tasks = {task.name for task in task_files().values() if task.kind == "task"}
    assert {task.name for task in everything.tasks} == tasks
    for names, datasets, foreign in (
        (["mediconfusion_all"], ["mediconfusion"], ()),
        (["mediconfusion_gd_blind"], ["mediconfusion"], ()),
        (["multimedeval_nli", "mme", "mediconfusion", "x"], ["multimedeval_mednli", "mediconfusion"], ("mme", "x")),
    ):
        scope = scope_of(names)
        assert (scope.chosen, list(scope.datasets), scope.foreign) == (True, datasets, foreign)
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: [")
    findings = examine()
    assert "mine.yaml" in next(finding.found for finding in findings if finding.name == "task files")
    assert set(areas(findings)) == set(AREAS) - {MODEL}


FOLDERS = ["data folder", "Hub cache", "temporary folder"]
FAKE_TORCH = """
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


def test_disks(tmp_path, monkeypatch):
    for gb, state in ((4.9, State.WARNING), (5.0, State.OK)):
        monkeypatch.setattr(examining.shutil, "disk_usage", lambda _, free=int(gb * 1e9): SimpleNamespace(free=free))
        findings = list(disks())
        assert states(findings) == dict.fromkeys(FOLDERS, state)
        assert f"{gb} GB are free" in findings[0].found
        assert state is State.OK or all(name in str(findings) for name in ("MEDTASKS_HOME", "HF_HOME", "TMPDIR"))
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "not" / "yet"))
    assert only(disks(), "data folder").state is State.OK
    assert os.listdir(tmp_path) == []  # it is not made
    (tmp_path / "not").write_text("")
    assert only(disks(), "data folder").state is State.PROBLEM
    real = tempfile.TemporaryFile

    def refuse(*arguments, dir=None, **rest):
        if str(dir) == str(tmp_path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(*arguments, dir=dir, **rest)

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    expect(only(disks(), "data folder"), State.PROBLEM, os.strerror(errno.EROFS), fix="MEDTASKS_HOME")


@each_row("available, limit, state", [(3.9, "max", State.WARNING), (64, 2 * 10**9, State.WARNING), (8, 64e9, State.OK)])
def test_memory(tmp_path, monkeypatch, available, limit, state):
    (tmp_path / "limit").write_text(limit if limit == "max" else str(int(limit)))
    monkeypatch.setattr(examining, "_CONTAINER_LIMITS", (tmp_path / "limit", tmp_path / "none"))
    monkeypatch.setattr(examining.psutil, "virtual_memory", lambda: SimpleNamespace(available=int(available * 1e9)))
    expect(only(memory()), state, "2.0 GB" if available == 64 else f"{available:.1f} GB")


@pytest.fixture
def stack(monkeypatch, tmp_path):
    def look(vision="__version__ = '0.24.0+cu130'", uses=True, driver=False, torch=FAKE_TORCH, visible=None, **fields):
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


@pytest.mark.parametrize(
    ("fields", "name", "state", "words", "fix"),
    [
        ({"gpus": 1, "free": 1}, "GPU 0", State.WARNING, "1.0 of 80.0", "nvidia-smi"),
        ({"torch": "raise OSError('libcudart.so.13: not there')"}, "torch", State.PROBLEM, "libcudart", "one index"),
        ({"version": "2.9.0+cpu", "vision": NMS}, "torchvision", State.PROBLEM, "torchvision::nms", "from one index"),
        ({"uses": False}, "transformers", State.PROBLEM, "does not accept", ""),
        ({"before": f"warnings.warn({TOO_OLD!r})"}, "GPU", State.WARNING, TOO_OLD[:-1], "update the driver"),
        ({"before": "raise RuntimeError('CUDA error: unknown error')"}, "GPU", State.WARNING, "unknown error", ""),
        ({"driver": False}, "GPU", State.NOTE, "finds no GPU", ""),
        ({"driver": True, "cuda": "None", "version": "2.9.0"}, "GPU", State.WARNING, "built for the CPU", ""),
        ({"driver": True, "visible": ""}, "GPU", State.WARNING, "CUDA_VISIBLE_DEVICES is ''", ""),
        ({"driver": True}, "GPU", State.WARNING, "built for CUDA 13.0", ""),
    ],
)
def test_what_is_wrong_with_the_stack(stack, fields, name, state, words, fix):
    findings = stack(**fields)
    expect(only(findings, name), state, words, fix=fix)
    assert name != "torch" or not any(finding.name.startswith("GPU") for finding in findings)


def test_version_of_the_harness(monkeypatch):
    ok, problem = (State.OK, ""), (State.PROBLEM, "pip install 'lmms_")
    for installed, (state, fix) in (("0.7.3", ok), ("0.7.9.dev1", ok), ("0.7.2", problem), ("0.8.0", problem)):
        monkeypatch.setattr(examining, "installed_version", lambda name, installed=installed: installed)
        finding = expect(only(harness_version()), state, installed, fix=fix)
        assert "<0.8,>=0.7.3" in finding.found + finding.fix
    monkeypatch.setattr(examining, "installed_version", lambda name: None)
    expect(only(harness_version()), State.WARNING, "is not installed as a package", fix="pip install 'lmms_")
    monkeypatch.setattr(importlib.metadata, "requires", Mock(side_effect=importlib.metadata.PackageNotFoundError))
    monkeypatch.setattr(examining, "harness_folder", lambda: None)
    finding = expect(only(harness_version()), State.PROBLEM, "lmms-eval is not installed")
    assert finding.fix == "pip install 'lmms_eval'"
