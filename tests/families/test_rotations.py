"""Scoring of rotated questions in the harness's shapes."""

import math

import pytest
from medtasks.hooks.reading import tagged
from medtasks.hooks.rotations import METRIC_LIST, incomplete_rotations, process_listed, process_results

from medtasks.data.variants import rotated

AGGREGATIONS = {entry["metric"]: entry["aggregation"] for entry in METRIC_LIST}
CHOICE = {
    "doc_id": "q1",
    "dataset": "mediconfusion",
    "image_id": "scan",
    "patient_id": None,
    "image_files": [],
    "options": ["liver", "spleen", "kidney"],
    "answer": "B",
}
CLASSES = {name: value for name, value in CHOICE.items() if name != "answer"} | {"label": 2}
SEVERAL = {name: value for name, value in CHOICE.items() if name != "answer"} | {"answers": ["A", "C"]}


def records(document, results, process=process_results):
    """One record per rotation; results by rotation."""
    scored = [process(one, given) for one, given in zip(rotated([document]), results, strict=True)]
    for sample in scored:
        assert [name for name, _ in sample.items()] == list(AGGREGATIONS)
        assert len({id(record) for _, record in sample.items()}) == 1
    return [sample["worst_case"] for sample in scored]


def said(*replies, rule="robust_choice"):
    return [[tagged(reply, rule)] for reply in replies]


def values(items):
    return {name: AGGREGATIONS[name](items) for name in AGGREGATIONS if not name.endswith("_stderr")}


def test_letters_are_those_of_the_published_order():
    # Shown: liver spleen kidney; spleen kidney liver; kidney liver spleen.
    found = records(CHOICE, said("B", "A", "C"))
    assert [(record["key"], record["value"], record["right"]) for record in found] == [("B", "B", 1.0)] * 3
    assert [record["sample"] for record in found] == ["q1~r0", "q1~r1", "q1~r2"]
    assert {record["rotation_of"] for record in found} == {"q1"}
    assert values(found) == {
        "mean_accuracy": 1.0,
        "published_order": 1.0,
        "worst_case": 1.0,
        "flip_rate": 0.0,
        "invalid_rate": 0.0,
        "incomplete_rotations": 0,
        "scored_samples": 3,
        "failed_samples": 0,
    }


def test_a_model_that_always_says_a():
    found = records(CHOICE, said("A", "A", "A"))
    assert [record["value"] for record in found] == ["A", "B", "C"]
    assert values(found)["flip_rate"] == 1
    assert values(found)["mean_accuracy"] == pytest.approx(1 / 3)
    assert values(found)["worst_case"] == values(found)["published_order"] == 0


def test_a_model_that_names_the_option():
    found = records(CHOICE, said("It is the kidney.", "kidney", "kidney"))
    assert [record["value"] for record in found] == ["C", "C", "C"]
    assert values(found)["flip_rate"] == 0


def test_invalid_replies():
    found = records(CHOICE, said("B", "perhaps", ""))
    assert [record["reason"] for record in found][2] == "empty"
    assert values(found)["invalid_rate"] == pytest.approx(2 / 3)
    assert values(found)["flip_rate"] == 1
    assert math.isnan(values(records(CHOICE, said("", "", "")))["flip_rate"])


@pytest.mark.parametrize("rule", ["untied", "greedy_reference"])
def test_likelihoods(rule):
    best = [1, 0, 2]  # where the spleen stands
    results = [
        [{"rule": rule, "loss": 0.1 if place == right else 1.0, "is_greedy": False} for place in range(3)]
        for right in best
    ]
    found = records(CHOICE, results)
    assert [record["value"] for record in found] == ["B"] * 3
    tied = [[{"rule": rule, "loss": 1.0, "is_greedy": False}] * 3] * 3
    assert values(records(CHOICE, tied))["invalid_rate"] == (1 if rule == "untied" else 0)


def test_classes_by_their_numbers_and_names():
    form = "{number}: {text}"
    rule = "multimedeval_class_head"
    numbered = [[tagged(reply, rule, form)] for reply in ("3: kidney", "2: kidney", "1: kidney")]
    found = records(CLASSES, numbered)
    assert [(record["key"], record["value"]) for record in found] == [("C", "C")] * 3
    named = records(CLASSES, said("kidney", "kidney", "kidney", rule="robust_class"))
    assert values(named)["worst_case"] == 1


def test_several_right_options():
    # Shown: liver spleen kidney; spleen kidney liver; kidney liver spleen.
    found = records(SEVERAL, said("A,C", "B, C", "A", rule="listed_options"), process_listed)
    assert [record["key"] for record in found] == [["A", "C"]] * 3
    assert [record["value"] for record in found] == [["A", "C"], ["A", "C"], ["C"]]
    assert [record["right"] for record in found][:2] == [1.0, 1.0]
    assert values(found)["flip_rate"] == 1
    assert values(found)["worst_case"] == found[2]["right"]
    unread = records(SEVERAL, said("?", "?", "?", rule="listed_options"), process_listed)
    assert [record["value"] for record in unread] == [None] * 3


def test_cut_questions_are_counted():
    found = records(CHOICE, said("B", "A", "C"))
    other = [{**record, "rotation_of": "q2"} for record in found]
    assert incomplete_rotations([*found, *other[:2]]) == 1
    assert AGGREGATIONS["worst_case"]([*found, *other[:2]]) == 1
    assert values(other[1:])["incomplete_rotations"] == 1
    assert math.isnan(values(other[1:])["published_order"])


def test_errors_are_clustered_by_unit_and_order_does_not_matter():
    right = records(CHOICE, said("B", "A", "C"))
    wrong = [{**one, "rotation_of": "q2", "value": "A", "right": 0.0} for one in right]
    one_unit = [*right, *wrong]
    assert math.isnan(AGGREGATIONS["mean_accuracy_stderr"](one_unit))
    two_units = [*right, *({**one, "unit": "another"} for one in wrong)]
    assert AGGREGATIONS["mean_accuracy_stderr"](two_units) == pytest.approx(0.5)
    for name, aggregation in AGGREGATIONS.items():
        assert repr(aggregation(two_units)) == repr(aggregation(two_units[::-1])), name


def test_nothing_asked():
    assert all(math.isnan(value) or value == 0 for value in values([]).values())


def test_credentialed_questions_still_belong_together():
    hidden = {**CHOICE, "dataset": "nobody_knows_this_one", "doc_id": "patient 5", "image_id": "patient 5"}
    found = records(hidden, said("B", "A", "C"))
    assert "patient 5" not in str(found)
    assert len({record["rotation_of"] for record in found}) == 1
    assert len({record["sample"] for record in found}) == 3
    assert values(found)["worst_case"] == 1
