"""Comparing runs on the samples that both answered, under every rule: pairing, tests and agreement.

A rule is named as its row of the task's results, such as ``reference``. With a margin, scores are also tested for
equivalence, and runs that were asked in different ways are refused.
"""

import contextlib
import itertools
from collections import ChainMap
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from medtasks.data.samples import Documents, Sample
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name, warn_once
from medtasks.families.family import Replies
from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, Role
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.reply_origins import ReplyOrigins
from medtasks.runs.run import Source, replies_to
from medtasks.scores.comparison_checks import comparable_origins, prompt_warnings
from medtasks.scores.draw_notes import Provenance, draw_notes
from medtasks.scores.judge_labels import Label, checked_scores, read_labels
from medtasks.scores.paired_scores import compare_together
from medtasks.scores.run_values import (
    Agreement,
    BothScores,
    Overlap,
    RunValues,
    Values,
    agreement,
    by_repeat,
    chosen_metrics,
    mean_values,
    without_failures,
)
from medtasks.scores.run_values import (
    TestKey as TestKey,
)
from medtasks.scores.scoring import AUROC
from medtasks.stats.equivalence import Equivalence, equivalence
from medtasks.stats.paired import (
    DRAWN_T,
    PairedResult,
    PairedValues,
    compare_paired,
    correct_by_holm,
)
from medtasks.tasks.documents import is_private_task, task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files, variant_of

Names = Sequence[str]
Sources = Mapping[str, Source]
"""Runs by name."""
RepeatsByRun = Mapping[str, Sequence[Replies]]
"""Replies of each repeat, by name of the run."""
MetricsByName = Mapping[str, AnyMetric]
RunPair = tuple[str, str]
"""Names of two runs."""

BothValues = Mapping[TestKey, tuple[Values, Values]]
"""Values of two runs by rule and metric."""
LabelsByTask = Mapping[str, Mapping[str, Label]]
"""People's labels by run and document id."""

_ESTIMATED = (
    "'{}' was drawn from a larger set, for which differences are estimated, but not tested within a margin or "
    "corrected by labels; leave these out, or ask all questions"
)
_TAKEN_AS_TRUE = (
    "verdicts of the judge are taken as true, so that one who errs more often about one of the models moves the "
    "difference; label replies of each ('medtasks judge sample') and give --labels"
)


@dataclass(frozen=True)
class Comparison:
    """One test: two runs, one rule, one metric."""

    first: str
    second: str
    rule: str  # row of the task's results, such as robust
    metric: str
    result: PairedResult
    holm: float  # p-value corrected for all tests of the call
    values: PairedValues = field(compare=False, repr=False)
    # An earlier rule with the same value of every sample in both runs: one test, counted there. Empty if there is none.
    same_as: str
    share: bool  # whether the means are fractions
    main: bool  # whether the metric is a main one of the task
    higher_is_better: bool | None  # None if neither is
    equivalence: Equivalence | None  # None without a margin


@dataclass(frozen=True)
class ComparedTask:
    """All comparisons of runs of one task."""

    comparisons: Sequence[Comparison]  # in order of runs, rules and metrics
    overlaps: Mapping[RunPair, Overlap]  # of samples that did not fail
    agreements: Mapping[RunPair, Agreement]  # likewise
    rules: Mapping[str, str]  # name and version of each extractor by row of the task's results
    skipped: Mapping[TestKey, str]  # why a metric was not compared
    data: Provenance = field(default_factory=dict)  # of the prepared dataset
    # About verdicts of a judge and, with a margin, about how the runs were asked, one sentence each.
    warnings: Sequence[str] = ()
    # Number of repeats by name of the run
    repeats: Mapping[str, int] = field(default_factory=dict)
    # Origins of replies by name of the run.
    origins: Mapping[str, ReplyOrigins] = field(default_factory=dict)


ComparedByTask = dict[str, ComparedTask]


