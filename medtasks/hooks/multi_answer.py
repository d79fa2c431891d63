"""Scoring of questions with several right options (GMAI-MMBench's ``2D Mcls``), with errors over cases."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.extract.registry import Kind, extractor_of
from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_reply
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.metrics.multi_answer import multi_answer_accuracy, multi_answer_recall
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
_DEFAULT = "listed_options"  # for a user's YAML that names no rule


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read which options one reply lists.

    Args:
        doc: A document of the family ``MULTI_ANSWER`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric and standard error.
    """
    rule, reply = read_reply(results[0], _DEFAULT)
    answer = extractor_of(rule, Kind.LABELS).extract(reply, Sample(doc))
    listed = [letter(index) for index, one in enumerate(answer.value or ()) if one]
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "key": list(doc["answers"]),
        "value": listed if answer.value is not None else None,
        "accuracy": multi_answer_accuracy(set(listed), set(doc["answers"])),
        "recall": multi_answer_recall(set(listed), set(doc["answers"])),
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _mean(items: Sequence[Record], value: Callable[[Record], float]) -> float:
    return math.fsum(map(value, items)) / len(items) if items else math.nan


def _error(items: Sequence[Record], value: Callable[[Record], float]) -> float:
    return clustered_standard_error([value(item) for item in items], [item["unit"] for item in items])


def _accuracy(item: Record) -> float:
    return float(item["accuracy"])


def _recall(item: Record) -> float:
    return float(item["recall"])


def _invalid(item: Record) -> float:
    return float(item["value"] is None)


def mcls_accuracy(items: Sequence[Record]) -> float:
    """Return the mean share of listed options that are right."""
    return _mean(items, _accuracy)


def mcls_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the mean share of listed options that are right, clustered by case."""
    return _error(items, _accuracy)


def mcls_recall(items: Sequence[Record]) -> float:
    """Return the mean share of right options that are listed."""
    return _mean(items, _recall)


def mcls_recall_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the mean share of right options that are listed, clustered by case."""
    return _error(items, _recall)


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that list nothing that can be read."""
    return _mean(items, _invalid)


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by case."""
    return _error(items, _invalid)


METRIC_LIST = [
    metric_entry(mcls_accuracy, higher_is_better=True),
    metric_entry(mcls_accuracy_stderr, higher_is_better=False),
    metric_entry(mcls_recall, higher_is_better=True),
    metric_entry(mcls_recall_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *SAMPLE_COUNTS,
]
