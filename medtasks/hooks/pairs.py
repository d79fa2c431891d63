"""Scoring of paired questions in the harness: per-sample records, and aggregations over all ranks' records.

A pair's two samples may be answered on different ranks, so nothing is decided about a pair before aggregation.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.errors import warn_once
from medtasks.extract.answer import Answer
from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_answer
from medtasks.hooks.withheld import withhold
from medtasks.metrics.pairs import TOTAL, Counts, PairedAnswer, count, standard_errors

Record = dict[str, Any]


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's answer.

    Args:
        doc: A document in the paired-choice schema (:mod:`medtasks.data.schema`).
        results: One reply, or one log-likelihood per option.

    Returns:
        The same record for every metric of the task.
    """
    answer, rule = read_answer(doc, results)
    return withhold(doc, results, records(record(doc, answer, rule)))


def record(doc: Mapping[str, Any], answer: Answer, rule: str) -> Record:
    """Return what aggregation and the samples file need to know about one answer."""
    return {
        "sample": doc["doc_id"],
        "pair_id": doc["pair_id"],
        "position": doc["position"],
        "image_id": doc["image_id"],
        "key": doc["answer"],
        "value": answer.value,
        "reason": str(answer.reason),
        "rule": rule,
        "categories": list(doc["categories"]),
    }


def records(entry: Record) -> dict[str, Record]:
    """Return ``entry`` under the name of each metric in ``METRIC_LIST``."""
    return {metric["metric"]: entry for metric in METRIC_LIST}


def answers(items: Sequence[Record]) -> list[PairedAnswer]:
    """Return the records as scored answers."""
    return [
        PairedAnswer(i["pair_id"], i["position"], i["image_id"], i["key"], i["value"], tuple(i["categories"]))
        for i in items
    ]


def _total(items: Sequence[Record]) -> Counts:
    return count(answers(items))[TOTAL]


def set_accuracy(items: Sequence[Record]) -> float:
    """Return the share of complete pairs with both answers right."""
    total = _total(items)
    if total.incomplete_pairs:
        warn_once(
            f"{total.incomplete_pairs} pairs lack an answer to one image (cut by --limit or --offset, or failed) and "
            f"are left out of set accuracy and confusion; {total.pairs} complete pairs remain."
        )
    return total.set_accuracy


def individual_accuracy(items: Sequence[Record]) -> float:
    """Return the share of right answers; an invalid reply is wrong."""
    return _total(items).individual_accuracy


def confusion(items: Sequence[Record]) -> float:
    """Return the share of valid pairs with the same option twice.

    Without any valid pair it is NaN. The reference guards its division by printing 0 there, which would make a model
    that never gives a valid answer look like the least confused one; no published row has that case.
    """
    return _total(items).confusion


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer."""
    return _total(items).invalid_rate


def incomplete_pairs(items: Sequence[Record]) -> int:
    """Return the number of pairs of which only one image was asked, or answered."""
    return _total(items).incomplete_pairs


def set_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of set accuracy over pairs."""
    return standard_errors(answers(items))["set_accuracy"]


def individual_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of individual accuracy, clustered by pair and by image."""
    return standard_errors(answers(items))["individual_accuracy"]


def confusion_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of confusion over valid pairs."""
    return standard_errors(answers(items))["confusion"]


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by pair and by image."""
    return standard_errors(answers(items))["invalid_rate"]


SCORES = [
    metric_entry(set_accuracy, higher_is_better=True),
    metric_entry(set_accuracy_stderr, higher_is_better=False),
    metric_entry(individual_accuracy, higher_is_better=True),
    metric_entry(individual_accuracy_stderr, higher_is_better=False),
    metric_entry(confusion, higher_is_better=False),
    metric_entry(confusion_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    metric_entry(incomplete_pairs, higher_is_better=False),
]
METRIC_LIST = [*SCORES, *SAMPLE_COUNTS]