def compare_runs(
    task: TaskFile,
    documents: Documents,
    runs: Mapping[str, Replies | Sequence[Replies]],
    metrics: Names = (),
    rules: Names = (),
    margin: float | None = None,
    labels: LabelsByTask | None = None,
) -> ComparedTask:
    """Compare every two runs of a task.

    A score of all samples together is compared if it follows from summed counts.

    Args:
        task: Task that the runs answered.
        documents: All its documents.
        runs: Replies by name of the run, or those of each of its repeats. Failed ones are only counted.
        metrics: Names of metrics; if empty, those of :func:`.chosen_metrics`.
        rules: Rows of the task's results, such as ``robust``; if empty, all.
        margin: Also test for equivalence within this margin; None for no such test.
        labels: People's labels of all runs, which correct verdicts of a judge; None or empty for no correction.

    Raises:
        RepliesError: Two runs answered no sample in common or were read by different rules, or repeated runs have
            labels.
        UnknownName: There is no such metric or rule.
    """
    chosen = {metric.name: metric for metric in chosen_metrics(task, metrics, documents)}
    repeats = {name: [run] if isinstance(run, Mapping) else run for name, run in runs.items()}
    whole = ComparedTask(
        [], {}, {}, {}, {}, repeats={name: len(of_run) for name, of_run in repeats.items()}
    )
    for names in itertools.combinations(repeats, 2):
        pair = _compare_pair(
            task,
            documents,
            {name: repeats[name] for name in names},
            chosen,
            rules,
            margin,
            labels,
        )
        whole = replace(
            pair,
            comparisons=[*whole.comparisons, *pair.comparisons],
            overlaps={**whole.overlaps, **pair.overlaps},
            agreements={**whole.agreements, **pair.agreements},
            skipped={**whole.skipped, **pair.skipped},
            repeats=whole.repeats,
        )
    return corrected_together({"": whole})[""]


def _compare_pair(
    task: TaskFile,
    documents: Documents,
    runs: RepeatsByRun,
    metrics: MetricsByName,
    rules: Names,
    margin: float | None,
    labels: LabelsByTask | None,
) -> ComparedTask:
    """Compare two runs, without any correction of p-values.

    The arguments are those of :func:`compare_runs`, but each run is a list of its repeats, and metrics are chosen.
    """
    first, second = runs
    names = (first, second)
    answered = [ChainMap(*map(without_failures, repeats)) for repeats in runs.values()]
    in_both = _shared_replies(runs, answered)
    first_means, second_means = [
        mean_values(task, documents, repeats, metrics.values()) for repeats in in_both.values()
    ]
    versions = _shared_rules(names, first_means, second_means, rules)
    corrected = _corrected_values(task, documents, in_both, metrics, labels)
    values = {}
    for key, first_values in first_means.values.items():
        if key[0] in versions:
            values[key] = corrected.get(key, (first_values, second_means.values[key]))
    scores = {rule: (first_means.scores[rule], second_means.scores[rule]) for rule in versions}
    skipped = {**first_means.skipped, **second_means.skipped}
    results, skipped = _compare_together(names, skipped, values, metrics, scores)
    for key in skipped:
        del values[key]
    results |= _compare_areas(values, documents)
    tests = _tests(names, values, results, metrics, margin)
    number = min(map(len, runs.values()))
    agreed = agreement(
        by_repeat(runs[first][:number]),
        by_repeat(runs[second][:number]),
        number * len(documents),
        scores,
        hashed=is_private_task(task, documents),
    )
    return ComparedTask(
        tests,
        {names: Overlap.of(answered[0], answered[1], len(documents))},
        {names: agreed},
        versions,
        skipped,
        warnings=_judge_warnings(scores.values(), [metric for _, metric in corrected]),
    )


