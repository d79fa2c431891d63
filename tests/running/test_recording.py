"""The manifest while a run goes on, and the facts in it: versions, hardware and weights, without heavy imports."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from unittest.mock import Mock

import pytest
from huggingface_hub import constants

from medtasks.extract.failure import failed_reply
from medtasks.lmms.plugin import model_manifests
from medtasks.running import recording as run_facts
from medtasks.running.harness_run import HarnessOutcome
from medtasks.running.recording import (
    DEFAULTS,
    RunRecording,
    commit,
    files_sha256,
    first_manifest,
    hardware,
    model_facts,
    versions,
)
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.reply_origins import COPIED, KEPT
from medtasks.runs.result_files import samples_file
from medtasks.runs.run_manifest import Gpu, HarnessProcess, Notice, RunManifest, Severity
from medtasks.runs.sample_counts import FailureLimit, SampleCounts
from medtasks.tasks.documents import Selection

from ..tables import each_row

ARGUMENTS = [
    "--model",
    "openai",
    "--model_args",
    "model=gpt-4o,token=PLANTED",
    "--seed",
    "1,2,None,4",
]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def begin(tmp_path):
    def build(asked=("one", "two"), missing=(), complain=print):
        selection = Selection(tuple(asked), dict(missing))
        notices = [Notice(kind=Severity.WARN, sentence="mind the gap")]
        manifest = first_manifest(
            ["medtasks", "run", *ARGUMENTS], ARGUMENTS, asked, selection, notices
        )
        return RunRecording(
            tmp_path / "out", manifest, ARGUMENTS, FailureLimit.parse("10%"), complain
        )

    return build


def test_what_went_wrong_within_a_run_is_among_its_notices_once(begin):
    recording = begin()
    outcome = HarnessOutcome(
        notices=[Notice(kind=Severity.WARN, sentence="replies cannot be saved")]
    )
    for _ in range(2):
        recording.note(outcome)
    sentences = [notice.sentence for notice in RunManifest.read(recording.path).notices]
    assert sentences == ["mind the gap", "replies cannot be saved"]


def finished(recording, *tasks, failed=(), row=None):
    results = recording.path.parent / "m" / "1_results.json"
    process = HarnessProcess(tasks=tasks, started="", seconds=1.5, exit_code=0)
    reasons = dict.fromkeys(failed, "it broke")
    rows, files = dict.fromkeys(tasks, row or {}), dict.fromkeys(tasks, results)
    more = {"rows": rows, "reasons": reasons, "processes": [process]}
    recording.note(HarnessOutcome(list(tasks), list(failed), [results], files, **more))


def test_before_the_first_task(begin, sample_home, monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "clinic"))
    recording = begin(missing={"two": f"no data in {tmp_path / 'clinic'}/datasets/two"})
    read = RunManifest.read(recording.path)
    assert read.state == "running"
    assert read.seeds.model_dump() == {"python": 1, "numpy": 2, "torch": None, "fewshot": 4}
    assert {name: record.outcome for name, record in read.tasks.items()} == {
        "one": "not run",
        "two": "left out",
    }
    assert read.tasks["two"].reason == "no data in $MEDTASKS_HOME/datasets/two"
    assert [notice.sentence for notice in read.notices] == ["mind the gap"]
    assert "PLANTED" not in read.model_dump_json()
    assert "clinic" not in recording.path.read_text()
    assert read.versions["lmms_eval"]
    # A known dataset is named with its fingerprint unless it is damaged.
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))
    tasks = begin(asked=("mediconfusion_sanity",)).manifest.tasks
    assert {"mediconfusion", "mediconfusion_blind", "mediconfusion_rotated"} <= set(tasks)
    assert {record.dataset for record in tasks.values()} == {"mediconfusion"}
    assert {len(record.fingerprint) for record in tasks.values()} == {12}
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    (tmp_path / "datasets" / "mediconfusion").mkdir(parents=True)
    (tmp_path / "datasets" / "mediconfusion" / "manifest.json").write_text("{")
    assert begin(asked=("mediconfusion",)).manifest.tasks["mediconfusion"].fingerprint is None


def test_the_end(begin):
    recording = begin()
    with recording.until_its_end():
        finished(recording, "one")
        assert RunManifest.read(recording.path).tasks["one"].results == "m/1_results.json"
        finished(recording, "one", failed=["two"])
    read = RunManifest.read(recording.path)
    assert (read.state, read.why, read.tasks["two"].outcome) == (
        "finished_with_failures",
        "",
        "failed",
    )
    assert (read.tasks["two"].reason, read.seconds >= 0, read == recording.manifest) == (
        "it broke",
        True,
        True,
    )


@each_row(
    "failed, unjudged, state",
    [(1, 0, "finished"), (2, 0, "finished_with_failures"), (0, 2, "finished_with_failures")],
)
def test_samples_in_no_score_are_counted_and_too_many_are_a_failure(
    begin, failed, unjudged, state
):
    recording, scored = begin(asked=("one",)), 10 - failed - unjudged
    row = {
        "accuracy,reference": 0.5,
        "scored_samples,reference": scored,
        "failed_samples,reference": failed,
    }
    with recording.until_its_end():
        finished(recording, "one", row={**row, "unjudged_samples,reference": unjudged})
    read = RunManifest.read(recording.path)
    assert (read.state, read.tasks["one"].counts) == (
        state,
        SampleCounts(scored, failed, unjudged),
    )
    assert list(recording.over_limit()) == ([] if state == "finished" else ["one"])


def test_replies_that_were_not_asked_for_are_counted(begin):
    recording = begin()
    (folder := recording.path.parent / "m").mkdir()
    origins = [COPIED, KEPT, COPIED, None]
    for rule in ("reference", "robust"):  # a line for each
        with (folder / "1_samples_one.jsonl").open("a") as file:
            lines = [
                {"doc_id": row, "filter": rule, "reply_of": origin}
                for row, origin in enumerate(origins)
            ]
            file.write(
                "".join(
                    json.dumps({key: line[key] for key in line if line[key] is not None}) + "\n"
                    for line in lines
                )
            )
    finished(recording, "one", "two")
    one, two = RunManifest.read(recording.path).tasks.values()
    assert (one.copied_samples, one.kept_samples) == (2, 1)
    assert (two.samples, two.copied_samples) == (None, None)


def test_the_cause_of_the_first_failure_is_named(begin):
    recording = begin(asked=("one",))
    row = {"scored_samples,reference": 1, "failed_samples,reference": 2}
    finished(recording, "one", row=row)
    assert recording.losses_over_limit() == "one: 2 failed of 3 samples"
    samples = samples_file(
        recording.path.parent / recording.manifest.tasks["one"].results, "one"
    )
    samples.parent.mkdir()
    replies = [
        "B",
        failed_reply("ValueError at own.py:4 in shown: no mask"),
        failed_reply("another"),
    ]
    lines = (
        {"doc_id": number, "resps": [reply] if number else [[reply]]}
        for number, reply in enumerate(replies)
    )
    samples.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    finished(recording, "one", row=row)
    expected = "one: 2 failed of 3 samples, first ValueError at own.py:4 in shown: no mask"
    assert recording.losses_over_limit() == expected


@each_row(
    "error, why",
    [
        (KeyboardInterrupt(), "Ctrl-C"),
        (SystemExit(143), "SIGTERM"),
        (SystemExit(7), "it left with 7"),
        (ValueError("bad"), "ValueError: bad"),
    ],
)
def test_an_interruption_goes_on_to_the_caller(begin, error, why):
    recording = begin()
    finished(recording, "one")
    with pytest.raises(type(error)), recording.until_its_end():
        raise error
    read = RunManifest.read(recording.path)
    assert (read.state, read.why) == ("interrupted", why)
    assert [record.outcome for record in read.tasks.values()] == ["done", "not run"]


def test_a_snapshot_that_the_harness_fetched_and_a_full_disk(begin, monkeypatch, tmp_path):
    complaints = []
    recording = begin(complain=complaints.append)
    assert recording.manifest.model.fingerprint is None
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "hub" / "models--gpt-4o" / "snapshots" / ("c" * 40)).mkdir(parents=True)
    folder_with(tmp_path / "hub" / "models--gpt-4o" / "refs", main="c" * 40)
    with recording.until_its_end():
        finished(recording, "one", "two")
    assert RunManifest.read(recording.path).model.fingerprint == f"commit:{'c' * 40}"
    monkeypatch.setattr(
        RunManifest, "write", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with recording.until_its_end():
        finished(recording, "one", "two")
    assert "No space left on device" in complaints[0]
    assert recording.manifest.state == "finished"


# Facts


def test_versions_and_hardware(monkeypatch, tmp_path):
    read = versions()
    assert read["python"] == ".".join(map(str, sys.version_info[:3]))
    names = {"medtasks", "lmms_eval", "torch", "transformers", "pillow"}
    assert {name: read[name] for name in names} == {
        name: importlib.metadata.version(name) for name in names
    }
    monkeypatch.setattr(run_facts, "DISTRIBUTIONS", ("no-such-distribution",))
    assert versions()["no-such-distribution"] is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    machine = hardware()
    assert (machine.cores, machine.visible_gpus) == (len(os.sched_getaffinity(0)), "1,2")
    assert machine.memory > 2**20
    assert machine.system.startswith(os.uname().sysname)
    assert os.uname().nodename not in machine.model_dump_json() or len(os.uname().nodename) < 4
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def listed(text):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return hardware().gpus

    assert listed("echo 'NVIDIA A, B, 81559, 550.54'; echo 'NVIDIA C, [N/A], 550.54'") == (
        Gpu(name="NVIDIA A, B", memory=81559, driver="550.54"),
        Gpu(name="NVIDIA C", memory=None, driver="550.54"),
    )
    assert listed("exit 9") == listed("echo 'NVIDIA-SMI has failed'") == ()
    monkeypatch.setattr(run_facts, "_SECONDS", 0.2)
    assert listed("sleep 60") == ()
    program.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware().gpus == ()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_commit(monkeypatch, tmp_path):
    def git(*arguments):
        names = [
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@example.org",
            "-c",
            "commit.gpgsign=false",
        ]
        return subprocess.run(
            ["git", *names, "-C", tmp_path, *arguments],
            check=True,
            capture_output=True,
            text=True,
        )

    monkeypatch.setattr(
        run_facts, "__file__", str(tmp_path / "medtasks" / "running" / "recording.py")
    )
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


# Weights


def facts(model, arguments=""):
    return model_facts(HarnessOptions({"model": model, "model_args": arguments}))


def folder_with(path, **contents):
    path.mkdir(parents=True)
    for name, content in contents.items():
        (path / name).write_text(content)
    return path


def test_digests_of_files_and_folders(tmp_path, monkeypatch):
    first = folder_with(tmp_path / "a", x="1", y="2")
    assert files_sha256(first / "x") == hashlib.sha256(b"1").hexdigest()
    lines = "".join(
        f"{hashlib.sha256(text).hexdigest()}  {name}\n"
        for name, text in (("x", b"1"), ("y", b"2"))
    )
    assert files_sha256(first) == hashlib.sha256(lines.encode()).hexdigest()
    folder_with(first / ".git", index="1")  # hidden files do not count, files below do
    (first / ".lock").write_text("")
    assert files_sha256(first) == files_sha256(folder_with(tmp_path / "b", y="2", x="1"))
    folder_with(first / "below", x="1")
    assert files_sha256(first) != files_sha256(tmp_path / "b")
    # Files are read once until they change.
    reads, read = [], run_facts.file_sha256
    monkeypatch.setattr(
        run_facts, "file_sha256", lambda path: reads.append(path.name) or read(path)
    )
    folder = folder_with(tmp_path / "c", x="3", y="4")
    before = files_sha256(folder)
    assert files_sha256(folder) == before
    state = (folder / "y").stat()
    (folder / "y").write_text("5")
    os.utime(folder / "y", ns=(state.st_atime_ns, state.st_mtime_ns))  # as after touch -r
    second = files_sha256(folder)
    assert (second != before, sorted(reads)) == (True, ["x", "y", "y"])
    (run_facts.home() / "weights_digests.sqlite").write_text(
        "["
    )  # a damaged store is written anew
    assert files_sha256(folder) == files_sha256(folder) == second
    assert len(reads) == 5
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(
        "MEDTASKS_HOME", str(tmp_path / "file")
    )  # one that cannot be written is no trouble
    assert files_sha256(folder) == second


def test_snapshots_of_the_hub_local_weights_and_unknown_ones(tmp_path, monkeypatch):
    hub = folder_with(tmp_path / "hub" / "models--org--name" / "refs", main=COMMIT).parent
    for digest in (COMMIT, OTHER):
        (hub / "snapshots" / digest).mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    model = facts("qwen2_5_vl", "pretrained=org/name")
    assert (model.weights, model.fingerprint, model.unknown) == (
        "org/name",
        f"commit:{COMMIT}",
        "",
    )
    assert facts("x", f"pretrained=org/name,revision={OTHER}").fingerprint == f"commit:{OTHER}"
    folder = folder_with(tmp_path / "adapter", x="1")
    model = facts("hf", f"pretrained=org/name,peft={folder}")
    assert (
        model.fingerprint == f"pretrained=commit:{COMMIT}, peft=sha256:{files_sha256(folder)}"
    )
    assert model.weights == "org/name, adapter"
    for name, revision in (
        ("org/name", "a" * 40),
        ("org/name", "branch"),
        ("org/other", "main"),
        ("org/\0", "main"),
    ):
        assert facts("hf", f"pretrained={name},revision={revision}").fingerprint is None
    (hub / "refs" / "main").write_text("b" * 40)
    model = facts("hf", f"pretrained=org/name,peft={folder}")
    assert model.fingerprint is None  # one unknown part makes the whole unknown
    assert "pretrained=org/name: it is no path on this machine" in model.unknown
    # Weights in local folders, and unknown ones.
    folder = folder_with(tmp_path / "my model", x="1")
    for key in ("pretrained", "model"):
        model = facts("hf_vlm", f"{key}={folder},dtype=float32")
        assert (model.name, model.arguments) == ("hf_vlm", f"{key}={folder},dtype=float32")
        assert (model.weights, model.fingerprint) == (
            "my model",
            f"sha256:{files_sha256(folder)}",
        )
    folder_with(tmp_path / "auto", x="1")
    monkeypatch.chdir(tmp_path)
    model = facts(
        "hf_vlm", f"device_map=auto,journal={tmp_path}"
    )  # other arguments are no weights
    assert (model.fingerprint, "name no weights" in model.unknown) == (None, True)
    model = facts("openai", "model_version=gpt-4o,api_key=PLANTED")
    assert (model.fingerprint, "behind an API" in model.unknown) == (None, True)
    assert "PLANTED" not in model.model_dump_json()
    model = facts("hf", "pretrained=/clinic/patients/model-7")
    assert (model.weights, "/clinic" in model.unknown) == ("model-7", False)
    assert "drawn from its seed" in facts("medtasks_tiny", "weights=random").unknown
    assert facts("medtasks_tiny").fingerprint.startswith("sha256:")
    assert model_facts(HarnessOptions()).name == "hf"

    monkeypatch.setattr(
        run_facts,
        "file_sha256",
        Mock(side_effect=PermissionError(13, "Permission denied", "x")),
    )
    model = facts("hf", f"pretrained={folder_with(tmp_path / 'clinic', x='1')}")
    assert model.fingerprint is None
    assert model.unknown == "pretrained=clinic: a file in it cannot be read (Permission denied)"


def test_the_defaults_are_those_of_our_adapters():
    declared = {"medtasks_tiny": DEFAULTS["medtasks_tiny"]}  # weights in the package
    for manifest in model_manifests():
        if manifest.model_id == "adapter":  # another class, which has its own arguments
            continue
        module, _, name = manifest.simple_class_path.rpartition(".")
        fields = dataclasses.fields(
            getattr(importlib.import_module(module), name).arguments_type
        )
        weights = {
            field.name: field.default
            for field in fields
            if field.name in run_facts.WEIGHTS and field.default
        }
        if weights:
            declared[manifest.model_id] = weights
    assert declared == DEFAULTS
    assert facts("radfm").weights == "chaoyi-wu/RadFM"
    assert "chaoyi-wu" not in facts("radfm", "pretrained=org/name").weights
