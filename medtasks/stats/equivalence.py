"""Are two models equally good, within a margin? Two one-sided tests on the same samples, and how many they need.

A paired test that finds no difference shows nothing: with few samples it finds none whatever the models are. Here the
question is turned round (Schuirmann, 1987, Journal of Pharmacokinetics and Biopharmaceutics 15): models are equivalent
if the hypotheses that the true difference is at most ``-margin``, and at least ``margin``, are both rejected at 5 %,
which is so exactly if the 90 % interval of the difference lies between the two.

Right and wrong answers: the score test of Tango (1998), Statistics in Medicine 17, for equivalence of paired shares.
It takes the variance that fits the difference it tests, so that models that never differed on a few samples are not
called equivalent: with a margin of 1 point that takes 270 independent samples, where an exact test takes 299. Samples
of one unit count as the number of independent ones that would have the same standard error (Kish, 1965), as in
:mod:`medtasks.stats.intervals`; as more than units only where many units differ. The standard error is that of clusters
or dyads, and the quantile that of Student's t for its degrees of freedom (:mod:`medtasks.stats.standard_error`).

Other values: Student's t with the same standard error. Where only few units differ at all, their spread says too
little, and the error is at least that of Tango's test for the margin.

Simulated at the margin, at most 6 % are called equivalent on pairs that share images (``benchmarks/intervals.py``),
and at most 8 % in clusters (``tests/stats/test_equivalence.py``), where 5 % should be.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import ALPHA, POWER, exceeding
from medtasks.stats.standard_error import Dyad, MeanError, mean_error, mean_standard_error, separate_units

MARGIN = 0.01
"""One percentage point: about what the published tables of a benchmark are rounded to, and well below the standard
error of a score on a few hundred questions."""
SCORE_TEST = "score test (Tango)"
STUDENT = "Student's t of units"

_FEW = 50  # units that differ
_HARDLY_ANY = 8  # as for shares (:mod:`medtasks.stats.standard_error`)
_HALVINGS = 60
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class Equivalence:
    """Whether the mean difference of two models lies within a margin; NaN is what the samples do not tell."""

    margin: float
    low: float  # of the 90 % interval of the difference, second minus first, as is high
    high: float
    test: str  # SCORE_TEST for right and wrong, else STUDENT
    p: float  # the larger one of the two one-sided tests
    # samples of this kind that show equivalence with 80 % power, if the models are equal; where so many are there, if
    # the difference is the observed one; None where no number would, since that is beyond the margin
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
    known, samples, mean = mean_error(differences, units), len(differences), math.fsum(differences) / len(differences)
    reach = max(1.0, max(*first, *second) - min(*first, *second))
    if {*first, *second} <= {0.0, 1.0}:
        share = _effective(differences, units, known) / samples
        gained, lost = (sum(sign * one > 0 for one in differences) for sign in (1, -1))
        test, statistic = SCORE_TEST, partial(tango_statistic, share * gained, share * lost, share * samples)
    else:
        error = _error(differences, units, known, margin, reach)
        test, statistic = STUDENT, partial(_student, mean, error)
    low, high = _interval(statistic, known.degrees, reach)
    p = max(exceeding(statistic(-margin), known.degrees), exceeding(-statistic(margin), known.degrees))
    needed = _needed(known.error**2 * samples, samples, known.clusters, mean, margin, reach)
    return Equivalence(margin, low, high, test, p, needed)


def _student(mean: float, error: float, true: float) -> float:
    return (mean - true) / error if error > 0 else math.nan


def tango_statistic(gained: float, lost: float, samples: float, true: float) -> float:
    """Return the standardised distance of the observed difference of two paired shares from a ``true`` one.

    Source: Tango (1998), Statistics in Medicine 17, with the maximum likelihood estimate of the shares of samples that
    only one model got right, given that their difference is ``true``, between -1 and 1. Numbers of samples may be
    fractions; those gained and lost only the second, and only the first model got right.
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


def _effective(differences: Sequence[float], units: Sequence[Hashable], known: MeanError) -> float:
    """Return how many independent samples would have the same standard error.

    At most as many as units where few of these differ, and of dyads no more than their degrees of freedom stand for
    where hardly any does: that does not show how samples that share something hang together.
    """
    changed, limit, single = _changed(differences, units), float(known.clusters), mean_standard_error(differences)
    in_dyads = any(isinstance(unit, Dyad) for unit in units)
    if in_dyads and changed < _HARDLY_ANY:
        limit = min(limit, known.degrees + 1)
    independent = not in_dyads and known.clusters == len(differences)
    if independent or not (known.error > _NO_SPREAD and single > _NO_SPREAD):
        return limit
    size = (single / known.error) ** 2 * len(differences)
    return size if changed >= _FEW else min(limit, size)


def _changed(differences: Sequence[float], units: Sequence[Hashable]) -> int:
    """Return the number of units with any difference."""
    return len({unit for unit, difference in zip(units, differences, strict=True) if abs(difference) > _NO_SPREAD})


def _error(
    differences: Sequence[float], units: Sequence[Hashable], known: MeanError, margin: float, reach: float
) -> float:
    """Return the standard error, where few units differ at least that of Tango's test at the margin.

    ``reach`` is the largest possible difference: values that rarely differ, and then by all of it, vary the most.
    """
    if _changed(differences, units) >= min(_FEW, known.clusters) or margin >= reach:
        return known.error
    return max(known.error, math.sqrt(margin * (reach - margin) / known.clusters))


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
    as many as Tango's test wants where models never differ.
    """
    level, power = _normal(1 - ALPHA), _normal((1 + POWER) / 2)
    if not math.isfinite(variance):
        return None
    least = level**2 * max(0.0, reach - margin) / margin * samples / units
    needed = max(least, (level + power) ** 2 * variance / margin**2)
    if needed > samples:
        return math.ceil(needed)
    left = margin - abs(observed)
    return max(samples + 1, math.ceil((level + _normal(POWER)) ** 2 * variance / left**2)) if left > 0 else None


def _normal(probability: float) -> float:
    return NormalDist().inv_cdf(probability)