def _shared_replies(
    runs: RepeatsByRun,
    answered: Sequence[Replies],
) -> dict[str, list[Replies]]:
    """Return the replies of two runs to the samples that both answered.

    Samples that only one run answered are left out first: some metrics weigh words by how rare they are in all texts.

    Args:
        runs: The two runs.
        answered: For each of them the replies of any repeat that did not fail, by document id.

    Returns:
        Replies of each repeat by document id, without failed ones, by name of the run.

    Raises:
        RepliesError: Both answered no sample.
    """
    shared = answered[0].keys() & answered[1].keys()
    if not shared:
        raise RepliesError(
            f"{' and '.join(runs)} answered no document in common, so that there is nothing to compare"
        )
    in_both: dict[str, list[Replies]] = {}
    for name, repeats in runs.items():
        in_both[name] = [without_failures(replies, shared) for replies in repeats]
    return in_both


def _shared_rules(
    names: RunPair,
    first: RunValues,
    second: RunValues,
    rules: Names,
) -> dict[str, str]:
    """Return the chosen rules, all if ``rules`` is empty: name and version of the extractor by row.

    Raises:
        RepliesError: Other rules read the second run.
        UnknownName: There is no row with a name of ``rules``.
    """
    if first.rules != second.rules:
        raise RepliesError(
            f"{' and '.join(names)} hold replies of different kinds, texts and log-likelihoods, which different rules "
            "read; compare runs of one kind"
        )
    if unknown := [rule for rule in rules if rule not in first.rules]:
        raise unknown_name("rule", unknown[0], first.rules)
    return {rule: first.rules[rule] for rule in first.rules if not rules or rule in rules}


def _compare_together(
    names: RunPair,
    skipped: Mapping[TestKey, str],
    values: dict[TestKey, tuple[Values, Values]],
    metrics: MetricsByName,
    scores: Mapping[str, BothScores],
) -> tuple[dict[TestKey, PairedResult], dict[TestKey, str]]:
    """Compare metrics of all samples together, which a single run skips as they are no mean over samples.

    Args:
        names: Names of the two runs.
        skipped: Why a metric was skipped in one of the runs.
        values: Values in both runs. Those of the compared metrics are added.
        metrics: All metrics.
        scores: Scores of both runs by name of the rule.

    Returns:
        The results, and why a metric is not compared: it was skipped, or no sample has a value in both runs.
    """
    results: dict[TestKey, PairedResult] = {}
    reasons: dict[TestKey, str] = {}
    for key, why in skipped.items():
        if key not in values:
            continue
        rule, metric = key
        reasons[key] = why
        if why == NO_MEAN:
            try:
                results[key], values[key] = compare_together(metrics[metric], scores[rule])
                del reasons[key]
            except NotComparable as error:
                reasons[key] = str(error)
    for key, (first, second) in values.items():
        if key not in reasons and not first.keys() & second.keys():
            reasons[key] = f"has no sample with a value in both {' and '.join(names)}"
    return results, reasons


def _judge_warnings(
    scores: Iterable[BothScores], corrected_metrics: Sequence[str]
) -> list[str]:
    """Say of judged scores which are corrected by labels, or taken as true, and how many runs the judge saw at once.

    Args:
        scores: Scores of both runs, for each rule. If no judge gave any of them, there are no warnings.
        corrected_metrics: Names of the metrics that labels correct; empty without labels.
    """
    sizes = set()
    for by_id in itertools.chain.from_iterable(scores):
        sizes |= {
            score.get("models_judged", 1) for score in by_id.values() if score.get("judge")
        }
    if not sizes:
        return []
    warnings = [_TAKEN_AS_TRUE]
    if corrected_metrics:
        warnings = [
            f"{', '.join(dict.fromkeys(corrected_metrics))} corrected by people's labels (PPI++)"
        ]
    if sizes != {1}:
        numbers = " or ".join(map(str, sorted(sizes)))
        warnings.append(
            f"the judge saw the answers of {numbers} runs side by side ('medtasks judge joint')"
        )
    return warnings


