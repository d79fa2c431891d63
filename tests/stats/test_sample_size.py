"""Power against enumeration and simulation with scipy and statsmodels, and searches against their definition."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest, multinomial

from medtasks.stats.equivalence import (
    design_effect,
    detectable_difference,
    mcnemar_power,
    non_inferiority_power,
    samples_needed,
    tango_statistic,
)
from medtasks.stats.standard_error import Dyad

from ..tables import each_row


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


def test_samples_needed_have_the_power_and_fewer_have_not():
    found = samples_needed(lambda n: mcnemar_power(n, 0.05, 0.2, 0.05), 0.8)
    # Connor (1987): 625 for the asymptotic test, of which the exact one takes a few more.
    assert 620 <= found <= 680
    assert mcnemar_power(found, 0.05, 0.2, 0.05) >= 0.8 > mcnemar_power(found - 1, 0.05, 0.2, 0.05)
    assert samples_needed(lambda n: 0.5, 0.8) is None


def test_the_detectable_difference_has_the_power():
    power_of = lambda size: mcnemar_power(500, size, max(0.2, size), 0.05)  # noqa: E731
    found = detectable_difference(power_of, 0.9, 1.0)
    assert power_of(found) >= 0.9 > power_of(found - 0.0001)
    assert math.isnan(detectable_difference(power_of, 0.9, 0.01))
    assert math.isnan(detectable_difference(power_of, 0.9, 0.0))


def test_design_effect_against_the_covariance_matrix():
    units = [Dyad("1", "a", "b"), Dyad("2", "b", "c"), Dyad("3", "c", "b"), Dyad("4", "d", "e")]
    members = [{unit.first, unit.second} for unit in units]
    covariance = np.array(
        [
            [1.0 if i == j else 0.3 * bool(one & other) for j, other in enumerate(members)]
            for i, one in enumerate(members)
        ]
    )
    assert design_effect(units, 0.3) == pytest.approx(covariance.sum() / len(units))
    assert design_effect(["p"] * 5, 0.3) == pytest.approx(2.2)
    assert design_effect(range(5)) == 1
