"""Runs on two processes score as those on one: tasks of GMAI-MMBench, and a shard."""

import shutil

import pytest
from openpyxl import load_workbook

from medtasks.data.document_store import load_documents
from medtasks.data.shards import SHARD_VARIABLE
from medtasks.home import own_tasks_folder

from .. import tiny_gmai
from .conftest import put_drop_in
from .whole_runs import evaluate, on_two, values

pytestmark = pytest.mark.slow

VAL, TEST, MCLS = (f"gmai_mmbench_{part}" for part in ("val", "test", "mcls"))
TASKS = [VAL, f"{VAL}_ll", TEST, MCLS]
OF_SHARD = ["shouting", "mediconfusion_gd"]
OPTIONS = {"gen_kwargs": "max_new_tokens=4", "log_samples": True}


# One of two processes has no row of ``shouting``: what it asks to keep step with the other is in no score.
SHARD = {SHARD_VARIABLE: "6/16"}


@pytest.fixture(scope="module")
def runs(sample_home, tmp_path_factory):
    """Run the tasks in this process, then the tasks and a shard on two; the submissions are listed in between.

    Returns the home, the results of one process, the rows of two, those of the shard on two, and the first submission.
    """
    folder = tmp_path_factory.mktemp("processes")
    home = shutil.copytree(sample_home, folder / "home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        tiny_gmai.prepare_all(
            folder / "source", tiny_gmai.rows(60), several=9, seed=50, unkeyed=1
        )
        put_drop_in(own_tasks_folder(), sample_home)
        results = evaluate(TASKS, **OPTIONS)
        (submission,) = (home / "submissions" / TEST).iterdir()
        two, of_shard = on_two(
            folder, (TASKS, OPTIONS, {}), (OF_SHARD, {"batch_size": 1}, SHARD)
        )
    return home, results, two, of_shard, submission


@pytest.fixture(autouse=True)
def _home(runs, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(runs[0]))


def test_a_submission_has_the_reply_to_each_question(runs):
    _, results, _, _, file = runs
    assert file.suffix == ".xlsx"
    header, *rows = load_workbook(file).active.iter_rows(values_only=True)
    assert [row[0] for row in rows] == [document["doc_id"] for document in load_documents(TEST)]
    replies = {
        sample["score"]["sample"]: sample["score"]["reply"]
        for sample in results["samples"][TEST]
    }
    assert [row[header.index("prediction")] or "" for row in rows] == [
        replies[row[0]] for row in rows
    ]


def test_a_test_part_without_answers_has_no_accuracy(runs):
    scores = values(runs[1], TEST)
    assert {value for (metric, _), value in scores.items() if metric == "submission_rows"} == {
        11
    }
    assert not [metric for metric, _ in scores if "acc" in metric]


def test_two_processes_score_like_one(runs):
    _, results, two, _, _ = runs
    one = results["results"]
    assert set(one) == set(two) == set(TASKS)
    for task in TASKS:
        assert one[task].keys() == two[task].keys()
        for metric, value in one[task].items():
            if "_stderr," in metric and isinstance(value, float):
                # The ranks' records come in another order, and sums of squares round by order.
                assert float(two[task][metric]) == pytest.approx(
                    value, rel=1e-12, nan_ok=True
                ), (
                    task,
                    metric,
                )
            else:
                assert two[task][metric] == repr(value), (task, metric)


def test_each_run_writes_one_submission(runs):
    assert len(list((runs[0] / "submissions" / TEST).iterdir())) == 2


def test_a_shard_on_two_processes_scores_like_one(runs, monkeypatch):
    of_shard = runs[3]
    monkeypatch.setenv(SHARD_VARIABLE, SHARD[SHARD_VARIABLE])

    whole = evaluate(OF_SHARD, batch_size=1)

    counts = {task: whole["n-samples"][task]["effective"] for task in OF_SHARD}
    assert counts == {"shouting": 1, "mediconfusion_gd": 2}
    assert whole["results"]["mediconfusion_gd"]["scored_samples,reference"] == 2
    assert of_shard == {
        task: {key: repr(value) for key, value in row.items()}
        for task, row in whole["results"].items()
    }
