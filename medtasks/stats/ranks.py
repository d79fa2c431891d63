"""Ranks of several models on the same samples, with the ranks that the data do not rule out."""

import itertools
import math

import numpy as np

from medtasks.stats.paired import ALPHA, exceeding, holm, mcnemar
from medtasks.stats.sample_design import DrawnUnit, mean_and_error
from medtasks.stats.standard_error import Dyad, Floats, Units, separate_units

_NO_SPREAD = 1e-9  # of the largest difference


def rank_intervals(
    values: Floats,
    units: Units,
    *,
    higher_is_better: bool = True,
) -> list[tuple[int, int]]:
    """Return the first and the last rank that each model may have, from 1 for the best.

    A model's first rank is one more than the number of models that are significantly better, and its last rank leaves
    out those that are significantly worse. All pairs of models are tested on the samples that both have, corrected by
    Holm, so that all intervals hold together with 95 % confidence. Tests: exact McNemar for right and wrong with one
    sample per unit, else Student's t with the clustered or dyadic error of the differences, or that of a draw.
    Source: Al Mohamad, Goeman and van Zwet (2022), Statistics in Medicine 41, for rank intervals from Tukey's or
    Holm's pairwise tests.

    Args:
        values: Value of each sample, shape (models, samples); NaN where a model has none.
        units: Independent unit of each sample, its dyad or its drawn unit, shape (samples,).
        higher_is_better: Whether larger values are better.

    Example:
        >>> right = np.tile([1.0, 1.0, 1.0, 0.0], 50)
        >>> rank_intervals(np.stack([right, 1 - right, right]), range(200))
        [(1, 2), (3, 3), (1, 2)]
    """
    units = separate_units(units)
    models = len(values)
    pairs = list(itertools.combinations(range(models), 2))
    tests = [_compare(values[second] - values[first], units) for first, second in pairs]
    corrected = holm([p for _, p in tests])
    first_ranks = [1] * models
    last_ranks = [models] * models
    for (first, second), (difference, _), p in zip(pairs, tests, corrected, strict=True):
        if p > ALPHA:
            continue
        is_second_better = (difference > 0) == higher_is_better
        better, worse = (second, first) if is_second_better else (first, second)
        first_ranks[worse] += 1
        last_ranks[better] -= 1
    return list(zip(first_ranks, last_ranks, strict=True))


def _compare(differences: Floats, units: Units) -> tuple[float, float]:
    """Return the mean difference of two models, and its two-sided p-value.

    Args:
        differences: Second model minus first, NaN for samples that only one of them has, shape (samples,).
        units: Independent unit of each sample.

    Returns:
        0 and 1 if the models share no sample, or differ on none. The p-value is 1 also if the error is undefined.
    """
    is_shared = ~np.isnan(differences)
    shared = differences[is_shared]
    of_shared = list(itertools.compress(units, is_shared))
    if not shared.any():
        return 0.0, 1.0
    gained = int((shared == 1).sum())
    lost = int((shared == -1).sum())
    differing = int((shared != 0).sum())
    one_each = len(set(of_shared)) == len(of_shared)
    is_dependent = any(isinstance(unit, Dyad | DrawnUnit) for unit in of_shared)
    if gained + lost == differing and one_each and not is_dependent:
        return float(shared.mean()), mcnemar(lost, gained)
    mean, error = mean_and_error(shared.tolist(), of_shared)
    if error.effective == math.inf:  # drawn clusters that are all of the benchmark
        return mean, 0.0 if mean else 1.0
    if error.error > _NO_SPREAD * float(np.abs(shared).max()):
        return mean, min(1.0, 2 * exceeding(abs(mean) / error.error, error.degrees))
    # One unit, or dyads that all share members.
    if math.isnan(error.error) or not error.degrees > 0:
        return mean, 1.0
    # Equal differences show nothing of their spread.
    return mean, 0.5**error.degrees if mean else 1.0
