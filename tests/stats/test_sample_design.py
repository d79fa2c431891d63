"""Estimates of a whole benchmark from clusters that were drawn from it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from medtasks.stats.intervals import interval
from medtasks.stats.paired import DRAWN_T, compare_paired
from medtasks.stats.ranks import rank_intervals
from medtasks.stats.sample_design import (
    DrawnUnit,
    drawn_mean,
    drawn_units,
    helped_mean,
    mean_and_error,
)
from medtasks.stats.standard_error import mean_standard_error

# Two strata of four and three clusters of two samples each.
POPULATION = (((1, 1), (0, 1), (0, 0), (1, 0)), ((1, 1), (1, 0), (1, 1)))


def draw(chosen):
    """Return values and units of the chosen clusters of each stratum of the population."""
    values, draws = [], []
    for stratum, clusters in enumerate(chosen):
        for cluster in clusters:
            values += POPULATION[stratum][cluster]
            facts = {"stratum": stratum, "existing": len(POPULATION[stratum])}
            draws += [{"cluster": 10 * stratum + cluster, **facts}] * 2
    return values, drawn_units(draws)


def all_draws():
    """Yield every draw of two clusters of each stratum."""
    pairs = [itertools.combinations(range(len(stratum)), 2) for stratum in POPULATION]
    yield from itertools.product(*pairs)


def test_a_stratified_draw_of_clusters_by_hand():
    values, units = draw([(0, 1), (1, 2)])
    # Weights 4/2 and 3/2: value (2 (2 + 1) + 1.5 (1 + 2)) / 14; residual totals of a cluster w (y - 2 m) / 14.
    mean = Fraction(21, 2) / 14
    assert [unit.weight for unit in units] == [2.0] * 4 + [1.5] * 4
    variance = Fraction(0)
    for weight, existing, totals in ((Fraction(2), 4, (2, 1)), (Fraction(3, 2), 3, (1, 2))):
        first, second = (weight * (total - 2 * mean) / 14 for total in totals)
        centre = (first + second) / 2
        squares = (first - centre) ** 2 + (second - centre) ** 2
        variance += (1 - Fraction(2, existing)) * 2 * squares
    value, error = drawn_mean(values, units)
    assert value == pytest.approx(float(mean), abs=1e-15)
    assert error.error == pytest.approx(math.sqrt(variance), abs=1e-15)
    assert (error.degrees, error.clusters) == (2, 4)


def test_over_all_possible_draws_value_and_variance_are_unbiased():
    """With clusters of one size, and in each stratum the same number, the ratio has no bias of its own."""
    means, variances = [], []
    for chosen in all_draws():
        mean, error = drawn_mean(*draw(chosen))
        means.append(mean)
        variances.append(error.error**2)
    truth = np.mean(
        [value for stratum in POPULATION for cluster in stratum for value in cluster]
    )
    assert np.mean(means) == pytest.approx(truth, abs=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(means), abs=1e-12)


def test_a_whole_draw_is_the_score_without_a_width():
    values, units = draw([range(4), range(3)])
    mean, error = drawn_mean(values, units)
    assert (mean, error.error) == (sum(values) / len(values), 0.0)
    for is_share in (True, False):
        ends = interval(mean, error.error, error.degrees, is_share, error.effective)
        assert ends == (mean, mean)
    others = list(reversed(values))
    helped = helped_mean(values, units, others, sum(others) / len(others))
    assert (helped.value, helped.error.error) == (mean, 0.0)


@pytest.mark.parametrize("existing", [40, 80, 10**9])
def test_one_stratum_has_the_error_of_independent_values_with_the_correction(existing):
    values = [float(number % 7) for number in range(40)]
    units = [DrawnUnit(number, 0, existing, 40) for number in range(40)]
    mean, error = drawn_mean(values, units)
    expected = mean_standard_error(values) * math.sqrt(1 - 40 / existing)
    assert mean == pytest.approx(np.mean(values), abs=1e-12)
    assert error.error == pytest.approx(expected, rel=1e-9)


def test_clusters_outside_of_the_domain_count_in_the_variance():
    """A metric of a part of the samples is the ratio of two totals, to which the other samples add 0."""
    values = [1.0, 0.0, 1.0]
    _, error = drawn_mean(values, [DrawnUnit(number, 0, 20, 10) for number in range(3)])
    residuals = [(value - 2 / 3) / 3 for value in values] + [0.0] * 7
    variance = (1 - 10 / 20) * 10 / 9 * sum(residual**2 for residual in residuals)
    assert error.error == pytest.approx(math.sqrt(variance), abs=1e-15)


def test_clusters_without_a_reply_are_represented_by_the_others_of_their_stratum():
    draws = [
        {"cluster": number, "stratum": number // 5, "existing": 10} for number in range(10)
    ]
    units = drawn_units([*draws[:5], None, None, *draws[7:]])
    assert units[5] is units[6] is None
    assert [unit.weight for unit in (units[0], units[7])] == pytest.approx([2.0, 10 / 3])
    assert (units[0].answered, units[7].answered) == (5, 3)


@pytest.mark.parametrize(("existing", "drawn"), [(200, 100), (1000, 900), (1000, 200)])
def test_the_interval_of_a_draw_that_is_all_right_holds_what_it_cannot_rule_out(
    existing, drawn
):
    """Wrong answers that a draw misses with more than 5 % (hypergeometric) are no surprise."""
    mean, error = drawn_mean(
        [1.0] * drawn, [DrawnUnit(number, 0, existing, drawn) for number in range(drawn)]
    )
    low, high = interval(mean, error.error, error.degrees, True, error.effective)
    assert high == 1.0
    missed = 1.0
    for wrong in range(1, existing - drawn):
        missed *= (existing - drawn - wrong + 1) / (existing - wrong + 1)
        if missed < 0.07:
            break
        assert low <= 1 - wrong / existing + 1e-9, wrong
    assert low >= 1 - (wrong + 4) / existing  # and not much more


def test_help_of_an_equal_model_gives_the_score_of_all_questions():
    random = np.random.default_rng(4)
    everything = random.integers(0, 2, size=300).astype(float)
    chosen = random.permutation(300)[:60]
    values = everything[chosen].tolist()
    units = [DrawnUnit(number, 0, 300, 60) for number in range(60)]
    helped = helped_mean(values, units, values, float(everything.mean()))
    assert helped.factor == pytest.approx(1.0)
    assert helped.value == pytest.approx(everything.mean(), abs=1e-12)
    assert helped.gain == pytest.approx(1.0)


def test_help_takes_the_factor_with_the_smallest_error_and_never_widens():
    random = np.random.default_rng(5)
    ease = random.random(400)
    everything = [(random.random(400) < ease).astype(float) for _ in range(2)]
    inside = 0
    for _ in range(200):
        chosen = random.permutation(400)[:80]
        own, other = (values[chosen].tolist() for values in everything)
        units = [DrawnUnit(number, 0, 400, 80) for number in range(80)]
        _, plain = drawn_mean(own, units)
        helped = helped_mean(own, units, other, float(everything[1].mean()))
        assert helped.error.error <= plain.error
        for factor in (helped.factor - 0.05, helped.factor + 0.05):
            left = [a - factor * b for a, b in zip(own, other, strict=True)]
            assert drawn_mean(left, units)[1].error >= helped.error.error
        ends = interval(
            helped.value, helped.error.error, helped.error.degrees, True, helped.error.effective
        )
        inside += ends[0] <= everything[0].mean() <= ends[1]
    assert 0.9 <= inside / 200 <= 0.99


def test_a_model_that_errs_elsewhere_does_not_help():
    values = [float(number % 2) for number in range(40)]
    units = [DrawnUnit(number, 0, 400, 40) for number in range(40)]
    helped = helped_mean(values, units, [1 - value for value in values], 0.5)
    assert (helped.factor, helped.gain) == (0.0, 0.0)
    assert (helped.value, helped.error) == drawn_mean(values, units)


def test_two_models_on_a_draw_are_compared_on_all_questions():
    first, units = draw([(0, 1), (1, 2)])
    second = [1 - value for value in first]
    result = compare_paired(first, second, units)
    difference, error = drawn_mean([b - a for a, b in zip(first, second, strict=True)], units)
    assert (result.test, result.units, result.difference) == (DRAWN_T, 4, difference)
    assert result.first == drawn_mean(first, units)[0]
    assert result.second == pytest.approx(1 - result.first)
    assert result.high - result.difference == pytest.approx(4.302652729911275 * error.error)
    whole, units = draw([range(4), range(3)])
    result = compare_paired(whole, [0.0] * len(whole), units)
    assert (result.low, result.high, result.p) == (result.difference, result.difference, 0.0)


def test_ranks_of_a_whole_draw_are_certain_and_those_of_a_part_are_not():
    first, units = draw([range(4), range(3)])
    second = [0.0, *first[1:]]
    assert rank_intervals(np.array([first, second]), units) == [(1, 1), (2, 2)]
    first, units = draw([(0, 1), (1, 2)])
    second = [0.0, *first[1:]]
    assert rank_intervals(np.array([first, second]), units) == [(1, 2), (1, 2)]


def test_without_a_draw_the_mean_is_plain():
    mean, error = mean_and_error([0.0, 1.0, 1.0], ["a", "b", "c"])
    assert mean == 2 / 3
    assert error.error == pytest.approx(mean_standard_error([0.0, 1.0, 1.0]))
