"""Comparing runs on the documents that both answered, sample by sample and under every answer rule.

Runs of one task, or whole runs: every task that two of them answered, corrected for all tests together. Replies that do
not fit their task, and tasks without a metric that can be compared, raise RepliesError.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from medtasks.audit.report.contents import ComparedScore, RunComparison
from medtasks.audit.scoring import Documents, Replies, rows_of
from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name
from medtasks.families.family import compares_texts
from medtasks.families.texts import NO_MEAN, NotComparable
from medtasks.harness.documents import task_documents, task_provenance
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import task_file, variant_of
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Role, Score
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of
from medtasks.metrics.report_scores import mean
from medtasks.runs.replies import read_replies
from medtasks.runs.sources import (
    Source,
    check_fingerprints,
    check_is_ours,
    model_of,
    nothing_in_common,
    replies_to,
    samples_by_task,
)
from medtasks.stats.paired import PairedResult, compare_paired, holm

_Key = TypeVar("_Key")
Names = Sequence[str]
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
    same_as: str = ""  # an earlier rule with the same value of every sample in both runs: one test, counted there
    share: bool = False  # whether the means are fractions


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
    scores: Mapping[str, Mapping[str, Score]]  # what the task's family made of each reply, by name of the row and id


def compare_runs(
    task: TaskFile, documents: Documents, runs: Mapping[str, Replies], metrics: Names = (), rules: Names = ()
) -> ComparedRuns:
    """Compare every two runs of a task, under all rows or those with the names of ``rules``.

    The value of a sample is the metric of that sample alone. A metric that is not the mean of these values, such as
    macro F1 or BLEU-4 of a corpus, is not compared. Clusters are patients, else images, else documents; for paired
    questions the pair for set accuracy, and for individual accuracy all pairs that are connected by shared images.

    Failed replies are as if they were not there. Without names of ``metrics`` the task's main ones are compared.
    RepliesError: two runs answered no document in common, were read by different rules, or do not fit the task.
    UnknownName: there is no such metric or row.
    """
    chosen = chosen_metrics(task, metrics)
    declared = {metric.name: metric for metric in chosen}
    runs = {name: {doc_id: reply for doc_id, reply in run.items() if not reply.failed} for name, run in runs.items()}
    versions: Mapping[str, str] = {}
    skipped: dict[tuple[str, str], str] = {}
    overlaps, tests = {}, []
    for first, second in combinations(runs, 2):
        overlaps[first, second] = overlap_of(runs[first], runs[second], len(documents))
        before, after = values_of_both(task, documents, runs, (first, second), chosen)
        if unknown := [rule for rule in rules if rule not in before.rules]:
            raise unknown_name("rule", unknown[0], before.rules)
        versions = {rule: version for rule, version in before.rules.items() if rule in rules or not rules}
        left_out = {key: why for key, why in {**before.skipped, **after.skipped}.items() if key[0] in versions}
        seen: list[tuple[str, str]] = []
        for rule, metric in before.values:
            if rule not in versions or (rule, metric) in left_out:
                continue
            values = before.values[rule, metric], after.values[rule, metric]
            if (result := compared_values(*values)) is None:
                left_out[rule, metric] = f"has no sample with a value in both {first} and {second}"
                continue
            alike = (
                one for one, of in seen if of == metric and values == (before.values[one, of], after.values[one, of])
            )
            share = declared[metric].is_share(result.first, result.second)
            tests.append(Comparison(first, second, rule, metric, result, result.p, next(alike, ""), share))
            seen += [] if tests[-1].same_as else [(rule, metric)]
        skipped |= left_out
    return ComparedRuns(_corrected([tests])[0], overlaps, versions, skipped)


def _corrected(tests: Sequence[Sequence[Comparison]]) -> list[list[Comparison]]:
    """Return tests with p-values corrected (Holm) for all of them; rules with the same values are one test."""
    p_values = iter(holm([test.result.p for group in tests for test in group if not test.same_as]))
    corrected = []
    for group in tests:
        known = {(t.first, t.second, t.rule, t.metric): next(p_values) for t in group if not t.same_as}
        corrected.append([replace(t, holm=known[t.first, t.second, t.same_as or t.rule, t.metric]) for t in group])
    return corrected


def overlap_of(first: Replies, second: Replies, documents: int) -> Overlap:
    """Return how many documents of a task two runs have replies to."""
    left, right = first.keys(), second.keys()
    return Overlap(len(left & right), len(left - right), len(right - left), documents - len(left | right))


def values_of_both(
    task: TaskFile,
    documents: Documents,
    runs: Mapping[str, Replies],
    names: tuple[str, str],
    metrics: Sequence[AnyMetric],
) -> tuple["RunValues", "RunValues"]:
    """Return the values of two runs, by their names, on what both answered; errors are those of :func:`compare_runs`.

    What only one answered is left out before, since some metrics weigh words by how rare they are in all texts.
    """
    first, second = names
    shared = runs[first].keys() & runs[second].keys()
    if not shared:
        raise RepliesError(f"{first} and {second} answered no document in common, so that there is nothing to compare")
    before, after = (
        run_values(
            task, documents, {doc_id: reply for doc_id, reply in runs[name].items() if doc_id in shared}, metrics
        )
        for name in names
    )
    if before.rules != after.rules:
        raise RepliesError(
            f"{first} and {second} hold replies of different kinds, texts and log-likelihoods, which different "
            f"rules read; compare runs of one kind"
        )
    return before, after


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
    by_id = {
        name: {doc_id: score for (doc_id, _), score in zip(samples, scores, strict=True)}
        for name, (_, scores) in rows.items()
    }
    return RunValues({name: rule for name, (rule, _) in rows.items()}, values, skipped, by_id)


def _values(task: TaskFile, metric: AnyMetric, scores: Sequence[Score], samples: Sequence[tuple[str, str]]) -> Values:
    found = task.family.sample_values(metric, scores, samples)
    texts = compares_texts(metric)
    if not found and task.family.paired:
        return found  # no complete pair in common, which is said of both runs
    if not found and any(score.get("stops") for score in scores):
        raise NotComparable("has no number, because the published code stops")
    if not found:
        of_all = isinstance(metric, CorpusMetric) and metric.of is None and not texts
        raise NotComparable(NO_MEAN if of_all else "has no value per sample")
    if texts:  # compared with their mean already; the estimate would compute all other metrics of texts, too
        return found
    total = metric.estimate(scores).value
    if not math.isclose(mean([value for _, value in found.values()]), total, rel_tol=1e-9, abs_tol=1e-12):
        raise NotComparable(NO_MEAN)
    return found


def compared_values(first: Values, second: Values) -> PairedResult | None:
    """Compare two runs on the samples that have a value in both; None if there are none."""
    shared = [sample for sample in first if sample in second]
    if not shared:
        return None
    before, after = [first[sample][1] for sample in shared], [second[sample][1] for sample in shared]
    return compare_paired(before, after, [first[sample][0] for sample in shared])


@dataclass(frozen=True)
class ComparedTask:
    """One task of several runs."""

    found: ComparedRuns
    documents: int  # how many documents the task has
    data: Mapping[str, Any]  # provenance of the prepared dataset
    main: str  # the metric that says most of how good the answers are, of those compared


def compare_task(task: TaskFile, runs: Mapping[str, Source], metrics: Names = (), rules: Names = ()) -> ComparedTask:
    """Compare runs of one task, by default in its main metrics and under all its rows.

    RepliesError: the task is a group, replies cannot be read, or were made on other data. DatasetNotPrepared: its
    dataset is not there. UnknownName: the task has no such metric or row.
    """
    if task.only_harness:
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    documents = task_documents(task)
    data = task_provenance(task, documents)
    files = {name: replies_to(task.name, source) for name, source in runs.items()}
    check_fingerprints(list(files.values()), task.name, data["fingerprint"])
    replies = {name: read_replies(file, documents) for name, file in files.items()}
    found = compare_runs(task, documents, replies, metrics, rules)
    names = [test.metric for test in found.comparisons]
    main = next((one.name for one in main_metrics(task) if one.name in names), "".join(names[:1]))
    return ComparedTask(found, len(documents), data, main)


def compare_all(
    runs: Mapping[str, Source], metrics: Names = (), rules: Names = ()
) -> tuple[dict[str, ComparedTask], dict[str, str]]:
    """Compare all tasks of ours that at least two runs answered, as one family of tests; sanity variants are left out.

    Returned are comparisons by task, and why a task of at least two runs was not compared. MedTasksError: a folder
    holds no run. RepliesError: no task is in two of the runs, or none could be compared.
    """
    files = {name: samples_by_task(source) for name, source in runs.items()}
    compared: dict[str, ComparedTask] = {}
    causes: dict[str, str] = {}
    for task in sorted({task for found in files.values() for task in found}):
        having = {name: Source(found[task]) for name, found in files.items() if task in found}
        if len(having) < 2 or variant_of(task):
            continue
        try:
            check_is_ours(task)
            compared[task] = compare_task(task_file(task), having, metrics, rules)
        except MedTasksError as error:
            causes[task] = str(error)
    if not compared:
        raise nothing_in_common(causes)
    return corrected_together(compared), causes


def compare_with(run: Source, others: Sequence[Path], task: str | None = None) -> tuple[RunComparison, ...]:
    """Compare one run with others; p-values are corrected for the tests against all of them.

    Runs are folders, or of the only ``task`` to compare files of recorded replies. Errors are those of
    :func:`compare_task` and :func:`compare_all`.
    """
    found: dict[tuple[Path, str], ComparedTask] = {}
    notes: dict[Path, tuple[str, ...]] = {}
    for other in dict.fromkeys(others):
        runs = {"this run": run, str(other): Source(other)}
        if task is None:
            tasks, causes = compare_all(runs)
            notes[other] = tuple(f"{name}: {cause}" for name, cause in causes.items())
        else:
            tasks, notes[other] = {task: compare_task(task_file(task), runs)}, ()
        found |= {(other, name): one for name, one in tasks.items()}
    corrected = corrected_together(found)
    comparisons = []
    for other in notes:
        tasks = {name: one for (path, name), one in corrected.items() if path == other}
        scores = tuple(score for name, one in tasks.items() for score in _scores(name, one.found))
        said = tuple(note for name, one in tasks.items() for note in _notes(name, one))
        name = model_of(Source(other)) or other.name
        comparisons.append(RunComparison(name, str(other), scores, notes[other] + said))
    return tuple(comparisons)


def corrected_together(compared: Mapping[_Key, ComparedTask]) -> dict[_Key, ComparedTask]:
    """Return comparisons with p-values corrected (Holm) for the tests of all of them."""
    tests = _corrected([one.found.comparisons for one in compared.values()])
    return {
        key: replace(task, found=replace(task.found, comparisons=corrected))
        for (key, task), corrected in zip(compared.items(), tests, strict=True)
    }


def _scores(task: str, found: ComparedRuns) -> list[ComparedScore]:
    scores = []
    for test in found.comparisons:
        result = {name: value for name, value in asdict(test.result).items() if name != "mcnemar"}
        scores.append(ComparedScore(task, test.rule, test.metric, p_holm=test.holm, same_as=test.same_as, **result))
    return scores


def _notes(task: str, one: ComparedTask) -> list[str]:
    (overlap,) = one.found.overlaps.values()
    notes = []
    if overlap.only_first or overlap.only_second:
        notes.append(
            f"{task}: only the {overlap.both} questions that both runs answered are compared; {overlap.only_first} "
            f"were answered in this run only, {overlap.only_second} in the other only."
        )
    return notes + [f"{task}: {metric} ({rule}) {why}." for (rule, metric), why in one.found.skipped.items()]
