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


def test_two_processes_score_like_one_and_each_run_writes_one_submission(
    sample_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(shutil.copytree(sample_home, tmp_path / "home")))
    tiny_gmai.prepare_all(tmp_path / "source", tiny_gmai.rows(60), several=9, seed=50, unkeyed=1)
    put_drop_in(own_tasks_folder(), sample_home)
    submissions = tmp_path / "home" / "submissions" / TEST
    results = evaluate(TASKS, **OPTIONS)
    one = results["results"]
    (file,) = submissions.iterdir()
    assert file.suffix == ".xlsx"
    header, *rows = load_workbook(file).active.iter_rows(values_only=True)
    assert [row[0] for row in rows] == [document["doc_id"] for document in load_documents(TEST)]
    replies = {
        sample["score"]["sample"]: sample["score"]["reply"] for sample in results["samples"][TEST]
    }
    assert [row[header.index("prediction")] or "" for row in rows] == [
        replies[row[0]] for row in rows
    ]
    scores = values(results, TEST)
    assert {value for (metric, _), value in scores.items() if metric == "submission_rows"} == {11}
    assert not [metric for metric, _ in scores if "acc" in metric]

    # One of the processes has no row of ``shouting``: what it asks to keep step with the other is in no score.
    shard = {SHARD_VARIABLE: "6/16"}
    two, two_of_shard = on_two(tmp_path, (TASKS, OPTIONS, {}), (OF_SHARD, {"batch_size": 1}, shard))
    assert set(one) == set(two) == set(TASKS)
    for task in TASKS:
        assert one[task].keys() == two[task].keys()
        for metric, value in one[task].items():
            if "_stderr," in metric and isinstance(value, float):
                # The ranks' records come in another order, and sums of squares round by order.
                assert float(two[task][metric]) == pytest.approx(value, rel=1e-12, nan_ok=True), (
                    task,
                    metric,
                )
            else:
                assert two[task][metric] == repr(value), (task, metric)
    assert len(list(submissions.iterdir())) == 2

    monkeypatch.setenv(SHARD_VARIABLE, shard[SHARD_VARIABLE])
    whole = evaluate(OF_SHARD, batch_size=1)
    counts = {task: whole["n-samples"][task]["effective"] for task in OF_SHARD}
    assert counts == {"shouting": 1, "mediconfusion_gd": 2}
    assert whole["results"]["mediconfusion_gd"]["scored_samples,reference"] == 2
    assert two_of_shard == {
        task: {key: repr(value) for key, value in row.items()}
        for task, row in whole["results"].items()
    }
