"""Rank correlation against scipy's, and how often its interval holds the truth."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from medtasks.stats.bootstrap import rank_correlation, rank_correlation_interval


@pytest.mark.parametrize("seed", range(5))
def test_it_equals_scipy_s_also_with_ties(seed):
    random = np.random.default_rng(seed)
    x, y = random.integers(8, size=50), random.integers(2, size=50)
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert rank_correlation(x, x) == 1
    assert rank_correlation(x, -x) == -1


def test_it_is_nan_without_anything_to_rank():
    assert math.isnan(rank_correlation([1, 2, 3], [1, 1, 1]))
    assert math.isnan(rank_correlation([1], [1]))
    assert all(map(math.isnan, rank_correlation_interval([1, 2], [0, 1], ["a", "a"])))
    assert all(map(math.isnan, rank_correlation_interval([1, 2, 3], [1, 1, 1], "abc")))
    with pytest.raises(ValueError, match="one cluster per value"):
        rank_correlation_interval([1, 2], [0, 1], ["a"])


def test_the_interval_of_clustered_units_holds_no_correlation_about_as_often_as_it_says():
    random, held, too_short = np.random.default_rng(3), 0, 0
    runs = 40
    for _ in range(runs):
        clusters = np.repeat(np.arange(40), 3)
        x, y = random.normal(size=40)[clusters], random.normal(size=40)[clusters] + random.normal(size=120)
        low, high = rank_correlation_interval(x, y > 0, clusters, resamples=100)
        held += low <= 0 <= high
        low, high = rank_correlation_interval(x, y > 0, range(120), resamples=100)
        too_short += not low <= 0 <= high
    assert held >= 0.85 * runs
    assert too_short > runs - held  # what clusters are for


def test_the_interval_says_the_same_at_every_time():
    x, y = list(range(30)), [0, 1] * 15
    assert rank_correlation_interval(x, y, range(30)) == rank_correlation_interval(x, y, range(30))
