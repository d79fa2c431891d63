"""From each published format to numbers: every dataset prepares, verifies and runs, and a missing one fails alone."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.data.catalogue import CATALOGUE, MULTIMEDEVAL, Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.schema import DEMONSTRATIONS_SPLIT
from medtasks.families.counts import COUNTS
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.runs.logged_samples import replies_folder
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolved

from ..multimedeval_image_sources import WRITERS
from ..processes import run_here
from ..tables import each_row

NAMES = [info.name for info in MULTIMEDEVAL]
SIZES = {info.name: info.rows for info in MULTIMEDEVAL}
UNPREPARED = "multimedeval_mednli"
OPTIONS = "--model medtasks_tiny --model_args journal=false,batch_size=16 --gen_kwargs max_new_tokens=4 --device cpu"
LABELER = ("multimedeval_mimic_cxr_classification", "reference")
# What needs weights, which are not there; without them it is nan.
WEIGHED = {key for info in REPORT_METRICS.values() if info.weights or info.wordnet for key in info.keys}
# One of each family; the one for inference runs beside the damaged datasets.
SCORED = [
    f"multimedeval_{name}" for name in ("medqa", "pubmedqa", "path_vqa", "octmnist", "vindr_mammo", "chestxray14")
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepare every source on the command line; return the data folder, what was expected, and what was printed."""
    pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")
    home, sources = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("sources")
    expected, printed = {}, {}
    for name in NAMES:
        source, expected[name] = WRITERS[name.removeprefix("multimedeval_")](sources / name)
        command = ["data", "prepare", name, "--source", str(source), "--allow-incomplete"]
        printed[name] = CliRunner().invoke(app, command, env={"MEDTASKS_HOME": str(home)})
    return home, expected, printed


@each_row("name", NAMES)
def test_prepares_and_verifies(prepared, monkeypatch, name):
    home, expected, printed = prepared
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    wanted, ran = expected[name], printed[name]
    assert ran.exit_code == 0, ran.output
    told = [line for line in ran.output.splitlines() if not line.startswith("Models see its images by the rule")]
    *notes, summary = told
    assert re.fullmatch(
        f"Prepared {name}: {len(wanted.test)} questions, {wanted.images} images, fingerprint [0-9a-f]{{12}}, in .*",
        summary,
    )
    if SIZES[name] is not None:
        assert notes == [f"left out: the source holds {len(wanted.test)} rows, the evaluated set {SIZES[name]}"]
    documents, shots = load_documents(name), load_documents(name, DEMONSTRATIONS_SPLIT)
    assert [document["doc_id"] for document in documents] == list(wanted.test)
    assert [document["doc_id"] for document in shots] == list(wanted.demonstrations)
    (key,) = {"answer", "label", "labels", "report"} & documents[0].keys()
    assert [document[key] for document in documents] == list(wanted.keys)
    assert len({file for document in documents for file in document["image_files"]}) == wanted.images
    verified = CliRunner().invoke(app, ["data", "verify", name])
    assert (verified.exit_code, verified.output.startswith(f"{name} is as prepared: ")) == (0, True)


def results_in(folder):
    """Return the results of every task in a folder, each from the only file that has it, and the samples files."""
    found = {}
    for file in folder.rglob("*_results.json"):
        content = json.loads(file.read_text())
        for task in content["results"]:
            assert task not in found
            found[task] = content
    samples = {re.search(r"samples_(.*)\.jsonl", file.name)[1]: file for file in folder.rglob("*samples*.jsonl")}
    return found, samples


def scores_of(content, task):
    """Return a task's numbers; the harness adds columns of its own, all of them empty."""
    return {key: value for key, value in content["results"][task].items() if "," in key and value != "N/A"}


@pytest.fixture(scope="module")
def group_run(prepared, tmp_path_factory):
    """Run all datasets in one command, a credentialed one not being there."""
    home, folder = tmp_path_factory.mktemp("lacking") / "home", tmp_path_factory.mktemp("group_run")
    shutil.copytree(prepared[0], home, ignore=shutil.ignore_patterns(UNPREPARED))
    tasks = "multimedeval,multimedeval_extra,multimedeval_pad_ufes_20_disjoint,multimedeval_mimic_iii_summary_head"
    command = f"medtasks run --tasks {tasks} --output_path out --log_samples {OPTIONS}"
    ran = run_here(command.split(), folder, MEDTASKS_HOME=str(home))
    return home, ran, *results_in(folder / "out")


