"""Standard errors of a mean at the unit that was sampled, and samples that belong together.

Clusters, such as patients: Liang and Zeger (1986), with the correction and the degrees of freedom that Bell and
McCaffrey (2002), Survey Methodology 28, and Imbens and Kolesár (2016), Review of Economics and Statistics 98, derive
from the sizes of the clusters under a working correlation. Few large clusters among many small ones count as few
clusters (Carter, Schnepel and Steigerwald, 2017, Review of Economics and Statistics 99).

Dyads, such as pairs of images that other pairs share: Fafchamps and Gubert (2007), Journal of Development Economics 83;
Aronow, Samii and Assenova (2015), Political Analysis 23; degrees of freedom as above, after Tabord-Meehan (2019),
Journal of Business and Economic Statistics 37.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Units = Sequence[Hashable]
"""Independent unit of each sample, shape (samples,): a cluster such as a patient, a :class:`Dyad`, or a drawn unit."""

_WORKING_CORRELATION = 0.2  # within clusters; degrees of freedom depend on it little
_LEAST_DEGREES = 1.5  # of clusters of very unequal size
# Clusters with the rarer outcome below which they do not show the correlation within clusters.
FEW_CLUSTERS = 8
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class MeanError:
    """Standard error of a mean. Undefined numbers are NaN.

    Attributes:
        degrees: Degrees of freedom.
        effective: Number of independent answers with the same error, if the mean is a share.
        clusters: Number of clusters, or dyads.
    """

    error: float = math.nan
    degrees: float = math.nan
    effective: float = math.nan
    clusters: int = 0


class Dyad(NamedTuple):
    """A unit with two members, in any order, that other dyads may share, such as a pair of images."""

    name: str
    first: str
    second: str


def mean_standard_error(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1) of independent values over the root of n, NaN for fewer than two.

    Example:
        >>> round(mean_standard_error([0, 1, 1, 1]), 2)
        0.25
    """
    if len(values) < 2:
        return math.nan
    deviation = np.std(np.asarray(values, dtype=float), ddof=1)
    return float(deviation / np.sqrt(len(values)))


def clustered_error(
    values: Sequence[float],
    clusters: Units,
    weights: Sequence[float] | None = None,
) -> MeanError:
    """Return the error of a (weighted) mean of values that are independent between clusters only.

    Equal to :func:`mean_standard_error` with n - 1 degrees of freedom if every cluster has one value. NaN for fewer
    than two clusters.

    The effective size of values of 0 and 1 is at most their number, and at most the number of clusters while fewer than
    8 of them hold the rarer outcome: so few do not show the correlation within clusters (bounds after Korn and
    Graubard, 1998, Survey Methodology 24). Values in between vary less than shares of 0 and 1, so that their effective
    size may exceed their number. It is at most the number of clusters only if fewer than 8 differ from 0, or from 1.

    Args:
        values: Shape (samples,).
        clusters: Cluster of each sample, such as its patient.
        weights: Weight of each sample. By default all weigh 1.

    Raises:
        ValueError: Values and clusters differ in number.
    """
    if len(values) != len(clusters):
        raise ValueError(
            f"expected one cluster per value, but got {len(clusters)} for {len(values)}"
        )
    weights = [1.0] * len(values) if weights is None else weights
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, cluster in enumerate(clusters):
        members[cluster].append(index)
    number = len(members)
    if number < 2:
        return MeanError(clusters=number)
    mean, deviations, total = _deviations(values, weights)
    # Several ranks deliver samples in another order than one; fsum rounds once, so that the result is the same.
    sizes = []
    squares = []
    outcomes = []
    for indices in members.values():
        sizes.append(math.fsum(weights[index] for index in indices))
        squares.append(math.fsum(deviations[index] for index in indices) ** 2)
        outcomes.append([values[index] for index in indices])
    correction, degrees = _correction(np.array(sorted(sizes)))
    variance = correction * math.fsum(squares) / total**2
    rarer = clusters_with_rarer_outcome(mean, outcomes)
    effective = _effective_number(mean, variance, number)
    few = FEW_CLUSTERS
    if set(values) <= {0.0, 1.0}:
        effective = min(effective, len(values))
    else:
        few = min(few, number)  # all clusters that there are show the spread of such values
    if rarer < few:
        effective = min(effective, number)
    return MeanError(math.sqrt(variance), max(degrees, _LEAST_DEGREES), effective, number)


