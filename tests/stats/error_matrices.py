"""Errors of means written out with whole matrices, in NumPy alone, to check those of the package against."""

import math
from collections.abc import Hashable, Sequence

import numpy as np


def clustered(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    weights: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Standard error and degrees of freedom of a mean from the sizes of clusters, working correlation 0.2."""
    array, by = (
        np.asarray(values, dtype=float),
        np.asarray([1.0] * len(values) if weights is None else weights),
    )
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return math.nan, math.nan
    member = np.array(
        [[name == cluster for cluster in clusters] for name in names], dtype=float
    )
    sizes, total = member @ by, by.sum()
    sums = member @ (by * (array - by @ array / total))
    shape = np.eye(len(names)) - np.outer(sizes / total, np.ones(len(names)))
    spread = np.diag(sizes * (1 + 0.2 * (sizes - 1)))
    matrix = shape @ spread @ shape.T
    variance = np.trace(spread) / np.trace(matrix) * (sums @ sums) / total**2
    return math.sqrt(variance), max(np.trace(matrix) ** 2 / np.trace(matrix @ matrix), 1.5)


def dyadic(
    values: Sequence[float],
    pairs: Sequence[Sequence[Hashable]],
    weights: Sequence[float] | None = None,
) -> tuple[float, float]:
    """Standard error and degrees of freedom of a mean over dyads that may share members."""
    array, number = np.asarray(values, dtype=float), len(values)
    by = np.asarray([1.0] * number if weights is None else weights)
    shared = np.array(
        [[float(bool(set(one) & set(other))) for other in pairs] for one in pairs]
    )
    centre = np.eye(number) - 1 / number
    matrix = centre @ shared @ centre
    if number < 2 or abs(np.trace(matrix)) < 1e-9:
        return math.nan, math.nan
    deviations = by * (array - by @ array / by.sum())
    dyads = number / np.trace(matrix) * (deviations @ shared @ deviations)
    alone = number / (number - 1) * (deviations @ deviations)
    return math.sqrt(max(dyads, alone)) / by.sum(), np.trace(matrix) ** 2 / np.trace(
        matrix @ matrix
    )
