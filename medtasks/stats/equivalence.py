"""Equivalence of two models within a margin: two one-sided tests on the same samples, and the samples they need.

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

Simulated at the margin, at most 6 % are called equivalent on pairs that share images (``benchmarks/intervals.py``),
and at most 8 % in clusters (``tests/stats/test_equivalence.py``), where 5 % should be.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import ALPHA, POWER, exceeding
from medtasks.stats.standard_error import Dyad, MeanError, mean_error, mean_standard_error, separate_units

MARGIN = 0.01
"""One percentage point, as published tables are rounded; well below the standard error on a few hundred questions."""
SCORE_TEST = "score test (Tango)"
STUDENT = "Student's t of units"

_FEW = 50  # units that differ
_HARDLY_ANY = 8  # as for shares (:mod:`medtasks.stats.standard_error`)
_HALVINGS = 60
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class Equivalence:
    """Test of whether the mean difference of two models lies within a margin; undefined numbers are NaN."""

    margin: float
    low: float  # of the 90 % interval of the difference, second minus first, as is high
    high: float
    test: str  # SCORE_TEST for right and wrong, else STUDENT
    p: float  # the larger one of the two one-sided tests
    # samples of this kind that show equivalence with 80 % power if the models are equal; with as many already there, if
    # the difference is the observed one; None if no number would, since that is beyond the margin
    needed: int | None

    @property
    def shown(self) -> bool:
        """Whether the models are equivalent."""
        return -self.margin < self.low and self.high < self.margin


def equivalence(
    first: Sequence[float], second: Sequence[float], units: Sequence[Hashable], margin: float = MARGIN
) -> Equivalence:
    """Test whether two models are equivalent on the same samples; arguments as of ``compare_paired``.

    The margin is above 0, in the unit of the values: 0.01 is one percentage point of a share.

    Example:
        >>> same = [0.0, 1.0] * 200
        >>> equivalence(same, same, range(400)).shown, equivalence(same[:100], same[:100], range(100)).shown
        (True, False)
    """
    if not first or not len(first) == len(second) == len(units) or not margin > 0:
        raise ValueError(
            f"expected as many values and units, at least one, and a margin above 0, got {len(first)}, {len(second)}, "
            f"{len(units)}, {margin}"
        )
    differences = [after - before for before, after in zip(first, second, strict=True)]
    units = separate_units(units)
    error, samples = mean_error(differences, units), len(differences)
    mean = math.fsum(differences) / samples
    reach = max(1.0, max(*first, *second) - min(*first, *second))
    statistic: Callable[[float], float]
    if {*first, *second} <= {0.0, 1.0}:
        share = _effective(differences, units, error) / samples
        gained, lost = (sum(sign * difference > 0 for difference in differences) for sign in (1, -1))
        test, statistic = SCORE_TEST, partial(tango_statistic, share * gained, share * lost, share * samples)
    else:
        spread = error.error
        # Values that rarely differ, and then by all of the reach, vary the most.
        if _changed(differences, units) < min(_FEW, error.clusters) and margin < reach:
            spread = max(spread, math.sqrt(margin * (reach - margin) / error.clusters))
        test, statistic = STUDENT, lambda true: (mean - true) / spread if spread > 0 else math.nan
    low, high = _interval(statistic, error.degrees, reach)
    p = max(exceeding(statistic(-margin), error.degrees), exceeding(-statistic(margin), error.degrees))
    samples_needed = _needed(error.error**2 * samples, samples, error.clusters, mean, margin, reach)
    return Equivalence(margin, low, high, test, p, samples_needed)


def tango_statistic(gained: float, lost: float, samples: float, true: float) -> float:
    """Return the standardised distance of the observed difference of two paired shares from a ``true`` one.

    Source: Tango (1998), Statistics in Medicine 17, with the maximum likelihood estimate of the shares of samples that
    only one model got right, given their ``true`` difference, between -1 and 1. ``gained`` and ``lost`` are the numbers
    that only the second, and only the first model got right; numbers may be fractions.
    """
    if true < 0:
        return -tango_statistic(lost, gained, samples, -true)
    linear = (2 * samples - gained + lost) * true - gained - lost
    root = math.sqrt(max(0.0, linear**2 + 8 * samples * lost * true * (1 - true)))
    only_first = (root - linear) / (4 * samples)
    variance = samples * (2 * only_first + true * (1 - true))
    distance = gained - lost - samples * true
    if variance > _NO_SPREAD:
        return distance / math.sqrt(variance)
    return math.copysign(math.inf, distance) if abs(distance) > _NO_SPREAD else 0.0


def _effective(differences: Sequence[float], units: Sequence[Hashable], error: MeanError) -> float:
    """Return the number of independent samples with the same standard error.

    At most the number of units if few of these differ, and of dyads at most their degrees of freedom plus one if hardly
    any does: so few do not show how samples that share something correlate.
    """
    changed, limit, single = _changed(differences, units), float(error.clusters), mean_standard_error(differences)
    in_dyads = any(isinstance(unit, Dyad) for unit in units)
    if in_dyads and changed < _HARDLY_ANY:
        limit = min(limit, error.degrees + 1)
    independent = not in_dyads and error.clusters == len(differences)
    if independent or not (error.error > _NO_SPREAD and single > _NO_SPREAD):
        return limit
    size = (single / error.error) ** 2 * len(differences)
    return size if changed >= _FEW else min(limit, size)


def _changed(differences: Sequence[float], units: Sequence[Hashable]) -> int:
    """Return the number of units with any difference."""
    return len({unit for unit, difference in zip(units, differences, strict=True) if abs(difference) > _NO_SPREAD})


def _interval(statistic: Callable[[float], float], degrees: float, reach: float) -> tuple[float, float]:
    """Return the true differences, from ``-reach`` to ``reach``, that neither one-sided test rejects."""
    limit = t_quantile(1 - ALPHA, degrees)
    if math.isnan(limit) or math.isnan(statistic(0.0)):
        return math.nan, math.nan

    def end(target: float) -> float:
        low, high = -reach, reach
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if statistic(middle) > target else (low, middle)
        return (low + high) / 2

    return end(limit), end(-limit)


def _needed(variance: float, samples: int, units: int, observed: float, margin: float, reach: float) -> int | None:
    """Return the number of samples of :attr:`Equivalence.needed`.

    Source: Julious (2004), Statistics in Medicine 23, sections on equivalence, with the normal distribution; at least
    as many as Tango's test takes if models never differ.
    """
    if not math.isfinite(variance):
        return None
    level, power = t_quantile(1 - ALPHA, None), t_quantile((1 + POWER) / 2, None)
    least = level**2 * max(0.0, reach - margin) / margin * samples / units
    if_equal = max(least, (level + power) ** 2 * variance / margin**2)
    if if_equal > samples:
        return math.ceil(if_equal)
    distance = margin - abs(observed)
    if distance <= 0:
        return None
    return max(samples + 1, math.ceil((level + t_quantile(POWER, None)) ** 2 * variance / distance**2))
