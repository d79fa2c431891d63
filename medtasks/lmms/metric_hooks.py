"""A task family for the harness: ``process_results``, and a metric list of plain functions."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.families.family import TaskFamily
from medtasks.metrics.metric import STDERR, AnyMetric, CorpusMetric, Estimate, Scores
from medtasks.runs.logged_samples import (
    LoggedSample,
    is_private_document,
    logged,
    may_hold_words,
    save_reply,
    score_command,
)
from medtasks.runs.reply_envelope import opened_all

Aggregation = Callable[[Scores], float]
Number = float | int


def process_results(family: TaskFamily) -> Callable[[Mapping[str, Any], Sequence[Any]], LoggedSample]:
    """Return the hook that scores the harness's results for one document.

    It first saves a reply if the family's metrics may fail later, or if the samples file may not hold it.
    """
    names = [entry["metric"] for entry in metric_list(family.metrics)]

    def scored(doc: Mapping[str, Any], results: Sequence[Any]) -> LoggedSample:
        reply, row = opened_all(results)
        must_save = family.saves_replies or (may_hold_words(results) and is_private_document(doc))
        saved = save_reply(doc, results[0]) if must_save else None
        score = family.score(Sample(doc), reply, row)
        return logged(doc, results, names, {**score, "saved": saved} if family.saves_replies else score)

    return scored


def metric_list(metrics: Sequence[AnyMetric]) -> list[dict[str, Any]]:
    """Return the ``metric_list`` of a task.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.
    """
    return [entry for metric in metrics for entry in _entries(metric)]


def _entries(metric: AnyMetric) -> list[dict[str, Any]]:
    def value(scores: Scores) -> float:
        if metric.warning and (sentence := metric.warning(scores)):
            warn_once(sentence)
        return _estimate(metric, scores).value

    def error(scores: Scores) -> float:
        return _estimate(metric, scores).error

    aggregations: dict[str, tuple[Aggregation, bool | None]] = {metric.name: (value, metric.higher_is_better)}
    if metric.has_error:
        aggregations[f"{metric.name}{STDERR}"] = (error, False)
    for name, (aggregation, _) in aggregations.items():
        aggregation.__name__ = aggregation.__qualname__ = name  # the harness writes it into its results
    return [
        {"metric": name, "aggregation": aggregation, "higher_is_better": direction}
        for name, (aggregation, direction) in aggregations.items()
    ]


def _estimate(metric: AnyMetric, scores: Scores) -> Estimate:
    """Return the estimate of a metric; warn once of failures of its panel, with the command to compute them later."""
    if not isinstance(metric, CorpusMetric) or metric.panel is None:
        return metric.estimate(scores)
    panel = metric.panel.of(metric.selection(scores))
    for name, settings in panel.settings.items():
        if settings:
            warn_once(f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}", "INFO")
    by_cause = {
        why: [name for name, cause in panel.failures.items() if cause == why] for why in panel.failures.values()
    }
    sentences = [f"{', '.join(names)} could not be computed: {why}" for why, names in by_cause.items()]
    if sentences or panel.warnings:
        command = score_command(score.get("saved") for score in scores)
        for sentence in (*sentences, *panel.warnings):
            warn_once(f"{sentence}. {command}")
    return metric.estimate(scores)


# ---- groups, for ``aggregate_metric_list`` ----


def best_highest(values: list[Number], sizes: list[Number], weight_by_size: bool) -> Number:
    """Return the largest of the members' values: the paper's "Best" column takes each metric's best mode."""
    _forbid_pooled_error(sizes)
    return max(values, key=lambda value: -math.inf if math.isnan(value) else value)


def best_lowest(values: list[Number], sizes: list[Number], weight_by_size: bool) -> Number:
    """Return the smallest of the members' values."""
    _forbid_pooled_error(sizes)
    return min(values, key=lambda value: math.inf if math.isnan(value) else value)


def mean_of_settings(values: list[Number], sizes: list[Number], weight_by_size: bool) -> Number:
    """Return the mean of the members' values, which are about the same questions."""
    _forbid_pooled_error(sizes)
    return statistics.fmean(values)


def _forbid_pooled_error(sizes: list[Number]) -> None:
    # After this call the harness computes a standard error from the same list, with the formula for the mean of
    # independent samples. For several modes on the same images it would be far too small; sizes of NaN make it NaN.
    sizes[:] = [math.nan] * len(sizes)
