"""Scoring of single questions with lettered options: accuracy and invalid rate, clustered by image."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_answer
from medtasks.hooks.withheld import withhold
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's answer.

    Args:
        doc: A document with ``options`` and ``answer`` (a letter), and ``image_id`` where images repeat.
        results: One reply, or one log-likelihood per option.

    Returns:
        The same record for ``accuracy``, ``invalid_rate`` and their standard errors.
    """
    answer, rule = read_answer(doc, results)
    entry = {
        "sample": doc.get("doc_id"),
        "image_id": doc.get("image_id"),
        "key": doc["answer"],
        "value": answer.value,
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def accuracy(items: Sequence[Record]) -> float:
    """Return the share of right answers; an invalid reply is wrong."""
    return _mean(_right(items))


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer."""
    return _mean(_invalid(items))


def accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of accuracy, clustered by image."""
    return clustered_standard_error(_right(items), _images(items))


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by image."""
    return clustered_standard_error(_invalid(items), _images(items))


def _right(items: Sequence[Record]) -> list[float]:
    return [float(item["value"] == item["key"]) for item in items]


def _invalid(items: Sequence[Record]) -> list[float]:
    return [float(item["value"] is None) for item in items]


def _images(items: Sequence[Record]) -> list[Hashable]:
    return [item["image_id"] if item["image_id"] is not None else ("sample", n) for n, item in enumerate(items)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


METRIC_LIST = [
    metric_entry(accuracy, higher_is_better=True),
    metric_entry(accuracy_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *SAMPLE_COUNTS,
]
