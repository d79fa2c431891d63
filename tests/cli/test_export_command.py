"""``medtasks export``: files for the Hub and for Every Eval Ever, and what must not leave the house.

``MEDTASKS_TEST_EEE`` names the Python of an environment with ``every-eval-ever``, whose validator then reads the files.
"""

import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from medtasks.data.schema import CHOICE
from medtasks.extract.failure import failed_reply
from medtasks.families.family import Reply
from medtasks.runs.result_files import ResultsFile

from ..report.harness_output import publish_own, texts, write_run, write_task
from ..runs.test_run import manifest

CANARY = "zyzzyva"
MADE = {
    "ended": "2026-03-01T10:30:00+00:00",
    "versions": {"medtasks": "1.0.0", "lmms_eval": "0.7.3"},
    "model": {
        "name": "made_up",
        "arguments": "",
        "weights": "org/made-up",
        "fingerprint": f"commit:{'0' * 40}",
    },
}


def finished(folder, state="finished", record=(), more=(), **changes):
    done = {
        "outcome": "done",
        "dataset": "house_set",
        "results": "20260301_101500_results.json",
        **dict(record),
    }
    for path in folder.glob("*_run.json"):
        path.unlink()
    manifest(
        folder,
        {"house_set": ("done", "")},
        state,
        **MADE,
        tasks={"house_set": done, **dict(more)},
        **changes,
    )


