"""Comparing runs of one task on the documents that both answered, sample by sample and under every answer rule.

Replies that do not fit their task, and tasks without a metric that can be compared, raise RepliesError.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from medtasks.audit.scoring import Documents, Replies, rows_of
from medtasks.data.samples import Sample
from medtasks.errors import RepliesError, UnknownName, unknown_name
from medtasks.families.family import compares_texts
from medtasks.families.texts import NO_MEAN, NotComparable
from medtasks.harness.task_file import TaskFile
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Role, Score
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of
from medtasks.metrics.report_scores import mean
from medtasks.stats.paired import PairedResult, compare_paired, holm

Values = Mapping[str, tuple[str, float]]
"""By sample its cluster and its value."""


@dataclass(frozen=True)
class Comparison:
    """One test: two runs, one rule, one metric."""

    first: str
    second: str
    rule: str
    metric: str
    result: PairedResult
    holm: float  # the p-value corrected for all tests of the call


@dataclass(frozen=True)
class Overlap:
    """How many documents two runs have in common."""

    both: int  # answered in both runs; only these are compared
    only_first: int
    only_second: int
    neither: int


@dataclass(frozen=True)
class ComparedRuns:
    """All comparisons of a call."""

    comparisons: Sequence[Comparison]  # in order of runs, rules and metrics
    overlaps: Mapping[tuple[str, str], Overlap]  # by the names of two runs
    rules: Mapping[str, str]  # name and version of each answer rule by name of the row
    skipped: Mapping[tuple[str, str], str]  # why a metric was not compared, by name of the row and metric


@dataclass(frozen=True)
class RunValues:
    """Values of one run."""

    rules: Mapping[str, str]  # name and version of each answer rule by name of the row
    values: Mapping[tuple[str, str], Values]  # by name of the row and metric
    skipped: Mapping[tuple[str, str], str]  # why a metric has no values, by name of the row and metric


def compare_runs(
    task: TaskFile, documents: Documents, runs: Mapping[str, Replies], metrics: Sequence[str] = ()
) -> ComparedRuns:
    """Compare every two runs of a task.

    The value of a sample is the metric of that sample alone. A metric that is not the mean of these values, such as
    macro F1 or BLEU-4 of a corpus, is not compared. Clusters are patients, else images, else documents; for paired
    questions the pair for set accuracy, and for individual accuracy all pairs that are connected by shared images.

    Failed replies are as if they were not there. Without names of ``metrics`` the task's main ones are compared.
    RepliesError: two runs answered no document in common, were read by different rules, or do not fit the task.
    """
    chosen = chosen_metrics(task, metrics)
    runs = {name: {doc_id: reply for doc_id, reply in run.items() if not reply.failed} for name, run in runs.items()}
    rules: Mapping[str, str] = {}
    skipped: dict[tuple[str, str], str] = {}
    overlaps, results = {}, {}
    for first, second in combinations(runs, 2):
        left, right = runs[first].keys(), runs[second].keys()
        overlaps[first, second] = Overlap(
            len(left & right), len(left - right), len(right - left), len(documents) - len(left | right)
        )
        before, after = (run_values(task, documents, run, chosen) for run in _shared(runs, first, second))
        rules = before.rules
        if rules != after.rules:
            raise RepliesError(
                f"{first} and {second} hold replies of different kinds, texts and log-likelihoods, which different "
                f"rules read; compare runs of one kind"
            )
        left_out = {**before.skipped, **after.skipped}
        for rule, metric in before.values:
            if (rule, metric) in left_out:
                continue
            result = compared_values(before.values[rule, metric], after.values[rule, metric])
            if result is None:
                left_out[rule, metric] = f"has no sample with a value in both {first} and {second}"
            else:
                results[first, second, rule, metric] = result
        skipped |= left_out
    corrected = holm([result.p for result in results.values()])
    comparisons = [Comparison(*key, result, p) for (key, result), p in zip(results.items(), corrected, strict=True)]
    return ComparedRuns(comparisons, overlaps, rules, skipped)


def chosen_metrics(task: TaskFile, names: Sequence[str] = ()) -> list[AnyMetric]:
    """Return the metrics to compare: those asked for, or all with a standard error but the rates of unusable replies.

    UnknownName: the task has no such metric, or none with a standard error.
    """
    known = [*task.family.compared_only, *(metric for metric in task.metrics if metric.is_compared)]
    asked = {key for name in names for key in _asked(name, task, [metric.name for metric in known])}
    chosen = [one for one in known if one.name in asked or (not names and one.role is not Role.RATE)]
    if not chosen:
        raise RepliesError(f"'{task.name}' scores nothing, so that there is nothing to compare")
    return chosen


def main_metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the metrics of a task that say how good its answers are as a whole, of those that can be compared."""
    known = chosen_metrics(task)
    return [metric for metric in known if metric.role is Role.MAIN] or known[:1]


