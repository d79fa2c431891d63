"""Comparing runs on the samples that both answered, under every answer rule: pairing, tests, agreement and verdict.

With a margin, scores are also tested for equivalence, and runs that were asked in different ways are refused.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from medtasks.audit.run_values import (
    REPEAT,
    Agreement,
    Overlap,
    RunValues,
    Values,
    agreement,
    by_repeat,
    chosen_metrics,
    mean_values,
)
from medtasks.audit.scoring import Documents, Replies
from medtasks.data.privacy import hidden_id
from medtasks.errors import MedTasksError, RepliesError, unknown_name, warn_once
from medtasks.metrics.metric import AnyMetric, Role
from medtasks.runs.replies import read_replies, read_samples
from medtasks.runs.result_files import results_next_to, task_of
from medtasks.runs.run import Source, replies_to
from medtasks.stats.equivalence import Equivalence, equivalence
from medtasks.stats.paired import ALPHA, PairedResult, PairedValues, compare_paired, corrected
from medtasks.tasks.documents import is_private_task, task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile, templates_in
from medtasks.tasks.task_files import task_file, task_files, variant_of
from medtasks.tasks.task_index import SETTINGS, mapping_in

_Key = TypeVar("_Key")
Names = Sequence[str]
_NOT_COMPARABLE = "so that their numbers cannot be compared; run both with the same data, task file and options"


@dataclass(frozen=True)
class Comparison:
    """One test: two runs, one rule, one metric."""

    first: str
    second: str
    rule: str
    metric: str
    result: PairedResult
    holm: float  # p-value corrected for all tests of the call
    values: PairedValues = field(compare=False, repr=False)
    same_as: str = ""  # an earlier rule with the same value of every sample in both runs: one test, counted there
    share: bool = False  # whether the means are fractions
    main: bool = False  # whether the metric is a main one of the task
    equivalence: Equivalence | None = None  # None without a margin


@dataclass(frozen=True)
class ComparedTask:
    """All comparisons of runs of one task."""

    comparisons: Sequence[Comparison]  # in order of runs, rules and metrics
    overlaps: Mapping[tuple[str, str], Overlap]  # of samples that did not fail, by the names of two runs
    agreements: Mapping[tuple[str, str], Agreement]  # likewise
    rules: Mapping[str, str]  # name and version of each answer rule by name of the row
    skipped: Mapping[tuple[str, str], str]  # why a metric was not compared, by name of the row and metric
    data: Mapping[str, Any] = field(default_factory=dict)  # provenance of the prepared dataset
    warnings: Sequence[str] = ()  # about how the runs were asked, one sentence each; none without a margin
    repeats: Mapping[str, int] = field(default_factory=dict)  # number of repeats by name of the run


def compare_runs(
    task: TaskFile,
    documents: Documents,
    runs: Mapping[str, Replies | Sequence[Replies]],
    metrics: Names = (),
    rules: Names = (),
    margin: float | None = None,
) -> ComparedTask:
    """Compare every two runs of a task, under all rows or those with the names of ``rules``.

    A run is its replies, or those of each of its repeats; failed ones are only counted. A metric that is not the mean
    of the values of single samples, such as macro F1, is not compared. By default the task's main ``metrics`` are
    compared; with a ``margin`` also tested for equivalence. RepliesError: two runs answered no sample in common, or
    were read by different rules.
    """
    chosen = {metric.name: metric for metric in chosen_metrics(task, metrics)}
    repeats = {name: [run] if isinstance(run, Mapping) else run for name, run in runs.items()}
    valid: dict[str, list[Replies]] = {}
    answered: dict[str, Replies] = {}
    for name, of_run in repeats.items():
        valid[name] = [{id_: reply for id_, reply in replies.items() if not reply.failed} for replies in of_run]
        answered[name] = {id_: reply for replies in valid[name] for id_, reply in replies.items()}

    is_private = is_private_task(task, documents)

    def written_id(sample: str) -> str:
        name, mark, number = sample.partition(REPEAT)
        return hidden_id("doc", name) + mark + number if is_private else sample

    overlaps, agreements = {}, {}
    versions: Mapping[str, str] = {}
    skipped: dict[tuple[str, str], str] = {}
    tests: list[Comparison] = []
    for first, second in itertools.combinations(runs, 2):
        shared = answered[first].keys() & answered[second].keys()
        before, after = _both_values(task, documents, {name: valid[name] for name in (first, second)}, shared, chosen)
        if unknown := [rule for rule in rules if rule not in before.rules]:
            raise unknown_name("rule", unknown[0], before.rules)
        versions = {rule: version for rule, version in before.rules.items() if rule in rules or not rules}
        scores = {rule: (before.scores[rule], after.scores[rule]) for rule in versions}
        overlaps[first, second] = Overlap.of(answered[first], answered[second], len(documents))
        number = min(len(repeats[first]), len(repeats[second]))
        a, b = (by_repeat(repeats[name][:number]) for name in (first, second))
        agreements[first, second] = agreement(a, b, number * len(documents), scores, written_id)
        values = {key: (before.values[key], after.values[key]) for key in before.values if key[0] in versions}
        left_out = {key: why for key, why in {**before.skipped, **after.skipped}.items() if key in values}
        for key, (first_values, second_values) in values.items():
            if key not in left_out and not first_values.keys() & second_values.keys():
                left_out[key] = f"has no sample with a value in both {first} and {second}"
        values = {key: pair for key, pair in values.items() if key not in left_out}
        main = {metric for _, metric in values if chosen[metric].role is Role.MAIN} or chosen.keys()
        for rule, metric in values:
            test = _test((first, second), values, rule, chosen[metric], margin)
            tests.append(replace(test, main=metric in main))
        skipped |= left_out
    numbers = {name: len(of_run) for name, of_run in repeats.items()}
    compared = ComparedTask(tests, overlaps, agreements, versions, skipped, repeats=numbers)
    return corrected_together({"": compared})[""]


def _both_values(
    task: TaskFile,
    documents: Documents,
    runs: Mapping[str, Sequence[Replies]],
    shared: Collection[str],
    metrics: Mapping[str, AnyMetric],
) -> tuple[RunValues, RunValues]:
    first, second = runs
    if not shared:
        raise RepliesError(f"{first} and {second} answered no document in common, so that there is nothing to compare")
    # Only one run's samples are left out first: some metrics weigh words by how rare they are in all texts.
    replies = ([{id_: run[id_] for id_ in run if id_ in shared} for run in repeats] for repeats in runs.values())
    before, after = (mean_values(task, documents, repeats, metrics.values()) for repeats in replies)
    if before.rules != after.rules:
        raise RepliesError(
            f"{first} and {second} hold replies of different kinds, texts and log-likelihoods, which different rules "
            f"read; compare runs of one kind"
        )
    return before, after


def _test(
    runs: tuple[str, str],
    values: Mapping[tuple[str, str], tuple[Values, Values]],
    rule: str,
    metric: AnyMetric,
    margin: float | None,
) -> Comparison:
    paired = paired_values(*values[rule, metric.name])
    result, same_as = compare_paired(*paired), same_values(values, rule, metric.name)
    share = metric.is_share(result.first, result.second)
    tested = None if margin is None else equivalence(*paired, margin)
    return Comparison(*runs, rule, metric.name, result, result.p, paired, same_as, share, equivalence=tested)


def same_values(values: Mapping[tuple[str, str], tuple[Values, Values]], rule: str, metric: str) -> str:
    """Return the first rule with the same value of every sample in both runs; empty if that is the rule itself."""
    alike = (name for (name, key), pair in values.items() if key == metric and pair == values[rule, metric])
    first = next(alike)
    return "" if first == rule else first


def paired_values(first: Values, second: Values) -> PairedValues:
    """Return both runs' values and the clusters of the samples that have a value in both, shape (samples,) each."""
    shared = sorted(first.keys() & second.keys())
    first_values, second_values = ([values[sample][1] for sample in shared] for values in (first, second))
    return first_values, second_values, [first[sample][0] for sample in shared]


