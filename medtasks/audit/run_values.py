"""Values of a run's samples under a metric, which are compared between runs, and the metrics that have such values.

The value of a sample in a repeated run is its mean over the repeats in which it has one (Miller, 2024, arXiv
2411.00640, section 3.1); tests and intervals are then those of single runs.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from medtasks.audit.scoring import Documents, Replies, rows_of
from medtasks.data.samples import Sample
from medtasks.errors import RepliesError, UnknownName, unknown_name
from medtasks.families.family import compares_texts
from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Role, Score, mean
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of
from medtasks.stats.standard_error import Dyad
from medtasks.tasks.task_file import TaskFile

_Value = TypeVar("_Value")
REPEAT = ", repeat "
Values = Mapping[str, tuple[Hashable, float]]
"""Cluster and value by sample."""


@dataclass(frozen=True)
class RunValues:
    """Values of one run, or means over its repeats."""

    rules: Mapping[str, str]  # name and version of each answer rule by name of the row
    values: Mapping[tuple[str, str], Values]  # by name of the row and metric
    skipped: Mapping[tuple[str, str], str]  # why a metric has no values, by name of the row and metric
    scores: Mapping[str, Mapping[str, Score]]  # by name of the row and sample id, which tells the repeat, too


def chosen_metrics(task: TaskFile, names: Sequence[str] = ()) -> list[AnyMetric]:
    """Return the metrics to compare: those asked for, or all with a standard error but rates of unusable replies."""
    metrics = [*task.family.compared_only, *(metric for metric in task.metrics if metric.is_compared)]
    comparable = [metric.name for metric in metrics]
    wished: set[str] = set()
    for name in names:
        parts = [key for key in keys_of(name) if key in comparable] if name in REPORT_METRICS else []
        if not parts and name not in comparable:
            if any(metric.name == name for metric in task.metrics):
                raise UnknownName(
                    f"'{name}' has no value per sample; those that can be compared: {', '.join(comparable)}"
                )
            raise unknown_name("metric", name, comparable)
        wished.update(parts or [name])
    chosen = [m for m in metrics if m.name in wished or (not names and m.role is not Role.RATE)]
    if not chosen:
        raise RepliesError(f"'{task.name}' scores nothing, so that there is nothing to compare")
    return chosen


def main_metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the main metrics of a task that can be compared, or else its first one."""
    metrics = chosen_metrics(task)
    return [metric for metric in metrics if metric.role is Role.MAIN] or metrics[:1]


def run_values(task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[AnyMetric]) -> RunValues:
    """Return the values of one run's samples under every rule; a metric that is not their mean is skipped.

    Documents without a reply are left out; ``metrics`` are those of :func:`chosen_metrics`.
    """
    clusters = task.family.independent_clusters([Sample(document) for document in documents])
    answered = [pair for pair in zip(documents, clusters, strict=True) if pair[0]["doc_id"] in replies]
    samples = [(document["doc_id"], cluster) for document, cluster in answered]
    rows = rows_of(task, [document for document, _ in answered], replies)
    values: dict[tuple[str, str], Values] = {}
    skipped: dict[tuple[str, str], str] = {}
    for name, (_, scores) in rows.items():
        for metric in metrics:
            try:
                values[name, metric.name] = _values(task, metric, scores, samples)
            except NotComparable as why:
                skipped[name, metric.name], values[name, metric.name] = str(why), {}
    ids = [doc_id for doc_id, _ in samples]
    by_id = {name: dict(zip(ids, scores, strict=True)) for name, (_, scores) in rows.items()}
    return RunValues({name: rule for name, (rule, _) in rows.items()}, values, skipped, by_id)


def mean_values(
    task: TaskFile, documents: Documents, repeats: Sequence[Replies], metrics: Iterable[AnyMetric]
) -> RunValues:
    """Return each sample's mean value over the repeats in which it has one; else like :func:`run_values`."""
    all_runs = [run_values(task, documents, replies, list(metrics)) for replies in repeats]
    answered = [values for values, replies in zip(all_runs, repeats, strict=True) if replies]
    by_question = {key: values_by_question([run.values[key] for run in answered]) for key in answered[0].values}
    values = {
        key: {question: (cluster, mean(of_question)) for question, (cluster, of_question) in questions.items()}
        for key, questions in by_question.items()
    }
    skipped = {key: why for run in answered for key, why in run.skipped.items()}
    scores = {row: by_repeat([run.scores[row] for run in all_runs]) for row in answered[0].scores}
    return RunValues(answered[0].rules, values, skipped, scores)


def values_by_question(repeats: Sequence[Values]) -> dict[str, tuple[Hashable, list[float]]]:
    """Return the cluster of each question, or pair, and its values in the repeats in which it has one.

    Where a repeat lacks an answer to one image of a pair, the dyad of a repeat that has both counts.
    """

    def members(cluster: Hashable) -> tuple[int, str]:
        return (len({cluster.first, cluster.second}) if isinstance(cluster, Dyad) else 0, str(cluster))

    by_question: dict[str, tuple[Hashable, list[float]]] = {}
    for question, (cluster, value) in itertools.chain.from_iterable(values.items() for values in repeats):
        largest, of_question = by_question.get(question, (cluster, []))
        by_question[question] = (max(largest, cluster, key=members), [*of_question, value])
    return by_question


def by_repeat(repeats: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return replies or scores of all repeats; ids tell the second and later ones."""
    return {
        f"{sample}{REPEAT}{number}" if number > 1 else sample: value
        for number, repeat in enumerate(repeats, 1)
        for sample, value in repeat.items()
    }


def _values(
    task: TaskFile, metric: AnyMetric, scores: Sequence[Score], samples: Sequence[tuple[str, Hashable]]
) -> Values:
    values = task.family.sample_values(metric, scores, samples)
    texts = compares_texts(metric)
    if not values and task.family.paired:
        return values  # no complete pair in common, which is reported of both runs together
    if not values and any(score.get("stops") for score in scores):
        raise NotComparable("has no number, because the published code stops")
    if not values:
        of_all = isinstance(metric, CorpusMetric) and metric.of is None and not texts
        raise NotComparable(NO_MEAN if of_all else "has no value per sample")
    if texts:  # compared with their mean already; the estimate would compute all other metrics of texts, too
        return values
    total = metric.estimate(scores).value
    if not math.isclose(mean([value for _, value in values.values()]), total, rel_tol=1e-9, abs_tol=1e-12):
        raise NotComparable(NO_MEAN)
    return values
