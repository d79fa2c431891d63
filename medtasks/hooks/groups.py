"""Values of a group from those of its members, for ``aggregate_metric_list``."""

import math
import statistics

_Number = float | int


def best_highest(
    values: list[_Number],
    sizes: list[_Number],
    weight_by_size: bool,
) -> _Number:
    """Return the largest of the members' values: the paper's "Best" column takes each metric's best mode.

    Args:
        values: Of the members; NaN never wins.
        sizes: Of the members, which become NaN, as the harness's standard error would be wrong.
        weight_by_size: Ignored.

    Example:
        >>> best_highest([0.5, math.nan, 0.75], [10, 10, 10], False)
        0.75
    """
    _forbid_pooled_error(sizes)
    return max(values, key=lambda value: -math.inf if math.isnan(value) else value)


def best_lowest(
    values: list[_Number],
    sizes: list[_Number],
    weight_by_size: bool,
) -> _Number:
    """Return the smallest of the members' values.

    Example:
        >>> best_lowest([0.5, math.nan, 0.75], [10, 10, 10], False)
        0.5
    """
    _forbid_pooled_error(sizes)
    return min(values, key=lambda value: math.inf if math.isnan(value) else value)


def mean_of_settings(
    values: list[_Number],
    sizes: list[_Number],
    weight_by_size: bool,
) -> _Number:
    """Return the mean of the members' values, which are about the same questions.

    Example:
        >>> mean_of_settings([0.5, 1.0], [10, 10], False)
        0.75
    """
    _forbid_pooled_error(sizes)
    return statistics.fmean(values)


def _forbid_pooled_error(sizes: list[_Number]) -> None:
    """Make the members' sizes NaN in place, so that the harness gives no standard error."""
    # After this call the harness computes a standard error from the same list, with the formula for the mean of
    # independent samples. For several modes on the same images it would be far too small; sizes of NaN make it NaN.
    sizes[:] = [math.nan] * len(sizes)