def compare_task(
    task: TaskFile, runs: Mapping[str, Source], metrics: Names = (), rules: Names = (), margin: float | None = None
) -> ComparedTask:
    """Compare runs of one task, by default in its main metrics and under all its rows.

    RepliesError: the task is a group, replies cannot be read, or were made on other data; with a ``margin``, the runs
    were asked differently, or have different numbers of repeats.
    """
    if task.only_harness:
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    documents = task_documents(task)
    data = task_provenance(task, documents)
    files: dict[str, list[Path]] = {}
    for name, source in runs.items():
        recorded = [(run, run.run.tasks.get(task.name)) for run in source.repeats if run is not source]
        with_samples = [run for run, record in recorded if record and record.samples]
        files[name] = [replies_to(task.name, run) for run in with_samples or source.repeats]
    firsts = [of_run[0] for of_run in files.values()]  # repeats of one run were asked the same
    if margin is not None:
        _check_same_task(task.name, firsts)
        if len({len(of_run) for of_run in files.values()}) > 1:
            raise RepliesError(
                "the runs have different numbers of repeats, and a verdict takes as many of each; give one repeat of "
                "each, such as FOLDER/repeat_1"
            )
    for path in (file for of_run in files.values() for file in of_run):
        for samples in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            results = results_next_to(samples, warn_once)
            fingerprint = results.fingerprint(task.name) if results else None
            if fingerprint not in (None, data["fingerprint"]):
                raise RepliesError(
                    f"{samples} was made on data with fingerprint {fingerprint}, but the prepared dataset has "
                    f"{data['fingerprint']}; point MEDTASKS_HOME to the data of that run"
                )
    replies = {name: [read_replies(file, documents) for file in of_run] for name, of_run in files.items()}
    warnings = prompt_warnings(task, documents, firsts) if margin is not None else ()
    return replace(compare_runs(task, documents, replies, metrics, rules, margin), data=data, warnings=warnings)