def _effective_number(mean: float, variance: float, without_spread: float) -> float:
    """Return the number of independent answers with the same variance of their mean, a share.

    Args:
        mean: The share.
        variance: Variance of the share.
        without_spread: Number to return if there is no variance.
    """
    spread = mean * (1 - mean)
    if variance > _NO_SPREAD**2 and spread > 0:
        return spread / variance
    return float(without_spread)


def _correction(sizes: Floats) -> tuple[float, float]:
    """Return the factor that corrects the variance of a mean over clusters, and the degrees of freedom of its error.

    Sums of deviations by cluster have the covariance K = L D L' with L = I - a 1', where a are the shares of the
    clusters and the diagonal of D their variances d. Traces of K and its square are expanded here, as K has a row for
    every cluster.

    Args:
        sizes: Sum of the weights of each cluster, shape (clusters,). A weight counts as a number of equal samples.
    """
    d = sizes * (1 + _WORKING_CORRELATION * (sizes - 1))
    a = sizes / sizes.sum()
    summed = d.sum()
    ad = a @ d
    aa = a @ a
    trace = summed - 2 * ad + summed * aa
    mixed = 2 * (summed * (a**2 @ d) - 2 * (a @ d**2))
    dd = d @ d
    square = dd + mixed + 2 * ad**2 + 2 * aa * dd + (summed * aa) ** 2
    square -= 4 * summed * ad * aa
    return float(summed / trace), float(trace**2 / square)


def clusters_with_rarer_outcome(mean: float, clusters: Sequence[Sequence[float]]) -> int:
    """Return the number of clusters that do not hold the more frequent one of the outcomes 0 and 1 only.

    Args:
        mean: Mean of all values.
        clusters: Values of each cluster.

    Example:
        >>> clusters_with_rarer_outcome(0.8, [[1.0, 1.0], [1.0, 0.0], [1.0]])
        1
    """
    outcomes = [float(mean > 0.5)]
    if abs(mean - 0.5) < _NO_SPREAD:
        outcomes = [0.0, 1.0]
    numbers = []
    for outcome in outcomes:
        number = 0
        for values in clusters:
            number += any(abs(value - outcome) > _NO_SPREAD for value in values)
        numbers.append(number)
    return min(numbers)


def dyadic_error(
    values: Sequence[float],
    dyads: Sequence[tuple[Hashable, Hashable]],
    weights: Sequence[float] | None = None,
) -> MeanError:
    """Return the error of a (weighted) mean of values of dyads, which are independent unless they share a member.

    At least the error of independent values. NaN for fewer than two dyads, and if each shares a member with each other.

    Args:
        values: Shape (samples,).
        dyads: Both members of each sample's dyad, in any order.
        weights: Weight of each sample. By default all weigh 1.
    """
    number = len(values)
    weights = [1.0] * number if weights is None else weights
    members = [frozenset(dyad) for dyad in dyads]
    neighbours = sharing(members)
    linked = sum(neighbours)
    trace = number - linked / number if number else 0.0
    if number < 2 or trace <= 0:
        return MeanError(clusters=number)
    squared_neighbours = math.fsum(count**2 for count in neighbours)
    squares = linked - 2 * squared_neighbours / number + (linked / number) ** 2
    degrees = trace**2 / squares
    mean, deviations, total = _deviations(values, weights)
    dyadic = _products_of_neighbours(members, deviations) / total**2 * number / trace
    squared_deviations = math.fsum(deviation**2 for deviation in deviations)
    independent = squared_deviations / total**2 * number / (number - 1)
    variance = max(dyadic, independent)
    effective = _effective_number(mean, variance, degrees + 1)
    return MeanError(math.sqrt(variance), degrees, effective, number)


def _products_of_neighbours(
    dyads: Sequence[frozenset[Hashable]], deviations: Sequence[float]
) -> float:
    """Return the sum of the products of deviations over all pairs of dyads that share a member.

    Args:
        dyads: Members of each dyad.
        deviations: Deviation of each dyad's value from the mean.
    """
    by_member: dict[Hashable, list[float]] = defaultdict(list)
    by_dyad: dict[Hashable, list[float]] = defaultdict(list)
    for dyad, deviation in zip(dyads, deviations, strict=True):
        for member in dyad:
            by_member[member].append(deviation)
        if len(dyad) > 1:  # its square is counted under both members
            by_dyad[dyad].append(deviation)
    shared = math.fsum(math.fsum(group) ** 2 for group in by_member.values())
    twice = math.fsum(math.fsum(group) ** 2 for group in by_dyad.values())
    return shared - twice


