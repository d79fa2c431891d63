"""Whole runs of GMAI-MMBench's tasks on files in miniature: submissions, two processes, and a judge."""

import random

import pytest
from openpyxl import load_workbook

from medtasks.data.document_store import load_documents

from .. import tiny_gmai
from .whole_runs import answering, evaluate, on_two, values

pytestmark = pytest.mark.slow

VAL, TEST, MCLS = (f"gmai_mmbench_{part}" for part in ("val", "test", "mcls"))
TASKS = [VAL, f"{VAL}_ll", TEST, MCLS]
OPTIONS = {"gen_kwargs": "max_new_tokens=4", "log_samples": True}


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    tiny_gmai.prepare_all(tmp_path / "source", tiny_gmai.rows(60), several=9, seed=50, unkeyed=1)


def test_two_processes_score_like_one_and_each_run_writes_one_submission(tmp_path):
    submissions = tmp_path / "home" / "submissions" / TEST
    results = evaluate(TASKS, **OPTIONS)
    one = results["results"]
    (file,) = submissions.iterdir()
    assert file.suffix == ".xlsx"
    header, *rows = load_workbook(file).active.iter_rows(values_only=True)
    assert [row[0] for row in rows] == [document["doc_id"] for document in load_documents(TEST)]
    replies = {sample["score"]["sample"]: sample["score"]["reply"] for sample in results["samples"][TEST]}
    assert [row[header.index("prediction")] or "" for row in rows] == [replies[row[0]] for row in rows]
    scores = values(results, TEST)
    assert {value for (metric, _), value in scores.items() if metric == "submission_rows"} == {11}
    assert not [metric for metric, _ in scores if "acc" in metric]

    two = on_two(tmp_path, TASKS, **OPTIONS)
    assert set(one) == set(two) == set(TASKS)
    for task in TASKS:
        assert one[task].keys() == two[task].keys()
        for metric, value in one[task].items():
            if "_stderr," in metric and isinstance(value, float):
                # The ranks' records come in another order, and sums of squares round by order.
                assert float(two[task][metric]) == pytest.approx(value, rel=1e-12, nan_ok=True), (task, metric)
            else:
                assert two[task][metric] == repr(value), (task, metric)
    assert len(list(submissions.iterdir())) == 2


def matched(body):
    """Return the letter of the option that a reply describes with underscores for blanks, else Z."""
    asked = body["messages"][-1]["content"].rpartition("Example 3: ")[2]
    listed = dict(line.split(". ", 1)[::-1] for line in asked.split("\n") if line[1:3] == ". ")
    meant = asked.rpartition("Answer: ")[2].partition("\n")[0].removeprefix("It looks like ").replace("_", " ")
    return listed.get(meant, "Z")


def kind(doc):
    """Return 0 for a letter, 1 for words that only the judge matches, 2 for words that match nothing."""
    drawn = random.Random(doc["doc_id"]).randrange(3)
    single = " " not in doc["options"]["ABCDEF".index(doc["answer"])]
    return 0 if drawn == 1 and single else drawn


def test_the_judge_is_asked_where_no_rule_finds_an_option(judging):
    """Of three replies one is the letter, one for the judge, one about something else."""

    def describe(doc):
        option = doc["options"]["ABCDEF".index(doc["answer"])].replace(" ", "_")
        return [doc["answer"], f"It looks like {option}", "It looks like rain"][kind(doc)]

    task, documents = f"{VAL}_judged", load_documents(VAL)
    judging(matched)
    counts = [sum(kind(doc) == number for doc in documents) for number in range(3)]
    assert min(counts) > 3
    results = evaluate([task, VAL], answering(describe))
    judged = values(results, task)
    for rule in ("reference", "reference_2026"):
        assert judged["accuracy", rule] == pytest.approx((counts[0] + counts[1]) / 60)
        assert values(results, VAL)["accuracy", rule] == pytest.approx(counts[0] / 60)
        assert judged["judge_asked_rate", rule] == pytest.approx((counts[1] + counts[2]) / 60)
        assert judged["invalid_rate", rule] == pytest.approx(counts[2] / 60)
        assert judged["judge_failed_rate", rule] == 0
