"""Area under the ROC curve of scores, with its standard error.

The area is the probability that a positive sample has a larger score than a negative one; ties count one half. Its
standard error is that of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44, and for samples of clusters, such as
patients, that of Obuchowski (1997), Biometrics 53, which is the same if every cluster has one sample.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from medtasks.stats.bootstrap import Floats, Integers
from medtasks.stats.intervals import interval

_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class RocArea:
    """Area under a ROC curve; undefined numbers are NaN."""

    value: float
    error: float = math.nan
    low: float = math.nan  # ends of the 95 % interval
    high: float = math.nan


def roc_area(scores: Sequence[float], positive: Sequence[float], clusters: Sequence[Hashable]) -> RocArea:
    """Return the area under the ROC curve of scores; the order of the samples does not matter.

    ``positive`` is 1 for a positive sample and 0 for a negative one; a value between counts as that share of each. All
    have shape (samples,). The area is NaN without positives or negatives, its error with fewer than two clusters of
    either. The interval is Wilson's, with Satterthwaite's degrees of freedom for the two groups.

    Example:
        >>> area = roc_area([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], range(4))
        >>> area.value, round(area.error, 4)
        (0.75, 0.3536)
    """
    if not len(scores) == len(positive) == len(clusters):
        raise ValueError(
            f"expected as many targets and clusters as scores, got {len(positive)}, {len(clusters)}, {len(scores)}"
        )
    order = sorted(range(len(scores)), key=lambda index: (scores[index], positive[index]))
    weights = np.array([positive[index] for index in order], dtype=np.float64)
    totals = math.fsum(weights), math.fsum(1 - weights)
    if not all(totals):
        return RocArea(math.nan)
    _, values = np.unique([scores[index] for index in order], return_inverse=True)
    below = _weight_below(values, 1 - weights) / totals[1]
    above = 1 - _weight_below(values, weights) / totals[0]
    area = math.fsum(weights * below) / totals[0]
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    members = np.array([numbers[clusters[index]] for index in order])
    groups = [int(np.unique(members[of_class > 0]).size) for of_class in (weights, 1 - weights)]
    if min(groups) < 2:
        return RocArea(area)
    components = weights * (below - area) / totals[0], (1 - weights) * (above - area) / totals[1]
    sums = [np.bincount(members, component) for component in components]
    variances = [size / (size - 1) * math.fsum(total**2) for size, total in zip(groups, sums, strict=True)]
    shared = len(numbers) / (len(numbers) - 1) * math.fsum(sums[0] * sums[1])
    error = math.sqrt(max(0.0, sum(variances) + 2 * shared))
    if error < _NO_SPREAD:
        return RocArea(area, 0.0, *interval(area, 0.0, min(groups) - 1, share=True, effective=min(groups)))
    parts = (variance**2 / (size - 1) for variance, size in zip(variances, groups, strict=True))
    degrees = sum(variances) ** 2 / sum(parts)
    return RocArea(area, error, *interval(area, error, degrees, share=True))


def _weight_below(values: Integers, weights: Floats) -> Floats:
    """Return for each sample the weight of all with a smaller value, and half of those with the same."""
    of_value = np.bincount(values, weights)
    return np.asarray((np.cumsum(of_value) - of_value / 2)[values])
