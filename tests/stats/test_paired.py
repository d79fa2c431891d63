"""Paired statistics, equivalence and power against brute force, scipy, likelihoods maximised here, and simulation."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

from medtasks.metrics.class_scores import count_classes, multiclass_metrics
from medtasks.scores.planning import Assumptions, plan
from medtasks.stats.calibration import area_values, roc_area
from medtasks.stats.equivalence import (
    NON_INFERIORITY,
    SCORE_TEST,
    STUDENT,
    design_effect,
    detectable_difference,
    equivalence,
    mcnemar_power,
    non_inferiority_power,
    required_samples,
    tango_statistic,
)
from medtasks.stats.exchange import EXCHANGE, compare_counts
from medtasks.stats.paired import (
    DELONG,
    DRAWS,
    DYADIC,
    MCNEMAR,
    SIGN_FLIP,
    agresti_min_interval,
    compare_paired,
    correct_by_holm,
    draws_for,
    holm,
    mcnemar,
    sign_flip_interval,
    sign_flip_test,
)
from medtasks.stats.standard_error import Dyad, mean_error

from ..tables import each_row
from . import error_matrices

RUNS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.0, 0.25, 1.0]), st.integers(0, 20)
    ),
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
    assert (
        sign_flip_test(differences, units)
        == sum(s >= abs(sum(totals)) - 1e-9 for s in sums) / 32
    )
    assert sign_flip_test(differences, units) == sign_flip_test(differences, units, seed=1)
    assert sign_flip_test([0.5] * 300, range(300)) == 1 / (DRAWS + 1)
    assert (
        sign_flip_test([0.1, 0.2, -0.3], "abc") == 1.0
    )  # sums that tie but for rounding count as ties


def test_many_units_against_scipy():
    random = np.random.default_rng(3)
    differences = random.normal(0.15, 1, 150)
    independent = scipy.stats.permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",
        n_resamples=40_000,
        rng=np.random.default_rng(4),
    ).pvalue
    found = sign_flip_test(differences.tolist(), range(150))
    assert 0.01 < found < 0.5
    assert found == pytest.approx(independent, abs=4 * math.sqrt(found * (1 - found) / DRAWS))


def test_many_tests_can_pass_together():
    values, same = ([0.0] * 40, [0.5, 0.7] * 20, range(40)), ([0.5] * 4, [0.5] * 4, range(4))
    several = [(compare_paired(*values), values), *[(compare_paired(*same), same)] * 599]
    result, p_holm = correct_by_holm(several)[0]
    assert 600 / (DRAWS + 1) > 0.05 > p_holm == pytest.approx(600 / (draws_for(600) + 1))
    quantiles = scipy.stats.t.ppf([1 - 0.05 / 600 / 2, 0.8], 39)
    assert result.detectable == pytest.approx(
        quantiles.sum() * np.std(values[1], ddof=1) / math.sqrt(40)
    )
    (alone,) = correct_by_holm(several[:1])
    assert alone == (several[0][0], several[0][0].p)


def test_interval_holds_what_the_test_does_not_reject():
    random = np.random.default_rng(2)
    clusters = [0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8]
    differences = random.normal(0.4, 1, len(clusters))
    low, high = sign_flip_interval(differences.tolist(), clusters)
    for true in np.linspace(-1.5, 2.5, 201):
        assert (sign_flip_test((differences - true).tolist(), clusters) > 0.05) == (
            low <= true <= high
        )
    assert all(
        map(math.isnan, sign_flip_interval([0.1, 0.2, 0.3, 0.4, 0.5], range(5)))
    )  # five units reject nothing
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
    for level, difference in (
        (0.05, found),
        (0.05 / 12, correct_by_holm([(result, values)] * 12)[0][0].detectable),
    ):
        quantile, power = scipy.stats.norm.ppf(1 - level / 2), 0.841621
        needed = (
            quantile * math.sqrt(discordance) + power * math.sqrt(discordance - difference**2)
        ) ** 2
        assert needed / difference**2 == pytest.approx(samples, rel=1e-4)
    gained = (discordance + found) / 2
    counts = np.random.default_rng(5).multinomial(
        samples, [gained, discordance - gained, 1 - discordance], size=1000
    )
    rejected = np.mean([mcnemar(int(lost), int(won)) < 0.05 for won, lost, _ in counts])
    assert 0.72 < rejected < 0.86  # the exact test is a little weaker than the formula's


@each_row("units, tests, sentence", [
    (4, 1, "4 independent units cannot show any difference at this level"),  # p is at least 2 / 2**4 = 0.125
    (5, 1, "5 independent units cannot show any difference at this level"),
    (6, 1, ""),
    (6, 2, "6 independent units cannot show any difference at this level"),  # 0.03125 > 0.025
    (10, 25, ""),  # 0.00195 < 0.002
    (10, 30, "10 independent units cannot show any difference at this level"),
])  # fmt: skip
def test_units_that_cannot_reject_have_no_detectable_difference(units, tests, sentence):
    clusters = [number // 5 for number in range(5 * units)]
    values = (
        [0.0] * len(clusters),
        [float(number % 3 > 0) for number in range(len(clusters))],
        clusters,
    )
    result = correct_by_holm([(compare_paired(*values), values)] * tests)[0][0]
    assert (result.test, result.lacking(tests)) == (SIGN_FLIP, sentence)
    assert math.isnan(result.detectable) == bool(sentence)


@each_row("differing, samples, tests, sentence", [
    (5, 60, 1, "5 differing samples cannot show any difference at this level"),
    (6, 60, 1, ""),
    (6, 60, 2, "6 differing samples cannot show any difference at this level"),
    (1, 60, 1, "1 differing sample cannot show any difference at this level"),
    (6, 6, 2, "6 independent units cannot show any difference at this level"),
    (3, 4, 1, "4 independent units cannot show any difference at this level"),
])  # fmt: skip
def test_mcnemar_cannot_reject_if_models_hardly_differ(differing, samples, tests, sentence):
    values = [0.0] * samples, [1.0] * differing + [0.0] * (samples - differing), range(samples)
    result = correct_by_holm([(compare_paired(*values), values)] * tests)[0][0]
    assert (result.test, result.lacking(tests)) == (MCNEMAR, sentence)
    assert (mcnemar(0, differing) > 0.05 / tests) == bool(sentence)
    assert not sentence or math.isnan(result.detectable)


def test_identical_runs():
    right = compare_paired([0.0, 1.0] * 50, [0.0, 1.0] * 50, range(100))
    assert (right.difference, right.p, right.mcnemar, right.test) == (0, 1, 1, MCNEMAR)
    assert right.low < 0 < right.high
    scores = compare_paired([0.3, 0.7] * 50, [0.3, 0.7] * 50, range(100))
    assert (scores.difference, scores.p, scores.mcnemar, scores.test) == (0, 1, None, SIGN_FLIP)
    assert all(map(math.isnan, (scores.low, scores.high, scores.detectable, right.detectable)))
    rarely = compare_paired(
        [0.0] * 100, [1.0] * 2 + [0.0] * 98, range(100)
    )  # less than any difference it would find
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
    error, degrees = error_matrices.dyadic(
        np.subtract(second, first), [(one.first, one.second) for one in CHAIN]
    )
    assert (found.test, found.samples, found.units) == (DYADIC, 40, 40)
    assert found.p == pytest.approx(
        2 * scipy.stats.t.sf(abs(found.difference) / error, degrees)
    )
    ends = scipy.stats.t.interval(0.95, degrees, found.difference, error)
    assert (found.low, found.high) == pytest.approx(ends)
    quantiles = scipy.stats.t.ppf([0.975, 0.8], degrees)
    assert found.detectable == pytest.approx(quantiles.sum() * error)
    apart = [Dyad(f"p{n}", f"i{n}", f"j{n}") for n in range(40)]  # no image is shared
    assert compare_paired(first, second, apart) == compare_paired(
        first, second, [dyad.name for dyad in apart]
    )


def test_dyads_without_a_spread():
    same = compare_paired([1.0, 0.0] * 20, [1.0, 0.0] * 20, CHAIN)
    assert (same.difference, same.p) == (0.0, 1.0)
    assert math.isnan(same.detectable)
    assert 0.02 < same.high == -same.low < 0.2
    all_gained = compare_paired([0.0] * 40, [1.0] * 40, CHAIN)
    assert 0 < all_gained.p < 0.001
    assert compare_paired([0.0] * 4, [1.0, 0.0, 1.0, 0.0], CHAIN[:4]).high == 1, (
        "a share cannot differ by more"
    )
    star = compare_paired(
        [0.0] * 3, [1.0, 0.0, 1.0], [Dyad(f"p{n}", "hub", f"i{n}") for n in range(3)]
    )
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
    assert repr(
        compare_paired(*(list(column) for column in zip(*shuffled, strict=True)))
    ) == repr(one)


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


def flips(gained, lost, samples):
    """Values of two models on independent samples."""
    same = samples - gained - lost
    return (
        [0.0] * gained + [1.0] * lost + [1.0] * same,
        [1.0] * gained + [0.0] * lost + [1.0] * same,
        range(samples),
    )


@each_row("gained, lost, samples, true", [(5, 2, 40, 0.1), (0, 3, 50, -0.02), (9, 9, 30, 0.3)])
def test_score_statistic_has_the_most_likely_variance(gained, lost, samples, true):
    def unlikely(only_first):
        terms = (
            (gained, only_first + true),
            (lost, only_first),
            (samples - gained - lost, 1 - true - 2 * only_first),
        )
        return -sum(number * math.log(share) for number, share in terms if number)

    ends = max(0.0, -true) + 1e-12, (1 - true) / 2 - 1e-12
    found = scipy.optimize.minimize_scalar(
        unlikely, bounds=ends, method="bounded", options={"xatol": 1e-12}
    )
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
    interval = scipy.stats.t.interval(
        0.9, 59, np.mean(second - first), scipy.stats.sem(second - first)
    )
    assert (found.low, found.high) == pytest.approx(interval)
    assert found.is_equivalent == (found.p < 0.05)


def test_models_that_never_differed_need_enough_samples():
    assert not equivalence(*flips(0, 0, 269), 0.01).is_equivalent
    found = equivalence(*flips(0, 0, 271), 0.01)
    assert (found.is_equivalent, found.test) == (True, SCORE_TEST)
    assert found.low == pytest.approx(-found.high)
    assert equivalence(*flips(0, 0, 32), 0.01).needed == pytest.approx(270, abs=3)
    first, second, _ = flips(0, 0, 300)
    in_pairs = equivalence(first, second, [n // 2 for n in range(300)], 0.01)
    assert (in_pairs.is_equivalent, in_pairs.needed) == (False, pytest.approx(540, abs=6))
    first, second, _ = flips(
        1, 0, 1000
    )  # of 200 units: one flip does not say that the others of its unit are free
    assert not equivalence(first, second, [n // 5 for n in range(1000)], 0.01).is_equivalent
    assert equivalence(*flips(1, 0, 1000), 0.01).is_equivalent
    reports = [0.25] * 300  # no right and wrong, but a share all the same
    assert equivalence(reports, reports, range(300), 0.01).is_equivalent
    assert not equivalence(reports[:200], reports[:200], range(200), 0.01).is_equivalent
    assert not equivalence([0.25] * 80, [0.5] * 80, range(80), 0.01).is_equivalent
    alone = equivalence([0.0, 1.0], [0.0, 1.0], ["p", "p"], 0.01)
    assert (math.isnan(alone.p), alone.is_equivalent) == (True, False)


def test_interval_ends_are_where_a_test_rejects_at_five_percent():
    first, second, units = flips(9, 4, 400)
    found = equivalence(first, second, units, 0.01)
    for end, sign in ((found.low, 1), (found.high, -1)):
        assert scipy.stats.t.sf(sign * tango_statistic(9, 4, 400, end), 399) == pytest.approx(
            0.05, rel=1e-3
        )
    other = equivalence(second, first, units, 0.01)
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low))


def drawn(random, units, size, share, alike, true):
    """Values of two models whose true difference is ``true``, with units of samples that mostly flip together."""
    of_unit = random.random(units).repeat(size)
    draws = np.where(random.random(units * size) < alike, of_unit, random.random(units * size))
    up, down = share / 2 + max(true, 0), share / 2 + max(-true, 0)
    flips_of = np.where(draws < up, 1.0, np.where(draws < up + down, -1.0, 0.0))
    first = np.where(flips_of == 0, random.integers(0, 2, units * size), flips_of < 0).astype(
        float
    )
    return (
        first.tolist(),
        (first + flips_of).tolist(),
        np.repeat(np.arange(units), size).tolist(),
    )


@each_row(
    "units, size, share, alike, true",
    [
        (280, 1, 0.0, 0.0, 0.01),  # all flips to one side, two or three of them
        (1000, 1, 0.02, 0.0, -0.01),
        (200, 5, 0.0, 0.8, 0.01),
        (600, 5, 0.05, 0.3, 0.01),
    ],
)
def test_few_models_that_differ_by_the_margin_are_called_equivalent(
    units, size, share, alike, true
):
    random = np.random.default_rng(7)
    runs = 120
    called = sum(
        equivalence(*drawn(random, units, size, share, alike, true), 0.01).is_equivalent
        for _ in range(runs)
    )
    # 5 %, or 8 % where flips are few, and what 120 runs may be off
    assert called <= scipy.stats.binom.ppf(0.999, runs, 0.08)


@each_row(
    "difference, discordance, level", [(0.2, 0.3, 0.05), (0.1, 0.4, 0.0125), (-0.3, 0.3, 0.05)]
)
def test_mcnemar_power_against_enumeration(difference, discordance, level):
    gained, lost, total = (
        (discordance + abs(difference)) / 2,
        (discordance - abs(difference)) / 2,
        0.0,
    )
    for more in range(31):
        for less in range(more):  # in the direction of the difference
            if more + less <= 30 and binomtest(more, more + less).pvalue <= level:
                total += multinomial.pmf(
                    [more, less, 30 - more - less], 30, [gained, lost, 1 - gained - lost]
                )
    assert mcnemar_power(30, difference, discordance, level) == pytest.approx(total, abs=1e-7)
    assert mcnemar_power(1000, 0.0, 0.3, 0.05) <= 0.025  # half the size of the test
    assert mcnemar_power(100, 0.3, 0.2, 0.05) == 0.0  # models cannot differ so much


@each_row(
    "units, is_testable",
    [
        (["a"] * 20, False),
        ([f"{n % 4}" for n in range(20)], False),
        ([f"{n % 6}" for n in range(20)], True),
    ],
)
def test_too_few_units_cannot_be_tested(units, is_testable):
    result = compare_paired([0.0] * 20, [1.0, 0.0] * 10, units)
    assert result.is_testable == is_testable


def test_one_sample_has_no_interval():
    result = compare_paired([0.0], [1.0], ["a"])
    assert (math.isnan(result.low), math.isnan(result.high), result.is_testable) == (
        True,
        True,
        False,
    )


def test_non_inferiority_against_a_simulation():
    chance = np.random.default_rng(3)
    shown = []
    for gained, lost, _ in chance.multinomial(400, [0.09, 0.11, 0.8], size=4000):
        shown.append(
            tango_statistic(float(gained), float(lost), 400.0, -0.08) > 1.6448536269514722
        )
    assert non_inferiority_power(400, -0.02, 0.2, 0.08, 0.05) == pytest.approx(
        np.mean(shown), abs=0.03
    )
    at_margin = non_inferiority_power(400, -0.08, 0.2, 0.08, 0.05)
    assert 0.03 <= at_margin <= 0.07


def test_samples_needed_and_detectable_differences_have_the_power_and_less_has_not():
    found = required_samples(lambda n: mcnemar_power(n, 0.05, 0.2, 0.05), 0.8)
    # Connor (1987): 625 for the asymptotic test, of which the exact one takes a few more.
    assert 620 <= found <= 680
    assert (
        mcnemar_power(found, 0.05, 0.2, 0.05) >= 0.8 > mcnemar_power(found - 1, 0.05, 0.2, 0.05)
    )
    assert required_samples(lambda n: 0.5, 0.8) is None
    power_of = lambda size: mcnemar_power(500, size, max(0.2, size), 0.05)  # noqa: E731
    found = detectable_difference(power_of, 0.9, 1.0)
    assert power_of(found) >= 0.9 > power_of(found - 0.0001)
    assert all(
        math.isnan(detectable_difference(power_of, 0.9, largest)) for largest in (0.01, 0.0)
    )


def test_design_effect_against_the_covariance_matrix():
    units = [Dyad("1", "a", "b"), Dyad("2", "b", "c"), Dyad("3", "c", "b"), Dyad("4", "d", "e")]
    members = [{unit.first, unit.second} for unit in units]
    covariance = [
        1.0 if first is second else 0.3 * bool(first & second)
        for first in members
        for second in members
    ]
    assert design_effect(units, 0.3) == pytest.approx(sum(covariance) / len(units))
    assert design_effect(["p"] * 5, 0.3) == pytest.approx(2.2)
    assert design_effect(range(5)) == 1


def test_non_inferiority_is_planned_one_sided_at_half_the_level():
    assumed = Assumptions("accuracy", 100, 100, 0.6, "", None, "", 1.0, "")
    assert plan(assumed, None, 0.1, 0.8).needed_for_margin == 377


def placements(scores, positive):
    """Share of the other group that each sample of a group is ahead of, ties as one half, pair by pair."""

    def ahead(high, low):
        return (high > low) + 0.5 * (high == low)

    ill, well = ([s for s, p in zip(scores, positive, strict=True) if p == of] for of in (1, 0))
    of_ill = [sum(ahead(a, b) for b in well) / len(well) for a in ill]
    of_well = [sum(ahead(a, b) for a in ill) / len(ill) for b in well]
    return np.array(of_ill), np.array(of_well)


@each_row("number, share, levels", [(40, 0.5, 100), (60, 0.1, 4), (90, 0.3, 2)])
def test_paired_areas_are_those_of_delong(number, share, levels):
    """Error and p-value from all pairs of a positive and a negative, as in DeLong, DeLong and Clarke-Pearson (1988)."""
    random = np.random.default_rng(number)
    positive = (np.arange(number) < share * number).astype(float)
    first, second = (
        np.round((random.random(number) + lead * positive) * levels).tolist()
        for lead in (0.3, 0.7)
    )
    (ill, well), (ill_after, well_after) = (
        placements(first, positive),
        placements(second, positive),
    )
    moved = [ill_after - ill, well_after - well]
    error = math.sqrt(sum(part.var(ddof=1) / len(part) for part in moved))
    values = [area_values(scores, positive, range(number)) for scores in (first, second)]
    smaller = min(map(len, moved))
    result = compare_paired(*values, range(number), smaller=smaller)
    assert (result.first, result.second) == pytest.approx((ill.mean(), ill_after.mean()))
    assert result.first == pytest.approx(roc_area(first, positive, range(number)).value)
    differences = [after - before for before, after in zip(*values, strict=True)]
    assert mean_error(differences, range(number)).error == pytest.approx(error)
    assert result.p == pytest.approx(
        2 * scipy.stats.t.sf(abs(result.difference) / error, smaller - 1)
    )
    half = scipy.stats.t.ppf(0.975, smaller - 1) * error
    assert (result.low, result.high) == pytest.approx(
        (result.difference - half, result.difference + half)
    )
    assert result.test == DELONG
    swapped = compare_paired(*values[::-1], range(number), smaller=smaller)
    assert (swapped.difference, swapped.p) == pytest.approx((-result.difference, result.p))
    assert compare_paired(values[0], values[0], range(number), smaller=smaller).p == 1.0


def test_paired_areas_of_clusters_have_the_error_of_clusters():
    """Samples that occur four times in their cluster are no more than single ones."""
    random = np.random.default_rng(3)
    positive = (np.arange(50) % 3 == 0).astype(float)
    runs = [(random.random(50) + lead * positive) for lead in (0.2, 0.5)]
    once = [area_values(scores.tolist(), positive, range(50)) for scores in runs]
    units = [number // 4 for number in range(200)]
    repeated = [
        area_values(np.repeat(scores, 4).tolist(), np.repeat(positive, 4), units)
        for scores in runs
    ]
    single, clustered = (
        compare_paired(*once, range(50), smaller=17),
        compare_paired(*repeated, units, smaller=17),
    )
    for name in ("first", "second", "low", "high", "p"):
        assert getattr(clustered, name) == pytest.approx(getattr(single, name))
    assert (
        area_values([1.0, 2.0, 3.0], [1.0, 1.0, 0.0], "aab") == []
    )  # one cluster of positives has no spread


def macro_f1(cells):
    return multiclass_metrics(cells)["macro_f1"]


def both(targets, first, second, classes=3):
    """Counts of two models' answers, shape (samples, 2, cells)."""
    return np.stack(
        [count_classes(targets, answers, classes) for answers in (first, second)], axis=1
    )