def _corrected_values(
    task: TaskFile,
    documents: Documents,
    runs: RepeatsByRun,
    metrics: Container[str],
    labels: LabelsByTask | None,
) -> BothValues:
    """Return the values of judged scores in both runs, corrected by people's labels. There are none without labels.

    Raises:
        RepliesError: A run has repeats, or its labels cannot be used (:func:`checked_scores`).
    """
    if not labels:
        return {}
    if any(len(repeats) > 1 for repeats in runs.values()):
        raise RepliesError(
            "labels are of one repeat; give the repeat that they are of, such as FOLDER/repeat_1"
        )
    first, second = [
        checked_scores(task, documents, replies, labels[name])
        for name, [replies] in runs.items()
    ]
    corrected = {}
    for rule, score in first.items():
        if rule in second and score.metric in metrics:
            corrected[rule, score.metric] = (score.values, second[rule].values)
    return corrected


def _tests(
    runs: RunPair,
    values: BothValues,
    results: Mapping[TestKey, PairedResult],
    metrics: MetricsByName,
    margin: float | None,
) -> list[Comparison]:
    """Test every metric under every rule.

    Args:
        runs: Names of the two runs.
        values: Values in both runs.
        results: Results that are known already, and are not tested again.
        metrics: Metrics by name.
        margin: Margin of equivalence; None for no test of it.
    """
    main = {
        metric for _, metric in values if metrics[metric].role is Role.MAIN
    } or metrics.keys()
    tests = []
    for (rule, metric), pair in values.items():
        paired = paired_values(*pair)
        result = results.get((rule, metric)) or compare_paired(*paired)
        tests.append(
            Comparison(
                *runs,
                rule,
                metric,
                result,
                result.p,
                paired,
                same_as=same_values(values, rule, metric),
                share=metrics[metric].is_share(result.first, result.second),
                main=metric in main,
                higher_is_better=metrics[metric].higher_is_better,
                equivalence=None if margin is None else equivalence(*paired, margin),
            )
        )
    return tests


def same_values(values: BothValues, rule: str, metric: str) -> str:
    """Return the first rule with the same value of every sample in both runs, empty if that is the rule itself."""
    pair = values[rule, metric]
    for (other, name), other_pair in values.items():
        if name == metric and other_pair == pair:
            return "" if other == rule else other
    return ""


def paired_values(first: Values, second: Values) -> PairedValues:
    """Return both runs' values and the clusters of the samples that have a value in both, shape (samples,) each."""
    shared = sorted(first.keys() & second.keys())
    first_values = [first[sample][1] for sample in shared]
    second_values = [second[sample][1] for sample in shared]
    return first_values, second_values, [first[sample][0] for sample in shared]


def _compare_areas(values: BothValues, documents: Documents) -> dict[TestKey, PairedResult]:
    """Compare runs in each metric that is the AUROC of a class, such as ``auroc (Edema)``.

    The degrees of freedom follow from the smaller number of clusters: those with the class, or those without it.
    """
    results = {}
    for (rule, name), (first, second) in values.items():
        if not name.startswith(AUROC):
            continue
        clusters: dict[bool, set[Hashable]] = {True: set(), False: set()}
        for sample in map(Sample, documents):
            if sample.doc_id in first and sample.doc_id in second:
                is_positive = name == f"{AUROC}{sample.options[sample.target or 0]})"
                clusters[is_positive].add(first[sample.doc_id][0])
        smaller = min(map(len, clusters.values()))
        results[rule, name] = compare_paired(*paired_values(first, second), smaller=smaller)
    return results


