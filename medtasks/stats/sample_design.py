"""Mean over a whole benchmark from clusters of it that were drawn at random within strata.

The value is the ratio of Hajek (1971): a sample weighs as many samples as it represents. Its error is that of the
linearised residuals, summed by cluster, between the clusters of each stratum, with the finite-population correction
(Särndal, Swensson and Wretman, "Model Assisted Survey Sampling", 1992, sections 5.6, 5.7 and 8.3). It assumes only that
the draw was random: nothing about the model, or about how samples of a cluster relate. Samples that a metric leaves out
are outside of its domain: their clusters count with residuals of 0.

With another model's values of all samples it is the difference estimator (the same, section 6.3; AIPW, or PPI++ with a
model in place of a judge: Angelopoulos, Duchi and Zrnic, 2023, arXiv 2311.01453). It is unbiased whatever that model
answers, and its factor minimises the error.

Coverage in redraws from real replies is in ``benchmarks/RESULTS.md`` (``benchmarks/redraws.py``).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeGuard

import numpy as np

from medtasks.stats.standard_error import (
    FEW_CLUSTERS,
    Floats,
    MeanError,
    Units,
    clusters_with_rarer_outcome,
    mean_error,
)

_NO_SPREAD = 1e-12  # of a variance: nothing but rounding
# Of the interval of a share, whose upper end is at least one cluster for a share of 0.
_QUANTILE = 1.96


class DrawnUnit(NamedTuple):
    """A drawn cluster, and what its stratum tells about its weight."""

    cluster: int
    stratum: int
    existing: int  # clusters of the stratum
    answered: int  # drawn ones with a reply

    @property
    def weight(self) -> float:
        """Number of clusters that it represents."""
        return self.existing / self.answered


@dataclass(frozen=True)
class HelpedMean:
    """Mean with the help of another model's values."""

    value: float
    error: MeanError
    factor: float  # of the other model's values, from 0 to 1; 0 if they do not help
    gain: float  # share of the standard error that they save


def drawn_units(draws: Sequence[Mapping[str, int] | None]) -> list[DrawnUnit | None]:
    """Return the unit of each sample, None for a sample without a reply.

    A cluster without a reply is represented by the others of its stratum.

    Args:
        draws: For each sample its ``cluster``, its ``stratum`` and the number of ``existing`` clusters in that stratum,
            or None if the sample has no reply.
    """
    answered: dict[int, set[int]] = defaultdict(set)
    for draw in draws:
        if draw is not None:
            answered[draw["stratum"]].add(draw["cluster"])
    units: list[DrawnUnit | None] = [None] * len(draws)
    for position, draw in enumerate(draws):
        if draw is not None:
            units[position] = DrawnUnit(**draw, answered=len(answered[draw["stratum"]]))
    return units


def are_drawn(units: Units) -> TypeGuard[Sequence[DrawnUnit]]:
    """Return whether units are clusters drawn from a whole benchmark. Without units they are not."""
    return bool(units) and isinstance(units[0], DrawnUnit)


def mean_and_error(values: Sequence[float], units: Units) -> tuple[float, MeanError]:
    """Return the mean of values, or of the whole benchmark if their units were drawn from it, and its error.

    The mean is NaN without values.
    """
    if are_drawn(units):
        return drawn_mean(values, units)
    mean = math.fsum(values) / len(values) if values else math.nan
    return mean, mean_error(values, units)


def drawn_mean(
    values: Sequence[float],
    units: Sequence[DrawnUnit],
    metric_weights: Sequence[float] | None = None,
) -> tuple[float, MeanError]:
    """Return the estimated mean over the whole benchmark and its error.

    If all clusters were drawn and answered, the mean is known: the error is 0, and the effective number infinite.
    Otherwise the effective number may exceed that of the samples, as those that were asked are no longer uncertain.
    Mean and error are NaN if all weights are 0.

    Args:
        values: Shape (samples,).
        units: Unit of each sample.
        metric_weights: Weight of each sample in the metric itself. By default all weigh 1.
    """
    sample_weights = [unit.weight for unit in units]
    if metric_weights:
        pairs = zip(metric_weights, sample_weights, strict=True)
        sample_weights = list(map(math.prod, pairs))
    total = math.fsum(sample_weights)
    if not total:
        return math.nan, MeanError()
    weighted_values = map(math.prod, zip(values, sample_weights, strict=True))
    mean = math.fsum(weighted_values) / total
    clusters = len({*units})
    strata = _strata(values, mean, sample_weights, units)
    if not any(stratum.share_unseen for stratum in strata):
        degrees = float(max(clusters - 1, 1))
        return mean, MeanError(0.0, degrees, math.inf, clusters)
    variance = math.fsum(stratum.unseen_covariance(stratum) for stratum in strata)
    degrees = float(sum(len(stratum.sums) - 1 for stratum in strata if stratum.share_unseen))
    effective = _effective_number(mean, values, units, strata, variance)
    return mean, MeanError(math.sqrt(variance), degrees, effective, clusters)


