"""Levels of looks against published ones, the multivariate normal distribution and simulation."""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from medtasks.stats.paired import ALPHA, agresti_min_interval, compare_paired
from medtasks.stats.sequential import boundaries, stopping
from medtasks.stats.standard_error import Dyad

from ..tables import each_row

UNEQUAL = [0.2, 0.55, 0.7, 1.0]


def equal(count):
    return [look / count for look in range(1, count + 1)]


@each_row(
    ("count", "constant"),
    # Jennison and Turnbull (2000), Group Sequential Methods, table 2.3, C_B(K, 0.05).
    [(1, 1.960), (2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040), (10, 2.087)],
)
def test_published_constants(count, constant):
    limits = boundaries(equal(count)).limits
    assert limits[-1] == pytest.approx(constant, abs=6e-4)
    for share, limit in zip(equal(count), limits, strict=True):
        assert limit == pytest.approx(limits[-1] / math.sqrt(share), abs=1e-9)


def test_published_levels():
    # The tests of R's rpact 3 for its default design, which is one-sided at 0.025.
    assert boundaries(equal(3)).limits == pytest.approx(
        [3.4710914, 2.4544323, 2.0040356], abs=1e-6
    )
    assert boundaries(equal(4)).levels == pytest.approx(
        [0.00005, 0.0042, 0.0194, 0.0430], abs=1e-4
    )
    levels = boundaries(equal(5)).levels
    assert levels == pytest.approx([0.00001, 0.0013, 0.0085, 0.0226, 0.0413], abs=1e-4)


@pytest.mark.parametrize("shares", [equal(4), UNEQUAL])
def test_equal_models_stop_with_the_level(shares):
    planned = boundaries(shares)
    covariance = [
        [math.sqrt(min(one, other) / max(one, other)) for other in shares] for one in shares
    ]
    limits = np.array(planned.limits)
    inside = multivariate_normal(cov=covariance, abseps=1e-7, releps=1e-7, seed=1).cdf(
        limits, lower_limit=-limits
    )
    assert 1 - inside == pytest.approx(ALPHA, abs=1e-4)
    assert sum(stopping(planned.limits, shares)) == pytest.approx(ALPHA, abs=1e-9)


def test_a_stop_at_a_level_has_the_p_value_that_was_spent_until_then():
    planned = boundaries(UNEQUAL)
    spent = np.cumsum(stopping(planned.limits, UNEQUAL))
    for look, level in enumerate(planned.levels, 1):
        assert planned.stagewise_p(look, level) == pytest.approx(spent[look - 1], abs=1e-9)
    assert planned.stagewise_p(1, 0.003) == pytest.approx(0.003, abs=1e-9)  # nothing before it
    # An end later, however clear, is less extreme than any stop before.
    assert planned.stagewise_p(3, 1e-300) == pytest.approx(spent[1], abs=1e-9)
    assert planned.stagewise_p(4, 1.0) == pytest.approx(1)


def test_the_expected_share_is_that_of_simulated_motions():
    random = np.random.default_rng(3)
    planned = boundaries(UNEQUAL)
    steps = np.diff([0, *UNEQUAL])
    for drift in (0.0, 2.8, 5.6):
        motions = np.cumsum(random.normal(drift * steps, np.sqrt(steps), (20_000, 4)), axis=1)
        crossed = np.abs(motions / np.sqrt(UNEQUAL)) >= planned.limits
        crossed[:, -1] = True
        share = np.array(UNEQUAL)[crossed.argmax(axis=1)].mean()
        assert planned.expected_share(drift) == pytest.approx(share, abs=0.01)


def test_intervals_at_the_level_of_a_look():
    first = [float(place % 3 > 0) for place in range(60)]
    second = [float(place % 5 > 0) for place in range(60)]
    low, high = agresti_min_interval(8, 16, 60, 0.001)
    usual = agresti_min_interval(8, 16, 60)
    assert (low + high) == pytest.approx(sum(usual))
    ratio = norm.ppf(1 - 0.0005) / norm.ppf(0.975)
    assert (high - low) / (usual[1] - usual[0]) == pytest.approx(ratio)
    chain = [Dyad(str(place), str(place), str(place + 1)) for place in range(60)]
    for units in (list(range(60)), [place // 3 for place in range(60)], chain):
        wide = compare_paired(first, second, units, level=0.001)
        narrow = compare_paired(first, second, units)
        assert wide.low < narrow.low < narrow.high < wide.high
        assert wide.p == pytest.approx(narrow.p, abs=0.01)


def test_a_sign_flip_test_can_pass_at_the_level_of_a_first_look():
    units = [place // 2 for place in range(80)]
    assert compare_paired([0.0] * 80, [1.0, 0.5] * 40, units).p > 0.00009
    result = compare_paired([0.0] * 80, [1.0, 0.5] * 40, units, level=0.00005)
    assert result.p < 0.00005
    assert result.low > 0