def compare_task(
    task: TaskFile,
    runs: Sources,
    metrics: Names = (),
    rules: Names = (),
    margin: float | None = None,
) -> ComparedTask:
    """Compare runs of one task, by default in all metrics but rates and under all its rows.

    Args:
        task: Task that the runs answered.
        runs: Runs by name.
        metrics: Names of metrics; if empty, those of :func:`.chosen_metrics`.
        rules: Rows of the task's results, such as ``robust``; if empty, all.
        margin: Also test for equivalence within this margin; None for no such test.

    Raises:
        RepliesError: The task is a group, or replies cannot be read, were made on other data or under another version
            of the task. With a ``margin`` also if the runs were asked differently as far as is recorded, have copies
            of earlier replies, or different numbers of repeats.
    """
    if task.only_harness:
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    documents = task_documents(task)
    data = task_provenance(task, documents)
    with_labels = {name: source.labels for name, source in runs.items() if source.labels}
    is_strict = margin is not None
    if data.get("draw") and (is_strict or with_labels):
        raise RepliesError(_ESTIMATED.format(task.name))
    files = {name: _sample_files(task.name, source) for name, source in runs.items()}
    origins = comparable_origins(task.name, files, data["fingerprint"], strictly=is_strict)
    replies = {}
    notes: list[str] = []
    for name, source in runs.items():
        replies[name] = _read_repeats(name, source, task, documents, files[name], notes)
    labels = {name: read_labels(path) for name, path in with_labels.items()}
    compared = compare_runs(task, documents, replies, metrics, rules, margin, labels)
    warnings = [*_draw_notes(compared, data, documents, replies), *compared.warnings, *notes]
    if is_strict:
        warnings += prompt_warnings(task, documents, [of_run[0] for of_run in files.values()])
    return replace(compared, data=data, warnings=warnings, origins=origins)


def _draw_notes(
    compared: ComparedTask,
    data: Provenance,
    documents: Documents,
    runs: RepeatsByRun,
) -> list[str]:
    """Describe comparisons on drawn data in sentences without a full stop. There are none for data that are whole."""
    answered = [set(ChainMap(*map(without_failures, repeats))) for repeats in runs.values()]
    unweighted = dict.fromkeys(
        test.metric for test in compared.comparisons if test.result.test != DRAWN_T
    )
    notes = draw_notes(data, documents, set.intersection(*answered), [*unweighted])
    return [note.rstrip(".") for note in notes]


def _read_repeats(
    name: str,
    source: Source,
    task: TaskFile,
    documents: Documents,
    files: Sequence[Path],
    notes: list[str],
) -> list[Replies]:
    """Return the replies of each repeat of a run, by document id.

    Args:
        name: Name of the run.
        source: The run.
        task: Task that it answered.
        documents: All documents of the task.
        files: Samples file of each repeat.
        notes: Gets sentences without a full stop on replies that were left out, and on looks at the run.
    """
    replies: list[Replies] = []
    for file in files:
        recorded = read_recorded(task, documents, [file])
        replies += recorded.runs
        notes += [f"{name}: {note.rstrip('.')}" for note in recorded.notes]
    with contextlib.suppress(MedTasksError):  # files of replies, or repeats
        if look := source.run.look:
            notes.append(f"{name}: {look} The tests here do not allow for the looks")
    return replies


def _sample_files(task: str, source: Source) -> list[Path]:
    """Return the samples files of a run, at least one: its own, or those of its repeats that have one.

    Raises:
        RepliesError: The run has no samples file of the task.
    """
    with_samples = []
    for repeat in source.repeats:
        if repeat is not source:
            record = repeat.run.tasks.get(task)
            if record and record.samples:
                with_samples.append(repeat)
    return [replies_to(task, run) for run in with_samples or source.repeats]


