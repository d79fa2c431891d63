"""Versions, hardware, data and weights of a run, found out without heavy imports."""

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
    data_fingerprints,
    files_sha256,
    gpus,
    hardware,
    model_facts,
    snapshot_commit,
    versions,
)
from medtasks.data.dataset_manifest import Manifest
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.run_manifest import Gpu

from ..tables import each_row

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
        "import sys, medtasks.cli.main; from medtasks.audit import recording as f; f.versions(); f.hardware(); "
        "f.commit();"
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


@each_row("text", ["exit 9", "echo 'NVIDIA-SMI has failed'", "sleep 60"])
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


def test_a_file_has_the_digest_of_its_bytes(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"weights")
    assert files_sha256(tmp_path / "w.bin") == hashlib.sha256(b"weights").hexdigest()


def test_a_folder_has_the_digest_of_names_and_contents(tmp_path):
    first = folder_with(tmp_path / "a", x="1", y="2")
    assert files_sha256(first) == files_sha256(folder_with(tmp_path / "b", y="2", x="1"))
    digests = {
        files_sha256(first),
        files_sha256(folder_with(tmp_path / "c", x="2", y="1")),
        files_sha256(folder_with(tmp_path / "d", x="1", z="2")),
        files_sha256(folder_with(tmp_path / "e", x="1")),
        files_sha256(folder_with(tmp_path / "f")),
    }
    assert len(digests) == 5
    lines = "".join(f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in (("x", b"1"), ("y", b"2")))
    assert files_sha256(first) == hashlib.sha256(lines.encode()).hexdigest()


def test_files_below_count_and_hidden_ones_do_not(tmp_path):
    folder = folder_with(tmp_path / "a", x="1")
    before = files_sha256(folder)
    folder_with(folder / ".git", index="1")
    (folder / ".lock").write_text("")
    assert files_sha256(folder) == before
    folder_with(folder / "below", x="1")
    assert files_sha256(folder) != before


def test_files_are_read_once_until_they_change(tmp_path, reads):
    folder = folder_with(tmp_path / "a", x="1", y="2")
    first = files_sha256(folder)
    assert files_sha256(folder) == first
    assert sorted(reads) == ["x", "y"]
    (folder / "y").write_text("3")
    os.utime(folder / "y", ns=(1, 1))
    assert files_sha256(folder) != first
    assert sorted(reads) == ["x", "y", "y"]


def test_a_damaged_store_is_written_anew(tmp_path, reads):
    folder = folder_with(tmp_path / "a", x="1")
    first = files_sha256(folder)
    (run_facts.home() / "weights_digests.sqlite").write_text("[")
    assert files_sha256(folder) == first
    assert files_sha256(folder) == first
    assert reads == ["x", "x"]


def test_a_store_that_cannot_be_written_is_no_trouble(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file"))
    folder = folder_with(tmp_path / "a", x="1")
    assert files_sha256(folder) == files_sha256(folder)


@pytest.mark.parametrize("key", ["pretrained", "model"])
def test_local_weights(tmp_path, key):
    folder = folder_with(tmp_path / "my model", x="1")
    found = facts("hf_vlm", f"{key}={folder},dtype=float32")
    assert found.fingerprint == f"sha256:{files_sha256(folder)}"
    assert (found.name, found.weights, found.unknown) == ("hf_vlm", "my model", "")
    assert found.arguments == f"{key}={folder},dtype=float32"


def test_other_arguments_are_no_weights(tmp_path, monkeypatch):
    folder_with(tmp_path / "auto", x="1")
    monkeypatch.chdir(tmp_path)
    found = facts("hf_vlm", f"device_map=auto,journal={tmp_path}")
    assert found.fingerprint is None
    assert "name no weights" in found.unknown


def test_a_snapshot_from_the_hub(hub):
    found = facts("qwen2_5_vl", "pretrained=org/name")
    assert (found.weights, found.fingerprint, found.unknown) == ("org/name", f"commit:{COMMIT}", "")
    assert facts("x", f"pretrained=org/name,revision={OTHER}").fingerprint == f"commit:{OTHER}"


def test_snapshots_that_are_not_there(hub):
    assert snapshot_commit("org/name", "a" * 40) is None
    assert snapshot_commit("org/name", "branch") is None
    assert snapshot_commit("org/other") is None
    assert snapshot_commit("org/\0") is None
    (hub / "refs" / "main").write_text("b" * 40)
    assert snapshot_commit("org/name") is None


def test_several_weights(tmp_path, hub):
    folder = folder_with(tmp_path / "adapter", x="1")
    found = facts("hf", f"pretrained=org/name,peft={folder}")
    assert found.fingerprint == f"pretrained=commit:{COMMIT}, peft=sha256:{files_sha256(folder)}"
    assert found.weights == "org/name, adapter"


def test_one_unknown_part_makes_the_whole_unknown(tmp_path):
    found = facts("hf", f"pretrained=org/name,peft={folder_with(tmp_path / 'adapter', x='1')}")
    assert found.fingerprint is None
    assert "pretrained=org/name: it is no path on this machine" in found.unknown


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(run_facts, "file_sha256", refuse)
    found = facts("hf", f"pretrained={folder_with(tmp_path / 'clinic', x='1')}")
    assert found.fingerprint is None
    assert found.unknown == "pretrained=clinic: a file in it cannot be read (Permission denied)"


def test_a_model_behind_an_api():
    found = facts("openai", "model_version=gpt-4o,api_key=PLANTED")
    assert found.fingerprint is None
    assert "behind an API" in found.unknown
    assert "PLANTED" not in found.model_dump_json()


def test_a_path_that_is_gone_shows_its_last_part_only():
    found = facts("hf", "pretrained=/clinic/patients/model-7")
    assert found.weights == "model-7"
    assert "/clinic" not in found.unknown


def test_the_tiny_model_and_no_model():
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
