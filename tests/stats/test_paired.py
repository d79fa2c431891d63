"""Paired statistics against independent computations: brute force, scipy, and simulation."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from medtasks.stats.paired import (
    DRAWS,
    DYADIC,
    MCNEMAR,
    SIGN_FLIP,
    agresti_min_interval,
    compare_paired,
    corrected,
    draws_for,
    holm,
    mcnemar,
    sign_flip_interval,
    sign_flip_test,
)
from medtasks.stats.standard_error import Dyad

from ..tables import each_row
from . import error_matrices

RUNS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.25, 1.0]), st.integers(0, 20)),
    min_size=1,
    max_size=60,
)


@each_row("lost, gained", [(0, 0), (0, 1), (1, 1), (3, 12), (12, 3), (20, 21), (0, 9)])
def test_mcnemar_is_the_sum_of_binomial_probabilities(lost, gained):
    n = lost + gained
    tail = sum(math.comb(n, k) for k in range(min(lost, gained) + 1)) / 2**n
    assert mcnemar(lost, gained) == pytest.approx(min(1.0, 2 * tail))


def test_few_units_are_enumerated_and_p_is_never_zero():
    differences = [0.3, -0.1, 0.2, 0.5, 0.0, -0.4, 0.6]
    units = ["a", "a", "b", "c", "c", "d", "e"]
    totals = [0.3 - 0.1, 0.2, 0.5, -0.4, 0.6]
    sums = [abs(np.dot(signs, totals)) for signs in itertools.product((-1, 1), repeat=5)]
    assert sign_flip_test(differences, units) == sum(s >= abs(sum(totals)) - 1e-9 for s in sums) / 32
    assert sign_flip_test(differences, units) == sign_flip_test(differences, units, seed=1)
    assert sign_flip_test([0.5] * 300, range(300)) == 1 / (DRAWS + 1)
    assert sign_flip_test([0.1, 0.2, -0.3], "abc") == 1.0  # sums that tie but for rounding count as ties


def test_many_units_against_scipy():
    random = np.random.default_rng(3)
    differences = random.normal(0.15, 1, 150)
    independent = scipy.stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=40_000, rng=np.random.default_rng(4)
    ).pvalue
    found = sign_flip_test(differences.tolist(), range(150))
    assert 0.01 < found < 0.5
    assert found == pytest.approx(independent, abs=4 * math.sqrt(found * (1 - found) / DRAWS))


def test_many_tests_can_pass_together():
    values, same = ([0.0] * 40, [0.5, 0.7] * 20, range(40)), ([0.5] * 4, [0.5] * 4, range(4))
    several = [(compare_paired(*values), values), *[(compare_paired(*same), same)] * 599]
    result, p_holm = corrected(several)[0]
    assert 600 / (DRAWS + 1) > 0.05 > p_holm == pytest.approx(600 / (draws_for(600) + 1))
    quantiles = scipy.stats.t.ppf([1 - 0.05 / 600 / 2, 0.8], 39)
    assert result.detectable == pytest.approx(quantiles.sum() * np.std(values[1], ddof=1) / math.sqrt(40))
    (alone,) = corrected(several[:1])
    assert alone == (several[0][0], several[0][0].p)


def test_interval_holds_what_the_test_does_not_reject():
    random = np.random.default_rng(2)
    clusters = [0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8]
    differences = random.normal(0.4, 1, len(clusters))
    low, high = sign_flip_interval(differences.tolist(), clusters)
    for true in np.linspace(-1.5, 2.5, 201):
        assert (sign_flip_test((differences - true).tolist(), clusters) > 0.05) == (low <= true <= high)
    assert all(map(math.isnan, sign_flip_interval([0.1, 0.2, 0.3, 0.4, 0.5], range(5))))  # five units reject nothing
    assert sign_flip_interval([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], range(6))[0] > 0


def test_interval_of_agresti_and_min():
    # Half a sample more in each of four cells, written out.
    total, lost, gained = 102, 5.5, 15.5
    share = (gained - lost) / total
    variance = ((gained + lost) / total - share**2) / total
    expected = [share + sign * 1.959964 * math.sqrt(variance) for sign in (-1, 1)]
    assert agresti_min_interval(5, 15, 100) == pytest.approx(expected, abs=1e-6)
    found = compare_paired([1.0] * 5 + [0.0] * 95, [0.0] * 85 + [1.0] * 15, range(100))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-6)
    low, high = agresti_min_interval(0, 0, 100)
    assert low == pytest.approx(-high)
    assert 0.01 < high < 0.03
    assert agresti_min_interval(0, 3, 3)[1] == 1.0


@each_row("discordance, samples", [(0.2, 176), (0.35, 352), (0.05, 2000)])
def test_detectable_difference_of_mcnemar_has_the_power(discordance, samples):
    differ = round(discordance * samples)
    values = [0.0] * samples, [1.0] * differ + [0.0] * (samples - differ), range(samples)
    result, discordance = compare_paired(*values), differ / samples
    found = result.detectable
    for level, difference in ((0.05, found), (0.05 / 12, corrected([(result, values)] * 12)[0][0].detectable)):
        quantile, power = scipy.stats.norm.ppf(1 - level / 2), 0.841621
        needed = (quantile * math.sqrt(discordance) + power * math.sqrt(discordance - difference**2)) ** 2
        assert needed / difference**2 == pytest.approx(samples, rel=1e-4)
    gained = (discordance + found) / 2
    counts = np.random.default_rng(5).multinomial(samples, [gained, discordance - gained, 1 - discordance], size=1000)
    rejected = np.mean([mcnemar(int(lost), int(won)) < 0.05 for won, lost, _ in counts])
    assert 0.72 < rejected < 0.86  # the exact test is a little weaker than the formula's


def test_identical_runs():
    right = compare_paired([0.0, 1.0] * 50, [0.0, 1.0] * 50, range(100))
    assert (right.difference, right.p, right.mcnemar, right.test) == (0, 1, 1, MCNEMAR)
    assert right.low < 0 < right.high
    scores = compare_paired([0.3, 0.7] * 50, [0.3, 0.7] * 50, range(100))
    assert (scores.difference, scores.p, scores.mcnemar, scores.test) == (0, 1, None, SIGN_FLIP)
    assert all(map(math.isnan, (scores.low, scores.high, scores.detectable, right.detectable)))
    rarely = compare_paired([0.0] * 100, [1.0] * 2 + [0.0] * 98, range(100))  # less than any difference it would find
    assert math.isnan(rarely.detectable)
    alone = compare_paired([0.2], [0.9], ["patient"])
    assert (alone.p, alone.difference, math.isnan(alone.low)) == (1.0, pytest.approx(0.7), True)


def test_answers_of_one_unit_are_not_independent():
    # Ten patients with ten answers each; the second model is right on one patient's ten questions more.
    first = [0.0] * 100
    second = [1.0] * 10 + [0.0] * 90
    found = compare_paired(first, second, [number // 10 for number in range(100)])
    assert (found.test, found.p, found.units, found.samples) == (SIGN_FLIP, 1.0, 10, 100)
    assert found.mcnemar == pytest.approx(2 / 2**10)


CHAIN = [Dyad(f"p{n}", f"i{n}", f"i{n + 1}") for n in range(40)]


def test_pairs_that_share_images_have_a_dyadic_t_test():
    random = np.random.default_rng(5)
    first, second = (random.integers(0, 2, 40).astype(float).tolist() for _ in range(2))
    found = compare_paired(first, second, CHAIN)
    error, degrees = error_matrices.dyadic(np.subtract(second, first), [(one.first, one.second) for one in CHAIN])
    assert (found.test, found.samples, found.units) == (DYADIC, 40, 40)
    assert found.p == pytest.approx(2 * scipy.stats.t.sf(abs(found.difference) / error, degrees))
    ends = scipy.stats.t.interval(0.95, degrees, found.difference, error)
    assert (found.low, found.high) == pytest.approx(ends)
    quantiles = scipy.stats.t.ppf([0.975, 0.8], degrees)
    assert found.detectable == pytest.approx(quantiles.sum() * error)
    apart = [Dyad(f"p{n}", f"i{n}", f"j{n}") for n in range(40)]  # no image is shared
    assert compare_paired(first, second, apart) == compare_paired(first, second, [dyad.name for dyad in apart])


def test_dyads_without_a_spread():
    same = compare_paired([1.0, 0.0] * 20, [1.0, 0.0] * 20, CHAIN)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert math.isnan(same.detectable)
    assert 0.02 < same.high == -same.low < 0.2
    all_gained = compare_paired([0.0] * 40, [1.0] * 40, CHAIN)
    assert 0 < all_gained.p < 0.001
    star = compare_paired([0.0] * 3, [1.0, 0.0, 1.0], [Dyad(f"p{n}", "hub", f"i{n}") for n in range(3)])
    assert star.p == 1.0
    assert all(map(math.isnan, (star.low, star.high, star.detectable)))


@given(RUNS, st.randoms(use_true_random=False))
def test_swapping_negates_the_difference_and_keeps_p_and_order_does_not_matter(rows, random):
    first, second, units = (list(column) for column in zip(*rows, strict=True))
    one, other = compare_paired(first, second, units), compare_paired(second, first, units)
    assert one.difference == -other.difference
    assert (one.p, one.mcnemar, one.test) == (other.p, other.mcnemar, other.test)
    assert (one.first, one.second) == (other.second, other.first)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low), nan_ok=True)
    assert one.detectable == pytest.approx(other.detectable, nan_ok=True)
    assert 0 < one.p <= 1
    shuffled = random.sample(rows, len(rows))
    assert repr(compare_paired(*(list(column) for column in zip(*shuffled, strict=True)))) == repr(one)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_rejects_what_its_definition_rejects(p_values):
    assert holm([0.01, 0.02, 0.02, 0.9]) == pytest.approx([0.04, 0.06, 0.06, 0.9])
    corrected = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected = 0
        for p in sorted(p_values):
            if p * (len(p_values) - rejected) > level:
                break
            rejected += 1
        assert sum(p <= level for p in corrected) == rejected