@pytest.fixture
def run(tmp_path):
    """A finished run over a credentialed set of one's own: 30 of 40 right, two without an answer."""
    rows = [
        {"question": f"{CANARY} {n}", "options": [f"{CANARY} a", "b"], "answer": "A"}
        for n in range(40)
    ]
    publish_own("house_set", CHOICE, rows, "credentialed")
    write_task("house_set", "choice", {"reference": "robust_choice", "robust": "robust_choice"})
    replies = texts({f"d{n}": "A" if n < 30 else "" if n < 32 else "B" for n in range(40)})
    write_run(tmp_path / "run", {"house_set": replies})
    finished(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def exported(medtasks, run, tmp_path):
    """Export the run into a folder of this name."""

    def export(name):
        folder = tmp_path / name
        folder.mkdir()
        ran = medtasks(
            *("export", run, "--hub", folder / "house.yaml", "--eee", folder / "eee"),
            *("--organization", "A hospital", "--benchmark", "house_set=org/house/main"),
        )
        assert (ran.code, ran.err) == (0, "")
        return folder

    return export


def contents_of(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_an_export_is_the_same_bytes_again(exported):
    assert contents_of(exported("first")) == contents_of(exported("second"))


def test_an_export_holds_no_text_of_credentialed_data(exported):
    assert not any(
        CANARY.encode() in content for content in contents_of(exported("first")).values()
    )


def test_the_hub_gets_a_score_of_each_rule(exported):
    entries = yaml.safe_load((exported("first") / "house.yaml").read_text())

    facts = {
        "dataset": {"id": "org/house", "task_id": "main"},
        "value": 75.0,
        "date": "2026-03-01",
    }
    for row, entry in zip(("reference", "robust"), entries, strict=True):
        notes = rf"percent; accuracy, rule {row} \(robust_choice\): 75.0% \[59.1 to 86.2\]; 40 samples in 40 clusters, "
        versions = "; task house_set version 1, data fingerprint [0-9a-f]{12}; medtasks 1.0.0"
        assert re.fullmatch(f"{notes}0 lost, 5.0% invalid{versions}", entry.pop("notes"))
        assert entry == facts


@pytest.fixture
def record_file(exported):
    (path,) = exported("first").glob("eee/data/medtasks/org/made-up/*.json")
    return path


@pytest.fixture
def record(record_file):
    return json.loads(record_file.read_text(), parse_constant=pytest.fail)


def test_a_record_names_the_run_and_the_model(record_file, record):
    assert {
        "source_metadata",
        "model_info",
        "eval_library",
        "evaluation_results",
    } <= record.keys()
    assert (record["schema_version"], record["retrieved_timestamp"]) == ("0.3.0", "1772361000")
    assert record["evaluation_id"] == "house_set/org/made-up/1772361000"
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", record_file.stem
    )
    details = record["model_info"]["additional_details"]
    assert (details["deployment_type"], details["model_availability"]) == (
        "self_deployed",
        "open_weights",
    )


def test_a_record_holds_scores_with_their_uncertainty(record):
    for result in record["evaluation_results"]:
        metric, score = result["metric_config"], result["score_details"]
        assert (metric["metric_id"], metric["lower_is_better"], metric["max_score"]) == (
            "accuracy",
            False,
            1.0,
        )
        ends = score["uncertainty"]["confidence_interval"]
        assert 0 < ends["lower"] < score["score"] == 0.75 < ends["upper"] < 1
        assert "clustered over 40 clusters" in score["uncertainty"]["standard_error"]["method"]
        assert result["source_data"]["additional_details"]["access"] == "credentialed"


@pytest.mark.skipif(
    "MEDTASKS_TEST_EEE" not in os.environ, reason="MEDTASKS_TEST_EEE names no Python"
)
def test_a_record_is_valid(record_file):
    validator = "every_eval_ever.validator.validate"
    command = [
        os.environ["MEDTASKS_TEST_EEE"],
        "-m",
        validator,
        "--format",
        "json",
        record_file,
    ]

    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def edit(run, task, **changes):
    (path,) = run.glob("*_results.json")
    content = json.loads(path.read_text())
    part = (
        content["results"][task]
        if "scores" in changes
        else content["configs"][task]["metadata"]["data"]
    )
    part.update(changes.pop("scores", changes))
    ResultsFile(path, content).write()


def rerun(run, replies, **options):
    for path in run.iterdir():
        path.unlink()
    write_run(run, {"house_set": replies}, **options)
    finished(run)


ALL = {f"d{n}": Reply(text="A") for n in range(40)}
REFUSALS = {
    "are synthetic": lambda run: edit(run, "house_set", sample=True),
    "a part of the published set": lambda run: edit(run, "house_set", complete=False),
    "10 of 40 samples": lambda run: rerun(
        run, {f"d{n}": ALL[f"d{n}"] for n in range(10)}, limit=10
    ),
    "it is shard 1": lambda run: finished(run, shard={"index": 1, "count": 2}),
    "the run is interrupted": lambda run: finished(run, state="interrupted"),
    "the run is killed": lambda run: finished(run, state="running"),
    "missing or damaged": lambda run: finished(run, record={"results": "later_results.json"}),
    "the run recorded 0.9": lambda run: edit(run, "house_set", scores={"accuracy,robust": 0.9}),
    "has no manifest": lambda run: [path.unlink() for path in run.glob("*_run.json")],
    "no results of other_set": lambda run: finished(
        run, more={"other_set": {"outcome": "failed"}}
    ),
    "10 failed of 40": lambda run: rerun(
        run, ALL | {f"d{n}": Reply(text=failed_reply("broken")) for n in range(10)}
    ),
    "holds 1 repeats": lambda run: shutil.copytree(run, run / "repeat_1"),
}


def test_what_must_stay_is_refused_with_one_sentence(fails, run, tmp_path):
    for number, (part, change) in enumerate(REFUSALS.items()):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(run, copy)
        change(copy)
        fails(["export", copy, "--eee", tmp_path / "eee"], part)
    assert not (tmp_path / "eee").exists()


def test_an_export_needs_a_place_and_a_task(fails, run, tmp_path):
    fails(
        ["export", run, "--hub", tmp_path / "file.yaml"],
        "no dataset of the Hub",
        "--benchmark house_set=",
    )
    fails(["export", run], "--hub", "--eee")
    fails(
        ["export", run, "--eee", tmp_path / "eee", "--task", "other"], "has no results of other"
    )
