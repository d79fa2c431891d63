"""Standard errors of a mean at the unit that was sampled, and samples that belong together.

Clusters, such as patients: Liang and Zeger (1986), with the correction and the degrees of freedom that Bell and
McCaffrey (2002), Survey Methodology 28, and Imbens and Kolesár (2016), Review of Economics and Statistics 98, derive
from the sizes of the clusters under a working correlation. Few large clusters among many small ones count as few
clusters (Carter, Schnepel and Steigerwald, 2017, Review of Economics and Statistics 99).

Dyads, such as pairs of images that other pairs share: Fafchamps and Gubert (2007), Journal of Development Economics 83;
Aronow, Samii and Assenova (2015), Political Analysis 23; degrees of freedom as above, after Tabord-Meehan (2019),
Journal of Business and Economic Statistics 37.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WORKING_CORRELATION = 0.2  # within clusters; degrees of freedom depend on it little
_LEAST_DEGREES = 1.5  # of clusters of very unequal size
FEW_CLUSTERS = 8  # with the rarer outcome, which then do not show the correlation within clusters
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class MeanError:
    """Standard error of a mean; undefined numbers are NaN."""

    error: float
    degrees: float  # of freedom
    effective: float  # independent answers with the same error, if the mean is a share
    clusters: int  # clusters, or dyads


class Dyad(NamedTuple):
    """A unit with two members, in any order, that other dyads may share, such as a pair of images."""

    name: str
    first: str
    second: str


def mean_standard_error(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1) of independent values over the root of n; NaN for fewer than two."""
    if len(values) < 2:
        return float("nan")
    return float(np.std(np.asarray(values, dtype=float), ddof=1) / np.sqrt(len(values)))


def clustered_error(
    values: Sequence[float], clusters: Sequence[Hashable], weights: Sequence[float] | None = None
) -> MeanError:
    """Return the error of a (weighted) mean of values that are independent between clusters only.

    Equal to :func:`mean_standard_error` with n - 1 degrees of freedom if every cluster has one value. NaN for fewer
    than two clusters.

    The effective size of values of 0 and 1 is at most their number, and at most the number of clusters while fewer than
    8 of them hold the rarer outcome: so few do not show the correlation within clusters (bounds after Korn and
    Graubard, 1998, Survey Methodology 24). Values in between vary less than shares of 0 and 1, so that their effective
    size may exceed their number. It is at most the number of clusters only if fewer than 8 differ from 0, or from 1.
    """
    if len(values) != len(clusters):
        raise ValueError(
            f"expected one cluster per value, but got {len(clusters)} for {len(values)}"
        )
    weights = [1.0] * len(values) if weights is None else weights
    members = _indices_by_cluster(clusters)
    number = len(members)
    if number < 2:
        return MeanError(math.nan, math.nan, math.nan, number)
    mean, deviations, total = _deviations(values, weights)
    # Several ranks deliver samples in another order than one; fsum rounds once, so that the result is the same.
    sizes = np.array(
        sorted(math.fsum(weights[index] for index in indices) for indices in members.values())
    )
    correction, degrees = _correction(sizes)
    sums = (math.fsum(deviations[index] for index in indices) for indices in members.values())
    variance = correction * math.fsum(deviation**2 for deviation in sums) / total**2
    spread = mean * (1 - mean)
    rarer = clusters_with_rarer_outcome(
        mean, [[values[index] for index in indices] for indices in members.values()]
    )
    effective = spread / variance if variance > _NO_SPREAD**2 and spread > 0 else float(number)
    few = FEW_CLUSTERS
    if set(values) <= {0.0, 1.0}:
        effective = min(effective, len(values))
    else:
        few = min(few, number)  # all clusters that there are show the spread of such values
    if rarer < few:
        effective = min(effective, number)
    return MeanError(math.sqrt(variance), max(degrees, _LEAST_DEGREES), effective, number)


