"""The ``metric_list`` of a task, built from functions: ``metric_list: !function medtasks.hooks.pairs.METRIC_LIST``."""

from collections.abc import Callable, Sequence
from typing import Any

Aggregation = Callable[[Sequence[dict[str, Any]]], float]


def metric_entry(aggregation: Aggregation, *, higher_is_better: bool) -> dict[str, Any]:
    """Return one entry; the metric has the function's name.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.
    """
    return {"metric": aggregation.__name__, "aggregation": aggregation, "higher_is_better": higher_is_better}