@pytest.mark.slow
def test_all_in_one_command_but_the_missing_one(prepared, group_run):
    home, ran, results, _ = group_run
    assert ran.returncode == 1
    sentence = f"dataset '{UNPREPARED}' (MultiMedEval, credentialed) is not prepared in {home}; run 'medtasks data prep"
    assert (ran.stdout + ran.stderr).count(sentence) == 1
    assert ran.stderr.splitlines()[-1] == "medtasks: 1 of 30 tasks without results; the others are complete"
    assert "Traceback" not in ran.stdout + ran.stderr
    assert set(results) == set(NAMES) - {UNPREPARED}
    assert len({content["date"] for content in results.values()}) == 1
    for task, content in results.items():
        assert content["n-samples"][task]["effective"] == len(prepared[1][task].test)
        data = content["configs"][task]["metadata"]["data"]
        assert data["fingerprint"] == Manifest.read(home / "datasets" / task).fingerprint
        scores = scores_of(content, task)
        metrics = [entry["metric"] for entry in resolved(task_config(task)["metric_list"])]
        assert scores.keys() == {f"{metric},{row}" for metric in metrics for row in task_file(task).rows}
        for key, value in scores.items():
            metric, _, row = key.partition(",")
            if metric in COUNTS:
                assert value == int(value) >= 0, (task, key)
            elif (task, row) == LABELER and not metric.startswith("judge_failed_rate"):
                assert math.isnan(value), (task, key)
            elif metric.removesuffix("_stderr") not in WEIGHED:
                assert math.isfinite(value), (task, key)


def rescored(task, results, samples, target):
    """Score a samples file, or the replies that stand for it, again and compare every number with the results."""
    private = CATALOGUE[task].access is Access.CREDENTIALED
    replies = replies_folder(task) if private else samples[task]
    ran = CliRunner().invoke(app, ["score", task, str(replies), "--json", str(target)])
    assert ran.exit_code == 0, ran.output
    summary = json.loads(target.read_text())
    again = {
        f"{metric}{kind},{row}": value
        for row, rule in summary["rules"].items()
        for kind, values in (("", rule["metrics"]), ("_stderr", rule["standard_errors"]))
        for metric, value in values.items()
    }
    assert scores_of(results[task], task) == again


@pytest.mark.slow
@each_row("task", SCORED)
def test_samples_score_to_the_same_numbers(group_run, tmp_path, monkeypatch, task):
    home, _, results, samples = group_run
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    rescored(task, results, samples, tmp_path / "scores.json")


@pytest.mark.slow
def test_damaged_datasets_fail_alone(prepared, tmp_path, monkeypatch):
    """One has lost its images, which shows in the run; one its documents, which shows before it."""
    home = tmp_path / "home"
    shutil.copytree(prepared[0], home)
    shutil.rmtree(home / "datasets" / "multimedeval_breastmnist" / "images")
    (documents,) = Path(home, "datasets", "multimedeval_medqa", "test").glob("*.arrow")
    documents.write_bytes(documents.read_bytes()[:-900])
    tasks = "multimedeval_breastmnist,multimedeval_medqa,multimedeval_mednli"
    command = f"medtasks run --tasks {tasks} --output_path out --log_samples {OPTIONS}"
    ran = run_here(command.split(), tmp_path, MEDTASKS_HOME=str(home))
    assert ran.returncode == 1
    assert ran.stdout.count(f"the documents in {documents.parents[1]} are damaged") == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("medtasks: 2 of 3 tasks without results; the others are complete; ")
    assert "run 'medtasks data prepare multimedeval_breastmnist' again" in last
    results, samples = results_in(tmp_path / "out")
    assert set(results) == {"multimedeval_mednli"}
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    rescored("multimedeval_mednli", results, samples, tmp_path / "scores.json")
