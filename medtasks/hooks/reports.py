"""Scoring of reports: all metrics once over all ranks' records, after every reply is on disk.

The harness asks for each metric on its own, with the same records; all metrics of the task are computed at the first
one. A metric that fails is NaN and says in one sentence what mends it; the run goes on, and ``medtasks score`` finishes
the job from the saved replies.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from loguru import logger

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.extract.answer import Reason
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.saved_replies import save_reply, score_command
from medtasks.hooks.metric_list import SAMPLE_COUNTS, Aggregation, answered, metric_entry
from medtasks.hooks.reading import read_reply
from medtasks.hooks.report_panel import PanelScores, ReportPair, score_panel
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import PrivateText, withhold_saved
from medtasks.metrics import report_metrics
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]
Row = tuple[str, PrivateText, PrivateText, str, str | None]  # unit, reference, reply, reason, file

INVALID_RATE = "invalid_rate"
_DEFAULT = "report_text"  # for a user's YAML that names no rule
_STDERR = "_stderr"

_MULTIMEDEVAL_KEYS = (
    "bleu_1",
    "bleu_4",
    "rouge_1",
    "rouge_l",
    "meteor",
    "idf_bertscore_f1",
    "chexbert_similarity",
    "radgraph_partial",
    "radcliq_v1_multimedeval",
)
_REPORT_KEYS = (
    "bleu_1",
    "bleu_4",
    "rouge_l",
    "meteor",
    "bertscore_f1",
    "chexbert_similarity",
    "chexbert_14_micro_f1",
    "chexbert_14_macro_f1",
    "chexbert_5_micro_f1",
    "chexbert_5_macro_f1",
    "radgraph_simple",
    "radgraph_partial",
    "radgraph_complete",
    "radgraph_combined",
    "radcliq_v0",
    "radcliq_v1",
)
_WITHOUT_ERROR = frozenset(key for key in _REPORT_KEYS if key.startswith("chexbert_") and key.endswith("_f1"))


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Save one reply and set it beside the report, for a task whose metrics are :data:`REPORT_METRICS`.

    Args:
        doc: A document of the family ``REPORT`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric and standard error.
    """
    return withhold_saved(doc, results, _records(doc, results, REPORT_METRICS))


def multimedeval_process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Do the same for a task whose metrics are :data:`MULTIMEDEVAL_METRICS`."""
    return withhold_saved(doc, results, _records(doc, results, MULTIMEDEVAL_METRICS))


def _records(
    doc: Mapping[str, Any], results: Sequence[Any], metric_list: Sequence[Mapping[str, Any]]
) -> dict[str, Record]:
    rule, reply = read_reply(results[0], _DEFAULT)
    answer = extractor_of(rule, Kind.REPORT).extract(reply, Sample(doc))
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "reference": PrivateText(doc["report"]),
        "reply": PrivateText(answer.value or ""),
        "reason": str(answer.reason),
        "rule": rule,
        "saved": save_reply(doc, results[0]),
    }
    return {metric["metric"]: entry for metric in metric_list}


def score_records(items: Iterable[Mapping[str, Any]], metrics: Sequence[str]) -> PanelScores:
    """Score records of answered samples with metrics of reports, and count the replies that hold no report.

    Args:
        items: Records of :func:`process_results`.
        metrics: Names of :data:`medtasks.metrics.report_metrics.REPORT_METRICS`.

    Raises:
        UnknownName: There is no such metric.
    """
    return _scored(Counter(map(_row, answered(list(items)))), metrics)


def metrics_for(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the metrics that give these keys, each once; ``invalid_rate`` is counted here.

    Raises:
        KeyError: No metric gives a key.

    Example:
        >>> metrics_for(["bleu_4", "invalid_rate", "bleu_1", "rouge_l"])
        ('bleu', 'rouge')
    """
    owners = {key: name for name, info in report_metrics.REPORT_METRICS.items() for key in info.keys}
    return tuple(dict.fromkeys(owners[key] for key in keys if key != INVALID_RATE))


def _row(item: Mapping[str, Any]) -> Row:
    return item["unit"], item["reference"], item["reply"], item["reason"], item["saved"]


# By content: records of another filter or run differ in it, copies from another rank and another order do not.
@lru_cache(maxsize=4)
def _scores(metrics: tuple[str, ...], rows: frozenset[tuple[Row, int]]) -> PanelScores:
    found = _scored(dict(rows), metrics)
    for name, settings in found.settings.items():
        if settings:
            logger.info("{}: {}", name, ", ".join(f"{key} {value}" for key, value in settings.items()))
    again = score_command({row[4] for row, _ in rows})
    for name, cause in found.failures.items():
        warn_once(f"{name} could not be computed: {cause}. {again}")
    return found


def _scored(rows: Mapping[Row, int], metrics: Sequence[str]) -> PanelScores:
    ordered = sorted(rows, key=lambda row: (row[0], row[1].text, row[2].text))
    repeated = [row for row in ordered for _ in range(rows[row])]
    pairs = [ReportPair(unit, reference.text, reply.text) for unit, reference, reply, *_ in repeated]
    scores = score_panel(metrics, pairs)
    invalid = [float(row[3] != Reason.OK) for row in repeated]
    rate = math.fsum(invalid) / len(invalid) if invalid else math.nan
    error = clustered_standard_error(invalid, [pair.unit for pair in pairs]) if invalid else math.nan
    return PanelScores(
        {**scores.values, INVALID_RATE: rate}, {**scores.errors, INVALID_RATE: error}, scores.failures, scores.settings
    )


def _aggregations(keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the metric list for these keys, each but the ones without value per report with its standard error."""
    metrics = metrics_for(keys)
    entries = []
    for key in (*keys, INVALID_RATE):
        higher = key != INVALID_RATE and report_metrics.metric_info(*metrics_for([key])).higher_is_better
        entries.append(metric_entry(_value(key, metrics), higher_is_better=higher))
        if key not in _WITHOUT_ERROR:
            entries.append(metric_entry(_standard_error(key, metrics), higher_is_better=False))
    return [*entries, *SAMPLE_COUNTS]


def _value(key: str, metrics: tuple[str, ...]) -> Aggregation:
    def aggregation(items: Sequence[Record]) -> float:
        return _scores(metrics, frozenset(Counter(map(_row, items)).items())).values[key]

    return _named(aggregation, key)


def _standard_error(key: str, metrics: tuple[str, ...]) -> Aggregation:
    def aggregation(items: Sequence[Record]) -> float:
        return _scores(metrics, frozenset(Counter(map(_row, items)).items())).errors[key]

    return _named(aggregation, f"{key}{_STDERR}")


def _named(aggregation: Aggregation, name: str) -> Aggregation:
    aggregation.__name__ = aggregation.__qualname__ = name  # the harness writes it into its results
    return aggregation


MULTIMEDEVAL_METRICS = _aggregations(_MULTIMEDEVAL_KEYS)
REPORT_METRICS = _aggregations(_REPORT_KEYS)
