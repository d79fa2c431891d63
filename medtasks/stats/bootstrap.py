"""Standard errors and intervals of statistics without a formula, by resampling the units that were sampled."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from medtasks.stats.intervals import LEVEL
from medtasks.stats.standard_error import clustered_error

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
RESAMPLES = 1000
"""Draws per standard error, whose own relative error is then about 2 % (``1 / sqrt(2 * RESAMPLES)``)."""

SEED = 20250109  # fixed, so that scoring the same replies twice prints the same digits
_LARGEST_DRAW = 4_000_000  # counts held at once: 32 MB


def values_with_errors(
    contributions: Integers,
    units: Sequence[Hashable],
    metrics: Callable[[Integers], Mapping[str, Floats]],
    resamples: int = RESAMPLES,
) -> dict[str, float]:
    """Return metrics of summed counts by name, and their standard errors as ``<name>_stderr``; empty without samples.

    Source: Efron (1979), with whole units drawn (Davison and Hinkley, "Bootstrap Methods and their Application", 1997,
    section 3.8). The seed is fixed, and the result depends on the multiset of contributions alone, not on the order of
    samples or ranks.

    ``contributions`` of each sample to each count have shape (samples, cells); ``units``, such as patients, shape
    (samples,); ``metrics`` maps summed counts, shape (..., cells), to values, shape (...), NaN if undefined. Each of
    ``resamples`` draws, at least 2, has as many units as there are. The error is the standard deviation (n - 1) over
    the draws in which the metric is defined; NaN for fewer than two units or such draws, and for a metric of all units
    that is undefined.
    """
    if not len(contributions):
        return {}
    total = contributions.sum(axis=0, dtype=np.int64)
    result = {name: float(value) for name, value in metrics(total).items()}
    index = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    if len(index) < 2:
        return {**result, **{f"{name}_stderr": math.nan for name in result}}
    if len(index) < len(units):  # the contributions of samples that share a unit are added up
        members = np.fromiter((index[unit] for unit in units), dtype=np.int64, count=len(units))
        order = np.argsort(members, kind="stable")
        starts = np.searchsorted(members[order], np.arange(len(index)))
        contributions = np.asarray(np.add.reduceat(contributions[order], starts, axis=0), dtype=np.int64)
    # Units with equal contributions are one kind, drawn a multinomial number of times: cost depends on the kinds alone.
    kinds, numbers = np.unique(contributions, axis=0, return_counts=True)
    random = np.random.default_rng(SEED)
    shares, table = numbers / len(index), kinds.astype(np.float64)  # doubles: exact up to 2**53, and many times faster
    block = max(1, _LARGEST_DRAW // len(kinds))
    tables = [total[np.newaxis]]
    for start in range(0, resamples, block):
        drawn = random.multinomial(len(index), shares, size=min(block, resamples - start))
        tables.append((drawn.astype(np.float64) @ table).astype(np.int64))
    whole, *blocks = (np.stack(list(metrics(counts).values()), axis=-1) for counts in tables)
    values = np.concatenate(blocks) - whole  # otherwise equal values would have a deviation of a rounding error
    defined = ~np.isnan(values)  # np.nanstd warns of fewer than two
    number = defined.sum(axis=0)
    mean = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(number, 1)
    squares = np.where(defined, values - mean, 0.0) ** 2
    errors = np.where(number < 2, np.nan, np.sqrt(squares.sum(axis=0) / np.maximum(number - 1, 1)))
    return {**result, **{f"{name}_stderr": float(error) for name, error in zip(result, errors, strict=True)}}


# ---- balanced accuracy, the mean recall over classes, with an interval that holds for classes with few samples ----
#
# The bootstrap of few samples fails: one right answer to the one sample of a class has no spread, and resamples may
# lack the class. Here the recall of a class has the posterior of Jeffreys' prior, a beta distribution, and their mean
# that of the sum (Brodersen, Ong, Stephan and Buhmann, 2010, "The Balanced Accuracy and Its Posterior Distribution").
# Samples of clusters count as the number of independent ones with the same standard error (:mod:`.standard_error`).
# Simulated coverage is 92 to 99 % for 30 to 1,000 samples of five classes of which one has 1 %.

POSTERIOR_DRAWS = 10_000


def mean_recall_posterior(
    right: Sequence[float], targets: Sequence[Hashable], clusters: Sequence[Hashable]
) -> tuple[float, float, float]:
    """Return the standard deviation and the ends of the middle 95 % of the posterior of the mean recall.

    The order of the samples does not matter. ``right`` is 1 for a right answer and 0 for a wrong one; ``targets`` are
    the classes; all have shape (samples,). NaN for fewer than two clusters.
    """
    if len(set(clusters)) < 2:
        return math.nan, math.nan, math.nan
    shapes = []
    positions: dict[Hashable, list[int]] = {}
    for position, target in enumerate(targets):
        positions.setdefault(target, []).append(position)
    for indices in positions.values():
        values, of_class = [right[index] for index in indices], [clusters[index] for index in indices]
        error = clustered_error(values, of_class)
        size = 1.0 if error.clusters < 2 else error.effective
        if 1 < error.clusters > size:  # the error of n independent samples is that of n - 1 effective ones
            size = min(float(error.clusters), size * error.clusters / (error.clusters - 1))
        share = math.fsum(values) / len(values)
        shapes.append((size * share + 0.5, size * (1 - share) + 0.5))
    random = np.random.default_rng(SEED)
    drawn = np.mean([random.beta(*shape, size=POSTERIOR_DRAWS) for shape in sorted(shapes)], axis=0)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(drawn.std(ddof=1)), float(low), float(high)
