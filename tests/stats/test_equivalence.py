"""Equivalence and power against scipy, enumeration, likelihoods that are maximised here, and by simulation."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from scipy.stats import binomtest, multinomial

from medtasks.stats.equivalence import (
    SCORE_TEST,
    STUDENT,
    design_effect,
    detectable_difference,
    equivalence,
    mcnemar_power,
    non_inferiority_power,
    samples_needed,
    tango_statistic,
)
from medtasks.stats.standard_error import Dyad

from ..tables import each_row


def flips(gained, lost, samples):
    """Values of two models on independent samples."""
    same = samples - gained - lost
    return [0.0] * gained + [1.0] * lost + [1.0] * same, [1.0] * gained + [0.0] * lost + [1.0] * same, range(samples)


@each_row("gained, lost, samples, true", [(5, 2, 40, 0.1), (0, 3, 50, -0.02), (9, 9, 30, 0.3)])
def test_score_statistic_has_the_most_likely_variance(gained, lost, samples, true):
    def unlikely(only_first):
        terms = ((gained, only_first + true), (lost, only_first), (samples - gained - lost, 1 - true - 2 * only_first))
        return -sum(number * math.log(share) for number, share in terms if number)

    ends = max(0.0, -true) + 1e-12, (1 - true) / 2 - 1e-12
    found = scipy.optimize.minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-12})
    variance = (2 * found.x + true - true**2) / samples
    expected = ((gained - lost) / samples - true) / math.sqrt(variance)
    assert tango_statistic(gained, lost, samples, true) == pytest.approx(expected, rel=1e-4)


def test_two_one_sided_t_tests_as_scipy_has_them():
    random = np.random.default_rng(5)
    first = random.normal(0.5, 0.2, 60)
    second = first + random.normal(0.002, 0.02, 60)
    found = equivalence(first.tolist(), second.tolist(), range(60), 0.01)
    above = scipy.stats.ttest_1samp(second - first, -0.01, alternative="greater").pvalue
    below = scipy.stats.ttest_1samp(second - first, 0.01, alternative="less").pvalue
    assert (found.test, found.p) == (STUDENT, pytest.approx(max(above, below)))
    interval = scipy.stats.t.interval(0.9, 59, np.mean(second - first), scipy.stats.sem(second - first))
    assert (found.low, found.high) == pytest.approx(interval)
    assert found.shown == (found.p < 0.05)


def test_models_that_never_differed_need_enough_samples():
    assert not equivalence(*flips(0, 0, 269), 0.01).shown
    found = equivalence(*flips(0, 0, 271), 0.01)
    assert (found.shown, found.test) == (True, SCORE_TEST)
    assert found.low == pytest.approx(-found.high)
    assert equivalence(*flips(0, 0, 32), 0.01).needed == pytest.approx(270, abs=3)
    first, second, _ = flips(0, 0, 300)
    in_pairs = equivalence(first, second, [n // 2 for n in range(300)], 0.01)
    assert (in_pairs.shown, in_pairs.needed) == (False, pytest.approx(540, abs=6))
    first, second, _ = flips(1, 0, 1000)  # of 200 units: one flip does not say that the others of its unit are free
    assert not equivalence(first, second, [n // 5 for n in range(1000)], 0.01).shown
    assert equivalence(*flips(1, 0, 1000), 0.01).shown
    reports = [0.25] * 300  # no right and wrong, but a share all the same
    assert equivalence(reports, reports, range(300), 0.01).shown
    assert not equivalence(reports[:200], reports[:200], range(200), 0.01).shown
    assert not equivalence([0.25] * 80, [0.5] * 80, range(80), 0.01).shown
    alone = equivalence([0.0, 1.0], [0.0, 1.0], ["p", "p"], 0.01)
    assert (math.isnan(alone.p), alone.shown) == (True, False)


def test_interval_ends_are_where_a_test_rejects_at_five_percent():
    first, second, units = flips(9, 4, 400)
    found = equivalence(first, second, units, 0.01)
    for end, sign in ((found.low, 1), (found.high, -1)):
        assert scipy.stats.t.sf(sign * tango_statistic(9, 4, 400, end), 399) == pytest.approx(0.05, rel=1e-3)
    other = equivalence(second, first, units, 0.01)
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low))


def drawn(random, units, size, share, alike, true):
    """Values of two models whose true difference is ``true``, with units of samples that mostly flip together."""
    of_unit = random.random(units).repeat(size)
    draws = np.where(random.random(units * size) < alike, of_unit, random.random(units * size))
    up, down = share / 2 + max(true, 0), share / 2 + max(-true, 0)
    flips_of = np.where(draws < up, 1.0, np.where(draws < up + down, -1.0, 0.0))
    first = np.where(flips_of == 0, random.integers(0, 2, units * size), flips_of < 0).astype(float)
    return first.tolist(), (first + flips_of).tolist(), np.repeat(np.arange(units), size).tolist()


@each_row(
    "units, size, share, alike, true",
    [
        (280, 1, 0.0, 0.0, 0.01),  # all flips to one side, two or three of them
        (1000, 1, 0.02, 0.0, -0.01),
        (200, 5, 0.0, 0.8, 0.01),
        (600, 5, 0.05, 0.3, 0.01),
    ],
)
def test_few_models_that_differ_by_the_margin_are_called_equivalent(units, size, share, alike, true):
    random = np.random.default_rng(7)
    runs = 120
    called = sum(equivalence(*drawn(random, units, size, share, alike, true), 0.01).shown for _ in range(runs))
    # 5 %, or 8 % where flips are few, and what 120 runs may be off
    assert called <= scipy.stats.binom.ppf(0.999, runs, 0.08)


@each_row("difference, discordance, level", [(0.2, 0.3, 0.05), (0.1, 0.4, 0.0125), (-0.3, 0.3, 0.05)])
def test_mcnemar_power_against_enumeration(difference, discordance, level):
    gained, lost, total = (discordance + abs(difference)) / 2, (discordance - abs(difference)) / 2, 0.0
    for more in range(31):
        for less in range(more):  # in the direction of the difference
            if more + less <= 30 and binomtest(more, more + less).pvalue <= level:
                total += multinomial.pmf([more, less, 30 - more - less], 30, [gained, lost, 1 - gained - lost])
    assert mcnemar_power(30, difference, discordance, level) == pytest.approx(total, abs=1e-7)
    assert mcnemar_power(1000, 0.0, 0.3, 0.05) <= 0.025  # half the size of the test
    assert mcnemar_power(100, 0.3, 0.2, 0.05) == 0.0  # models cannot differ so much


def test_non_inferiority_against_a_simulation():
    chance = np.random.default_rng(3)
    shown = []
    for gained, lost, _ in chance.multinomial(400, [0.09, 0.11, 0.8], size=4000):
        shown.append(tango_statistic(float(gained), float(lost), 400.0, -0.08) > 1.6448536269514722)
    assert non_inferiority_power(400, -0.02, 0.2, 0.08, 0.05) == pytest.approx(np.mean(shown), abs=0.03)
    at_margin = non_inferiority_power(400, -0.08, 0.2, 0.08, 0.05)
    assert 0.03 <= at_margin <= 0.07


def test_samples_needed_and_detectable_differences_have_the_power_and_less_has_not():
    found = samples_needed(lambda n: mcnemar_power(n, 0.05, 0.2, 0.05), 0.8)
    # Connor (1987): 625 for the asymptotic test, of which the exact one takes a few more.
    assert 620 <= found <= 680
    assert mcnemar_power(found, 0.05, 0.2, 0.05) >= 0.8 > mcnemar_power(found - 1, 0.05, 0.2, 0.05)
    assert samples_needed(lambda n: 0.5, 0.8) is None
    power_of = lambda size: mcnemar_power(500, size, max(0.2, size), 0.05)  # noqa: E731
    found = detectable_difference(power_of, 0.9, 1.0)
    assert power_of(found) >= 0.9 > power_of(found - 0.0001)
    assert all(math.isnan(detectable_difference(power_of, 0.9, largest)) for largest in (0.01, 0.0))


def test_design_effect_against_the_covariance_matrix():
    units = [Dyad("1", "a", "b"), Dyad("2", "b", "c"), Dyad("3", "c", "b"), Dyad("4", "d", "e")]
    members = [{unit.first, unit.second} for unit in units]
    covariance = [1.0 if first is second else 0.3 * bool(first & second) for first in members for second in members]
    assert design_effect(units, 0.3) == pytest.approx(sum(covariance) / len(units))
    assert design_effect(["p"] * 5, 0.3) == pytest.approx(2.2)
    assert design_effect(range(5)) == 1
