"""The bootstrap against a plain loop over drawn units and against formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.metrics.class_scores import ClassCounts, count_classes, multiclass_metrics
from medtasks.stats import bootstrap
from medtasks.stats.bootstrap import (
    bootstrap_standard_errors,
    sum_by_unit,
)
from medtasks.stats.standard_error import clustered_standard_error

from ..tables import each_row

TABLES = st.integers(1, 4).flatmap(
    lambda cells: st.lists(st.tuples(*[st.integers(0, 3)] * cells), min_size=2, max_size=30)
)


def mean_statistic(counts):
    """Sum over number, from the cells (sum, number)."""
    return counts[:, :1] / counts[:, 1:]


def f1_statistic(counts):
    return np.stack([*multiclass_metrics(ClassCounts.of_cells(counts)).values()], axis=-1)


def looped(contributions, statistic, resamples, seed=0):
    """Draw units one by one with replacement, add them up, and take the deviation of the statistic."""
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        total = np.zeros(contributions.shape[1], dtype=int)
        for unit in random.integers(0, len(contributions), len(contributions)):
            total += contributions[unit]
        drawn.append(statistic(total[None])[0])
    return np.std(drawn, axis=0, ddof=1)


def patients(seed, units=50, classes=3):
    """Answers about several images per patient, with patients who are easy and patients who are hard."""
    random = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), random.integers(1, 6, units))
    gold = random.choice(classes, len(unit), p=[0.6, 0.3, 0.1])
    right = random.random(len(unit)) < random.beta(1, 1, units)[unit]
    predicted = np.where(right, gold, random.integers(0, classes, len(unit)))
    return gold, predicted, unit


def test_agrees_with_a_plain_loop():
    gold, predicted, unit = patients(1)
    contributions = sum_by_unit(count_classes(gold, predicted, 3).cells, unit.tolist())
    errors = bootstrap_standard_errors(contributions, f1_statistic, resamples=4000)
    assert errors == pytest.approx(looped(contributions, f1_statistic, 4000), rel=0.06)


@each_row("seed", range(3))
def test_of_a_mean_agrees_with_the_clustered_formula(seed):
    gold, predicted, unit = patients(seed, units=150)
    values = (gold == predicted).astype(int)
    contributions = sum_by_unit(np.stack([values, np.ones_like(values)], axis=1), unit.tolist())
    (error,) = bootstrap_standard_errors(contributions, mean_statistic, resamples=5000)
    assert error == pytest.approx(clustered_standard_error(values.tolist(), unit.tolist()), rel=0.05)
    assert error > 1.1 * clustered_standard_error(values.tolist(), range(len(values)))


@given(table=TABLES, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_units_does_not_matter_to_the_last_digit(table, shuffle):
    def statistic(counts):
        return np.sqrt(counts + 1.0)

    expected = bootstrap_standard_errors(np.array(table), statistic, resamples=50)
    shuffle.shuffle(table)
    assert bootstrap_standard_errors(np.array(table), statistic, resamples=50).tolist() == expected.tolist()


def test_blocks_of_draws_do_not_change_the_result(monkeypatch):
    gold, predicted, unit = patients(2)
    contributions = sum_by_unit(count_classes(gold, predicted, 3).cells, unit.tolist())
    expected = bootstrap_standard_errors(contributions, f1_statistic, resamples=200)
    monkeypatch.setattr(bootstrap, "_LARGEST_DRAW", 300)
    assert bootstrap_standard_errors(contributions, f1_statistic, resamples=200).tolist() == expected.tolist()
    assert bootstrap_standard_errors(contributions, f1_statistic, 200, seed=4).tolist() != expected.tolist()


def test_the_error_is_the_deviation_over_the_draws():
    seen = []

    def statistic(counts):
        seen.append(counts / 7)
        return counts / 7

    errors = bootstrap_standard_errors(np.array([[n, n**2] for n in range(9)]), statistic, resamples=5)
    whole, drawn = seen
    assert whole.tolist() == [[36 / 7, 204 / 7]]
    assert drawn.shape == (5, 2)
    assert errors == pytest.approx(drawn.std(axis=0, ddof=1))


def test_draws_without_a_value_are_left_out():
    """Two units of ten have positives; a resample without them has no recall."""
    units = np.array([[1, 1]] + [[0, 1]] + [[0, 0]] * 8)

    def recall(counts):
        return np.where(counts[:, 1:] > 0, counts[:, :1] / np.maximum(counts[:, 1:], 1), np.nan)

    (error,) = bootstrap_standard_errors(units, recall, resamples=3000)
    random = np.random.default_rng(0)
    drawn = [recall(units[random.integers(0, 10, 10)].sum(axis=0)[None])[0, 0] for _ in range(3000)]
    assert 200 < np.isnan(drawn).sum() < 500
    assert error == pytest.approx(np.nanstd(drawn, ddof=1), rel=0.05)


def test_equal_units_have_error_zero_and_an_undefined_metric_none():
    def statistic(counts):
        return np.stack([counts[:, 0] / 7, np.full(len(counts), np.nan)], axis=-1)

    errors = bootstrap_standard_errors(np.array([[1, 2]] * 5), statistic)
    assert errors.tolist() == [0.0, pytest.approx(math.nan, nan_ok=True)]
    for units in (0, 1):
        assert np.isnan(bootstrap_standard_errors(np.ones((units, 3), dtype=int), statistic)).all()
    undefined = bootstrap_standard_errors(  # for the whole, even where it is defined in resamples
        np.array([[0], [1], [1], [2]]), lambda counts: np.where(counts == 4, np.nan, counts / 3)
    )
    assert np.isnan(undefined).tolist() == [True]


@given(rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(-3, 3)), max_size=25))
def test_contributions_are_added_up_by_unit(rows):
    units = [f"patient {unit}" for unit, *_ in rows]
    table = np.array([counts for _, *counts in rows], dtype=int).reshape(-1, 2)
    expected = {unit: [0, 0] for unit in units}
    for unit, row in zip(units, table.tolist(), strict=True):
        expected[unit] = [a + b for a, b in zip(expected[unit], row, strict=True)]
    assert sum_by_unit(table, units).tolist() == list(expected.values())
