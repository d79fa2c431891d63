"""Whole runs of MedEvalKit's tasks on its sets in miniature."""

import json
import sys

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.data.samples import letter
from medtasks.errors import JudgeNotConfigured
from medtasks.prompts.template import target
from medtasks.runs.replies import read_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file, task_files

from ..processes import run_here
from ..tables import each_row
from .conftest import put_drop_in
from .whole_runs import answering, evaluate, values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared")]

TASKS = [name for name, task in task_files().items() if name.startswith("medevalkit_") and task.kind == "task"]
JUDGED = [name for name in TASKS if "_judged" in name]
SUBMITTED = [name for name in TASKS if "_test" in name]
SCORED = [name for name in TASKS if name not in (*JUDGED, *SUBMITTED)]
RIGHT = "<judge>0</judge>"


@pytest.fixture(scope="module")
def finished(tmp_path_factory, every_dataset, sample_home):
    """The folder of one run of the tiny model: every task that needs no judge, and a general task beside them."""
    folder = tmp_path_factory.mktemp("finished")
    general = put_drop_in(folder / "drop_in", sample_home)
    command = [
        *(sys.executable, "-m", "medtasks.cli.main", "run", "--model", "medtasks_tiny"),
        *("--tasks", ",".join([*SCORED, *SUBMITTED, "shouting"]), "--include_path", str(general)),
        *("--model_args", "journal=false", "--device", "cpu", "--batch_size", "8", "--log_samples"),
        *("--gen_kwargs", "max_new_tokens=4", "--output_path", str(folder)),
    ]
    ran = run_here(command, general, MEDTASKS_HOME=str(every_dataset))
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    return folder


@pytest.fixture(scope="module")
def results(finished):
    (file,) = finished.rglob("*_results.json")
    return json.loads(file.read_text())


def test_every_task_runs_in_one_command_beside_a_general_one(results):
    assert set(results["results"]) == {*SCORED, *SUBMITTED, "shouting"}
    for task in (*SCORED, *SUBMITTED):
        assert results["n-samples"][task]["effective"] == len(task_documents(task_file(task)))
        assert {row for _, row in values(results, task)} == set(task_file(task).rows)


@each_row("name", SCORED)
def test_recorded_replies_score_as_the_harness_scored_them(finished, results, name):
    task = task_file(name)
    documents = task_documents(task)
    (file,) = finished.rglob(f"*_samples_{name}.jsonl")
    scored = values(results, name)
    rows = score_replies(task, documents, read_replies(file, documents))
    assert rows.keys() == task.rows.keys()
    for row, found in rows.items():
        for metric, one in found.estimates.items():
            assert one.value == pytest.approx(scored[metric, row], nan_ok=True), (metric, row)
            if (f"{metric}_stderr", row) in scored:
                assert one.error == pytest.approx(scored[f"{metric}_stderr", row], nan_ok=True), (metric, row)


def test_a_model_that_knows_the_key():
    known = answering(target, lambda doc, index: 0.5 if doc["answer"] == letter(index) else 2.0)
    results = evaluate(SCORED, known)
    for name in SCORED:
        main = task_file(name).metrics[0].name
        found = values(results, name)
        for row in task_file(name).rows:
            if row not in ("reference", "reference_release"):
                assert found[main, row] == 1.0, (name, row)


def test_a_judge_is_asked_or_missed(judging):
    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_BASE_URL"):
        evaluate(JUDGED[:1], answering(target))
    judge = judging(lambda body: RIGHT)
    results = evaluate(JUDGED, answering(lambda doc: "I think so"))
    for name in JUDGED:
        assert values(results, name)["acc_open", "robust"] == 1.0
        assert values(results, name)["judge_failed_rate", "robust"] == 0.0
    assert judge.count


def test_replies_of_a_plain_run_are_judged_later(finished, judging):
    judging(lambda body: RIGHT)
    task = task_file("medevalkit_vqa_rad_judged")
    (file,) = finished.rglob("*_samples_medevalkit_vqa_rad.jsonl")
    rows = score_replies(task, documents := task_documents(task), read_replies(file, documents))
    assert rows["robust"].estimates["unjudged_samples"].value == 0
    assert rows["reference_fixed"].estimates["acc_open"].value == 1.0
