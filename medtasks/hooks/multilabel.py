"""Scoring of several labels per image: counts over all ranks' records, with errors from the bootstrap over patients.

The harness asks for each metric on its own, with the same records; all of them are computed at the first one.

A reply that its labeler could not read (``judge_failed``) says nothing about the model: metrics leave it out, and
``judge_failed_rate`` stands beside them. Any other invalid reply is wrong. Where the labeler read none, they are NaN:
empty replies, which need no labeler, would stand for all.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.extract.chexbert_labels import from_labels
from medtasks.extract.registry import Kind, extractor_of
from medtasks.hooks.metric_list import LABELLED_SAMPLE_COUNTS, is_unjudged, metric_entry
from medtasks.hooks.reading import untagged
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.metrics.classification import count_labels, multilabel_metrics, values_with_errors
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
Reply = tuple[str, bytes, bytes | None, bool]  # unit, key, value, whether its labeler failed

_DEFAULT = "robust_labels"  # for a user's YAML that names no rule


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's labels.

    Args:
        doc: A document of the family ``MULTILABEL`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric and standard error: ``key`` and ``value`` hold 0 or 1 per label.
    """
    read = untagged(results[0])
    rule = read.rule or _DEFAULT
    answer = (
        from_labels(read.reply, read.labels, doc["options"])
        if read.labelled
        else extractor_of(rule, Kind.LABELS).extract(read.reply, Sample(doc))
    )
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "key": list(doc["labels"]),
        "value": None if answer.value is None else list(answer.value),
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _score(items: Sequence[Record], metric: str) -> float:
    replies = Counter(_reply(item) for item in items)
    return _scores(frozenset(replies.items())).get(metric, math.nan)


def _reply(item: Record) -> Reply:
    value = None if item["value"] is None else bytes(item["value"])  # cheaper to hash than a tuple
    return item["unit"], bytes(item["key"]), value, is_unjudged(item)


# By content: records of another filter differ in it, copies from another rank and another order do not.
@lru_cache(maxsize=8)
def _scores(replies: frozenset[tuple[Reply, int]]) -> Mapping[str, float]:
    if not replies:
        return {}
    rows = [reply for reply, number in sorted(replies, key=repr) for _ in range(number)]
    failed = _rate("judge_failed_rate", [row[3] for row in rows], [row[0] for row in rows])
    read = [row for row in rows if not row[3]]
    if len(read) < len(rows) and all(value is None for _, _, value, _ in read):
        return failed
    units = [unit for unit, *_ in read]
    gold = [list(key) for _, key, *_ in read]
    predicted = [None if value is None else list(value) for _, _, value, _ in read]
    counts = count_labels(gold, predicted, len(gold[0]))
    invalid = _rate("invalid_rate", [value is None for value in predicted], units)
    return {**values_with_errors(counts, units, multilabel_metrics), **invalid, **failed}


def _rate(name: str, cases: Sequence[bool], units: Sequence[str]) -> dict[str, float]:
    values = [float(case) for case in cases]
    return {name: sum(values) / len(values), f"{name}_stderr": clustered_standard_error(values, units)}


def macro_f1(items: Sequence[Record]) -> float:
    """Return the mean F1 over all labels; one that is neither in the key nor in a reply counts 0."""
    return _score(items, "macro_f1")


def macro_f1_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro F1, over patients or images."""
    return _score(items, "macro_f1_stderr")


def macro_accuracy(items: Sequence[Record]) -> float:
    """Return the mean share of right decisions over all labels; an invalid reply is wrong for each."""
    return _score(items, "macro_accuracy")


def macro_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro accuracy, over patients or images."""
    return _score(items, "macro_accuracy_stderr")


def macro_auroc(items: Sequence[Record]) -> float:
    """Return the mean AUROC over all labels; one that no image has counts 0."""
    return _score(items, "macro_auroc")


def macro_auroc_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro AUROC, over patients or images."""
    return _score(items, "macro_auroc_stderr")


def present_label_f1(items: Sequence[Record]) -> float:
    """Return the mean F1 over labels that an image has."""
    return _score(items, "present_label_f1")


def present_label_f1_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the F1 over labels that an image has, over patients or images."""
    return _score(items, "present_label_f1_stderr")


def present_label_auroc(items: Sequence[Record]) -> float:
    """Return the mean AUROC over labels that some images have and some have not."""
    return _score(items, "present_label_auroc")


def present_label_auroc_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the AUROC over present labels, over patients or images."""
    return _score(items, "present_label_auroc_stderr")


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer, of those that a labeler could read."""
    return _score(items, "invalid_rate")


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, over patients or images."""
    return _score(items, "invalid_rate_stderr")


def judge_failed_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that no labeler read; the other metrics leave them out."""
    rate = _score(items, "judge_failed_rate")
    if 0 < rate < 1:
        warn_once(f"The labeler failed for {rate:.1%} of {len(items)} replies; they are left out of the other metrics.")
    return rate


def judge_failed_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the share of replies without labels, over patients or images."""
    return _score(items, "judge_failed_rate_stderr")


METRIC_LIST = [
    metric_entry(macro_f1, higher_is_better=True),
    metric_entry(macro_f1_stderr, higher_is_better=False),
    metric_entry(macro_accuracy, higher_is_better=True),
    metric_entry(macro_accuracy_stderr, higher_is_better=False),
    metric_entry(macro_auroc, higher_is_better=True),
    metric_entry(macro_auroc_stderr, higher_is_better=False),
    metric_entry(present_label_f1, higher_is_better=True),
    metric_entry(present_label_f1_stderr, higher_is_better=False),
    metric_entry(present_label_auroc, higher_is_better=True),
    metric_entry(present_label_auroc_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    metric_entry(judge_failed_rate, higher_is_better=False),
    metric_entry(judge_failed_rate_stderr, higher_is_better=False),
    *LABELLED_SAMPLE_COUNTS,
]
