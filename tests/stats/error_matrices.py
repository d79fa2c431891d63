"""Errors of means written out with whole matrices, in NumPy alone, to check those of the package against."""

import math

import numpy as np


def clustered(values, clusters, weights=None):
    """Standard error and degrees of freedom of a mean from the sizes of clusters, working correlation 0.2."""
    values = np.asarray(values, dtype=float)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    names = list(dict.fromkeys(clusters))
    if len(names) < 2:
        return math.nan, math.nan
    member = np.array([[name == cluster for cluster in clusters] for name in names], dtype=float)
    sizes, total = member @ weights, weights.sum()
    sums = member @ (weights * (values - weights @ values / total))
    shape = np.eye(len(names)) - np.outer(sizes / total, np.ones(len(names)))
    spread = np.diag(sizes * (1 + 0.2 * (sizes - 1)))
    matrix = shape @ spread @ shape.T
    variance = np.trace(spread) / np.trace(matrix) * (sums @ sums) / total**2
    return math.sqrt(variance), max(np.trace(matrix) ** 2 / np.trace(matrix @ matrix), 1.5)


def dyadic(values, pairs, weights=None):
    """Standard error and degrees of freedom of a mean over dyads that may share members."""
    values, number = np.asarray(values, dtype=float), len(values)
    weights = np.ones(number) if weights is None else np.asarray(weights, dtype=float)
    shared = np.array([[float(bool(set(one) & set(other))) for other in pairs] for one in pairs])
    centre = np.eye(number) - 1 / number
    matrix = centre @ shared @ centre
    if number < 2 or abs(np.trace(matrix)) < 1e-9:
        return math.nan, math.nan
    deviations = weights * (values - weights @ values / weights.sum())
    dyads = number / np.trace(matrix) * (deviations @ shared @ deviations)
    alone = number / (number - 1) * (deviations @ deviations)
    return math.sqrt(max(dyads, alone)) / weights.sum(), np.trace(matrix) ** 2 / np.trace(matrix @ matrix)
