"""Scores by group, and wrong answers."""

import csv
import random

import pytest

from medtasks.audit.scoring import by_group, count_kinds, export_wrong_answers, score_replies, wrong_answers
from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import MedTasksError
from medtasks.extract.error_classes import ErrorClass
from medtasks.families.family import Reply
from medtasks.harness.task_files import task_file
from medtasks.hooks import grouped_choice

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def documents():
    rng = random.Random(2)
    return [
        {
            "doc_id": str(number),
            "dataset": "gmai_mmbench_val",
            "image_id": str(number // 2),
            "question": "What is it?",
            "options": ["polyp", "ulcer", "erosion"],
            "answer": rng.choice("ABC"),
            "department": rng.choice(["Urology", "None", None]),
            "clinical_task": rng.choice(["Counting", "Bone"]),
            "granularity": "Image Level",
            "modality": "CT",
        }
        for number in range(200)
    ]


@pytest.fixture(scope="module")
def replies(documents):
    rng = random.Random(4)
    words = ["A", "B", "C", "I cannot tell.", "A and B", "", "...."]
    return {document["doc_id"]: Reply(text=rng.choice(words)) for document in documents}


def test_groups_equal_a_plain_mean(documents, replies):
    found = score_replies(task_file("gmai_mmbench_val"), documents, replies)["robust"]
    frame = pandas.DataFrame(documents)
    frame["right"] = [replies[one["doc_id"]].text == one["answer"] for one in documents]
    for column in ("department", "clinical_task"):
        means, sizes = frame.groupby(column)["right"].mean(), frame.groupby(column)["right"].size()
        groups = found.groups[column]
        assert {value: score.questions for value, score in groups.items()} == sizes.to_dict()
        assert {value: score.accuracy for value, score in groups.items()} == pytest.approx(means.to_dict())
        assert all(score.error > 0 for score in groups.values())
    weighted = sum(score.accuracy * score.questions for score in found.groups["clinical_task"].values())
    assert weighted / len(documents) == pytest.approx(found.values["accuracy"])


def test_wrong_answers_are_sorted_into_kinds(documents, replies):
    found = score_replies(task_file("gmai_mmbench_val"), documents, replies)["robust"]
    kinds = count_kinds(found.wrong)
    texts = [reply.text for reply in replies.values()]
    assert kinds[ErrorClass.REFUSAL] == texts.count("I cannot tell.")
    assert kinds[ErrorClass.IRRELEVANT] == texts.count("") + texts.count("....")
    assert kinds[ErrorClass.MISUNDERSTOOD] == texts.count("A and B")
    assert sum(kinds.values()) == round((1 - found.values["accuracy"]) * len(documents))
    assert found.as_dict()["wrong_answers"] == kinds


def test_likelihoods_leave_the_kind_to_a_human(documents):
    sample = {"accuracy": {"key": "A", "value": "B", "reason": "ok"}}
    assert [one.kind for one in wrong_answers(documents[:1], [sample], [None])] == [ErrorClass.FOR_A_HUMAN]


def test_tasks_without_accuracy_have_no_groups(documents):
    metrics = [{"metric": "bleu_1", "aggregation": max}]
    assert by_group(documents, [{"bleu_1": 1}] * len(documents), metrics, ["department"]) == {}


def test_export_leaves_a_column_for_the_human(documents, replies, tmp_path):
    found = score_replies(task_file("gmai_mmbench_val"), documents, replies)["robust"]
    path = tmp_path / "errors.csv"
    export_wrong_answers(path, [], {"robust": found.wrong})
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(found.wrong) > 0
    assert {row["class_by_human"] for row in rows} == {""}
    assert {row["class"] for row in rows} >= {"", "refusal"}
    assert rows[0]["options"] == "polyp | ulcer | erosion"


def test_credentialed_text_is_not_exported(documents, tmp_path, monkeypatch):
    private = next(name for name, info in CATALOGUE.items() if info.access == "credentialed")
    with pytest.raises(MedTasksError, match=f"MEDTASKS_LOG_TEXT={private}"):
        export_wrong_answers(tmp_path / "errors.csv", [private], {})
    assert not (tmp_path / "errors.csv").exists()
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", private)
    export_wrong_answers(tmp_path / "errors.csv", [], {})


def test_record_of_the_hook_has_what_is_needed(documents):
    record = grouped_choice.process_results(documents[0], ["A"])["accuracy"]
    assert {"key", "value", "reason"} <= record.keys()
