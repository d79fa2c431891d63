"""Equivalence of two models within a margin, and planning of paired comparisons: samples, power, differences.

A paired test that finds no difference shows nothing: with few samples it never finds one. Here the hypotheses are
reversed (Schuirmann, 1987, Journal of Pharmacokinetics and Biopharmaceutics 15): models are equivalent if true
differences of at most ``-margin``, and of at least ``margin``, are both rejected at 5 %, that is, exactly if the 90 %
interval of the difference lies between the two.

Right and wrong answers: the score test of Tango (1998), Statistics in Medicine 17, for equivalence of paired shares.
Its variance fits the difference under test, so that models that never differed on a few samples are not called
equivalent: with a margin of 1 point that takes 270 independent samples, where an exact test takes 299. Samples of one
unit count as the number of independent ones with the same standard error (Kish, 1965), as in
:mod:`medtasks.stats.intervals`; as more than units only if many units differ. The standard error is that of clusters or
dyads, with Student's t for its degrees of freedom (:mod:`medtasks.stats.standard_error`).

Other values: Student's t with the same standard error; if few units differ at all, which shows little of their spread,
the error is at least that of Tango's test for the margin.

Simulated at the margin, at most 6 % are called equivalent on pairs that share images (``benchmarks/intervals.py``), and
at most 8 % in clusters (``tests/stats/test_equivalence.py``), where 5 % should be.

For a plan, the power of McNemar's exact test is summed over all outcomes, and that of Tango's test for non-inferiority
simulated with a fixed seed. Samples that share a patient or image count as fewer: their number is divided by the design
effect.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from medtasks.stats.intervals import UNDEFINED_ENDS, Ends, bisect, t_quantile
from medtasks.stats.paired import ALPHA, POWER, SEED, exceeding, paired_differences
from medtasks.stats.standard_error import (
    Dyad,
    MeanError,
    Units,
    mean_error,
    mean_standard_error,
    separate_units,
    sharing,
)

NON_INFERIORITY = ALPHA / 2
"""Level of the one-sided test for non-inferiority, whose interval is that of 95 % (CONSORT 2010 extension; ICH E9)."""
MARGIN = 0.01
"""One percentage point, as published tables are rounded; well below the standard error on a few hundred questions."""
SCORE_TEST = "score test (Tango)"
STUDENT = "Student's t of units"

_FEW = 50  # units that differ
_HARDLY_ANY = 8  # as for shares (:mod:`medtasks.stats.standard_error`)
_NO_SPREAD = 1e-12

WORKING_CORRELATION = 0.2
"""Assumed correlation of samples that share a patient or image, without a run to estimate it."""
LARGEST_PLAN = 10_000_000
"""Samples beyond which none are planned."""
_SIMULATED = 4000  # comparisons per power
_UNLIKELY = 1e-10  # outcomes left out on either side
_STEP = 1e-4  # in which detectable differences are found


@dataclass(frozen=True)
class Equivalence:
    """Test of whether the mean difference of two models lies within a margin. Undefined numbers are NaN.

    Attributes:
        low: Lower end of the 90 % interval of the difference, second minus first.
        high: Upper end.
        test: SCORE_TEST for right and wrong, else STUDENT.
        p: The larger one of the two one-sided tests.
        ends: Ends of the 95 % interval of the same test, for non-inferiority.
        needed: Number of samples of this kind that show equivalence with 80 % power if the models are equal. If there
            are as many already, the number that does so if the true difference is the observed one. None if the
            standard error is undefined, or if that difference is not within the margin, so that no number would do.
    """

    margin: float
    low: float
    high: float
    test: str
    p: float
    ends: Ends
    needed: int | None

    @property
    def is_equivalent(self) -> bool:
        """Whether the models are equivalent."""
        return -self.margin < self.low and self.high < self.margin


def equivalence(
    first: Sequence[float],
    second: Sequence[float],
    units: Units,
    margin: float = MARGIN,
) -> Equivalence:
    """Test whether two models are equivalent on the same samples.

    Args:
        first: Finite values of the first model, shape (samples,), at least one.
        second: Values of the second model, in the same order.
        units: Cluster or dyad of each sample.
        margin: Above 0, in the unit of the values. 0.01 is one percentage point.
    """
    differences = paired_differences(first, second)
    units = separate_units(units)
    error = mean_error(differences, units)
    samples = len(differences)
    mean = math.fsum(differences) / samples
    largest = max(*first, *second)
    smallest = min(*first, *second)
    reach = max(1.0, largest - smallest)
    changed = len({*itertools.compress(units, np.abs(differences) > _NO_SPREAD)})
    if {*first, *second} <= {0.0, 1.0}:
        test = SCORE_TEST
        statistic = _score_statistic(differences, units, error, changed)
    else:
        spread = error.error
        # Few units that differ show little of the spread. It is largest for values that differ rarely, but then by the
        # whole reach.
        if changed < min(_FEW, error.clusters) and margin < reach:
            spread = max(spread, math.sqrt(margin * (reach - margin) / error.clusters))
        test = STUDENT
        statistic = partial(_student_statistic, mean, spread)
    # The interval holds the true differences, from -reach to reach, that neither one-sided test rejects.
    intervals = []
    for level in (ALPHA, NON_INFERIORITY):
        limit = t_quantile(1 - level, error.degrees)
        ends = UNDEFINED_ENDS
        if not (math.isnan(limit) or math.isnan(statistic(0.0))):
            ends = _inverse(statistic, limit, reach), _inverse(statistic, -limit, reach)
        intervals.append(ends)
    above = exceeding(statistic(-margin), error.degrees)
    below = exceeding(-statistic(margin), error.degrees)
    variance = error.error**2 * samples
    needed = _required_samples(variance, samples, error.clusters, mean, margin, reach)
    narrow, wide = intervals
    return Equivalence(margin, *narrow, test, max(above, below), wide, needed)


def _score_statistic(
    differences: Sequence[float],
    units: Units,
    error: MeanError,
    changed: int,
) -> Callable[[float], float]:
    """Return Tango's statistic for the number of independent samples with the same error.

    That number is at most the number of units if few of these differ, and for dyads at most the degrees of freedom plus
    one if hardly any differs, since so few do not show how samples that share something correlate.

    Args:
        differences: Second model minus first, shape (samples,).
        units: Cluster or dyad of each sample.
        error: Error of the mean difference.
        changed: Number of units in which a sample has a difference.

    Returns:
        A function of the true difference.
    """
    samples = len(differences)
    single = mean_standard_error(differences)
    in_dyads = any(isinstance(unit, Dyad) for unit in units)
    limit = float(error.clusters)
    if in_dyads and changed < _HARDLY_ANY:
        limit = min(limit, error.degrees + 1)
    effective = limit
    is_independent = not in_dyads and error.clusters == samples
    if not is_independent and error.error > _NO_SPREAD and single > _NO_SPREAD:
        size = (single / error.error) ** 2 * samples
        effective = size if changed >= _FEW else min(limit, size)
    share = effective / samples
    gained = share * sum(difference > 0 for difference in differences)
    lost = share * sum(difference < 0 for difference in differences)
    return partial(tango_statistic, gained, lost, share * samples)


def _student_statistic(mean: float, spread: float, true: float) -> float:
    """Return the distance of a mean difference from a ``true`` one, in standard errors.

    Args:
        mean: The observed mean difference.
        spread: Its standard error. Without any (0 or NaN) the distance is NaN.
        true: The true difference.
    """
    return (mean - true) / spread if spread > 0 else math.nan


def _inverse(statistic: Callable[[float], float], target: float, reach: float) -> float:
    """Return the difference from ``-reach`` to ``reach`` at which a falling statistic has the value ``target``."""
    low, high = bisect(lambda true: statistic(true) > target, -reach, reach)
    return (low + high) / 2


def tango_statistic(gained: float, lost: float, samples: float, true: float) -> float:
    """Return the standardised distance of the observed difference of two paired shares from a ``true`` one.

    Source: Tango (1998), Statistics in Medicine 17, with the maximum likelihood estimate of the shares of samples that
    only one model got right, given their ``true`` difference.

    Args:
        gained: Number of samples that only the second model got right. As all numbers, it may be a fraction.
        lost: Number of samples that only the first model got right.
        samples: Number of all samples.
        true: Second share minus first, from -1 to 1.

    Example:
        >>> tango_statistic(6, 2, 100, 0.04)
        0.0
    """
    if true < 0:
        return -tango_statistic(lost, gained, samples, -true)
    linear = (2 * samples - gained + lost) * true - gained - lost
    squared_root = linear**2 + 8 * samples * lost * true * (1 - true)
    root = math.sqrt(max(0.0, squared_root))
    only_first = (root - linear) / (4 * samples)
    variance = samples * (2 * only_first + true * (1 - true))
    distance = gained - lost - samples * true
    if variance > _NO_SPREAD:
        return distance / math.sqrt(variance)
    return math.copysign(math.inf, distance) if abs(distance) > _NO_SPREAD else 0.0


def _required_samples(
    variance: float,
    samples: int,
    units: int,
    observed: float,
    margin: float,
    reach: float,
) -> int | None:
    """Return the number of samples of :attr:`Equivalence.needed`.

    Source: Julious (2004), Statistics in Medicine 23, sections on equivalence, with the normal distribution; at least
    as many as Tango's test takes if models never differ.

    Args:
        variance: Squared standard error of the mean difference, times the number of samples.
        samples: Number of samples that are there.
        units: Number of clusters or dyads of these samples.
        observed: Mean difference.
        margin: Above 0.
        reach: Largest possible difference.

    Returns:
        None if the variance is undefined, or if the samples suffice for equal models but the observed difference is not
        within the margin.
    """
    if not math.isfinite(variance):
        return None
    level = t_quantile(1 - ALPHA, None)
    power = t_quantile((1 + POWER) / 2, None)
    least = level**2 * max(0.0, reach - margin) / margin * samples / units
    if_equal = max(least, (level + power) ** 2 * variance / margin**2)
    if if_equal > samples:
        return math.ceil(if_equal)
    distance = margin - abs(observed)
    if distance <= 0:
        return None
    if_observed = (level + t_quantile(POWER, None)) ** 2 * variance / distance**2
    return max(samples + 1, math.ceil(if_observed))


def design_effect(units: Units, correlation: float = WORKING_CORRELATION) -> float:
    """Return the ratio of the variance of a mean to that of independent samples.

    Source: Kish (1965); Obuchowski (1998), Statistics in Medicine 17.

    Args:
        units: Cluster or dyad of each sample, at least one.
        correlation: Correlation of samples that share a cluster or a member of dyads.

    Example:
        >>> design_effect(["patient 1", "patient 1", "patient 2", "patient 2"])
        1.2
    """
    dyads = []
    for unit in units:
        members = (unit.first, unit.second) if isinstance(unit, Dyad) else (unit,)
        dyads.append(frozenset(members))
    return 1 + correlation * (sum(sharing(dyads)) / len(dyads) - 1)


def mcnemar_power(samples: int, difference: float, discordance: float, level: float) -> float:
    """Return the power of McNemar's exact two-sided test to show a difference, in its direction.

    Args:
        samples: Number of independent samples.
        difference: True share of right answers, second minus first model.
        discordance: True share of samples that exactly one model gets right, at least the absolute difference.
        level: Level of the test.
    """
    from scipy.stats import binom  # type: ignore[import-untyped]  # scipy.stats takes half a second to import

    size = abs(difference)
    if discordance <= 0 or size > discordance + 1e-12:
        return 0.0
    low, high = binom.ppf([_UNLIKELY, 1 - _UNLIKELY], samples, discordance)
    numbers = np.arange(int(low), int(high) + 1)
    critical = binom.ppf(level / 2, numbers, 0.5)
    is_above_level = binom.cdf(critical, numbers, 0.5) > level / 2
    critical = np.where(is_above_level, critical - 1, critical)
    lost = (discordance - size) / 2 / discordance
    probabilities = binom.pmf(numbers, samples, discordance)
    return float(probabilities @ binom.cdf(critical, numbers, lost))


def non_inferiority_power(
    samples: int,
    difference: float,
    discordance: float,
    margin: float,
    level: float,
) -> float:
    """Return the power to show that the second model is worse by less than the ``margin``, simulated.

    The test is Tango's with the normal quantile, one-sided.

    Args:
        samples: Number of independent samples.
        difference: True share of right answers, second minus first model.
        discordance: True share of samples that exactly one model gets right, at least the absolute difference.
        margin: Above 0.
        level: Level of the one-sided test.
    """
    gained = max(0.0, (discordance + difference) / 2)
    lost = max(0.0, (discordance - difference) / 2)
    random = np.random.default_rng(SEED)
    shares = [gained, lost, max(0.0, 1 - gained - lost)]
    drawn = random.multinomial(samples, shares, size=_SIMULATED)
    kinds, numbers = np.unique(drawn[:, :2], axis=0, return_counts=True)
    limit = t_quantile(1 - level, None)
    rejected = []
    for more, less in kinds.tolist():
        rejected.append(tango_statistic(more, less, samples, -margin) > limit)
    return float(numbers @ np.array(rejected) / _SIMULATED)


def required_samples(power_of: Callable[[int], float], power: float) -> int | None:
    """Return the number of independent samples with which a test has a power, None beyond :data:`LARGEST_PLAN`.

    The power of an exact test is not quite monotonic: some smaller number may have the power, too.

    Example:
        >>> required_samples(lambda samples: samples / 100, 0.8)
        80
    """
    low = 1
    high = 2
    while power_of(high) < power:
        low = high
        high *= 2
        if high > LARGEST_PLAN:
            return None
    return _first(lambda samples: power_of(samples) >= power, low, high)


def detectable_difference(
    power_of: Callable[[float], float],
    power: float,
    largest: float,
) -> float:
    """Return the smallest difference, up to a ``largest``, that a test finds with a power, NaN if there is no such one.

    Example:
        >>> detectable_difference(lambda difference: 4 * difference, 0.8, largest=0.5)
        0.2
    """
    steps = math.floor(largest / _STEP)
    if steps < 1 or power_of(steps * _STEP) < power:
        return math.nan
    return _first(lambda number: power_of(number * _STEP) >= power, 0, steps) * _STEP


def _first(is_enough: Callable[[int], bool], low: int, high: int) -> int:
    """Return a number above ``low``, at most ``high``, that is enough while the one before it is not."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high
