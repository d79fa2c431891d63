"""Records of single samples, and aggregation over all of them."""

import json
import math
import random

import pytest

from medtasks.families.counts import COUNTS
from medtasks.harness.filters import ChooseWith, ReadWith
from medtasks.hooks import choice, free_form, pairs

LISTS = {"pairs": pairs.METRIC_LIST, "free_form": free_form.METRIC_LIST, "choice": choice.METRIC_LIST}


def document(pair=1, position=1, key="A", image=None):
    return {
        "doc_id": f"{pair}/{position}",
        "pair_id": str(pair),
        "position": position,
        "image_id": image or f"{pair}-{position}",
        "options": ["Aortic arch", "Kidneys"],
        "answer": key,
        "categories": ["Cardiac"],
    }


def text(rule, reply):
    return ReadWith(rule).apply([[reply]], None)


def likelihood(rule, *losses):
    return ChooseWith(rule).apply([[(loss, False)] for loss in losses], None)


def scored(replies, rule="robust_choice"):
    """Records of pairs 0, 1, ... with keys A and B and these replies."""
    return [
        pairs.process_results(document(n, position, "AB"[position - 1]), text(rule, reply))["confusion"]
        for n, both in enumerate(replies)
        for position, reply in enumerate(both, start=1)
    ]


def test_record_of_a_text_document():
    records = pairs.process_results(document(7, 2, "B", "20001"), text("robust_choice", "(a)"))
    expected = {
        "sample": "7/2",
        "pair_id": "7",
        "position": 2,
        "image_id": "20001",
        "key": "B",
        "value": "A",
        "reason": "ok",
        "rule": "robust_choice",
        "categories": ["Cardiac"],
    }
    assert all(record == expected for record in records.values())
    assert json.loads(json.dumps(expected)) == expected


def test_record_of_a_likelihood_document():
    records = pairs.process_results(document(), likelihood("prefix_reference", 2.0, 2.0))
    assert (records["set_accuracy"]["value"], records["set_accuracy"]["rule"]) == ("B", "prefix_reference")


def test_record_of_an_invalid_reply():
    record = pairs.process_results(document(), text("robust_choice", "I cannot tell."))["invalid_rate"]
    assert (record["value"], record["reason"]) == (None, "refused")


@pytest.mark.parametrize("metrics", LISTS.values(), ids=LISTS)
def test_no_metric_name_is_part_of_another(metrics):
    names = [metric["metric"] for metric in metrics]
    assert len(set(names)) == len(names)
    own = [name for name in names if not name.endswith("_stderr")]
    assert not [(a, b) for a in own for b in own if a != b and a in b]
    assert {name.removesuffix("_stderr") for name in names} == set(own)


@pytest.mark.parametrize("metrics", LISTS.values(), ids=LISTS)
def test_each_metric_comes_before_its_error(metrics):
    names = [metric["metric"] for metric in metrics]
    for name in names:
        if name.endswith("_stderr"):
            assert names.index(name.removesuffix("_stderr")) < names.index(name)


def test_higher_is_better_where_it_is():
    better = {m["metric"] for metrics in LISTS.values() for m in metrics if m["higher_is_better"]}
    assert better == {"set_accuracy", "individual_accuracy", "accuracy", "scored_samples"}


def test_every_metric_has_its_record():
    for hooks in (pairs, choice):
        names = {metric["metric"] for metric in hooks.METRIC_LIST}
        assert set(hooks.process_results(document(), text("robust_choice", "A"))) == names


def test_aggregations_do_not_depend_on_order():
    records = scored(["AB", "AA", ("A", "?"), "BA", "BB"])
    expected = [metric["aggregation"](records) for metric in pairs.METRIC_LIST]
    assert expected[0] == 0.2
    assert not any(math.isnan(value) for value in expected)
    for seed in range(20):
        random.Random(seed).shuffle(records)
        assert [metric["aggregation"](records) for metric in pairs.METRIC_LIST] == expected


