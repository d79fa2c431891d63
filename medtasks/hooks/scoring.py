"""Hooks of a question type, for the modules next to this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.families.counts import judges_of
from medtasks.families.family import TaskFamily
from medtasks.metrics.metric import STDERR, AnyMetric, CorpusMetric, Estimate, ScoreList
from medtasks.runs.logged_samples import (
    LoggedSample,
    is_private_document,
    logged,
    may_hold_words,
    save_reply,
    score_command,
)
from medtasks.runs.reply_envelope import opened_all


def hook(family: TaskFamily) -> Callable[[Mapping[str, Any], Sequence[Any]], LoggedSample]:
    """Return the ``process_results`` of a family, which scores the harness's results for one document.

    It first saves a reply if the family's metrics may fail later, or if the samples file may not hold it. Its attribute
    ``family`` is the family.
    """
    names = [entry["metric"] for entry in metric_list(family.metrics)]

    def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> LoggedSample:
        reply, row = opened_all(results)
        must_save = family.saves_replies or (may_hold_words(results) and is_private_document(doc))
        saved = save_reply(doc, results[0]) if must_save else None
        score = family.score(Sample(doc), reply, row)
        return logged(
            doc, results, names, {**score, "saved": saved} if family.saves_replies else score
        )

    process_results.family = family  # type: ignore[attr-defined]  # for tasks.hook_names.family_of
    return process_results


def metric_list(metrics: Sequence[AnyMetric]) -> list[dict[str, Any]]:
    """Return the ``metric_list`` of a task.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.
    """

    def entry(
        name: str, direction: bool | None, aggregation: Callable[[ScoreList], float]
    ) -> dict[str, Any]:
        aggregation.__name__ = aggregation.__qualname__ = (
            name  # the harness writes it into its results
        )
        return {"metric": name, "aggregation": aggregation, "higher_is_better": direction}

    def entries(metric: AnyMetric) -> list[dict[str, Any]]:
        value = entry(
            metric.name,
            metric.higher_is_better,
            lambda scores: _estimate(metric, scores, warn=True).value,
        )
        error = entry(
            f"{metric.name}{STDERR}", False, lambda scores: _estimate(metric, scores).error
        )
        return [value, error] if metric.has_error else [value]

    return [made for metric in metrics for made in entries(metric)]


def _estimate(metric: AnyMetric, scores: ScoreList, *, warn: bool = False) -> Estimate:
    """Return the estimate of a metric; warn once of failures of its panel, with the command to compute them later."""
    if warn and metric.warning and (sentence := metric.warning(scores)):
        warn_once(sentence)
    if warn and metric.remark is judges_of and (sentence := judges_of(scores)):
        warn_once(sentence, "INFO")
    if not isinstance(metric, CorpusMetric) or metric.panel is None:
        return metric.estimate(scores)
    panel = metric.panel.of(metric.selection(scores))
    for name, settings in panel.settings.items():
        if settings:
            warn_once(
                f"{name}: {', '.join(f'{key} {value}' for key, value in settings.items())}", "INFO"
            )
    by_cause = {
        why: [name for name, cause in panel.failures.items() if cause == why]
        for why in panel.failures.values()
    }
    sentences = [
        f"{', '.join(names)} could not be computed: {why}" for why, names in by_cause.items()
    ]
    if sentences or panel.warnings:
        command = score_command(score.get("saved") for score in scores)
        for sentence in (*sentences, *panel.warnings):
            warn_once(f"{sentence}. {command}")
    return metric.estimate(scores)
