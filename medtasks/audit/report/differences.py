"""Gains of tasks over their variants in the same run, costs of thinking, and differences from other runs.

All gains of a report are one family of tests, and so are all differences from other runs.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from medtasks.audit.comparing import (
    ComparedTask,
    compare_all,
    compare_task,
    corrected_together,
    paired_values,
    same_values,
)
from medtasks.audit.groups import with_interval
from medtasks.audit.report.contents import ComparedScore, Gain, LengthBin, RunComparison, TaskReport, Thinking
from medtasks.audit.report.task_reading import TaskReading
from medtasks.audit.run_values import Values, main_metrics, mean_values
from medtasks.data.samples import Sample
from medtasks.data.variants import WITHOUT_IMAGE
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.counts import answered, is_failed
from medtasks.metrics.metric import AnyMetric, Metric, Role
from medtasks.metrics.metric import Score as SampleScore
from medtasks.runs.sources import Source, model_of
from medtasks.stats.paired import compare_paired, corrected
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import mapping_in

_DIRECT = "direct"  # what a thinking variant is compared with


def gains_over(
    repeats: Sequence[TaskReading],
    report: TaskReport,
    variant_repeats: Sequence[TaskReading],
    variant_report: TaskReport,
) -> list[Gain]:
    """Return the gains of a task over a variant of it, or of a thinking variant over its direct form, uncorrected.

    They are tested sample by sample where the replies are at hand, with the mean over the repeats of each, at least
    one; else they are the differences of the recorded scores.
    """
    if not (repeats and variant_repeats):
        return []
    recorded = _recorded(repeats[0].task, report, variant_repeats[0].task, variant_report)
    return _paired(repeats, variant_repeats) or list(recorded)


def _paired(repeats: Sequence[TaskReading], variant_repeats: Sequence[TaskReading]) -> list[Gain]:
    """Compare main metrics sample by sample on the questions that both answered, where the replies are at hand."""
    base, variant = repeats[0], variant_repeats[0]
    said = [
        {name for one in readings for name, reply in one.samples.replies.items() if not reply.failed}
        for readings in (repeats, variant_repeats)
    ]
    shared = set.intersection(*said)
    if not shared or not (base.task.is_computed or base.task.family.kind is AnswerKind.REPORT):
        return []

    def values_of(readings: Sequence[TaskReading]) -> Mapping[tuple[str, str], Values]:
        replies = [
            {name: reply for name, reply in one.samples.replies.items() if name in shared and not reply.failed}
            for one in readings
        ]
        return mean_values(readings[0].task, readings[0].documents, replies, metrics).values

    try:
        metrics = main_metrics(base.task)
        full, reduced = values_of(repeats), values_of(variant_repeats)
    except MedTasksError:
        return []
    # The difference is the task minus its variant, so that the variant comes first.
    values = {key: (reduced.get(key, {}), values) for key, values in full.items()}
    zero_if_blind = {metric.name for metric in metrics if metric.zero_if_blind}
    gains = []
    for (rule, metric), pair in values.items():
        if pair[0].keys() & pair[1].keys():
            paired = paired_values(*pair)
            found, same = compare_paired(*paired), same_values(values, rule, metric)
            of = (str(variant.task.variant or _DIRECT), variant.task.name, rule, metric)
            if not found.first and metric in zero_if_blind and variant.task.variant in WITHOUT_IMAGE:
                scores = (found.second, 0.0, found.difference, math.nan, math.nan, math.nan)
                gains.append(Gain(*of, *scores, samples=found.samples, same_as=same, by_construction=True))
                continue
            scores = (found.second, found.first, found.difference, found.low, found.high, found.p)
            gains.append(Gain(*of, *scores, samples=found.samples, same_as=same, test=(found, paired)))
    return gains


def _recorded(task: TaskFile, base: TaskReport, variant: TaskFile, other: TaskReport) -> Iterator[Gain]:
    """Yield the differences of recorded scores, if both were asked the same number of questions; they have no error."""
    if not base.answered or base.answered != other.answered:
        return
    reduced = {rule.name: {score.metric: score.value for score in rule.scores} for rule in other.rules}
    main = {metric.name for metric in task.metrics if metric.role is Role.MAIN}
    zero_if_blind = {metric.name for metric in task.metrics if metric.zero_if_blind}
    for rule in base.rules:
        others = reduced.get(rule.name, {})
        known = [score for score in rule.scores if score.metric in others]
        for score in [one for one in known if one.metric in main] or known[:1]:
            value = others[score.metric]
            numbers = (score.value, value, score.value - value, math.nan, math.nan, math.nan)
            zero = not value and score.metric in zero_if_blind and variant.variant in WITHOUT_IMAGE
            of = (str(variant.variant or _DIRECT), other.name, rule.name, score.metric)
            yield Gain(*of, *numbers, samples=base.answered, by_construction=zero)


def corrected_gains(reports: Sequence[TaskReport]) -> tuple[TaskReport, ...]:
    """Return the reports of a run with p-values of all their gains corrected together; equal rules are one test."""
    gains = [
        (one.name, gain) for one in reports for gain in (*one.gains, *(one.thinking.gains if one.thinking else ()))
    ]
    tested = [(name, gain, gain.test) for name, gain in gains if gain.test and not gain.same_as]
    results = corrected([test for *_, test in tested])
    by_test = {
        (name, gain.task, gain.metric, gain.rule): result
        for (name, gain, _), result in zip(tested, results, strict=True)
    }

    def together(name: str, gains: Sequence[Gain]) -> tuple[Gain, ...]:
        of_tests = [by_test.get((name, one.task, one.metric, one.same_as or one.rule)) for one in gains]
        return tuple(
            replace(gain, p=found[0].p, p_holm=found[1], test=None) if found else gain
            for gain, found in zip(gains, of_tests, strict=True)
        )

    return tuple(
        replace(
            one,
            gains=together(one.name, one.gains),
            thinking=replace(one.thinking, gains=together(one.name, one.thinking.gains)) if one.thinking else None,
        )
        for one in reports
    )


def compare_with(run: Source, others: Sequence[Path], task: str | None = None) -> tuple[RunComparison, ...]:
    """Compare one run with others; p-values are corrected for the tests against all of them.

    Runs are folders, or of the only ``task`` to compare files of recorded replies. Errors are those of
    :func:`compare_task` and :func:`compare_all`.
    """
    compared: dict[tuple[Path, str], ComparedTask] = {}
    notes: dict[Path, list[str]] = {}
    for other in dict.fromkeys(others):
        runs = {"this run": run, str(other): Source(other)}
        tasks, causes = compare_all(runs) if task is None else ({task: compare_task(task_file(task), runs)}, {})
        notes[other] = [f"{name}: {cause}" for name, cause in causes.items()]
        compared |= {(other, name): result for name, result in tasks.items()}
    scores: dict[Path, list[ComparedScore]] = {other: [] for other in notes}
    for (other, name), result in corrected_together(compared).items():
        (overlap,) = result.overlaps.values()
        if overlap.only_first or overlap.only_second:
            notes[other].append(
                f"{name}: only the {overlap.both} questions that both runs answered are compared; {overlap.only_first} "
                f"were answered in this run only, {overlap.only_second} in the other only."
            )
        notes[other] += [f"{name}: {metric} ({rule}) {why}." for (rule, metric), why in result.skipped.items()]
        for test in result.comparisons:
            numbers = {key: value for key, value in asdict(test.result).items() if key != "mcnemar"}
            score = ComparedScore(name, test.rule, test.metric, p_holm=test.holm, same_as=test.same_as, **numbers)
            scores[other].append(score)
    names = {other: model_of(Source(other)) or other.name for other in notes}
    return tuple(RunComparison(names[run], str(run), tuple(scores[run]), tuple(notes[run])) for run in notes)


TOKENS, WORDS = "tokens", "words"
_TRUNCATED: Metric[SampleScore] = Metric(
    "truncated", False, answered, of=lambda score: float(score["reason"] == Reason.TRUNCATED)
)
_BINS, _LEAST_IN_BIN = 4, 5

Scores = Mapping[str, SampleScore]


def thinking_of(reading: TaskReading, gains: Sequence[Gain]) -> Thinking | None:
    """Return what the replies to a thinking variant tell, under its first row; None without single scores."""
    rule = next(iter(reading.computed), None)
    scores = {} if rule is None else reading.computed[rule].samples
    known = {doc_id: score for doc_id, score in scores.items() if not is_failed(score)}
    if not known:
        return None
    if all(doc_id in reading.samples.tokens for doc_id in known):
        unit, lengths = TOKENS, {doc_id: reading.samples.tokens[doc_id] for doc_id in known}
    else:
        counts = {doc_id: one["reasoning_words"] for doc_id, one in known.items() if "reasoning_words" in one}
        unit, lengths = WORDS, {doc_id: int(count) for doc_id, count in counts.items()}
    ordered = sorted(lengths.values())
    configs = (reading.recorded.config, task_config(reading.task.name))
    limits = (mapping_in(config, "generation_kwargs").get("max_new_tokens") for config in configs)
    given = str(next(filter(None, limits), ""))
    limit = int(given) if given.isdecimal() else None
    counted = unit == TOKENS and limit is not None
    return Thinking(
        base=str(reading.task.base),
        gains=tuple(gains),
        rule=str(rule),
        answered=len(known),
        truncated=with_interval(_TRUNCATED, _TRUNCATED.estimate(list(known.values()))),
        unit=unit,
        mean=statistics.fmean(ordered) if ordered else math.nan,
        median=statistics.median(ordered) if ordered else math.nan,
        most=ordered[-1] if ordered else math.nan,
        limit=limit,
        at_limit=sum(length >= (limit or 0) for length in ordered) if counted else None,
        bins=_bins(reading, known, lengths),
    )


def _bins(reading: TaskReading, known: Scores, lengths: Mapping[str, int]) -> tuple[LengthBin, ...]:
    """Return the score of questions by the length of their replies, in at most four parts of about equal size."""
    metric = _of_samples(reading, known)
    if metric is None or not lengths:
        return ()
    order = sorted(lengths, key=lambda doc_id: (lengths[doc_id], doc_id))
    parts = max(1, min(_BINS, len(order) // _LEAST_IN_BIN))
    edges = sorted({lengths[order[len(order) * part // parts]] for part in range(1, parts)})
    found: dict[int, list[str]] = {}
    for doc_id in order:  # equal lengths are never divided
        found.setdefault(sum(lengths[doc_id] >= edge for edge in edges), []).append(doc_id)
    return tuple(
        LengthBin(
            lengths[members[0]],
            lengths[members[-1]],
            len(members),
            with_interval(metric, metric.estimate([known[one] for one in members])),
        )
        for _, members in sorted(found.items())
    )


def _of_samples(reading: TaskReading, known: Scores) -> AnyMetric | None:
    """Return the first main metric that has a value for single samples, which that of pairs has not."""
    scores: list[Any] = list(known.values())
    by_id = {str(document["doc_id"]): document for document in reading.documents}
    clusters = [(doc_id, Sample(by_id[doc_id]).cluster_id) for doc_id in known]
    try:
        metrics = main_metrics(reading.task)
    except MedTasksError:
        return None
    for metric in metrics:
        values = reading.task.family.sample_values(metric, scores, clusters)
        if values and values.keys() <= known.keys():
            return metric
    return None
