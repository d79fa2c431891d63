"""Accuracies over closed questions against the released formula, and errors against a plain clustered one."""

import math
import random

import pytest

from medtasks.metrics.closed_questions import (
    Counted,
    ScoredQuestion,
    accuracy,
    accuracy_error,
    weighted_mean,
    weighted_standard_error,
    weights,
)
from medtasks.stats.standard_error import clustered_standard_error


def question(number, right, cell="c", counted=Counted.SCORED, unit=None):
    return ScoredQuestion(f"q{number}", unit or f"u{number}", cell, counted, {"correct": float(right)})


def drawn(seed, shares):
    """Questions of several cells; ``shares`` are the chances to be scored, averaged and left out."""
    chance = random.Random(seed)
    kinds = (Counted.SCORED, Counted.AVERAGED, Counted.LEFT_OUT)
    return [
        question(
            number,
            chance.random() < 0.4,
            (chance.choice("ab"), chance.choice("xy"), chance.choice("mn")),
            chance.choices(kinds, shares)[0],
            f"u{chance.randrange(12)}",
        )
        for number in range(150)
    ]


def released(questions):
    """Average per cell over the scored, weighted by all questions of the cell."""
    total = number = 0.0
    for cell in {item.cell for item in questions}:
        own = [item for item in questions if item.cell == cell]
        scored = [item.values["correct"] for item in own if item.counted is Counted.SCORED]
        if scored:
            total += sum(scored) / len(scored) * len(own)
            number += len(own)
    return total / number


@pytest.mark.parametrize("seed", range(5))
def test_averaged_questions_count_like_their_cell(seed):
    questions = drawn(seed, (0.8, 0.2, 0))
    assert accuracy(questions, "correct") == pytest.approx(released(questions), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_left_out_questions_do_not_count(seed):
    questions = drawn(seed, (0.8, 0, 0.2))
    scored = [item for item in questions if item.counted is Counted.SCORED]
    values, units = [item.values["correct"] for item in scored], [item.unit for item in scored]
    assert accuracy(questions, "correct") == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert accuracy_error(questions, "correct") == pytest.approx(clustered_standard_error(values, units), abs=1e-12)


def test_order_does_not_change_a_digit():
    questions = drawn(7, (0.7, 0.2, 0.1))
    found = {
        (accuracy(order, "correct"), accuracy_error(order, "correct"))
        for order in (random.Random(seed).sample(questions, len(questions)) for seed in range(20))
    }
    assert len(found) == 1


def test_a_weight_is_a_number_of_equal_questions():
    values, units = [1.0, 0.0, 1.0, 0.0, 0.0], ["a", "a", "b", "c", "c"]
    by = [2.0, 1.0, 3.0, 1.0, 0.0]
    repeated = [(value, unit) for value, unit, times in zip(values, units, by, strict=True) for _ in range(int(times))]
    plain = clustered_standard_error([value for value, _ in repeated], [unit for _, unit in repeated])
    assert weighted_standard_error(values, by, units) == pytest.approx(plain, abs=1e-12)
    assert weighted_mean(values, by) == pytest.approx(5 / 7)


def test_a_cell_without_scored_questions_does_not_count():
    questions = [question(1, True), question(2, False, "d", Counted.AVERAGED)]
    assert weights(questions) == [1.0, 0.0]
    assert accuracy(questions, "correct") == 1.0


@pytest.mark.parametrize("questions", [[], [question(1, False, counted=Counted.LEFT_OUT)]])
def test_nothing_to_count(questions):
    assert math.isnan(accuracy(questions, "correct"))
    assert math.isnan(accuracy_error(questions, "correct"))


def test_one_unit_has_no_error():
    questions = [question(number, number % 2, unit="same") for number in range(4)]
    assert accuracy(questions, "correct") == 0.5
    assert math.isnan(accuracy_error(questions, "correct"))


def test_all_right_has_no_spread():
    questions = [
        question(number, True, counted=Counted.AVERAGED if number == 3 else Counted.SCORED) for number in range(9)
    ]
    assert accuracy(questions, "correct") == 1.0
    assert accuracy_error(questions, "correct") == 0.0
