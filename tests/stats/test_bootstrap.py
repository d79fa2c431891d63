"""The bootstrap against a plain loop over drawn units and formulas; the posterior of balanced accuracy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from medtasks.stats import bootstrap
from medtasks.stats.bootstrap import (
    bootstrap_standard_errors,
    mean_recall_posterior,
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


def patients(seed, units=50, classes=3):
    """Answers about several images per patient, with patients who are easy and patients who are hard."""
    random = np.random.default_rng(seed)
    unit = np.repeat(np.arange(units), random.integers(1, 6, units))
    gold = random.choice(classes, len(unit), p=[0.6, 0.3, 0.1])
    right = random.random(len(unit)) < random.beta(1, 1, units)[unit]
    predicted = np.where(right, gold, random.integers(0, classes, len(unit)))
    return gold, predicted, unit


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


SHARES, RECALLS = np.array([0.7, 0.15, 0.1, 0.04, 0.01]), np.array([0.9, 0.7, 0.6, 0.5, 0.4])


def test_one_class_is_the_interval_of_jeffreys():
    right = [1.0] * 27 + [0.0] * 13
    error, low, high = mean_recall_posterior(right, ["a"] * 40, range(40))
    exact = beta(27.5, 13.5)
    assert (low, high) == pytest.approx(exact.interval(0.95), abs=0.005)
    assert error == pytest.approx(exact.std(), rel=0.03)


def test_error_of_two_classes_is_that_of_independent_recalls():
    right, targets = [1.0] * 95 + [0.0] * 5 + [1.0, 0.0], [0] * 100 + [1] * 2
    error = mean_recall_posterior(right, targets, range(102))[0]
    assert error == pytest.approx(math.hypot(beta(95.5, 5.5).std(), beta(1.5, 1.5).std()) / 2, rel=0.03)


def test_order_and_names_do_not_change_the_posterior():
    right, targets, clusters = [1, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 2], [0, 0, 1, 2, 3, 3]
    found = mean_recall_posterior(right, targets, clusters)
    order = [4, 2, 5, 0, 3, 1]
    named = [f"patient {clusters[n]}" for n in order]
    assert mean_recall_posterior([right[n] for n in order], ["cba"[targets[n]] for n in order], named) == found


def test_one_cluster_tells_nothing():
    assert all(map(math.isnan, mean_recall_posterior([1.0, 0.0], [0, 1], ["p", "p"])))


@pytest.mark.parametrize(("number", "size"), [(100, 1), (300, 3)])
def test_coverage_of_the_posterior_with_a_class_of_one_percent(number, size, monkeypatch):
    monkeypatch.setattr(bootstrap, "POSTERIOR_DRAWS", 1000)
    chance, covered = np.random.default_rng(7), []
    for _ in range(200):
        targets = chance.choice(5, number, p=SHARES)
        shared = np.repeat(chance.random(number // size), size)
        luck = np.where(chance.random(number) < 0.5, shared, chance.random(number))
        right = (luck < RECALLS[targets]).astype(float)
        clusters = np.repeat(np.arange(number // size), size)
        _, low, high = mean_recall_posterior(right.tolist(), targets.tolist(), clusters.tolist())
        covered.append(low <= RECALLS[np.unique(targets)].mean() <= high)
    assert np.mean(covered) >= 0.91
