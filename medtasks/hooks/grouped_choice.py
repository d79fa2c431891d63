"""Scoring of GMAI-MMBench's questions: accuracy over all and by granularity, with errors over cases.

Every question counts once, as in the benchmark: the overall accuracy is the mean over questions, not over groups. A
case drawn as a mask and as a contour is one unit. ``medtasks score`` makes the tables by task, department and modality.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.hooks.metric_list import SAMPLE_COUNTS, Aggregation, metric_entry
from medtasks.hooks.reading import read_answer
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
Value = Callable[[Record], float | None]
LEVELS = ("image", "box", "mask", "contour")
"""What a question is about. Their spelling in the file is not documented; the word decides."""


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's answer.

    Args:
        doc: A document of the family ``GROUPED_CHOICE`` with a key (:mod:`medtasks.data.schema`).
        results: One reply, or one log-likelihood per option.

    Returns:
        The same record for every metric and standard error.
    """
    answer, rule = read_answer(doc, results)
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "level": level_of(doc.get("granularity")),
        "key": doc["answer"],
        "value": answer.value,
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def level_of(granularity: str | None) -> str | None:
    """Return which of :data:`LEVELS` a granularity names.

    Example:
        >>> level_of("Contour Level"), level_of(None)
        ('contour', None)
    """
    words = (granularity or "").casefold()
    return next((level for level in LEVELS if level in words), None)


def _right(item: Record) -> float:
    return float(item["value"] == item["key"])


def _invalid(item: Record) -> float:
    return float(item["value"] is None)


def _at(level: str) -> Value:
    return lambda item: _right(item) if item["level"] == level else None


def _mean(items: Sequence[Record], value: Value) -> float:
    values = [number for item in items if (number := value(item)) is not None]
    return math.fsum(values) / len(values) if values else math.nan


def _error(items: Sequence[Record], value: Value) -> float:
    counted = [(number, item["unit"]) for item in items if (number := value(item)) is not None]
    return clustered_standard_error([number for number, _ in counted], [unit for _, unit in counted])


def _named(name: str, meaning: str, value: Value) -> tuple[Aggregation, Aggregation]:
    """Return the aggregations of a metric and of its standard error."""

    def mean(items: Sequence[Record]) -> float:
        return _mean(items, value)

    def error(items: Sequence[Record]) -> float:
        return _error(items, value)

    mean.__name__, error.__name__ = name, f"{name}_stderr"
    mean.__doc__ = f"Return {meaning}."
    error.__doc__ = f"Return the standard error of {meaning}, clustered by case."
    return mean, error


_METRICS = (
    (_named("accuracy", "the share of right answers; an invalid reply is wrong", _right), True),
    *(
        (_named(f"acc_{level}_level", f"the accuracy of questions on the {level} level", _at(level)), True)
        for level in LEVELS
    ),
    (_named("invalid_rate", "the share of replies without a valid answer", _invalid), False),
)
SCORES = [
    entry
    for (mean, error), higher_is_better in _METRICS
    for entry in (
        metric_entry(mean, higher_is_better=higher_is_better),
        metric_entry(error, higher_is_better=False),
    )
]
METRIC_LIST = [*SCORES, *SAMPLE_COUNTS]