def compare_all(
    runs: Mapping[str, Source], metrics: Names = (), rules: Names = (), margin: float | None = None
) -> tuple[dict[str, ComparedTask], dict[str, str]]:
    """Compare all tasks of ours that at least two runs answered, as one family of tests.

    Sanity variants are compared with a ``margin`` only: without the image no model is better. Returns comparisons by
    task, and why a task of at least two runs was not compared. RepliesError: no task could be compared.
    """
    answered: dict[str, set[str]] = {name: set() for name in runs}
    for name, source in runs.items():
        for repeat in source.repeats:
            for task, record in repeat.run.tasks.items():
                if record.lacks:
                    warn_once(f"{repeat.path}, {task}: {record.lacks}")
                if record.samples is not None:
                    answered[name].add(task)
    compared: dict[str, ComparedTask] = {}
    causes: dict[str, str] = {}
    for task in sorted(set().union(*answered.values())):
        having = {name: runs[name] for name, tasks in answered.items() if task in tasks}
        if len(having) < 2 or (margin is None and variant_of(task)):
            continue
        if not (task in task_files() or variant_of(task)):
            causes[task] = "is no task of medtasks, so that its samples cannot be scored one by one"
            continue
        try:
            compared[task] = compare_task(task_file(task), having, metrics, rules, margin)
        except MedTasksError as error:
            causes[task] = str(error)
    if not compared and causes:
        by_task = "; ".join(f"{task}: {cause}" for task, cause in causes.items())
        raise RepliesError(f"no task could be compared ({by_task})")
    if not compared:
        raise RepliesError(
            "the runs have no task with a samples file in common; run the harness with --log_samples, or name the task "
            "of recorded replies before the runs"
        )
    return corrected_together(compared), causes


