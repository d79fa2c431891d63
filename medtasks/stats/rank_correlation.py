"""Whether two numbers of the same units rise together, without a shape for how, and an interval for it."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from medtasks.stats.bootstrap import RESAMPLES, SEED
from medtasks.stats.intervals import LEVEL

Floats = NDArray[np.float64]


def rank_correlation(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Return Spearman's rank correlation of two sequences of shape (units,); NaN where one of them is constant.

    Equal values have their mean rank. Source: Spearman (1904); with a second sequence of zeros and ones it says by how
    much the first one's ranks differ between them.

    Example:
        >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 80]), rank_correlation([1, 2], [3, 3])
        (1.0, nan)
    """
    if len(first) != len(second):
        raise ValueError(f"expected as many values in both sequences, but got {len(first)} and {len(second)}")
    if len(first) < 2:
        return float("nan")
    before, after = _centred_ranks(first), _centred_ranks(second)
    spread = float(np.sqrt((before @ before) * (after @ after)))
    return round(float(before @ after) / spread, 12) if spread else float("nan")


def rank_correlation_interval(
    first: Sequence[float],
    second: Sequence[float],
    clusters: Sequence[Hashable],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[float, float]:
    """Return the 95 % percentile interval of the rank correlation over draws of whole clusters with replacement.

    All arguments have shape (units,); the draws depend on the order in which clusters first appear. Draws in which a
    sequence is constant do not count. NaN for fewer than two clusters, and where less than half of the draws count.
    Source: Davison and Hinkley, "Bootstrap Methods and their Application" (1997), sections 3.8 and 5.3.
    """
    if not len(first) == len(second) == len(clusters):
        raise ValueError(f"expected one cluster per value, but got {len(clusters)} for {len(first)} and {len(second)}")
    members: dict[Hashable, list[int]] = {}
    for position, cluster in enumerate(clusters):
        members.setdefault(cluster, []).append(position)
    if len(members) < 2:
        return float("nan"), float("nan")
    groups = [np.asarray(one) for one in members.values()]
    x, y = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    random = np.random.default_rng(seed)
    values = np.empty(resamples)
    for draw in range(resamples):
        drawn = np.concatenate([groups[one] for one in random.integers(len(groups), size=len(groups))])
        values[draw] = rank_correlation(x[drawn], y[drawn])
    defined = values[~np.isnan(values)]
    if 2 * len(defined) < resamples:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _centred_ranks(values: Sequence[float] | Floats) -> Floats:
    """Return ranks with a mean of 0, equal values with their mean rank."""
    _, places, counts = np.unique(np.asarray(values, dtype=float), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(ranks[places] - (len(places) + 1) / 2, dtype=np.float64)