def covariance(
    first: Mapping[frozenset[Hashable], float], second: Mapping[frozenset[Hashable], float]
) -> float:
    """Return the covariance of two means of samples that may belong to the same clusters or dyads.

    Args:
        first: Sum of deviations from the mean, over the sum of weights, by cluster or dyad as a set of members.
        second: Such sums of the other mean.
    """
    by_member: dict[Hashable, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for index, sums in enumerate((first, second)):
        for unit, deviation in sums.items():
            for member in unit:
                by_member[member][index].append(deviation)
    shared = [math.fsum(ours) * math.fsum(others) for ours, others in by_member.values()]
    # Units are counted under each of their members.
    repeated = []
    for unit, deviation in first.items():
        repeated.append((len(unit) - 1) * deviation * second.get(unit, 0.0))
    return math.fsum(shared) - math.fsum(repeated)


def sharing(dyads: Sequence[frozenset[Hashable]]) -> list[int]:
    """Return for each dyad the number of dyads, itself included, with which it shares a member.

    Example:
        >>> sharing([frozenset("ab"), frozenset("bc"), frozenset("de")])
        [2, 2, 1]
    """
    uses = Counter(itertools.chain(*dyads))
    alike = Counter(dyads)
    numbers = []
    for dyad in dyads:
        number = sum(uses[member] for member in dyad)
        # Dyads that share both members are counted under each of these, and taken off once.
        numbers.append(number - alike[dyad] if len(dyad) > 1 else number)
    return numbers


def mean_error(values: Sequence[float], units: Units) -> MeanError:
    """Return the error of a mean over samples of clusters or dyads.

    Args:
        values: Shape (samples,).
        units: Cluster, or :class:`Dyad`, of each sample: all of one kind. A unit may have several samples.
    """
    dyads = [unit for unit in units if isinstance(unit, Dyad)]
    if not dyads:
        return clustered_error(values, units)
    members: dict[Dyad, list[float]] = defaultdict(list)
    for dyad, value in zip(dyads, values, strict=True):
        members[dyad].append(value)
    means = [math.fsum(group) / len(group) for group in members.values()]
    weights = [float(len(group)) for group in members.values()]
    return dyadic_error(means, [(dyad.first, dyad.second) for dyad in members], weights)


def separate_units(units: Units) -> Units:
    """Replace dyads by their names if no two share a member, so that they are independent.

    Example:
        >>> separate_units([Dyad("a", "1", "2"), Dyad("b", "3", "4")])
        ['a', 'b']
    """
    dyads = {unit for unit in units if isinstance(unit, Dyad)}
    uses = Counter(itertools.chain(*({dyad.first, dyad.second} for dyad in dyads)))
    if not dyads or max(uses.values()) > 1:
        return units
    return [unit.name if isinstance(unit, Dyad) else unit for unit in units]


def _deviations(
    values: Sequence[float], weights: Sequence[float]
) -> tuple[float, list[float], float]:
    """Return the weighted mean, weighted deviations from it, and the sum of weights."""
    total = math.fsum(weights)
    pairs = list(zip(values, weights, strict=True))
    mean = math.fsum(value * weight for value, weight in pairs) / total
    return mean, [(value - mean) * weight for value, weight in pairs], total


def joined_clusters(clusters: Sequence[str], shared: Sequence[str | None]) -> list[str]:
    """Join clusters, such as patients, that share something, such as an image, so that the result is independent.

    A joined cluster has the least name of its members, so that names do not depend on the order.

    Args:
        clusters: Cluster of each sample, shape (samples,).
        shared: What each sample shares, such as its image, shape (samples,). None for samples that share nothing.

    Example:
        >>> joined_clusters(["patient 1", "patient 2", "patient 3"], ["image", "image", None])
        ['patient 1', 'patient 1', 'patient 3']
    """
    if not any(shared):
        return list(clusters)
    pairs = list(zip(clusters, shared, strict=True))
    different = list(dict.fromkeys(pairs))
    keys = [(cluster, image) if image else (cluster,) for cluster, image in different]
    components = connected_components(keys)
    least: dict[int, str] = {}
    for component, (cluster, _) in zip(components, different, strict=True):
        least[component] = min(least.get(component, cluster), cluster)
    names = {
        pair: least[component] for pair, component in zip(different, components, strict=True)
    }
    return [names[pair] for pair in pairs]


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each sample the position of the first one that it is connected with, directly or through others.

    Args:
        keys: Keys of each sample, shape (samples,). Samples with an equal key are connected.

    Example:
        >>> connected_components(["a", "bc", "cd", "ea"])
        [0, 1, 1, 0]
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
