"""Versions, hardware and data of a run, found out without heavy imports."""

import importlib.metadata
import os
import shutil
import subprocess
import sys

import pytest

import medtasks
from medtasks.audit import facts as run_facts
from medtasks.audit.facts import commit, data_fingerprints, gpus, hardware, versions
from medtasks.data.manifest import Manifest
from medtasks.harness.manifest import Gpu


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Put a program of a given name and text first on the path."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return write


def test_versions():
    found = versions()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["lmms_eval"] == importlib.metadata.version("lmms_eval")
    assert found["torch"] == importlib.metadata.version("torch")
    wanted = "medtasks transformers datasets tokenizers accelerate numpy pillow sacrebleu nltk"
    assert set(wanted.split()) <= set(found)


def test_what_is_not_installed_is_none(monkeypatch):
    monkeypatch.setattr(run_facts, "DISTRIBUTIONS", ("no-such-distribution", "numpy"))
    assert versions()["no-such-distribution"] is None
    assert versions()["numpy"] is not None


def test_nothing_heavy_is_imported():
    code = (
        "import sys, medtasks.cli.main; from medtasks.audit import facts as f; f.versions(); f.hardware(); f.commit();"
        "print([name for name in ('torch', 'transformers', 'datasets', 'lmms_eval') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_hardware():
    found = hardware()
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory is None or found.memory > 2**20
    assert found.system.startswith(os.uname().sysname)
    assert os.uname().nodename not in found.model_dump_json() or len(os.uname().nodename) < 4


def test_visible_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert hardware().visible_gpus == "1,2"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert hardware().visible_gpus is None


def test_gpus(command):
    command("nvidia-smi", "echo 'NVIDIA A, B, 81559, 550.54'; echo 'NVIDIA C, [N/A], 550.54'")
    assert gpus() == (
        Gpu(name="NVIDIA A, B", memory=81559, driver="550.54"),
        Gpu(name="NVIDIA C", memory=None, driver="550.54"),
    )


@pytest.mark.parametrize("text", ["exit 9", "echo 'NVIDIA-SMI has failed'", "sleep 60"])
def test_no_gpus(command, monkeypatch, text):
    monkeypatch.setattr(run_facts, "_SECONDS", 0.2 if "sleep" in text else 10)
    command("nvidia-smi", text)
    assert gpus() == ()


def test_no_nvidia_smi(monkeypatch, tmp_path):
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


def test_data_fingerprints(sample, tmp_path, monkeypatch):
    expected = Manifest.read(sample / "datasets" / "mediconfusion").fingerprint
    assert data_fingerprints(["mediconfusion", "nothing"]) == {"mediconfusion": expected}
    (tmp_path / "datasets" / "mediconfusion").mkdir(parents=True)
    (tmp_path / "datasets" / "mediconfusion" / "manifest.json").write_text("{")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    assert data_fingerprints(["mediconfusion"]) == {}
