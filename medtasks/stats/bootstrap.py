"""Standard errors of statistics without a formula, by resampling the units that were sampled."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[[Integers], Floats]

RESAMPLES = 1000
"""Draws per standard error: the error's own relative error is then about 2 % (``1 / sqrt(2 * RESAMPLES)``)."""

SEED = 20250109  # fixed, so that scoring the same replies twice prints the same digits
_LARGEST_DRAW = 4_000_000  # counts held at once: 32 MB


def sum_by_unit(contributions: Integers, units: Sequence[Hashable]) -> Integers:
    """Add up the contributions of samples that share a unit, such as the images of one patient.

    From shape (samples, cells) to (distinct units, cells), in the order in which units first appear.
    """
    if len(contributions) != len(units):
        raise ValueError(f"expected one unit per sample, but got {len(units)} for {len(contributions)}")
    index = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    if len(index) == len(units):
        return contributions
    members = np.fromiter((index[unit] for unit in units), dtype=np.int64, count=len(units))
    order = np.argsort(members, kind="stable")
    starts = np.searchsorted(members[order], np.arange(len(index)))
    return np.asarray(np.add.reduceat(contributions[order], starts, axis=0), dtype=np.int64)


def bootstrap_standard_errors(
    contributions: Integers, statistic: Statistic, resamples: int = RESAMPLES, seed: int = SEED
) -> Floats:
    """Return the bootstrap standard errors of statistics of summed counts, shape (metrics,).

    Source: Efron (1979), with whole units drawn (Davison and Hinkley, "Bootstrap Methods and their Application", 1997,
    section 3.8). Units with equal contributions need not be told apart: how often each kind is drawn is multinomial,
    so the cost depends on the number of kinds. Kinds are sorted first, and the seed is fixed: the result depends on the
    multiset of contributions alone, not on the order of samples or ranks.

    ``contributions`` are what each unit adds to each count, shape (units, cells); ``statistic`` makes values, shape
    (n, metrics), of counts, shape (n, cells), NaN where a metric is not defined. Of ``resamples`` draws, at least 2,
    each has as many units as there are. The error is the standard deviation (n - 1) over the draws in which the metric
    is defined; NaN for fewer than two units or such draws, and where the metric of all units is not defined.

    Example:
        >>> answers = np.array([[1, 0]] * 60 + [[0, 1]] * 40)  # 60 right, 40 wrong
        >>> share_right = lambda counts: counts[:, :1] / counts.sum(axis=1, keepdims=True)
        >>> round(float(bootstrap_standard_errors(answers, share_right)[0]), 2)  # sqrt(0.6 * 0.4 / 100)
        0.05
    """
    if contributions.ndim != 2:
        raise ValueError(f"expected a table of units and counts, but got {contributions.ndim} dimensions")
    if resamples < 2:
        raise ValueError(f"expected at least 2 resamples, but got {resamples}")
    whole = statistic(contributions.sum(axis=0, dtype=np.int64)[np.newaxis])[0]
    if len(contributions) < 2:
        return np.full(whole.shape, np.nan)
    values = np.concatenate([statistic(counts) for counts in _resampled(contributions, resamples, seed)])
    return _deviations(values - whole)  # without this, equal values would have a deviation of a rounding error


def values_with_errors(
    contributions: Integers,
    units: Sequence[Hashable],
    metrics: Callable[[Integers], Mapping[str, Floats]],
    resamples: int = RESAMPLES,
) -> dict[str, float]:
    """Return metrics of summed counts by name, and their standard errors as ``<name>_stderr``, in whatever order.

    ``contributions`` are what each sample adds to each count, shape (samples, cells); ``units`` what was sampled, such
    as the patient, shape (samples,); ``metrics`` makes values, shape (...), of summed counts, shape (..., cells).
    Nothing for no samples. NaN where a metric is not defined; the error also for fewer than two units.
    """
    if not len(contributions):
        return {}
    values = metrics(contributions.sum(axis=0, dtype=np.int64))

    def statistic(counts: Integers) -> Floats:
        return np.stack(list(metrics(counts).values()), axis=-1)

    errors = bootstrap_standard_errors(sum_by_unit(contributions, units), statistic, resamples)
    named = {f"{name}_stderr": float(error) for name, error in zip(values, errors, strict=True)}
    return {**{name: float(value) for name, value in values.items()}, **named}


def _resampled(contributions: Integers, resamples: int, seed: int) -> Iterator[Integers]:
    kinds, numbers = np.unique(contributions, axis=0, return_counts=True)
    random = np.random.default_rng(seed)
    units = len(contributions)
    shares, table = numbers / units, kinds.astype(np.float64)  # doubles: exact up to 2**53, and many times faster
    block = max(1, _LARGEST_DRAW // len(kinds))
    for start in range(0, resamples, block):
        drawn = random.multinomial(units, shares, size=min(block, resamples - start))
        yield (drawn.astype(np.float64) @ table).astype(np.int64)


def _deviations(values: Floats) -> Floats:
    defined = ~np.isnan(values)  # np.nanstd warns of fewer than two
    number = defined.sum(axis=0)
    mean = np.where(defined, values, 0.0).sum(axis=0) / np.maximum(number, 1)
    squares = np.where(defined, values - mean, 0.0) ** 2
    return np.where(number < 2, np.nan, np.sqrt(squares.sum(axis=0) / np.maximum(number - 1, 1)))
