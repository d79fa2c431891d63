"""Versions, hardware and weights of a run, found out without heavy imports."""

import dataclasses
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys

import pytest

import medtasks
from medtasks.audit import recording as run_facts
from medtasks.audit.recording import (
    DEFAULTS,
    commit,
    files_sha256,
    gpus,
    hardware,
    model_facts,
    snapshot_commit,
    versions,
)
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.run_manifest import Gpu

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a program of a given name and text first on the path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_versions(monkeypatch):
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    wanted = {
        "medtasks",
        "lmms_eval",
        "torch",
        "transformers",
        "datasets",
        "tokenizers",
        "numpy",
        "pillow",
        "sacrebleu",
    }
    assert {name: found[name] for name in wanted} == {name: importlib.metadata.version(name) for name in wanted}
    monkeypatch.setattr(run_facts, "DISTRIBUTIONS", ("no-such-distribution",))
    assert versions()["no-such-distribution"] is None


def test_nothing_heavy_is_imported():
    code = (
        "import sys, medtasks.cli.main; from medtasks.audit import recording as f; f.versions(); f.hardware(); "
        "f.commit();"
        "print([name for name in ('torch', 'transformers', 'datasets', 'lmms_eval') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_hardware(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    found = hardware()
    assert (found.cores, found.visible_gpus) == (len(os.sched_getaffinity(0)), "1,2")
    assert found.memory > 2**20
    assert found.system.startswith(os.uname().sysname)
    assert os.uname().nodename not in found.model_dump_json() or len(os.uname().nodename) < 4


def test_gpus(command, monkeypatch, tmp_path):
    command("nvidia-smi", "echo 'NVIDIA A, B, 81559, 550.54'; echo 'NVIDIA C, [N/A], 550.54'")
    assert gpus() == (
        Gpu(name="NVIDIA A, B", memory=81559, driver="550.54"),
        Gpu(name="NVIDIA C", memory=None, driver="550.54"),
    )
    for text in ("exit 9", "echo 'NVIDIA-SMI has failed'", "sleep 60"):
        monkeypatch.setattr(run_facts, "_SECONDS", 0.2 if "sleep" in text else 10)
        command("nvidia-smi", text)
        assert gpus() == ()
    (tmp_path / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == ()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_commit(monkeypatch, tmp_path):
    def git(*arguments):
        names = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *names, "-C", tmp_path, *arguments], check=True, capture_output=True, text=True)

    monkeypatch.setattr(medtasks, "__file__", str(tmp_path / "medtasks" / "__init__.py"))
    assert commit() is None
    git("init", "-q")
    assert commit() is None
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "first")
    head = git("rev-parse", "HEAD").stdout.strip()
    (tmp_path / "untracked").write_text("1")
    assert commit() == head
    (tmp_path / "file").write_text("2")
    assert commit() == f"{head}-dirty"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the Hub with one snapshot of ``org/name``."""
    from huggingface_hub import constants

    folder = tmp_path / "hub" / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for digest in (COMMIT, OTHER):
        (folder / "snapshots" / digest).mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


@pytest.fixture
def reads(monkeypatch):
    """Names of the files whose contents were read."""
    names, read = [], run_facts.file_sha256

    def counted(path):
        names.append(path.name)
        return read(path)

    monkeypatch.setattr(run_facts, "file_sha256", counted)
    return names


def facts(model, arguments=""):
    return model_facts(HarnessOptions({"model": model, "model_args": arguments}))


def folder_with(path, **contents):
    path.mkdir(parents=True)
    for name, content in contents.items():
        (path / name).write_text(content)
    return path


def test_digests_of_files_and_folders(tmp_path):
    first = folder_with(tmp_path / "a", x="1", y="2")
    assert files_sha256(first / "x") == hashlib.sha256(b"1").hexdigest()
    lines = "".join(f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in (("x", b"1"), ("y", b"2")))
    assert files_sha256(first) == hashlib.sha256(lines.encode()).hexdigest()
    folder_with(first / ".git", index="1")  # hidden files do not count, files below do
    (first / ".lock").write_text("")
    assert files_sha256(first) == files_sha256(folder_with(tmp_path / "b", y="2", x="1"))
    folder_with(first / "below", x="1")
    assert files_sha256(first) != files_sha256(tmp_path / "b")


def test_files_are_read_once_until_they_change(tmp_path, reads, monkeypatch):
    folder = folder_with(tmp_path / "a", x="1", y="2")
    first = files_sha256(folder)
    assert files_sha256(folder) == first
    assert sorted(reads) == ["x", "y"]
    (folder / "y").write_text("3")
    os.utime(folder / "y", ns=(1, 1))
    second = files_sha256(folder)
    assert second != first
    assert sorted(reads) == ["x", "y", "y"]
    (run_facts.home() / "weights_digests.sqlite").write_text("[")  # a damaged store is written anew
    assert files_sha256(folder) == files_sha256(folder) == second
    assert len(reads) == 5
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file"))  # one that cannot be written is no trouble
    assert files_sha256(folder) == second


def test_local_weights(tmp_path, monkeypatch):
    folder = folder_with(tmp_path / "my model", x="1")
    for key in ("pretrained", "model"):
        found = facts("hf_vlm", f"{key}={folder},dtype=float32")
        assert found.fingerprint == f"sha256:{files_sha256(folder)}"
        assert (found.name, found.weights, found.unknown) == ("hf_vlm", "my model", "")
        assert found.arguments == f"{key}={folder},dtype=float32"
    folder_with(tmp_path / "auto", x="1")
    monkeypatch.chdir(tmp_path)
    found = facts("hf_vlm", f"device_map=auto,journal={tmp_path}")  # other arguments are no weights
    assert (found.fingerprint, "name no weights" in found.unknown) == (None, True)


def test_snapshots_of_the_hub(hub, tmp_path):
    found = facts("qwen2_5_vl", "pretrained=org/name")
    assert (found.weights, found.fingerprint, found.unknown) == ("org/name", f"commit:{COMMIT}", "")
    assert facts("x", f"pretrained=org/name,revision={OTHER}").fingerprint == f"commit:{OTHER}"
    folder = folder_with(tmp_path / "adapter", x="1")
    found = facts("hf", f"pretrained=org/name,peft={folder}")
    assert found.fingerprint == f"pretrained=commit:{COMMIT}, peft=sha256:{files_sha256(folder)}"
    assert found.weights == "org/name, adapter"
    for name, revision in (("org/name", "a" * 40), ("org/name", "branch"), ("org/other", "main"), ("org/\0", "main")):
        assert snapshot_commit(name, revision) is None
    (hub / "refs" / "main").write_text("b" * 40)
    found = facts("hf", f"pretrained=org/name,peft={folder}")
    assert found.fingerprint is None  # one unknown part makes the whole unknown
    assert "pretrained=org/name: it is no path on this machine" in found.unknown


def test_weights_that_are_unknown(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(run_facts, "file_sha256", refuse)
    found = facts("hf", f"pretrained={folder_with(tmp_path / 'clinic', x='1')}")
    assert found.fingerprint is None
    assert found.unknown == "pretrained=clinic: a file in it cannot be read (Permission denied)"
    found = facts("openai", "model_version=gpt-4o,api_key=PLANTED")
    assert (found.fingerprint, "behind an API" in found.unknown) == (None, True)
    assert "PLANTED" not in found.model_dump_json()
    found = facts("hf", "pretrained=/clinic/patients/model-7")
    assert (found.weights, "/clinic" in found.unknown) == ("model-7", False)
    assert "drawn from its seed" in facts("medtasks_tiny").unknown
    assert model_facts(HarnessOptions()).name == "hf"


def test_the_defaults_are_those_of_our_adapters(hub):
    from medtasks.model_adapters import llava_med, med_flamingo, radfm

    declared = {
        "llava_med": llava_med.LlavaMedArguments,
        "med_flamingo": med_flamingo.MedFlamingoArguments,
        "radfm": radfm.RadFMArguments,
    }
    assert set(declared) == set(DEFAULTS)
    for model, kind in declared.items():
        defaults = {field.name: field.default for field in dataclasses.fields(kind)}
        named = {name: value for name, value in defaults.items() if name in run_facts.WEIGHTS and value}
        assert DEFAULTS[model] == named
    assert facts("radfm").weights == "chaoyi-wu/RadFM"
    assert "chaoyi-wu" not in facts("radfm", "pretrained=org/name").weights