@dataclass(frozen=True)
class _Stratum:
    """Clusters of a stratum that have a reply."""

    sums: Floats  # of residuals by cluster, 0 for clusters outside of the domain
    existing: int  # clusters

    @property
    def share_unseen(self) -> float:
        """Share of its clusters that have no reply."""
        return 1 - len(self.sums) / self.existing

    def covariance(self, other: "_Stratum") -> float:
        """Return the covariance of two totals of this stratum, as if it had been drawn with replacement.

        A single cluster shows no variance of its own: its residual is taken from the mean of all strata.
        """
        number = len(self.sums)
        if number < 2:
            return float(self.sums @ other.sums)
        centred = self.sums - self.sums.mean()
        other_centred = other.sums - other.sums.mean()
        return float(centred @ other_centred) * number / (number - 1)

    def unseen_covariance(self, other: "_Stratum") -> float:
        """Return the covariance with the finite-population correction."""
        return self.share_unseen * self.covariance(other)


def _strata(
    values: Sequence[float],
    mean: float,
    sample_weights: Sequence[float],
    units: Sequence[DrawnUnit],
) -> list[_Stratum]:
    """Return the strata of a mean.

    Args:
        values: Shape (samples,).
        mean: Their weighted mean.
        sample_weights: Number of samples of the benchmark that each sample represents, times its weight in the metric.
        units: Unit of each sample.
    """
    residuals: dict[DrawnUnit, list[float]] = defaultdict(list)
    total = math.fsum(sample_weights)
    for value, weight, unit in zip(values, sample_weights, units, strict=True):
        residuals[unit].append(weight * (value - mean) / total)
    strata: dict[int, _Stratum] = {}
    numbers: Counter[int] = Counter()  # of clusters by stratum
    for unit in sorted(residuals):
        empty = _Stratum(np.zeros(unit.answered), unit.existing)
        stratum = strata.setdefault(unit.stratum, empty)
        stratum.sums[numbers[unit.stratum]] = math.fsum(residuals[unit])
        numbers[unit.stratum] += 1
    return list(strata.values())


def _effective_number(
    mean: float,
    values: Sequence[float],
    units: Sequence[DrawnUnit],
    strata: Sequence[_Stratum],
    corrected: float,
) -> float:
    """Return the number of independent answers with the same error, if the mean is a share.

    Bounds as of :func:`~medtasks.stats.standard_error.clustered_error` hold before the finite-population correction: at
    most the number of replies, and that of the clusters where few show the rarer outcome.

    Args:
        mean: The estimated mean.
        values: Value of each sample.
        units: Unit of each sample.
        strata: Strata of the mean.
        corrected: Variance of the mean, with the finite-population correction.
    """
    by_cluster: dict[DrawnUnit, list[float]] = defaultdict(list)
    for value, unit in zip(values, units, strict=True):
        by_cluster[unit].append(value)
    variance = math.fsum(stratum.covariance(stratum) for stratum in strata)
    existing = sum(stratum.existing for stratum in strata)
    unseen = 1 - sum(len(stratum.sums) for stratum in strata) / existing
    effective = float(len(by_cluster))
    if corrected > _NO_SPREAD and 0 < mean < 1:
        unseen = corrected / variance
        effective = min(mean * (1 - mean) / variance, len(values))
    if clusters_with_rarer_outcome(mean, [*by_cluster.values()]) >= FEW_CLUSTERS:
        return effective / unseen
    # A cluster that was not drawn may have the rarer outcome, however many were drawn.
    most = _QUANTILE**2 * max(existing - 1, 1)
    return min(min(effective, len(by_cluster)) / unseen, most)


def helped_mean(
    values: Sequence[float],
    units: Sequence[DrawnUnit],
    helper: Sequence[float],
    helper_mean: float,
) -> HelpedMean:
    """Return the estimated mean over the whole benchmark with the help of another model's values.

    Args:
        values: Shape (samples,).
        units: Unit of each sample.
        helper: Values of the other model on these samples.
        helper_mean: Its mean over all samples of the benchmark.
    """
    plain, error = drawn_mean(values, units)
    of_helper, _ = drawn_mean(helper, units)
    sample_weights = [unit.weight for unit in units]
    own_strata = _strata(values, plain, sample_weights, units)
    helping_strata = _strata(helper, of_helper, sample_weights, units)
    pairs = zip(own_strata, helping_strata, strict=True)
    common = math.fsum(own.unseen_covariance(other) for own, other in pairs)
    spread = math.fsum(other.unseen_covariance(other) for other in helping_strata)
    factor = min(max(common / spread, 0.0), 1.0) if spread > _NO_SPREAD else 0.0
    if not factor or not error.error:
        return HelpedMean(plain, error, 0.0, 0.0)
    unexplained = [value - factor * other for value, other in zip(values, helper, strict=True)]
    _, of_unexplained = drawn_mean(unexplained, units)
    gain = 1 - of_unexplained.error / error.error
    effective = error.effective / max((1 - gain) ** 2, _NO_SPREAD)
    degrees = max(error.degrees - 1, 0.0)
    error = replace(error, error=of_unexplained.error, degrees=degrees, effective=effective)
    value = plain - factor * (of_helper - helper_mean)
    return HelpedMean(value, error, factor, gain)
