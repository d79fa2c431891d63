"""Scoring of one class per image: counts over all ranks' records, with errors from the bootstrap over patients.

The harness asks for each metric on its own, with the same records; all of them are computed at the first one.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_answer
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.metrics.classification import count_classes, multiclass_metrics, values_with_errors
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
Answers = frozenset[tuple[tuple[str, int, int | None], int]]

_DEFAULT = "robust_class"  # for a user's YAML that names no rule


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one sample's class.

    Args:
        doc: A document of the family ``CLASSIFICATION`` (:mod:`medtasks.data.schema`).
        results: One reply, or one log-likelihood per class.

    Returns:
        The same record for every metric and standard error: ``key`` and ``value`` are class numbers from 0.
    """
    answer, rule = read_answer(doc, results, _DEFAULT)
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "classes": len(doc["options"]),
        "key": int(doc["label"]),
        "value": None if answer.value is None else ord(answer.value) - ord("A"),
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _score(items: Sequence[Record], metric: str) -> float:
    classes = max((item["classes"] for item in items), default=0)
    answers = Counter((item["unit"], item["key"], item["value"]) for item in items)
    return _scores(classes, frozenset(answers.items())).get(metric, math.nan)


# By content: records of another filter differ in it, copies from another rank and another order do not. A task has
# three filters, which the harness may take in turns.
@lru_cache(maxsize=8)
def _scores(classes: int, answers: Answers) -> Mapping[str, float]:
    if not answers:
        return {}
    rows = [answer for answer, number in sorted(answers, key=repr) for _ in range(number)]
    units, gold, predicted = zip(*rows, strict=True)
    invalid = [float(value is None) for value in predicted]
    return {
        **values_with_errors(count_classes(gold, predicted, classes), units, multiclass_metrics),
        "invalid_rate": sum(invalid) / len(invalid),
        "invalid_rate_stderr": clustered_standard_error(invalid, units),
    }


def macro_f1(items: Sequence[Record]) -> float:
    """Return the mean F1 over classes in the key or in a reply."""
    return _score(items, "macro_f1")


def macro_f1_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro F1, over patients or images."""
    return _score(items, "macro_f1_stderr")


def macro_accuracy(items: Sequence[Record]) -> float:
    """Return the mean recall over classes in the key or in a reply."""
    return _score(items, "macro_accuracy")


def macro_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro accuracy, over patients or images."""
    return _score(items, "macro_accuracy_stderr")


def balanced_accuracy(items: Sequence[Record]) -> float:
    """Return the mean recall over classes in the key."""
    return _score(items, "balanced_accuracy")


def balanced_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of balanced accuracy, over patients or images."""
    return _score(items, "balanced_accuracy_stderr")


def macro_auroc(items: Sequence[Record]) -> float:
    """Return the mean AUROC over all classes; one that is absent from the key counts 0."""
    return _score(items, "macro_auroc")


def macro_auroc_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of macro AUROC, over patients or images."""
    return _score(items, "macro_auroc_stderr")


def present_class_auroc(items: Sequence[Record]) -> float:
    """Return the mean AUROC over classes in the key."""
    return _score(items, "present_class_auroc")


def present_class_auroc_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the AUROC over classes in the key, over patients or images."""
    return _score(items, "present_class_auroc_stderr")


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer."""
    return _score(items, "invalid_rate")


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, over patients or images."""
    return _score(items, "invalid_rate_stderr")


METRIC_LIST = [
    metric_entry(macro_f1, higher_is_better=True),
    metric_entry(macro_f1_stderr, higher_is_better=False),
    metric_entry(macro_accuracy, higher_is_better=True),
    metric_entry(macro_accuracy_stderr, higher_is_better=False),
    metric_entry(balanced_accuracy, higher_is_better=True),
    metric_entry(balanced_accuracy_stderr, higher_is_better=False),
    metric_entry(macro_auroc, higher_is_better=True),
    metric_entry(macro_auroc_stderr, higher_is_better=False),
    metric_entry(present_class_auroc, higher_is_better=True),
    metric_entry(present_class_auroc_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *SAMPLE_COUNTS,
]