def test_aggregations_of_pairs():
    records = scored(["AB", "AA", ("A", "?"), "BA"])
    values = {metric["metric"]: metric["aggregation"](records) for metric in pairs.METRIC_LIST}
    assert values["set_accuracy"] == 1 / 4
    assert values["individual_accuracy"] == 4 / 8
    assert values["confusion"] == 1 / 3
    assert values["invalid_rate"] == 1 / 8
    assert values["incomplete_pairs"] == 0
    assert values["set_accuracy_stderr"] == pytest.approx(0.25)
    assert values["confusion_stderr"] == pytest.approx(1 / 3)


def test_cut_pair_is_counted_and_left_out():
    records = scored(["AB", "AA"])[:3]
    assert pairs.incomplete_pairs(records) == 1
    assert pairs.set_accuracy(records) == 1
    assert pairs.confusion(records) == 0
    assert pairs.individual_accuracy(records) == 1


@pytest.mark.parametrize("rule", ["mediconfusion_reference", "robust_choice"])
def test_confusion_without_a_valid_pair_is_unknown(rule):
    assert math.isnan(pairs.confusion(scored([("?", "?"), ("A", "?")], rule)))
    assert math.isnan(pairs.confusion([]))


def test_confusion_with_a_valid_pair_is_the_same_under_every_rule():
    for rule in ("mediconfusion_reference", "robust_choice"):
        assert pairs.confusion(scored(["AA", "AB", ("?", "A")], rule)) == 0.5


def test_judge_failed_rate():
    records = scored(["AB", "AA"])
    records[0] = {**records[0], "reason": "judge_failed", "value": None}
    assert free_form.judge_failed_rate(records) == 0.25
    assert math.isnan(free_form.judge_failed_rate([]))


def choices(*answers):
    """Records of single questions: (image, key, reply)."""
    return [
        choice.process_results({"options": ["x", "y"], "answer": key, "image_id": image}, text("robust_choice", reply))[
            "accuracy"
        ]
        for image, key, reply in answers
    ]


def test_choice_metrics():
    records = choices((1, "A", "A"), (1, "A", "B"), (2, "B", "?"), (3, "B", "B"))
    assert choice.accuracy(records) == 0.5
    assert choice.invalid_rate(records) == 0.25
    # Deviations from the mean, summed by image: 0, -0.5, 0.5.
    assert choice.accuracy_stderr(records) == pytest.approx(math.sqrt(3 / 2 * 0.5) / 4)
    assert choice.invalid_rate_stderr(records) == pytest.approx(math.sqrt(3 / 2 * (0.5**2 + 0.75**2 + 0.25**2)) / 4)


def test_choice_without_image_ids_takes_every_sample_for_itself():
    answers = [("A", "A"), ("A", "B"), ("B", "B"), ("B", "B")]
    alone = choices(*((None, *answer) for answer in answers))
    apart = choices(*((n, *answer) for n, answer in enumerate(answers)))
    assert choice.accuracy_stderr(alone) == choice.accuracy_stderr(apart) == pytest.approx(0.25)


@pytest.mark.parametrize("metrics", LISTS.values(), ids=LISTS)
def test_metrics_of_nothing_are_nan_and_numbers_0(metrics):
    found = {metric["metric"]: metric["aggregation"]([]) for metric in metrics}
    numbers = {name for name, value in found.items() if not math.isnan(value)}
    assert numbers == found.keys() & {"incomplete_pairs", *COUNTS}
    assert {found[name] for name in numbers} == {0}


def test_choice_record_of_a_likelihood_document():
    document = {"doc_id": "q1", "options": ["x", "y", "z"], "answer": "C"}
    record = choice.process_results(document, likelihood("untied", 3.0, 2.0, 1.0))["accuracy"]
    assert record == {
        "sample": "q1",
        "image_id": None,
        "key": "C",
        "value": "C",
        "reason": "ok",
        "rule": "untied",
    }
