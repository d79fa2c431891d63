"""What records of two runs say differently: results files, and the manifests of ``medtasks run``."""

import json
from datetime import UTC, datetime

import pytest

from medtasks.audit.parity.records import Record, check_same_templates, differences
from medtasks.audit.recording import first_manifest
from medtasks.errors import RepliesError
from medtasks.harness.documents import Selection
from medtasks.runs.manifest import TaskOutcome, TaskRecord, manifest_path

CONFIG = {"model": "hf_vlm", "model_args": "pretrained=m,dtype=float32,api_key=sesame", "batch_size": "8"}


def written(folder, config, **manifest):
    """Write a run whose samples lie in a folder below its manifest's; return the samples file."""
    below = folder / "model"
    below.mkdir(parents=True)
    (below / "20260102_030405_results.json").write_text(json.dumps({"results": {}, "config": config}))
    samples = below / "20260102_030405_samples_letters.jsonl"
    samples.write_text("")
    if manifest:
        done = TaskRecord(outcome=TaskOutcome.DONE, samples=str(samples.relative_to(folder)))
        now = datetime.now(UTC)
        base = first_manifest(["medtasks", "run"], ["--model", "hf_vlm"], [], Selection((), {}), ())
        base.model_copy(update={"tasks": {"letters": done}, **manifest}).write(manifest_path(folder, now))
    return samples


def found(first, second):
    return {(one.kind, one.name): (one.first, one.second) for one in differences(first, second, "letters")}


def test_arguments_and_versions(tmp_path):
    args = "pretrained=m,dtype=bfloat16,api_key=other"
    first = Record.of(written(tmp_path / "a", CONFIG, versions={"torch": "2.1", "vllm": None}, commit="abc"))
    second = Record.of(
        written(tmp_path / "b", CONFIG | {"model_args": args}, versions={"torch": "2.1", "vllm": "0.32"}, commit="abc")
    )
    later = first.manifest.model_copy(update={"tasks": {}, "versions": {"torch": "9"}})  # another run in this folder
    later.write(tmp_path / "a" / "29991231_235959_000000Z_run.json")
    first = Record.of(next((tmp_path / "a").rglob("*.jsonl")))
    assert found(first, second) == {
        ("model", "model argument dtype"): ("float32", "bfloat16"),
        ("version", "vllm"): ("not recorded", "0.32"),
    }
    assert found(first, first) == {}


def test_a_run_without_a_manifest_names_what_the_harness_recorded(tmp_path):
    first = Record.of(written(tmp_path / "a", CONFIG))
    second = Record.of(written(tmp_path / "b", CONFIG | {"batch_size": "1"}))
    assert first.manifest is None
    assert found(first, second) == {("setting", "batch size"): ("8", "1")}
    nothing = Record.of(tmp_path / "replies.jsonl")
    assert not nothing.results
    assert found(nothing, nothing) == {}


def test_templates_count_where_no_prompt_is_recorded(tmp_path):
    records = []
    for template in ("{{ question }}?", "{{ question }}\nAnswer:"):
        told = {"lmms_eval_specific_kwargs": {"default": {"template": template}}}
        records.append(Record({"configs": {"letters": told}}, None))
    check_same_templates(records[0], records[0], "letters")
    with pytest.raises(RepliesError, match="the runs made their prompts from different templates"):
        check_same_templates(*records, "letters")
    check_same_templates(records[0], Record({}, None), "letters")  # nothing is known of the other
