"""Metrics that compare texts with targets, all of a task at once, of which one that fails costs its own numbers only.

Used by the families of free texts. No message may quote a text, which may be a patient's report.
"""

import math
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import DRAWN
from medtasks.errors import MedTasksError
from medtasks.families.counts import answered
from medtasks.judges import green_judge as green_judge  # registers GREEN
from medtasks.metrics.metric import (
    STDERR,
    CorpusMetric,
    Estimate,
    Panel,
    PanelResult,
    Role,
    Scale,
    Score,
    ScoreList,
    mean,
)
from medtasks.metrics.model_settings import DEVICE_VARIABLE, ModelSettings
from medtasks.metrics.ngram_metrics import WITHOUT_WORDS
from medtasks.metrics.report_metrics import ReportScores, metric_info, report_metric
from medtasks.stats.bootstrap import values_with_errors
from medtasks.stats.exchange import SummedCounts
from medtasks.stats.sample_design import DrawnUnit, are_drawn, drawn_mean
from medtasks.stats.standard_error import clustered_error

# cluster, or unit of a drawn sample, target, reply, and the file of the saved reply: another run tries failed metrics
# again
TextRow = tuple[Hashable, PrivateText, PrivateText, str | None]

NO_MEAN = "is no mean over samples"


class NotComparable(Exception):
    """A metric has no value per sample, or is not the mean of these. The message follows its name."""


def text_metrics(keys: Iterable[str], reply: str = "reply") -> tuple[CorpusMetric, ...]:
    """Return metrics that are computed together.

    Args:
        keys: Keys of :func:`~medtasks.metrics.report_metrics.metric_info`, in the order of tables.
        reply: Field of scores that has the reply.
    """
    keys = tuple(keys)
    names = tuple(dict.fromkeys(metric_info(key).name for key in keys))
    panel = Panel(
        text_row(reply),
        partial(compare_texts, names),
        lambda row: (row[0], row[1].text, row[2].text),
        text_counts,
    )
    firsts = {metric_info(key).name: key for key in reversed(keys)}
    metrics = []
    for key in keys:
        info = metric_info(key)
        is_count = info.scale is Scale.COUNT
        remark = partial(_remark, panel, info.name) if firsts[info.name] == key else None
        metrics.append(
            CorpusMetric(
                key,
                info.higher_is_better,
                answered,
                has_error=not is_count,
                role=Role.ASIDE if is_count else Role.PART,
                remark=remark,
                panel=panel,
                text_field=reply,
                scale=info.scale,
                description=info.sentence,
            )
        )
    return tuple(metrics)


def _remark(panel: Panel[TextRow], name: str, scores: ScoreList) -> str:
    """Name the judge of a metric, or the number of texts in which it finds no words."""
    settings = panel.of(answered(scores)).settings.get(name, {})
    if "judge" in settings:
        return f"Judge of {name}: {settings['judge']}."
    return f"{name}: {settings[WITHOUT_WORDS]}." if WITHOUT_WORDS in settings else ""


def text_row(reply: str) -> Callable[[Mapping[str, Any]], TextRow]:
    """Return the function from a score to its row.

    Args:
        reply: Field of the score that has the reply.
    """

    def row(score: Mapping[str, Any]) -> TextRow:
        unit = score.get(DRAWN)
        cluster = unit if isinstance(unit, DrawnUnit) else score["cluster_id"]
        return cluster, score["reference"], score[reply], score.get("saved")

    return row


def compare_texts(names: Sequence[str], rows: Sequence[TextRow]) -> PanelResult:
    """Score texts with metrics.

    Args:
        names: Names of :data:`~medtasks.metrics.report_metrics.REPORT_METRICS`.
        rows: Texts, shape (n,).

    Returns:
        Estimates by key, NaN for a metric that fails, and why it failed.
    """
    estimates: dict[str, Estimate] = {}
    failures = {}
    settings = {}
    for name in names if rows else ():
        keys = (*metric_info(name).keys, *metric_info(name).further)
        estimates |= dict.fromkeys(keys, Estimate(math.nan))  # unless all can be computed
        try:
            scores = _scores(name, rows)
            settings[name] = dict(scores.settings)
            of_counts: Mapping[str, float] = {}
            if scores.counts is not None:
                of_counts = values_with_errors(
                    scores.counts.cells, [row[0] for row in rows], scores.counts.scores
                )
            computed = {}
            for key in keys:
                computed[key] = _estimate(
                    scores.samples.get(key, ()),
                    scores.totals[key],
                    rows,
                    of_counts.get(f"{key}{STDERR}", math.nan),
                )
            estimates |= computed
        except Exception as error:  # noqa: BLE001  # inference is done; whatever this is may cost one metric only
            failures[name] = _cause(error)
    return PanelResult(estimates, failures, settings)


