"""Aggregations of a group's members, for ``aggregate_metric_list``."""

import math
from collections.abc import Callable

Number = float | int


def best_highest(values: list[Number], sizes: list[Number], weight_by_size: bool) -> Number:
    """Return the largest of the members' values: the paper's "Best" column takes each metric's best mode."""
    _forbid_pooled_error(sizes)
    return max(values, key=_nan_last(1))


def best_lowest(values: list[Number], sizes: list[Number], weight_by_size: bool) -> Number:
    """Return the smallest of the members' values."""
    _forbid_pooled_error(sizes)
    return min(values, key=_nan_last(-1))


def _nan_last(sign: int) -> Callable[[Number], float]:
    return lambda value: -sign * math.inf if math.isnan(value) else value


def _forbid_pooled_error(sizes: list[Number]) -> None:
    # After this call the harness computes a standard error from the same list, with the formula for the mean of
    # independent samples. The best of several modes on the same images is no mean, and that number would be far too
    # small; sizes of NaN make the column say nan.
    sizes[:] = [math.nan] * len(sizes)