def _indices_by_cluster(clusters: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, cluster in enumerate(clusters):
        members[cluster].append(index)
    return members


def _correction(sizes: NDArray[np.float64]) -> tuple[float, float]:
    """Return the correction of the variance for clusters of several sizes, and its degrees of freedom.

    Sums of deviations by cluster have the covariance K = L D L' with L = I - a 1', where a are the shares of the
    clusters and the diagonal of D their variances d. Traces of K and its square are expanded here, as K has a row for
    every cluster. A weight counts as a number of equal samples.
    """
    d = sizes * (1 + _WORKING_CORRELATION * (sizes - 1))
    a = sizes / sizes.sum()
    summed = d.sum()
    ad = a @ d
    aa = a @ a
    trace = summed - 2 * ad + summed * aa
    mixed = 2 * (summed * (a**2 @ d) - 2 * (a @ d**2))
    square = (
        d @ d + mixed + 2 * ad**2 + 2 * aa * (d @ d) + (summed * aa) ** 2 - 4 * summed * ad * aa
    )
    return float(summed / trace), float(trace**2 / square)


def clusters_with_rarer_outcome(mean: float, clusters: Sequence[Sequence[float]]) -> int:
    """Return the number of clusters that do not hold the more frequent one of the outcomes 0 and 1 only."""
    outcomes = (0.0, 1.0) if abs(mean - 0.5) < _NO_SPREAD else (float(mean > 0.5),)
    numbers = []
    for outcome in outcomes:
        differing = [
            any(abs(value - outcome) > _NO_SPREAD for value in values) for values in clusters
        ]
        numbers.append(sum(differing))
    return min(numbers)


def dyadic_error(
    values: Sequence[float],
    dyads: Sequence[tuple[Hashable, Hashable]],
    weights: Sequence[float] | None = None,
) -> MeanError:
    """Return the error of a (weighted) mean of values of dyads, which are independent unless they share a member.

    At least the error of independent values. The members of a dyad have no order. NaN for fewer than two dyads, and if
    each shares a member with each other.
    """
    number = len(values)
    weights = [1.0] * number if weights is None else weights
    members = [frozenset(dyad) for dyad in dyads]
    neighbours = sharing(members)
    linked = sum(neighbours)
    trace = number - linked / number if number else 0.0
    if number < 2 or trace <= 0:
        return MeanError(math.nan, math.nan, math.nan, number)
    squares = (
        linked - 2 * math.fsum(count**2 for count in neighbours) / number + (linked / number) ** 2
    )
    mean, deviations, total = _deviations(values, weights)
    by_member: dict[Hashable, list[float]] = defaultdict(list)
    by_dyad: dict[Hashable, list[float]] = defaultdict(list)
    for dyad, deviation in zip(members, deviations, strict=True):
        for member in dyad:
            by_member[member].append(deviation)
        if len(dyad) > 1:
            by_dyad[dyad].append(deviation)
    shared, twice = (
        math.fsum(math.fsum(group) ** 2 for group in by.values()) for by in (by_member, by_dyad)
    )
    dyadic = (shared - twice) / total**2 * number / trace
    independent = (
        math.fsum(deviation**2 for deviation in deviations) / total**2 * number / (number - 1)
    )
    variance, degrees, spread = max(dyadic, independent), trace**2 / squares, mean * (1 - mean)
    effective = spread / variance if variance > _NO_SPREAD**2 and spread > 0 else degrees + 1
    return MeanError(math.sqrt(variance), degrees, effective, number)


def covariance(
    first: Mapping[frozenset[Hashable], float], second: Mapping[frozenset[Hashable], float]
) -> float:
    """Return the covariance of two means of samples that may belong to the same clusters or dyads.

    Arguments are sums of deviations from the mean, over the sum of weights, by cluster or dyad, as sets of members.
    """
    by_member: dict[Hashable, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for place, sums in enumerate((first, second)):
        for unit, deviation in sums.items():
            for member in unit:
                by_member[member][place].append(deviation)
    shared = math.fsum(
        math.fsum(of_first) * math.fsum(of_second) for of_first, of_second in by_member.values()
    )
    # Units are counted under each of their members.
    return shared - math.fsum(
        (len(unit) - 1) * deviation * second.get(unit, 0.0) for unit, deviation in first.items()
    )


def sharing(dyads: Sequence[frozenset[Hashable]]) -> list[int]:
    """Return for each dyad the number of dyads, itself included, with which it shares a member."""
    uses, alike = Counter(member for dyad in dyads for member in dyad), Counter(dyads)
    # Dyads that share both members are counted under each of these, and taken off once.
    return [
        sum(uses[member] for member in dyad) - (alike[dyad] if len(dyad) > 1 else 0)
        for dyad in dyads
    ]


def mean_error(values: Sequence[float], units: Sequence[Hashable]) -> MeanError:
    """Return the error of a mean over samples of clusters, or of dyads, each of which may have several samples."""
    dyads = [unit for unit in units if isinstance(unit, Dyad)]
    if not dyads:
        return clustered_error(values, units)
    members: dict[Dyad, list[float]] = defaultdict(list)
    for dyad, value in zip(dyads, values, strict=True):
        members[dyad].append(value)
    means = [math.fsum(group) / len(group) for group in members.values()]
    weights = [float(len(group)) for group in members.values()]
    return dyadic_error(means, [(dyad.first, dyad.second) for dyad in members], weights)


def separate_units(units: Sequence[Hashable]) -> Sequence[Hashable]:
    """Replace dyads by their names if no two share a member, so that they are independent."""
    dyads = {unit for unit in units if isinstance(unit, Dyad)}
    uses = Counter(member for dyad in dyads for member in {dyad.first, dyad.second})
    if not dyads or max(uses.values()) > 1:
        return units
    return [unit.name if isinstance(unit, Dyad) else unit for unit in units]


def _deviations(
    values: Sequence[float], weights: Sequence[float]
) -> tuple[float, list[float], float]:
    """Return the weighted mean, weighted deviations from it, and the sum of weights."""
    total = math.fsum(weights)
    mean = math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / total
    return (
        mean,
        [(value - mean) * weight for value, weight in zip(values, weights, strict=True)],
        total,
    )


def joined_clusters(clusters: Sequence[str], shared: Sequence[str | None]) -> list[str]:
    """Join clusters, such as patients, that share something, such as an image, so that the result is independent.

    A joined cluster has the least name of its members, so that names do not depend on the order. ``shared`` is None for
    samples that share nothing; both arguments have shape (samples,).
    """
    if not any(shared):
        return list(clusters)
    pairs = list(zip(clusters, shared, strict=True))
    different = list(dict.fromkeys(pairs))
    components = connected_components(
        [(cluster, *([image] if image else ())) for cluster, image in different]
    )
    least: dict[int, str] = {}
    for component, (cluster, _) in zip(components, different, strict=True):
        least[component] = min(least.get(component, cluster), cluster)
    names = {pair: least[component] for pair, component in zip(different, components, strict=True)}
    return [names[pair] for pair in pairs]


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each sample the position of the first one that it is connected with, directly or through others.

    Samples with an equal one of their ``keys`` are connected; keys and positions have shape (samples,).
    """
    first = list(range(len(keys)))
    seen: dict[Hashable, int] = {}

    def root(index: int) -> int:
        while first[index] != index:
            first[index] = first[first[index]]
            index = first[index]
        return index

    for index, shared in enumerate(keys):
        for key in shared:
            earlier, later = sorted((root(index), root(seen.setdefault(key, index))))
            first[later] = earlier
    return [root(index) for index in range(len(keys))]
