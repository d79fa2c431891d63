"""Scoring of open questions: overlap with the key, and accuracy of closed and open ones, clustered by patient or image.

A metric over a subset without samples is NaN. The reference prints 0 there, which would read as "all wrong".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.answer import Reason
from medtasks.extract.registry import Kind, extractor_of
from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_reply
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
Value = Callable[[Record], float | None]

_DEFAULT = "robust_vqa"  # for a user's YAML that names no rule


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Compare one reply with its key.

    Args:
        doc: A document of the family ``OPEN_QUESTION`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric and standard error. It holds scores only: question, key and reply may come from
        a patient's record.
    """
    rule, reply = read_reply(results[0], _DEFAULT)
    answer = extractor_of(rule, Kind.OPEN).extract(reply, Sample(doc))
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        **{name: answer.facts[name] for name in ("closed", "correct", "bleu_1", "token_f1", "token_recall")},
        "reason": str(answer.reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _bleu_1(item: Record) -> float:
    return float(item["bleu_1"])


def _token_f1(item: Record) -> float:
    return float(item["token_f1"])


def _token_recall(item: Record) -> float:
    return float(item["token_recall"])


def _closed_correct(item: Record) -> float | None:
    return float(item["correct"]) if item["closed"] else None


def _open_recall(item: Record) -> float | None:
    return None if item["closed"] else float(item["token_recall"])


def _open_correct(item: Record) -> float | None:
    return None if item["closed"] else float(item["correct"])


def _invalid(item: Record) -> float:
    return float(item["reason"] != Reason.OK)


def _mean(items: Sequence[Record], value: Value) -> float:
    """Return the mean of what ``value`` gives, over the samples it is not None for."""
    values = [number for item in items if (number := value(item)) is not None]
    return math.fsum(values) / len(values) if values else math.nan  # the sum is the same in any order


def _error(items: Sequence[Record], value: Value) -> float:
    """Return the clustered standard error of :func:`_mean`."""
    counted = [(number, item["unit"]) for item in items if (number := value(item)) is not None]
    return clustered_standard_error([number for number, _ in counted], [unit for _, unit in counted])


def bleu_1(items: Sequence[Record]) -> float:
    """Return the mean BLEU-1 of all replies."""
    return _mean(items, _bleu_1)


def bleu_1_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of BLEU-1, clustered by patient or image."""
    return _error(items, _bleu_1)


def token_f1(items: Sequence[Record]) -> float:
    """Return the mean F1 of tokens over all replies."""
    return _mean(items, _token_f1)


def token_f1_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of token F1, clustered by patient or image."""
    return _error(items, _token_f1)


def token_recall(items: Sequence[Record]) -> float:
    """Return the mean share of the key's tokens that the reply has, over all replies."""
    return _mean(items, _token_recall)


def token_recall_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of token recall, clustered by patient or image."""
    return _error(items, _token_recall)


def closed_accuracy(items: Sequence[Record]) -> float:
    """Return the share of right answers to yes/no questions; an invalid reply is wrong."""
    return _mean(items, _closed_correct)


def closed_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of closed accuracy, clustered by patient or image."""
    return _error(items, _closed_correct)


def open_recall(items: Sequence[Record]) -> float:
    """Return the mean token recall over questions that are not yes/no."""
    return _mean(items, _open_recall)


def open_recall_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of open recall, clustered by patient or image."""
    return _error(items, _open_recall)


def open_accuracy(items: Sequence[Record]) -> float:
    """Return the share of right answers to questions that are not yes/no; an invalid reply is wrong."""
    return _mean(items, _open_correct)


def open_accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of open accuracy, clustered by patient or image."""
    return _error(items, _open_correct)


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer."""
    return _mean(items, _invalid)


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by patient or image."""
    return _error(items, _invalid)


METRIC_LIST = [
    metric_entry(bleu_1, higher_is_better=True),
    metric_entry(bleu_1_stderr, higher_is_better=False),
    metric_entry(token_f1, higher_is_better=True),
    metric_entry(token_f1_stderr, higher_is_better=False),
    metric_entry(token_recall, higher_is_better=True),
    metric_entry(token_recall_stderr, higher_is_better=False),
    metric_entry(closed_accuracy, higher_is_better=True),
    metric_entry(closed_accuracy_stderr, higher_is_better=False),
    metric_entry(open_recall, higher_is_better=True),
    metric_entry(open_recall_stderr, higher_is_better=False),
    metric_entry(open_accuracy, higher_is_better=True),
    metric_entry(open_accuracy_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *SAMPLE_COUNTS,
]
