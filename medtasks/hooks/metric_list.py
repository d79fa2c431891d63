"""The ``metric_list`` of a task, built from functions: ``metric_list: !function medtasks.hooks.pairs.METRIC_LIST``.

A sample that the model could not answer is neither right nor wrong nor invalid: it is in no metric, and is counted
beside all of them.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from medtasks.extract.answer import Reason

Records = Sequence[dict[str, Any]]
Aggregation = Callable[[Records], float]
R = TypeVar("R", bound=Mapping[str, Any])

_UNASKED = frozenset({Reason.EMPTY, Reason.TRUNCATED})  # replies that say nothing, also those cut before they did


def metric_entry(aggregation: Aggregation, *, higher_is_better: bool, failed_too: bool = False) -> dict[str, Any]:
    """Return one entry; the metric has the function's name.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.

    Args:
        aggregation: From the records of all ranks to a number.
        higher_is_better: Direction.
        failed_too: Hand over the records of failed samples as well: what comes out is no score.
    """
    return {
        "metric": aggregation.__name__,
        "aggregation": aggregation if failed_too else over(answered, aggregation),
        "higher_is_better": higher_is_better,
    }


def over(chosen: Callable[[Records], Records], aggregation: Aggregation) -> Aggregation:
    """Return an aggregation of the same name over some of its records."""

    @functools.wraps(aggregation)
    def over_chosen(items: Records) -> float:
        return aggregation(chosen(items))

    return over_chosen


def answered(items: Sequence[R]) -> list[R]:
    """Return the records of samples that the model answered."""
    return [item for item in items if not is_failed(item)]


def is_failed(record: Mapping[str, Any]) -> bool:
    """Return whether the model gave no reply that could be read."""
    return record.get("reason") == Reason.ADAPTER_FAILED


def is_unjudged(record: Mapping[str, Any]) -> bool:
    """Return whether a judge or a labeler failed to read the reply; one that nobody set up has not failed."""
    return record.get("reason") == Reason.JUDGE_FAILED and record.get("judge", "") is not None


def judged(items: Records) -> Records:
    """Return the records without those that a judge failed to read, and none if it read nothing that it was asked.

    Replies that need no judge, such as empty ones, must not stand for all the others.
    """
    asked = [item for item in items if item.get("asked", item["reason"] not in _UNASKED)]
    if asked and all(map(is_unjudged, asked)):
        return []
    return [item for item in items if not is_unjudged(item)]


def scored_samples(items: Records) -> int:
    """Return the number of samples behind the metrics."""
    return sum(not is_failed(item) and not is_unjudged(item) for item in items)


def failed_samples(items: Records) -> int:
    """Return the number of samples that the model did not answer, which are in no metric."""
    return sum(map(is_failed, items))


def unjudged_samples(items: Records) -> int:
    """Return the number of samples that a judge or a labeler should have read and did not."""
    return sum(map(is_unjudged, items))


def possible_injection(items: Records) -> int:
    """Return the number of replies that seem to address the judge, see :mod:`medtasks.judges.fence`."""
    return sum(bool(item.get("possible_injection")) for item in items)


SAMPLE_COUNTS = [
    metric_entry(scored_samples, higher_is_better=True, failed_too=True),
    metric_entry(failed_samples, higher_is_better=False, failed_too=True),
]
"""What stands at the end of every metric list."""
LABELLED_SAMPLE_COUNTS = [*SAMPLE_COUNTS, metric_entry(unjudged_samples, higher_is_better=False, failed_too=True)]
"""The same for a task whose replies a labeler reads."""
JUDGED_SAMPLE_COUNTS = [*LABELLED_SAMPLE_COUNTS, metric_entry(possible_injection, higher_is_better=False)]
"""The same for a task whose replies a judge reads."""
COUNTS = frozenset(entry["metric"] for entry in JUDGED_SAMPLE_COUNTS)
