"""What a task's score owes to the image: the task against its sanity variants in the same run, question by question."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.audit.comparing import RunValues, main_metrics, run_values
from medtasks.audit.report.contents import Gain, RuleReport
from medtasks.errors import MedTasksError
from medtasks.extract.registry import Kind
from medtasks.families.family import Reply
from medtasks.harness.task_file import TaskFile
from medtasks.metrics.metric import AnyMetric, Role
from medtasks.stats.paired import compare_paired


@dataclass(frozen=True)
class Answered:
    """One task with what a run says of it."""

    task: TaskFile
    documents: Sequence[Mapping[str, Any]]  # its documents, in order; empty where they are not at hand
    replies: Mapping[str, Reply]  # by document id; empty where they are not recorded
    rules: tuple[RuleReport, ...]  # its scores
    asked: int  # how many questions were asked


def gains(base: Answered, variants: Sequence[Answered]) -> tuple[Gain, ...]:
    """Return how a task differs from its variants, main metrics only.

    Where the replies of both are at hand, they are compared sample by sample on the questions that both answered. Else
    the difference of the recorded scores stands without interval and p-value, if both were asked the same number of
    questions.

    Args:
        base: The task.
        variants: Its variants ``blind``, ``blank`` and ``swapped`` in the same run.
    """
    return tuple(gain for variant in variants for gain in (_paired(base, variant) or _recorded(base, variant)))


def _paired(base: Answered, variant: Answered) -> list[Gain]:
    shared = _said(base) & _said(variant)
    if not shared or not (base.task.is_computed or base.task.family.kind is Kind.REPORT):
        return []
    try:
        metrics = main_metrics(base.task)
        full, reduced = (_values(one, shared, metrics) for one in (base, variant))
    except MedTasksError:
        return []
    return list(_compared(variant, full, reduced))


def _said(one: Answered) -> set[str]:
    return {doc_id for doc_id, reply in one.replies.items() if not reply.failed}


def _values(one: Answered, shared: set[str], metrics: Sequence[AnyMetric]) -> RunValues:
    replies = {doc_id: reply for doc_id, reply in one.replies.items() if doc_id in shared}
    return run_values(one.task, one.documents, replies, metrics)


def _compared(variant: Answered, full: RunValues, reduced: RunValues) -> Iterator[Gain]:
    for (rule, metric), values in full.values.items():
        others = reduced.values.get((rule, metric), {})
        both = [sample for sample in values if sample in others]
        if not both:
            continue
        found = compare_paired(
            [others[sample][1] for sample in both],
            [values[sample][1] for sample in both],
            [values[sample][0] for sample in both],
        )
        yield Gain(
            variant=str(variant.task.variant),
            task=variant.task.name,
            rule=rule,
            metric=metric,
            score=found.second,
            variant_score=found.first,
            difference=found.difference,
            low=found.low,
            high=found.high,
            p=found.p,
            samples=found.samples,
        )


def _recorded(base: Answered, variant: Answered) -> Iterator[Gain]:
    if not base.asked or base.asked != variant.asked:
        return
    reduced = {rule.name: {score.metric: score.value for score in rule.scores} for rule in variant.rules}
    for rule in base.rules:
        others = reduced.get(rule.name, {})
        known = [score for score in rule.scores if score.metric in others]
        main = {metric.name for metric in base.task.metrics if metric.role is Role.MAIN}
        for score in [one for one in known if one.metric in main] or known[:1]:
            value = others[score.metric]
            yield Gain(
                variant=str(variant.task.variant),
                task=variant.task.name,
                rule=rule.name,
                metric=score.metric,
                score=score.value,
                variant_score=value,
                difference=score.value - value,
                low=math.nan,
                high=math.nan,
                p=math.nan,
                samples=base.asked,
            )
