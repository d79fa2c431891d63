"""Open questions: scores, metrics over subsets, and what must not stand in a score."""

import json
import math

import pytest

from medtasks.families.kit_questions import OPEN_QUESTIONS
from medtasks.stats.standard_error import mean_standard_error

from ..tables import each_row
from ..task_families import score_of, values_of

REFERENCE = "multimedeval_vqa_head"
OWN = ["bleu_1", "token_f1", "token_recall", "closed_accuracy", "open_recall", "open_accuracy", "invalid_rate"]


def document(number=1, answer="left lower lobe", **more):
    doc = {"doc_id": str(number), "question": "Where is it?", "answer": answer, "image_id": None, "patient_id": None}
    return {**doc, **more}


def score(reply, answer="left lower lobe", number=1, rule=REFERENCE, **more):
    return score_of(OPEN_QUESTIONS, document(number, answer, **more), reply, rule)


def values(scores):
    return values_of(OPEN_QUESTIONS, scores)


def test_a_score_says_nothing_of_the_patient():
    found = score("Mr. Doe has pneumonia", "Pneumonia of Mr. Doe", patient_id="p100", image_id="scan7")
    facts = ("closed", "correct", "bleu_1", "token_f1", "token_recall")
    assert set(found) == {"sample", "cluster_id", "patient_image", *facts, "reason", "rule"}
    written = json.dumps(found).lower()
    assert not [word for word in ("doe", "pneumonia", "where", "p100", "scan7") if word in written]


def test_the_question_helps_to_read_a_statement():
    found = [
        score("There is no mass.", "no", rule="robust_vqa", question=question)
        for question in ("Is there a mass?", "Is the lung clear?")
    ]
    assert [item["correct"] for item in found] == [True, False]


def test_metrics_over_their_subsets():
    items = [
        score("yes", "yes"),
        score("yes", "no"),
        score("", "no"),
        score("left lower lobe"),
        score("left", "left lower lobe"),
    ]
    found = values(items)
    assert found["closed_accuracy"] == pytest.approx(1 / 3)
    assert found["open_accuracy"] == pytest.approx(1 / 2)
    assert found["open_recall"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["token_recall"] == pytest.approx((1 + 0 + 0 + 1 + 1 / 3) / 5)
    assert found["token_f1"] == pytest.approx((1 + 0 + 0 + 1 + 1 / 2) / 5, abs=1e-7)
    assert found["bleu_1"] == pytest.approx((1 + 0 + 0 + 1 + math.exp(-2)) / 5, abs=1e-7)
    assert found["invalid_rate"] == pytest.approx(1 / 5)


def test_errors_of_independent_samples_are_those_of_the_subset():
    closed = [score(reply, "yes", n) for n, reply in enumerate(["yes", "no", "yes", "no", "no"])]
    opened = [score(reply, number=n) for n, reply in enumerate(["left lower lobe", "left", "right"], start=10)]
    found = values(closed + opened)
    assert found["closed_accuracy_stderr"] == pytest.approx(mean_standard_error([1, 0, 1, 0, 0]))
    assert found["open_accuracy_stderr"] == pytest.approx(mean_standard_error([1, 0, 0]))
    assert found["open_recall_stderr"] == pytest.approx(mean_standard_error([1, 1 / 3, 0]))
    assert found["token_recall_stderr"] == pytest.approx(mean_standard_error([1, 0, 1, 0, 0, 1, 1 / 3, 0]))
    assert found["invalid_rate_stderr"] == 0


@each_row(("reply", "answer", "absent"), [("yes", "yes", "open"), ("left", "left", "closed")])
def test_a_subset_without_samples_is_nan(reply, answer, absent):
    found = values([score(reply, answer, n) for n in range(3)])
    assert {name for name, value in found.items() if math.isnan(value)} == {n for n in found if n.startswith(absent)}
