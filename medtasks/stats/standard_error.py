"""Standard errors of a mean at the unit that was sampled, and which documents belong together."""

import math
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def mean_standard_error(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1) of independent values over the root of n; NaN for fewer than two.

    Example:
        >>> round(mean_standard_error([0, 0, 1, 1]), 4)
        0.2887
    """
    if len(values) < 2:
        return float("nan")
    return float(np.std(np.asarray(values, dtype=float), ddof=1) / np.sqrt(len(values)))


def clustered_standard_error(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """Return the standard error of the mean when values of one cluster are not independent.

    Source: Liang and Zeger (1986) with the G / (G - 1) correction; equal to :func:`mean_standard_error` when every
    cluster has one value. NaN for fewer than two clusters.
    """
    return float(np.sqrt(_clustered_variance(np.asarray(values, dtype=float), clusters)))


def two_way_standard_error(values: Sequence[float], first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Return the standard error of the mean when values share either of two kinds of clusters.

    Source: Cameron, Gelbach and Miller (2011): variance by the first, plus by the second, minus by their intersection.
    The difference can fall below a one-way variance in small samples; then the larger one-way variance is used.

    NaN for fewer than two clusters of either kind, such as the pair and the image of each answer.
    """
    array = np.asarray(values, dtype=float)
    by_first, by_second = _clustered_variance(array, first), _clustered_variance(array, second)
    both = _clustered_variance(array, list(zip(first, second, strict=True)))
    return float(np.sqrt(np.max([by_first + by_second - both, by_first, by_second])))


def _clustered_variance(values: NDArray[np.float64], clusters: Sequence[Hashable]) -> float:
    if len(values) != len(clusters):
        raise ValueError(f"expected one cluster per value, but got {len(clusters)} for {len(values)}")
    members: dict[Hashable, list[float]] = {}
    numbers = values.tolist()
    for cluster, number in zip(clusters, numbers, strict=True):
        members.setdefault(cluster, []).append(number)
    groups = len(members)
    if groups < 2:
        return float("nan")
    # Several ranks deliver samples in another order than one; fsum rounds once, so that the result is the same.
    mean = math.fsum(numbers) / len(numbers)
    squares = math.fsum(math.fsum(number - mean for number in group) ** 2 for group in members.values())
    return groups / (groups - 1) * squares / len(numbers) ** 2


def joined_clusters(clusters: Sequence[str], shared: Sequence[str | None]) -> list[str]:
    """Return what is independent of all else: the clusters, such as patients, joined where they share something.

    A joined cluster has the least name of its members, so that names do not depend on the order. ``shared`` are the
    images, None where a cluster says all; both have shape (samples,).

    Example:
        >>> joined_clusters(["p1", "p2", "p3"], ["atlas", "atlas", "x-ray"])
        ['p1', 'p1', 'p3']
    """
    if not any(shared):
        return list(clusters)
    pairs = zip(clusters, shared, strict=True)
    components = connected_components([(cluster, *([image] if image else ())) for cluster, image in pairs])
    least = dict(zip(components, clusters, strict=True))
    for component, cluster in zip(components, clusters, strict=True):
        least[component] = min(least[component], cluster)
    return [least[component] for component in components]


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each document the first one of all that it is connected with, directly or through others.

    ``keys`` are what each document shares with others that have the same; keys and positions have shape (documents,).

    Example:
        >>> connected_components([["a"], ["b"], ["a", "c"], ["c"], []])
        [0, 1, 0, 0, 4]
    """
    first = list(range(len(keys)))
    seen: dict[Hashable, int] = {}

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for place, shared in enumerate(keys):
        for key in shared:
            earlier, later = sorted((root(place), root(seen.setdefault(key, place))))
            first[later] = earlier
    return [root(place) for place in range(len(keys))]