def corrected_together(compared: Mapping[_Key, ComparedTask]) -> dict[_Key, ComparedTask]:
    """Correct comparisons as one family of tests; rules with the same values are one test."""
    tests = [test for task in compared.values() for test in task.comparisons if not test.same_as]
    results = iter(corrected([(test.result, test.values) for test in tests]))
    together = {}
    for key, task in compared.items():
        by_test = {(t.first, t.second, t.rule, t.metric): next(results) for t in task.comparisons if not t.same_as}
        comparisons = []
        for test in task.comparisons:
            result, holm = by_test[test.first, test.second, test.same_as or test.rule, test.metric]
            comparisons.append(replace(test, result=result, holm=holm))
        together[key] = replace(task, comparisons=comparisons)
    return together


def _check_same_task(task: str, files: Sequence[Path]) -> None:
    """Raise RepliesError unless two runs asked one version of a task on the same data, as far as is recorded."""
    results = [file for path in files if (file := results_next_to(path, warn_once)) is not None]
    if len(results) < len(files):
        return
    compared = {
        "were asked on different data": [file.fingerprint(task) for file in results],
        "asked different versions of the task": [file.of_task("versions", task) for file in results],
        "had different numbers of few-shot examples": [file.config(task).get("num_fewshot") for file in results],
    }
    for how, (first, second) in compared.items():
        if first is not None and second is not None and first != second:
            raise RepliesError(f"the runs {how} ({first} in A, {second} in B), {_NOT_COMPARABLE}")
    first, second = (file.content.get("system_instruction") for file in results)
    if first != second:
        raise RepliesError(f"the runs had different system instructions, {_NOT_COMPARABLE}")


def prompt_warnings(task: TaskFile, documents: Documents, files: Sequence[Path]) -> tuple[str, ...]:
    """List possible differences in prompts and sampling of two runs, one sentence each.

    RepliesError: words of the prompts differ (not white space or the marks of images), or of their templates where
    prompts are not recorded.
    """

    def words(prompt: str) -> list[str]:
        return prompt.replace("<image>", " ").split()

    results = [results_next_to(file, warn_once) for file in files]
    configs = [{} if file is None else file.config(task.name) for file in results]
    before, after = (read_samples(file, documents).prompts if task_of(file) else {} for file in files)
    shared = [doc_id for doc_id in before if doc_id in after]
    other = [doc_id for doc_id in shared if words(before[doc_id]) != words(after[doc_id])]
    spaced = sum(before[doc_id] != after[doc_id] for doc_id in shared)
    if other:
        named = hidden_id("doc", other[0]) if is_private_task(task, documents) else other[0]
        raise RepliesError(
            f"the runs gave different prompts to {len(other)} of {len(shared)} questions, such as {named} (some tasks "
            f"have other prompts for some models), {_NOT_COMPARABLE}"
        )
    warnings = [f"{spaced} prompts differ in white space or in the mark of an image"] if spaced else []
    if not shared:
        templates = [sorted(templates_in(mapping_in(config, SETTINGS))) for config in configs]
        if all(templates) and templates[0] != templates[1]:
            raise RepliesError(f"the runs made their prompts from different templates, {_NOT_COMPARABLE}")
        warnings = ["the prompts are not recorded or withheld, so that they could not be compared"]
    if task.compares_likelihoods:
        return tuple(warnings)
    first, second = (mapping_in(config, "generation_kwargs") for config in configs)
    settings = [f"generation setting {name}" for name in {**first, **second} if first.get(name) != second.get(name)]
    if settings:
        warnings.append(f"the runs drew replies with different settings ({', '.join(settings)})")
    if any(setting.get("do_sample") or setting.get("temperature") for setting in (first, second)):
        warnings.append("replies are drawn at random, so that two runs of one backend differ, too; use temperature 0")
    return tuple(warnings)


class Verdict(StrEnum):
    """A verdict on the scores of two runs, from the strongest to the weakest; a difference outweighs all."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent within the margin"
    SAME_ANSWERS = "same answers"
    NOT_ENOUGH = "not enough samples to tell"
    DIFFERENT = "different"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on all tasks: different if any is, else the weakest of them."""
    return max(verdicts, key=list(Verdict).index)


