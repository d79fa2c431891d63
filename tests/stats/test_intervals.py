"""Intervals: how often simulated truth lies in them, against independent formulas, and at the edges."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import clustered_error, mean_standard_error

from ..tables import each_row


@each_row("right, wrong, patients", [(1, 1, 176), (2, 6, 40), (6, 0.7, 40)])
def test_coverage_of_shares_clustered_by_patient(patients, right, wrong):
    random = np.random.default_rng(4)
    truth = right / (right + wrong)
    covered = []
    for _ in range(600):  # the simulated coverage of a true 95 % has a standard error of 0.9 %
        number = random.integers(1, 9, patients)
        patient = np.repeat(np.arange(patients), number)
        answers = (random.random(len(patient)) < random.beta(right, wrong, patients)[patient]).astype(float)
        found = clustered_error(answers.tolist(), patient.tolist())
        low, high = interval(float(answers.mean()), found.error, found.degrees, share=True, effective=found.effective)
        covered.append(low <= truth <= high)
    assert 0.92 <= np.mean(covered) <= 0.98


@each_row("right, units", [(0, 12), (12, 12), (3, 12), (300, 352)])
def test_is_wilsons_interval_with_students_quantile(right, units):
    """Against statsmodels' formula as scipy has it; scipy's quantile is normal, so the size is scaled to it."""
    value = right / units
    error = math.sqrt(value * (1 - value) / units)
    ends = interval(value, error, units - 1, share=True, effective=None if error > 0 else units)
    factor = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, units - 1)) ** 2
    size = units * factor
    middle = (value * size + 1.9208) / (size + 3.8415)  # as printed in textbooks, z = 1.96
    half = 1.95996 * math.sqrt(size) / (size + 3.8415) * math.sqrt(value * (1 - value) + 3.8415 / 4 / size)
    assert ends == pytest.approx((max(0, middle - half), min(1, middle + half)), abs=2e-4)


def test_normal_quantile_without_known_units_and_students_interval_of_other_scores():
    known = scipy.stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
    assert interval(0.3, math.sqrt(0.3 * 0.7 / 100), None, share=True) == pytest.approx((known.low, known.high))
    assert interval(5.0, 1.0, None, share=False) == pytest.approx((5 - 1.95996, 5 + 1.95996), abs=1e-4)
    values = [3.0, 5.5, 4.0, 7.5, 6.0]
    expected = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
    assert interval(float(np.mean(values)), mean_standard_error(values), 4, share=False) == pytest.approx(expected)


def test_nothing_is_said_without_value_error_or_two_units_nor_of_what_is_no_share():
    nan = math.nan
    nothing = [(nan, 0.1, 9), (0.5, nan, 9), (0.5, math.inf, 9), (0.5, 0.1, nan), (0.5, 0.1, 0), (nan, nan, None)]
    for value, error, units in nothing:
        for share in (True, False):
            assert all(map(math.isnan, interval(value, error, units, share)))
    for value, error in ((1.2, 0.1), (-0.1, 0.1), (0.5, -0.1)):
        with pytest.raises(ValueError, match="expected a share between 0 and 1"):
            interval(value, error, 10, share=True)


def test_all_units_agree():
    low, high = interval(1.0, 0.0, 39, share=True, effective=40)
    assert 0.90 < low < 0.92
    assert high == 1
    assert interval(0.0, 0.0, 39, share=True, effective=40) == pytest.approx((0, 1 - low))
    assert all(map(math.isnan, interval(1.0, 0.0, 39, share=True)))
    assert all(map(math.isnan, interval(3.0, 0.0, 39, share=False, effective=40)))
    low, high = interval(0.5, 1e-17, 175, share=True, effective=176)  # always A: one answer of each pair is right
    assert (low, high) == pytest.approx((0.427, 0.573), abs=0.002)


@given(st.floats(0, 1), st.floats(0, 0.6), st.none() | st.integers(2, 10_000))
def test_ends_of_a_share_hold_it_and_stay_between_0_and_1(value, error, units):
    low, high = interval(value, error, units, share=True)
    assert (math.isnan(low) and math.isnan(high)) or 0 <= low <= value <= high <= 1
