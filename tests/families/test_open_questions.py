"""Open questions: records, metrics over subsets, and what must not stand in a record."""

import itertools
import json
import math
import random

import pytest

from medtasks.errors import UnknownName
from medtasks.extract.failure import failed_reply
from medtasks.families.counts import COUNTS
from medtasks.harness.filters import ReadWith
from medtasks.hooks import open_questions
from medtasks.stats.standard_error import mean_standard_error

REFERENCE = "multimedeval_vqa_head"
NAMES = [metric["metric"] for metric in open_questions.METRIC_LIST]
SCORES = [name for name in NAMES if name not in COUNTS]


def document(number=1, answer="left lower lobe", **more):
    doc = {"doc_id": str(number), "question": "Where is it?", "answer": answer, "image_id": None, "patient_id": None}
    return {**doc, **more}


def results(reply, rule=REFERENCE):
    return ReadWith(rule).apply([[reply]], None)


def record(reply, answer="left lower lobe", number=1, rule=REFERENCE, **more):
    return open_questions.process_results(document(number, answer, **more), results(reply, rule))["bleu_1"]


def values(items):
    return {metric["metric"]: metric["aggregation"](items) for metric in open_questions.METRIC_LIST}


def test_names():
    assert NAMES[len(SCORES) :] == ["scored_samples", "failed_samples"]
    own = [name for name in SCORES if not name.endswith("_stderr")]
    assert own == [
        "bleu_1",
        "token_f1",
        "token_recall",
        "closed_accuracy",
        "open_recall",
        "open_accuracy",
        "invalid_rate",
    ]
    assert not [(a, b) for a, b in itertools.permutations([*own, *COUNTS], 2) if a in b]
    assert [name for pair in zip(own, (f"{name}_stderr" for name in own), strict=True) for name in pair] == SCORES


def test_only_what_is_missing_and_errors_are_better_when_lower():
    lower = {metric["metric"] for metric in open_questions.METRIC_LIST if not metric["higher_is_better"]}
    assert lower == {name for name in NAMES if name.endswith("_stderr")} | {"invalid_rate", "failed_samples"}


def test_a_record_stands_under_every_metric_and_says_nothing_of_the_patient():
    doc = document(answer="Pneumonia of Mr. Doe", patient_id="p100", image_id="scan7")
    records = open_questions.process_results(doc, results("Mr. Doe has pneumonia"))
    assert set(records) == set(NAMES)
    entry = records["token_f1"]
    assert all(item == entry for item in records.values())
    assert set(entry) == {
        *("sample", "unit", "closed", "correct", "bleu_1", "token_f1", "token_recall", "reason", "rule")
    }
    written = json.dumps(entry).lower()
    assert not [word for word in ("doe", "pneumonia", "where", "p100", "scan7") if word in written]


def test_the_rule_is_the_filters_and_else_the_robust_one():
    reply = "There is no lower lobe on the left"
    assert record(reply)["rule"] == REFERENCE
    untagged = open_questions.process_results(document(), [reply])["bleu_1"]
    assert untagged["rule"] == "robust_vqa"
    assert untagged == record(reply, rule="robust_vqa")
    assert (record(reply)["token_recall"], untagged["token_recall"]) == (1.0, 0.0)


def test_a_rule_for_options_is_refused():
    with pytest.raises(UnknownName, match="robust_choice"):
        open_questions.process_results(document(), results("left", "robust_choice"))


def test_the_question_helps_to_read_a_statement():
    found = [
        record("There is no mass.", "no", rule="robust_vqa", question=question)
        for question in ("Is there a mass?", "Is the lung clear?")
    ]
    assert [item["correct"] for item in found] == [True, False]