def compare_all(
    runs: Sources,
    metrics: Names = (),
    rules: Names = (),
    margin: float | None = None,
    task: str | None = None,
) -> tuple[ComparedByTask, dict[str, str]]:
    """Compare all tasks of ours that at least two runs answered, as one family of tests.

    Sanity variants are compared with a ``margin`` only: without the image no model is better.

    Args:
        runs: Runs by name.
        metrics: Names of metrics; if empty, those of :func:`.chosen_metrics`.
        rules: Rows of the tasks' results, such as ``robust``; if empty, all.
        margin: Also test for equivalence within this margin; None for no such test.
        task: The only task to compare; None for all.

    Returns:
        Comparisons by task, and why a task of at least two runs, or with a margin of the first, was not compared.

    Raises:
        UnknownName: No task has a metric or rule of that name.
        RepliesError: No task could be compared.
    """
    if task is not None:
        only = compare_task(task_file(task), runs, metrics, rules, margin)
        return corrected_together({task: only}), {}
    compared, causes = compare_each(runs, metrics, rules, margin)
    if compared:
        return corrected_together(compared), {name: str(why) for name, why in causes.items()}
    of_ours = [error for name, error in causes.items() if is_ours(name)]
    if {*map(type, of_ours)} == {UnknownName}:
        raise of_ours[0]
    reasons = "; ".join(f"{name}: {cause}" for name, cause in causes.items())
    raise RepliesError(f"no task could be compared ({reasons})")


def compare_each(
    runs: Sources, metrics: Names, rules: Names, margin: float | None
) -> tuple[ComparedByTask, dict[str, MedTasksError]]:
    """Compare as :func:`compare_all` does, possibly no task at all, and without correction for the other tasks.

    Returns:
        Comparisons by task, and the error of each task that could not be compared.

    Raises:
        RepliesError: The runs have no task in common.
    """
    by_task = _runs_by_task(runs, with_variants=margin is not None)
    compared: ComparedByTask = {}
    causes: dict[str, MedTasksError] = {}
    if margin is not None:  # else a second run that lacks a task would pass for as good
        _, second = runs
        for task, having in by_task.items():
            if second not in having:
                causes[task] = RepliesError(f"has no samples in {second}")
    for task, having in by_task.items():
        if len(having) < 2:
            continue
        if not is_ours(task):
            causes[task] = RepliesError(
                "is no task of medtasks, so that its samples cannot be scored one by one"
            )
            continue
        try:
            compared[task] = compare_task(task_file(task), having, metrics, rules, margin)
        except MedTasksError as error:
            causes[task] = error
    if not compared and not causes:
        raise RepliesError(
            "the runs have no task with a samples file in common; run the harness with --log_samples, or name the task "
            "of recorded replies before the runs"
        )
    return compared, causes


def is_ours(task: str) -> bool:
    """Return whether a name is that of a task of medtasks, or of a variant of one."""
    return task in task_files() or variant_of(task) is not None


def _runs_by_task(runs: Sources, *, with_variants: bool) -> dict[str, dict[str, Source]]:
    """Return the runs that have samples of each task, by task and name, and warn of samples or results that one lacks.

    One repeat with samples is enough.

    Args:
        runs: Runs by name.
        with_variants: Whether sanity variants of tasks are included.
    """
    by_task: dict[str, dict[str, Source]] = {}
    for name, source in runs.items():
        for repeat in source.repeats:
            for task, record in repeat.run.tasks.items():
                if record.lacks:
                    warn_once(f"{repeat.path}, {task}: {record.lacks}")
                if record.samples is not None and (with_variants or not variant_of(task)):
                    by_task.setdefault(task, {})[name] = source
    return dict(sorted(by_task.items()))


def corrected_together(compared: Mapping[str, ComparedTask]) -> ComparedByTask:
    """Correct comparisons by task as one family of tests, in which rules with the same values are one test.

    A rule with the values of another one has to come after it. Earlier corrections do not count.
    """
    tests = itertools.chain.from_iterable(task.comparisons for task in compared.values())
    counted = [(test.result, test.values) for test in tests if not test.same_as]
    results = iter(correct_by_holm(counted))
    together = {}
    for key, task in compared.items():
        by_test = {}
        comparisons = []
        for test in task.comparisons:
            test_key = (test.first, test.second, test.same_as or test.rule, test.metric)
            if not test.same_as:
                by_test[test_key] = next(results)
            result, holm = by_test[test_key]
            comparisons.append(replace(test, result=result, holm=holm))
        together[key] = replace(task, comparisons=comparisons)
    return together