def test_exchanges_of_whole_units_are_all_tried_for_a_score_of_all_samples():
    random = np.random.default_rng(5)
    targets, first = random.integers(0, 3, (2, 24)).tolist()
    second = [target if random.random() < 0.8 else 0 for target in targets]
    units = [number // 4 for number in range(24)]  # of six patients
    result, values = compare_counts(both(targets, first, second), units, macro_f1)
    extreme = 0
    for exchanged in itertools.product((False, True), repeat=6):
        pairs = zip(first, second, units, strict=True)
        left, right = zip(
            *((b, a) if exchanged[unit] else (a, b) for a, b, unit in pairs), strict=True
        )
        scores = [
            float(macro_f1(count_classes(targets, answers, 3).sum(axis=0)))
            for answers in (left, right)
        ]
        extreme += abs(scores[1] - scores[0]) >= abs(result.difference) - 1e-9
    assert (result.test, result.p, result.units, result.samples) == (
        EXCHANGE,
        extreme / 2**6,
        6,
        24,
    )
    whole = [
        float(macro_f1(count_classes(targets, answers, 3).sum(axis=0)))
        for answers in (first, second)
    ]
    assert (result.first, result.second) == pytest.approx(whole)
    assert [math.fsum(of_model) / 6 for of_model in values[:2]] == pytest.approx(whole)
    assert result.low < result.difference < result.high
    swapped, _ = compare_counts(both(targets, second, first), units, macro_f1)
    assert (swapped.difference, swapped.p) == pytest.approx((-result.difference, result.p))
    alike, _ = compare_counts(both(targets, first, first), units, macro_f1)
    assert (alike.difference, alike.p) == (0, 1)
    assert math.isnan(alike.low)


def test_a_mean_has_the_same_test_and_nearly_the_same_interval_as_a_score_of_sums():
    """Accuracy as a ratio of summed counts: pseudo-values are the values, and the exchange is the sign flip."""
    random = np.random.default_rng(6)
    first, second = random.integers(0, 2, (2, 60))
    units = [number // 2 for number in range(60)]
    counts = np.stack(
        [np.stack([right, np.ones(60, dtype=int)], axis=1) for right in (first, second)], axis=1
    )
    result, _ = compare_counts(counts, units, lambda sums: sums[..., 0] / sums[..., 1])
    plain = compare_paired(first.astype(float).tolist(), second.astype(float).tolist(), units)
    assert result.p == pytest.approx(sign_flip_test((second - first).tolist(), units), abs=0.01)
    assert (result.low, result.high) == pytest.approx((plain.low, plain.high), abs=0.02)
    assert result.detectable == pytest.approx(plain.detectable)


def test_non_inferiority_has_the_ends_of_the_two_sided_95_percent_interval():
    first, second = [1.0] * 90 + [0.0] * 10, [1.0] * 88 + [0.0] * 2 + [1.0] * 3 + [0.0] * 7
    tested = equivalence(first, second, range(100), 0.1)
    low, high = tested.ends
    limit = scipy.stats.t.ppf(1 - NON_INFERIORITY, 99)
    assert tango_statistic(3, 2, 100, low) == pytest.approx(limit)
    assert tango_statistic(3, 2, 100, high) == pytest.approx(-limit)
    assert low < tested.low < tested.high < high
    values = np.random.default_rng(1).normal(size=(2, 40)).tolist()
    mean = np.subtract(values[1], values[0])
    expected = scipy.stats.t.interval(0.95, 39, mean.mean(), scipy.stats.sem(mean))
    assert equivalence(*values, range(40), 0.1).ends == pytest.approx(expected)
