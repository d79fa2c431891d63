"""What only several tasks of a run tell: what a score owes to the image, and what a group's members have in common.

A task is compared with its sanity variants in the same run, question by question.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from medtasks.audit.comparing import compared_values, main_metrics, run_values
from medtasks.audit.report.contents import Gain, TaskReport
from medtasks.audit.report.reading.task_reading import TaskReading
from medtasks.data.variants import OF_IMAGES
from medtasks.errors import MedTasksError
from medtasks.extract.registry import Kind
from medtasks.harness.task_file import TaskFile
from medtasks.metrics.metric import Role


@dataclass(frozen=True)
class Section:
    """The section of one task."""

    report: TaskReport
    reading: TaskReading | None = None  # what it was made from; None for a group and for a task that is not ours
    notes: Sequence[str] = ()  # what does not agree, one sentence each
    members: Sequence[str] = ()  # of a group, the names of its members


def finished(sections: Sequence[Section]) -> tuple[TaskReport, ...]:
    """Return the reports of a run, with what only several tasks together tell.

    Tasks have their gains over sanity variants, and groups say whether their members' data are drawn samples.
    """
    by_name = {one.report.name: one for one in sections}
    return tuple(_finished(one, by_name) for one in sections)


def _finished(one: Section, others: Mapping[str, Section]) -> TaskReport:
    members = [others[name].report for name in one.members if name in others]
    if members:
        return replace(
            one.report,
            sample_data=any(member.sample_data for member in members),
            complete_data=all(member.complete_data for member in members),
            documents=_common([member.documents for member in members]),
            answered=_common([member.answered for member in members]),
        )
    if one.reading is None:
        return one.report
    gains: list[Gain] = []
    for variant in OF_IMAGES:
        other = others.get(f"{one.report.name}_{variant}")
        if other and other.reading and other.reading.task.base == one.report.name:
            gains += _paired(one.reading, other.reading) or _recorded(
                one.reading.task, one.report, variant, other.report
            )
    return replace(one.report, gains=tuple(gains)) if gains else one.report


def _common(values: Sequence[int]) -> int:
    """Return what all values are; 0, which stands for not known, where they differ."""
    return values[0] if len(set(values)) == 1 else 0


def _paired(base: TaskReading, variant: TaskReading) -> list[Gain]:
    """Compare main metrics sample by sample on the questions that both answered, where the replies are at hand."""
    said = [{name for name, reply in one.samples.replies.items() if not reply.failed} for one in (base, variant)]
    shared = set.intersection(*said)
    if not shared or not (base.task.is_computed or base.task.family.kind is Kind.REPORT):
        return []
    try:
        metrics = main_metrics(base.task)
        full, reduced = (
            run_values(one.task, one.documents, {name: one.samples.replies[name] for name in shared}, metrics).values
            for one in (base, variant)
        )
    except MedTasksError:
        return []
    gains = []
    for (rule, metric), values in full.items():
        # The difference is the task minus its variant, so that the variant comes first.
        found = compared_values(reduced.get((rule, metric), {}), values)
        if found is not None:
            numbers = (found.second, found.first, found.difference, found.low, found.high, found.p, found.samples)
            gains.append(Gain(str(variant.task.variant), variant.task.name, rule, metric, *numbers))
    return gains


def _recorded(task: TaskFile, base: TaskReport, variant: str, other: TaskReport) -> Iterator[Gain]:
    """Yield the differences of recorded scores, if both were asked the same number of questions; they have no error."""
    if not base.answered or base.answered != other.answered:
        return
    reduced = {rule.name: {score.metric: score.value for score in rule.scores} for rule in other.rules}
    main = {metric.name for metric in task.metrics if metric.role is Role.MAIN}
    for rule in base.rules:
        others = reduced.get(rule.name, {})
        known = [score for score in rule.scores if score.metric in others]
        for score in [one for one in known if one.metric in main] or known[:1]:
            value = others[score.metric]
            numbers = (score.value, value, score.value - value, math.nan, math.nan, math.nan, base.answered)
            yield Gain(variant, other.name, rule.name, score.metric, *numbers)
