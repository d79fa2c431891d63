"""Which weights a run used."""

import dataclasses
import hashlib
import os

import pytest

from medtasks.audit import facts as run_facts
from medtasks.audit.facts import DEFAULTS, files_sha256, model_facts, snapshot_commit
from medtasks.harness.harness_options import HarnessOptions

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A cache of the Hub with one snapshot of ``org/name``."""
    from huggingface_hub import constants

    folder = tmp_path / "hub" / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for commit in (COMMIT, OTHER):
        (folder / "snapshots" / commit).mkdir(parents=True)
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
    (run_facts.home() / "weights_digests.json").write_text("[")
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
