"""Hooks of a question type, for the modules next to this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.families.counts import judges_of
from medtasks.families.family import TaskFamily
from medtasks.metrics.metric import (
    STDERR,
    AnyMetric,
    CorpusMetric,
    Estimate,
    PanelResult,
    ScoreList,
)
from medtasks.runs.logged_samples import (
    LoggedSample,
    is_private_document,
    make_logged_sample,
    may_hold_words,
    save_reply,
    score_command,
)
from medtasks.runs.reply_envelope import open_results

Aggregation = Callable[[ScoreList], float]


def hook(family: TaskFamily) -> Callable[[Mapping[str, Any], Sequence[Any]], LoggedSample]:
    """Return the ``process_results`` of a family, which scores the harness's results for one document.

    It first saves a reply if the family's metrics may fail later, or if the samples file may not hold it. Its attribute
    ``family`` is the family.

    Args:
        family: A question type; a module of :mod:`medtasks.hooks` gives the result a name for task files.
    """
    names = [entry["metric"] for entry in metric_list(family.metrics)]

    def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> LoggedSample:
        """Score the results that the harness has for one document, and save the reply where it must be."""
        reply, row = open_results(results)
        must_save = family.saves_replies or (
            may_hold_words(results) and is_private_document(doc)
        )
        saved = save_reply(doc, results[0]) if must_save else None
        score = family.score(Sample(doc), reply, row)
        if must_save:
            score = {**score, "saved": saved}
        return make_logged_sample(doc, results, names, score)

    process_results.family = family  # type: ignore[attr-defined]  # for tasks.hook_names.family_of
    return process_results


def metric_list(metrics: Sequence[AnyMetric]) -> list[dict[str, Any]]:
    """Return the ``metric_list`` of a task.

    The harness shows a second metric called ``<metric>_stderr`` in the first one's Stderr column.

    Args:
        metrics: Of a family, in the order of the table.
    """
    entries = []
    for metric in metrics:
        value, error = _aggregations(metric)
        entries.append(_entry(metric.name, metric.higher_is_better, value))
        if metric.has_error:
            entries.append(_entry(f"{metric.name}{STDERR}", False, error))
    return entries


def _entry(name: str, direction: bool | None, aggregation: Aggregation) -> dict[str, Any]:
    """Return an entry of ``metric_list``.

    Args:
        name: Name of the metric. The harness writes the name of the function into its results.
        direction: Whether higher values are better, None if neither higher nor lower ones are.
        aggregation: Function from scores to the value.
    """
    aggregation.__name__ = aggregation.__qualname__ = name
    return {"metric": name, "aggregation": aggregation, "higher_is_better": direction}


def _aggregations(metric: AnyMetric) -> tuple[Aggregation, Aggregation]:
    """Return the functions from scores to the metric's value and to its standard error."""

    def value(scores: ScoreList) -> float:
        return _estimate(metric, scores, warn=True).value

    def error(scores: ScoreList) -> float:
        return _estimate(metric, scores).error

    return value, error


def _estimate(
    metric: AnyMetric,
    scores: ScoreList,
    *,
    warn: bool = False,
) -> Estimate:
    """Return the estimate of a metric. Warn once of failures of its panel, with the command to compute them later."""
    if warn and metric.warning:
        sentence = metric.warning(scores)
        if sentence:
            warn_once(sentence)
    if warn and metric.remark is judges_of:
        sentence = judges_of(scores)
        if sentence:
            warn_once(sentence, "INFO")
    if isinstance(metric, CorpusMetric) and metric.panel is not None:
        _warn_about_panel(metric.panel.of(metric.selection(scores)), scores)
    return metric.estimate(scores)


def _warn_about_panel(panel: PanelResult, scores: ScoreList) -> None:
    """Log the settings of a panel's metrics, and warn of failed ones and of its remarks, with how to score again."""
    for name, settings in panel.settings.items():
        if settings:
            texts = [f"{key} {value}" for key, value in settings.items()]
            warn_once(f"{name}: {', '.join(texts)}", "INFO")
    names_by_cause: dict[str, list[str]] = {}
    for name, cause in panel.failures.items():
        names_by_cause.setdefault(cause, []).append(name)
    sentences = [
        f"{', '.join(names)} could not be computed: {cause}"
        for cause, names in names_by_cause.items()
    ]
    sentences += panel.warnings
    if sentences:
        command = score_command(score.get("saved") for score in scores)
        for sentence in sentences:
            warn_once(f"{sentence}. {command}")
