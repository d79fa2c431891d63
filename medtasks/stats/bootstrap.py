"""Standard errors and intervals of statistics without a formula, by resampling the units that were sampled."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from medtasks.stats.intervals import LEVEL, UNDEFINED_ENDS, Ends, t_quantile
from medtasks.stats.standard_error import Units, clustered_error

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
SummedMetrics = Callable[[Integers], Mapping[str, Floats]]
"""Maps summed counts, shape (..., cells), to values by name, shape (...), NaN if undefined."""

RESAMPLES = 1000
"""Draws per standard error, whose own relative error is then about 2 % (``1 / sqrt(2 * RESAMPLES)``)."""

SEED = 20250109  # fixed, so that scoring the same replies twice prints the same digits
_LARGEST_DRAW = 4_000_000  # counts held at once: 32 MB
_FINE = 1e6  # counts of weighted samples are rounded to whole multiples of its inverse


def values_with_errors(
    contributions: Integers,
    units: Units,
    metrics: SummedMetrics,
    resamples: int = RESAMPLES,
) -> dict[str, float]:
    """Return metrics of summed counts by name, and their standard errors as ``<name>_stderr``.

    Source: Efron (1979), with whole units drawn (Davison and Hinkley, "Bootstrap Methods and their Application", 1997,
    section 3.8). The seed is fixed, and the result depends on the multiset of contributions alone, not on the order of
    samples or ranks.

    Args:
        contributions: Counts of each sample, shape (samples, cells).
        units: Independent unit of each sample, such as its patient, shape (samples,).
        metrics: Maps summed counts, shape (..., cells), to values by name, shape (...), NaN if undefined.
        resamples: Number of draws, at least 2. Each has as many units as there are.

    Returns:
        Values and errors by name, empty without samples. The error is the standard deviation (n - 1) over the draws
        in which the metric is defined. It is NaN for fewer than two units, for fewer than two such draws, and if the
        metric of all units is undefined.
    """
    if not len(contributions):
        return {}
    total = contributions.sum(axis=0, dtype=np.int64)
    result = {name: float(value) for name, value in metrics(total).items()}
    number_of_units = len(set(units))
    if number_of_units < 2:
        return {**result, **{f"{name}_stderr": math.nan for name in result}}
    kinds, numbers = _kinds_of_units(contributions, units)
    random = np.random.default_rng(SEED)
    shares = numbers / number_of_units
    table = kinds.astype(np.float64)  # doubles: exact up to 2**53, and many times faster
    tables = [total[np.newaxis]]
    for draws in block_sizes(resamples, len(kinds), _LARGEST_DRAW):
        drawn = random.multinomial(number_of_units, shares, size=draws)
        sums = drawn.astype(np.float64) @ table
        tables.append(sums.astype(np.int64))
    results = []
    for counts in tables:
        columns = list(metrics(counts).values())
        results.append(np.stack(columns, axis=-1))
    whole, *blocks = results
    # Otherwise equal values would have a deviation of a rounding error.
    values = np.concatenate(blocks) - whole
    defined = ~np.isnan(values)  # np.nanstd warns of fewer than two
    number = defined.sum(axis=0)
    defined_sums = np.where(defined, values, 0.0).sum(axis=0)
    mean = defined_sums / np.maximum(number, 1)
    squares = np.where(defined, values - mean, 0.0) ** 2
    variances = squares.sum(axis=0) / np.maximum(number - 1, 1)
    errors = np.where(number < 2, np.nan, np.sqrt(variances))
    for name, error in zip(list(result), errors, strict=True):
        result[f"{name}_stderr"] = float(error)
    return result


def block_sizes(draws: int, width: int, largest: int) -> list[int]:
    """Split draws into blocks that fit into memory, and return the number of draws in each.

    Args:
        draws: Number of all draws.
        width: Numbers per draw.
        largest: Most numbers in a block, which has at least one draw all the same.

    Example:
        >>> block_sizes(1000, width=10, largest=4000)
        [400, 400, 200]
    """
    block = max(1, largest // width)
    return [min(block, draws - start) for start in range(0, draws, block)]


def unit_numbers(units: Units) -> Integers:
    """Return the number of each sample's unit, from 0 in the order in which units first occur, shape (samples,).

    Example:
        >>> unit_numbers(["patient 7", "patient 2", "patient 7"]).tolist()
        [0, 1, 0]
    """
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    return np.fromiter((numbers[unit] for unit in units), dtype=np.int64, count=len(units))


def _kinds_of_units(contributions: Integers, units: Units) -> tuple[Integers, Integers]:
    """Return the different sums of contributions by unit, and the number of units with each.

    Units of one kind are drawn together, so that the cost of a draw depends on the kinds alone.
    """
    number_of_units = len(set(units))
    if number_of_units < len(units):
        members = unit_numbers(units)
        order = np.argsort(members, kind="stable")
        starts = np.searchsorted(members[order], np.arange(number_of_units))
        sums = np.add.reduceat(contributions[order], starts, axis=0)
        contributions = np.asarray(sums, dtype=np.int64)
    return np.unique(contributions, axis=0, return_counts=True)


def posterior_ends(
    contributions: Integers,
    units: Units,
    metrics: SummedMetrics,
    prior: Floats,
    prior_weights: Sequence[float],
) -> dict[str, Ends]:
    """Return the ends of the middle 95 % of the posterior of metrics of summed counts, by name.

    The bootstrap of few samples fails: one right answer to the one sample of a class has no spread, and resamples may
    lack the class. Here units have random weights (Rubin, 1981, "The Bayesian Bootstrap", Annals of Statistics 9), and
    samples that were not seen have some weight as well. For independent samples that is the Dirichlet posterior of a
    table of counts (Brodersen, Ong, Stephan and Buhmann, 2010, "The Balanced Accuracy and Its Posterior Distribution",
    for balanced accuracy). Weights of few units spread more, as Student's t does, with the degrees of freedom of
    :func:`~medtasks.stats.standard_error.clustered_error`.

    Simulated coverage of balanced accuracy, macro F1 and AUROCs is in ``benchmarks/RESULTS.md``.

    Args:
        contributions: Counts of each sample, shape (samples, cells).
        units: Independent unit of each sample, shape (samples,).
        metrics: Metrics of summed counts.
        prior: Contributions of samples that were not seen, shape (rows, cells).
        prior_weights: Number of samples that each row of ``prior`` counts as if every unit has one sample, shape
            (rows,). For larger units the numbers are multiplied by the root of the mean number of samples per unit.

    Returns:
        Ends by name, NaN for a metric that is undefined in all draws. The result is empty for three units or fewer, or
        for few of very unequal size, whose spread is hardly known.
    """
    kinds, numbers = _kinds_of_units(contributions, units)
    number_of_units = int(numbers.sum())
    degrees = clustered_error([0.0] * len(units), units).degrees
    upper = (1 + LEVEL) / 2
    narrower = (t_quantile(upper, None) / t_quantile(upper, degrees)) ** 2
    # The variance of n weights of concentration c is 1 / (n c + 1).
    concentration = ((number_of_units - 1) * narrower - 1) / number_of_units
    if not concentration > 0:
        return {}
    scale = math.sqrt(len(units) / number_of_units)
    random = np.random.default_rng(SEED)
    parts = []
    for draws in block_sizes(RESAMPLES, len(kinds), _LARGEST_DRAW):
        seen = random.gamma(numbers * concentration, size=(draws, len(kinds))) / concentration
        unseen = random.gamma(np.asarray(prior_weights), size=(draws, len(prior))) * scale
        sums = seen @ kinds.astype(np.float64) + unseen @ prior
        parts.append(metrics(np.rint(sums * _FINE).astype(np.int64)))
    ends = {}
    for name in parts[0]:
        values = np.concatenate([part[name] for part in parts])
        defined = values[~np.isnan(values)]
        ends[name] = UNDEFINED_ENDS
        if len(defined):
            low, high = np.quantile(defined, [(1 - LEVEL) / 2, upper])
            ends[name] = float(low), float(high)
    return ends
