"""Metrics of rotated questions, against a second way of counting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.families.rotations import ROTATED_CHOICE, rotated_questions
from medtasks.metrics.metric import evaluate
from medtasks.stats.standard_error import clustered_standard_error

from ..tables import each_row

METRICS = ("mean_accuracy", "published_order", "worst_case", "flip_rate", "invalid_rate")


def score(question, cluster, rotation, rotations, right, value):
    """The score of one rotation."""
    names = ("rotation_of", "cluster_id", "rotation", "rotations", "right", "value")
    return dict(zip(names, (question, cluster, rotation, rotations, right, value), strict=True))


def replies(question, choices, target="A", unit=None, rotations=None):
    """One question's replies in order of its rotations; a missing one is not asked."""
    return [
        score(question, unit or question, place, rotations or len(choices), float(choice == target), choice)
        for place, choice in enumerate(choices)
        if choice != "missing"
    ]


def means_and_errors(scores):
    """What the metrics of RotatedChoice say of replies."""
    estimates = evaluate([metric for metric in ROTATED_CHOICE.metrics if metric.name in METRICS], scores)
    return {name: (estimate.value, estimate.error) for name, estimate in estimates.items()}


def means(*questions):
    found = means_and_errors([reply for one in questions for reply in one])
    return {metric: value for metric, (value, _) in found.items()}


@each_row(
    ("choices", "mean", "published", "worst", "flips", "invalid"),
    [
        (["A", "A", "A"], 1, 1, 1, 0, 0),
        (["A", "B", "A"], 2 / 3, 1, 0, 1, 0),
        (["B", "B", "B"], 0, 0, 0, 0, 0),  # wrong, but always the same
        (["B", "C"], 0, 0, 0, 1, 0),
        (["A", None], 1 / 2, 1, 0, 1, 1 / 2),  # no answer is another answer
        ([None, None], 0, 0, 0, math.nan, 1),  # never an answer: nothing that could change
        (["A"], 1, 1, 1, 0, 0),
    ],
)
def test_one_question(choices, mean, published, worst, flips, invalid):
    found = means(replies("q", choices))
    wanted = dict(zip(METRICS, (mean, published, worst, flips, invalid), strict=True))
    assert found == pytest.approx(wanted, nan_ok=True)


def test_incomplete_questions():
    cut = replies("cut", ["A", "missing"])
    (question,) = rotated_questions(cut)
    assert not question.complete
    assert set(question.values) == {"mean_accuracy", "published_order", "invalid_rate"}
    (without_first,) = rotated_questions(replies("cut", ["missing", "A"]))
    assert set(without_first.values) == {"mean_accuracy", "invalid_rate"}
    found = means(cut, replies("whole", ["B", "B"]))
    assert (found["mean_accuracy"], found["worst_case"], found["flip_rate"]) == (1 / 2, 0, 0)
    assert math.isnan(means()["worst_case"])
    assert all(math.isnan(number) for number in means_and_errors(cut)["flip_rate"])


RUNS = st.lists(
    st.tuples(st.lists(st.sampled_from(["A", "B", None, "missing"]), min_size=1, max_size=4), st.integers(0, 3)),
    min_size=1,
    max_size=12,
).map(lambda rows: [(f"q{number}", f"unit{unit}", choices) for number, (choices, unit) in enumerate(rows)])


@given(RUNS, st.randoms(use_true_random=False))
def test_against_counting_by_hand_in_any_order(run, rng):
    given_replies = [one for name, unit, choices in run for one in replies(name, choices, unit=unit)]
    shuffled = list(given_replies)
    rng.shuffle(shuffled)
    found = rotated_questions(shuffled)
    asked = [(unit, [c for c in choices if c != "missing"], choices) for _, unit, choices in run]
    asked = [row for row in asked if row[1]]
    whole = [(unit, choices) for unit, answered, choices in asked if len(answered) == len(choices)]
    values = {
        "mean_accuracy": [(unit, answered.count("A") / len(answered)) for unit, answered, _ in asked],
        "invalid_rate": [(unit, answered.count(None) / len(answered)) for unit, answered, _ in asked],
        "published_order": [(unit, float(all_[0] == "A")) for unit, _, all_ in asked if all_[0] != "missing"],
        "worst_case": [(unit, float(set(choices) == {"A"})) for unit, choices in whole],
        "flip_rate": [(unit, float(len(set(choices)) != 1)) for unit, choices in whole if set(choices) != {None}],
    }
    for metric, rows in values.items():
        mean = sum(value for _, value in rows) / len(rows) if rows else math.nan
        error = clustered_standard_error([v for _, v in rows], [u for u, _ in rows]) if rows else math.nan
        assert means_and_errors(shuffled)[metric] == pytest.approx((mean, error), nan_ok=True)
    assert sum(not question.complete for question in found) == len(asked) - len(whole)
    assert rotated_questions(given_replies) == found
