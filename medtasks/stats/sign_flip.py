"""A sign-flip test of paired differences whose units have several samples, and its interval."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

DRAWS = 10_000
SEED = 20261121
"""Of the random signs, so that the same runs give the same digits; written into every comparison."""

_LEVEL = 0.05
_BLOCK = 4_000_000  # random numbers held at once: 32 MB
_TIE = 1e-9  # of the sum of all sizes; sums of the same numbers in another order differ by less


def sign_flip_test(
    differences: Sequence[float], clusters: Sequence[Hashable], draws: int = DRAWS, seed: int = SEED
) -> float:
    """Return the two-sided p-value of the mean difference when the signs of whole units are exchanged.

    Source: Fisher's randomisation test for pairs (The Design of Experiments, 1935) with units as blocks. If the models
    are equally good, the total difference of a unit is as likely to be its negative. All signs are tried when there
    are at most ``draws`` combinations, else ``draws`` are drawn, and the observed one counts as one of them (Phipson
    and Smyth, 2010), so that p is never 0.

    Args:
        differences: Shape (n,).
        clusters: Unit of each difference, shape (n,).
        draws: Number of random signs of all units.
        seed: Of the random numbers.
    """
    by_cluster: dict[Hashable, list[float]] = defaultdict(list)
    for cluster, difference in zip(clusters, differences, strict=True):
        by_cluster[cluster].append(difference)
    totals = [math.fsum(sorted(members)) for members in by_cluster.values()]
    sizes = np.asarray(sorted(abs(total) for total in totals if total), dtype=np.float64)
    limit = abs(math.fsum(totals)) - _TIE * float(sizes.sum())
    chosen = _choices(len(sizes), draws, seed)
    extreme = np.concatenate([np.abs(2 * (positive @ sizes) - sizes.sum()) >= limit for positive in chosen])
    return float(np.mean(extreme))


def sign_flip_interval(
    differences: Sequence[float], clusters: Sequence[Hashable], draws: int = DRAWS, seed: int = SEED
) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference: all true values that the sign-flip test does not reject.

    Source: Hartigan (1969), Journal of the American Statistical Association 64. With the signs of some units exchanged,
    a value fits as well as the observed one exactly if it lies between the mean of these units and that of the others.
    Other than the clustered standard error it holds for few units of very different sizes.

    Args:
        differences: Shape (n,).
        clusters: Unit of each difference, shape (n,).
        draws: Number of random choices of units; all choices are tried if there are no more.
        seed: Of the random numbers.

    Returns:
        Both ends; NaN for five units and less, which can reject nothing, and where all differences are equal.
    """
    by_cluster: dict[str, list[float]] = defaultdict(list)
    for cluster, difference in sorted(zip(map(str, clusters), differences, strict=True)):
        by_cluster[cluster].append(difference)
    units = np.asarray([(math.fsum(members), len(members)) for members in by_cluster.values()])
    lower, upper = [], []
    for chosen in _choices(len(units), draws, seed):
        sums = chosen @ units
        parts = (sums, units.sum(axis=0) - sums)
        means = np.stack([np.where(part[:, 1], part[:, 0] / np.maximum(part[:, 1], 1), np.nan) for part in parts])
        lower.append(np.nan_to_num(means.min(axis=0), nan=-np.inf))
        upper.append(np.nan_to_num(means.max(axis=0), nan=np.inf))
    low, high = np.sort(np.concatenate(lower)), np.sort(np.concatenate(upper))[::-1]
    rejected = int(_LEVEL * len(low))
    if not np.isfinite([low[rejected], high[rejected]]).all() or max(differences) - min(differences) < _TIE:
        return math.nan, math.nan
    return float(low[rejected]), float(high[rejected])


def _choices(units: int, draws: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield blocks of choices of units, shape (block, units); drawn ones start with the choice of all."""
    if 2**units <= draws:
        yield (np.arange(2**units)[:, np.newaxis] >> np.arange(units) & 1).astype(np.float64)
        return
    yield np.ones((1, units))
    random = np.random.default_rng(seed)
    block = max(1, _BLOCK // units)
    for start in range(0, draws, block):
        yield random.integers(0, 2, size=(min(block, draws - start), units), dtype=np.int8).astype(np.float64)