@dataclass(frozen=True)
class TaskVerdict:
    """Verdict on two runs of one task, which were compared with a margin."""

    task: ComparedTask
    margin: float

    @property
    def agreement(self) -> Agreement:
        """Agreement of the two runs."""
        (agreement,) = self.task.agreements.values()
        return agreement

    @property
    def verdict(self) -> Verdict:
        """The verdict; equivalence requires equivalence in every main metric, under every rule."""
        failed = self.agreement.failed.one_sided
        if self.agreement.all_equal and not failed:
            return Verdict.IDENTICAL
        if any(test.holm < ALPHA and not is_equivalent(test) for test in self.task.comparisons):
            return Verdict.DIFFERENT
        main = [test for test in self.task.comparisons if test.main]
        if main and all(map(is_equivalent, main)) and not self.failures_matter:
            return Verdict.EQUIVALENT
        return Verdict.SAME_ANSWERS if self.scores_are_same and not failed else Verdict.NOT_ENOUGH

    @property
    def failures_matter(self) -> bool:
        """Whether samples that failed in one run only could move a score by more than the margin."""
        return self.agreement.failed.one_sided > self.margin * self.agreement.overlap.both

    @property
    def scores_are_same(self) -> bool:
        """Whether all answers are equal, and with them the scores of these samples; False where no rule finds any."""
        parts = self.agreement.answers.values()
        all_equal = any(part.samples for part in parts) and all(part.equal == part.samples for part in parts)
        return all_equal and not any(test.result.difference for test in self.task.comparisons)

    @property
    def explanation(self) -> str:
        """One sentence on replies that are all equal, failures of one run, or equal answers; empty for others."""
        failed, samples = self.agreement.failed, self.agreement.overlap.both
        if self.failures_matter or (self.agreement.all_equal and failed.one_sided):
            ((first, second),) = self.task.agreements
            sides = ((failed.only_first, first), (failed.only_second, second))
            counts = " and ".join(f"{number} in {run} only" for number, run in sides if number)
            return f"Failures in one run ({counts}, of {samples} samples): " + (
                "they could move a score by more than the margin, and the numbers here are of the others only; fix "
                "the failures first, then run again with --only-failed."
                if self.failures_matter
                else "too few to move a score by the margin."
            )
        if self.agreement.all_equal:
            of_texts = self.agreement.texts is not None
            what = "reply is the same to the last byte" if of_texts else "likelihood is the same to the last digit"
            return f"Every {what}."
        return "All answers are equal, so that on these samples the scores are the same." * self.scores_are_same

    @property
    def lacking(self) -> str:
        """One sentence on the samples that a clearer verdict takes; empty if only failures prevent it."""
        if self.verdict not in (Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS):
            return ""
        if not self.task.comparisons:
            return "No score of this task is a mean over samples, so that no test tells whether it is the same."
        not_shown = [
            (test, (test.equivalence and test.equivalence.needed) or 0)
            for test in self.task.comparisons
            if test.main and not is_equivalent(test)
        ]
        if not not_shown:
            return ""
        worst, number = max(not_shown, key=lambda pair: pair[1])
        has = f"{worst.metric} ({worst.rule}) has {_counted(worst.result.samples)} values"
        if worst.result.units < 2:
            return f"{has}, all of one patient, image or pair, so that no test can tell."
        if not number:
            as_large = "the difference seen is as large as the margin"
            return f"{has}; {as_large}, and more samples would tell whether it is real."
        return f"{has}; equivalence takes about {_counted(number)}, or a wider --margin."


def is_equivalent(test: Comparison) -> bool:
    """Return whether a test shows equivalence."""
    return test.equivalence is not None and test.equivalence.shown


def _counted(number: int) -> str:
    """Return a number of samples with two significant digits."""
    return f"{number if number < 100 else int(float(f'{number:.2g}')):,}"