def test_metrics_over_their_subsets():
    items = [
        record("yes", "yes"),
        record("yes", "no"),
        record("", "no"),
        record("left lower lobe"),
        record("left", "left lower lobe"),
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
    closed = [record(reply, "yes", n) for n, reply in enumerate(["yes", "no", "yes", "no", "no"])]
    opened = [record(reply, number=n) for n, reply in enumerate(["left lower lobe", "left", "right"], start=10)]
    found = values(closed + opened)
    assert found["closed_accuracy_stderr"] == pytest.approx(mean_standard_error([1, 0, 1, 0, 0]))
    assert found["open_accuracy_stderr"] == pytest.approx(mean_standard_error([1, 0, 0]))
    assert found["open_recall_stderr"] == pytest.approx(mean_standard_error([1, 1 / 3, 0]))
    assert found["token_recall_stderr"] == pytest.approx(mean_standard_error([1, 0, 1, 0, 0, 1, 1 / 3, 0]))
    assert found["invalid_rate_stderr"] == 0


@pytest.mark.parametrize("unit", ["image_id", "patient_id"])
def test_errors_are_clustered_by_image_or_patient(unit):
    """Two samples of one unit that always agree carry as much as one."""
    replies = ["yes", "no", "yes", "no", "no"]
    twice = [record(reply, "yes", n, **{unit: str(n // 2)}) for n, reply in enumerate(r for r in replies for _ in "12")]
    assert values(twice)["closed_accuracy_stderr"] == pytest.approx(mean_standard_error([1, 0, 1, 0, 0]))


def test_a_patient_outweighs_an_image():
    items = [record(reply, "yes", n, patient_id="p", image_id=str(n)) for n, reply in enumerate(["yes", "no"])]
    assert math.isnan(values(items)["closed_accuracy_stderr"])


@pytest.mark.parametrize(("reply", "answer", "absent"), [("yes", "yes", "open"), ("left", "left", "closed")])
def test_a_subset_without_samples_is_nan(reply, answer, absent):
    found = values([record(reply, answer, n) for n in range(3)])
    assert {name for name, value in found.items() if math.isnan(value)} == {n for n in NAMES if n.startswith(absent)}
    nothing = values([])
    assert all(math.isnan(nothing[name]) for name in SCORES)
    assert (nothing["scored_samples"], nothing["failed_samples"]) == (0, 0)


def test_aggregations_do_not_depend_on_order():
    rng = random.Random(5)
    words = ["left", "lower", "lobe", "lung", "yes", "no"]
    items = [
        record(" ".join(rng.choices(words, k=rng.randint(1, 9))), rng.choice(["yes", "no", "left lower lobe"]), n)
        for n in range(60)
    ]
    expected = values(items)
    for _ in range(10):
        rng.shuffle(items)
        found = values(items)
        assert {name: found[name] for name in NAMES if not name.endswith("_stderr")} == {
            name: expected[name] for name in NAMES if not name.endswith("_stderr")
        }
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("rule", [REFERENCE, "robust_vqa"])
def test_empty_replies_are_invalid_and_wrong(rule):
    found = record("", "no memory", rule=rule)
    assert (found["reason"], found["correct"], found["token_recall"]) == ("empty", False, 0.0)
    assert values([found])["invalid_rate"] == 1


@pytest.mark.parametrize("rule", [REFERENCE, "robust_vqa"])
def test_failed_samples_are_in_no_metric_though_their_cause_has_the_words_of_the_key(rule):
    failed = [record(failed_reply("no memory"), answer, 1, rule) for answer in ("no memory", "no")]
    assert [item["reason"] for item in failed] == ["adapter_failed"] * 2
    answered = [("yes", "yes"), ("", "no"), ("left", "left lower lobe"), ("right", "left lower lobe")]
    rest = [record(reply, answer, n, rule) for n, (reply, answer) in enumerate(answered, start=2)]
    found, expected = values([*failed, *rest]), values(rest)
    assert [found[name] for name in SCORES] == [expected[name] for name in SCORES]
    assert (found["scored_samples"], found["failed_samples"]) == (4, 2)
    alone = values(failed)
    assert all(math.isnan(alone[name]) for name in SCORES)
    assert (alone["scored_samples"], alone["failed_samples"]) == (0, 2)