def _estimate(
    samples: Sequence[float],
    total: float,
    rows: Sequence[TextRow],
    error_of_counts: float,
) -> Estimate:
    """Return a total with the error of a mean if it is that of its samples, else with another one."""
    if not samples:
        return Estimate(total, error_of_counts)
    values = []
    clusters = []
    for value, row in zip(samples, rows, strict=True):
        if not math.isnan(value):
            values.append(value)
            clusters.append(row[0])
    if not _is_mean(total, values):
        return Estimate(total, error_of_counts)
    if are_drawn(clusters):
        return Estimate.with_error(*drawn_mean(values, clusters))
    of_means = clustered_error(values, clusters)
    if len(values) == len(rows):
        return Estimate(total, of_means.error)
    # The clusters are fewer than those of all samples.
    return Estimate(total, of_means.error, of_means.clusters, of_means.degrees)


def _is_mean(total: float, values: Sequence[float]) -> bool:
    return bool(values) and math.isclose(mean(values), total, abs_tol=1e-12)


def text_values(
    metric: CorpusMetric,
    scores: ScoreList,
    *,
    only_of_means: bool = False,
) -> list[tuple[Score, float]]:
    """Return the value of each sample that has one.

    Args:
        metric: A metric of texts.
        scores: Scores of a run.
        only_of_means: Whether the metric has to be the mean of these values.

    Raises:
        NotComparable: The values cannot be computed, or the metric is not their mean.
    """
    assert metric.text_field is not None
    selected = list(metric.selection(scores))
    rows = list(map(text_row(metric.text_field), selected))
    if not rows:
        return []
    try:
        computed = _scores(metric_info(metric.name).name, rows)
    except Exception as error:  # noqa: BLE001  # a message that is not our own may quote a patient's report
        raise NotComparable(f"could not be computed: {_cause(error)}") from None
    valued = []
    for score, value in zip(selected, computed.samples.get(metric.name, ()), strict=False):
        if not math.isnan(value):
            valued.append((score, value))
    if only_of_means and valued:
        _, values = zip(*valued, strict=True)
        if not _is_mean(computed.totals[metric.name], values):
            raise NotComparable(NO_MEAN)
    return valued


def text_counts(key: str, rows: Sequence[TextRow]) -> SummedCounts | None:
    """Return the counts of rows, at least one, if the total of a metric follows from their sums."""
    counts = _scores(metric_info(key).name, rows).counts
    return counts if counts is not None and key in counts.scores(counts.cells[0]) else None


def _scores(name: str, rows: Sequence[TextRow]) -> ReportScores:
    """Score rows with one metric. A judge is told their datasets, because some must not leave this machine."""
    references = [row[1].text for row in rows]
    hypotheses = [row[2].text for row in rows]
    if not metric_info(name).asks_judge:
        return report_metric(name)(references=references, hypotheses=hypotheses)
    datasets = set()
    for row in rows:
        datasets |= {text.dataset for text in row[1:3] if isinstance(text, PrivateText)}
    settings = replace(ModelSettings.from_environment(), datasets=frozenset(datasets))
    return report_metric(name, settings)(references=references, hypotheses=hypotheses)


def _cause(error: Exception) -> str:
    """Describe an error: a message that is not our own may quote a report, so only its location is given."""
    if isinstance(error, MedTasksError):
        return str(error).rstrip(".")
    if isinstance(error, ImportError):
        return f"{error}; run: pip install 'medtasks[report]'"
    name = type(error).__name__
    if name in ("OutOfMemoryError", "MemoryError"):  # torch's own is not worth an import here
        return f"the memory did not suffice; free the GPU, or set {DEVICE_VARIABLE}=cpu"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return name
    last = frames[-1]
    return f"{name} at {Path(last.filename).name}:{last.lineno} in {last.name}"