def _asked(name: str, task: TaskFile, known: Sequence[str]) -> Sequence[str]:
    """Return what a metric of reports stands for, which has several scores, or the score that is named itself."""
    found = [key for key in keys_of(name) if key in known] if name in REPORT_METRICS else []
    if name in known or found:
        return found or [name]
    if any(metric.name == name for metric in task.metrics):
        raise UnknownName(f"'{name}' has no value per sample; those that can be compared: {', '.join(known)}")
    raise unknown_name("metric", name, known)


def run_values(task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[AnyMetric]) -> RunValues:
    """Return the values of one run's samples under every rule; a metric that is not their mean is skipped.

    Documents without a reply are left out; ``metrics`` are those of :func:`chosen_metrics`. JudgeNotConfigured: the
    task needs a judge and none is configured.
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
    return RunValues({name: rule for name, (rule, _) in rows.items()}, values, skipped)


def _values(task: TaskFile, metric: AnyMetric, scores: Sequence[Score], samples: Sequence[tuple[str, str]]) -> Values:
    found = task.family.sample_values(metric, scores, samples)
    texts = compares_texts(metric)
    if not found and task.family.paired:
        return found  # no complete pair in common, which is said of both runs
    if not found:
        of_all = isinstance(metric, CorpusMetric) and metric.of is None and not texts
        raise NotComparable(NO_MEAN if of_all else "has no value per sample")
    if texts:  # compared with their mean already; the estimate would compute all other metrics of texts, too
        return found
    total = metric.estimate(scores).value
    if not math.isclose(mean([value for _, value in found.values()]), total, rel_tol=1e-9, abs_tol=1e-12):
        raise NotComparable(NO_MEAN)
    return found


def _shared(runs: Mapping[str, Replies], first: str, second: str) -> list[Replies]:
    """Return both runs without what only one answered: some metrics weigh words by how rare they are in all texts."""
    shared = runs[first].keys() & runs[second].keys()
    if not shared:
        raise RepliesError(f"{first} and {second} answered no document in common, so that there is nothing to compare")
    return [{doc_id: reply for doc_id, reply in runs[name].items() if doc_id in shared} for name in (first, second)]


def compared_values(first: Values, second: Values) -> PairedResult | None:
    """Compare two runs on the samples that have a value in both; None if there are none."""
    shared = [sample for sample in first if sample in second]
    if not shared:
        return None
    before, after = [first[sample][1] for sample in shared], [second[sample][1] for sample in shared]
    return compare_paired(before, after, [first[sample][0] for sample in shared])


def check_fingerprints(paths: Sequence[Path], task: str, fingerprint: str) -> None:
    """Check that runs of the harness, files of replies or folders of them, were made on the prepared dataset.

    Its samples files carry no fingerprint of the data, but the results file beside them does. Recorded replies without
    one are matched by document id alone. RepliesError: a results file names another fingerprint.
    """
    for samples in [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]:
        beside = samples.with_name(f"{samples.name.split('_samples_')[0]}_results.json")
        recorded = _recorded_fingerprint(beside, task) if "_samples_" in samples.name else None
        if recorded not in (None, fingerprint):
            raise RepliesError(
                f"{samples} was made on data with fingerprint {recorded}, but the prepared dataset has {fingerprint}; "
                f"point MEDTASKS_HOME to the data of that run"
            )


def _recorded_fingerprint(results: Path, task: str) -> str | None:
    try:
        found: Any = json.loads(results.read_text(encoding="utf-8"))
        for key in ("configs", task, "metadata", "data", "fingerprint"):
            found = found[key]
    except (OSError, ValueError, KeyError, TypeError):  # deleted, cut off, or of a task without our metadata
        return None
    return str(found)
