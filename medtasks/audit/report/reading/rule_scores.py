"""Scores of a task under each reading of the replies: as recorded, and computed again from the replies.

What would load a model, ask a judge or write a file is never computed again.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medtasks.audit.breakdowns import by_group, count_kinds, wrong_answers
from medtasks.audit.report.contents import Group, PairOutcomes, Score
from medtasks.audit.scoring import check_kinds, samples_of, versioned_rule
from medtasks.data.selecting import values as values_in
from medtasks.extract.chexbert_labels import NAME as CHEXBERT
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile
from medtasks.stats.intervals import interval
from medtasks.stats.score_text import is_share

Documents = Sequence[Mapping[str, Any]]
Replies = Mapping[str, RecordedReply]
Sample = Mapping[str, Any]

PAIRS = "medtasks.hooks.pairs.process_results"
FREE_FORM = "medtasks.hooks.free_form.process_results"
ROTATED = ("medtasks.hooks.rotations.process_results", "medtasks.hooks.rotations.process_listed")
_OF_CLASSES = ("medtasks.hooks.classification.process_results", "medtasks.hooks.multilabel.process_results")
_ONE_BY_ONE = tuple(  # a metric of a single record is NaN where the record does not count for it
    f"medtasks.hooks.{module}.process_results"
    for module in ("choice", "closed_questions", "grouped_choice", "judged_choice", "multi_answer", "open_questions")
)
_OF_LETTERS = (*ROTATED, *_OF_CLASSES, *_ONE_BY_ONE)  # their records hold letters and numbers, no text
_JUDGED = "medtasks.hooks.judged_choice.process_results"
_ERROR = "_stderr"
_MAIN = "accuracy"


@dataclass(frozen=True)
class Computed:
    """Scores of one rule, computed from the replies.

    Attributes:
        rule: Name and version of the rule.
        scores: All metrics, in the task's order.
        samples: What the task's hook made of each reply, by document id.
        reasons: How many replies were ok, ambiguous, refused, ...
        groups: Scores by column and group.
        pairs: Outcomes of pairs, for paired questions.
        wrong_kinds: How many wrong answers are of which kind.
    """

    rule: str
    scores: tuple[Score, ...]
    samples: Mapping[str, Sample]
    reasons: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    pairs: PairOutcomes | None = None
    wrong_kinds: Mapping[str, int] = field(default_factory=dict)


def is_computed(task: TaskFile) -> bool:
    """Return whether a task's scores follow from replies without a judge, a labeler or any other model."""
    judged = CHEXBERT in task.rules.values() or task.process_results == _JUDGED
    return task.process_results in (PAIRS, *_OF_LETTERS) and not judged


def is_aggregated(task: TaskFile) -> bool:
    """Return whether a task's scores follow from the records of a run, see :func:`of_samples`."""
    return task.process_results in _OF_LETTERS


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to questions that are no pairs through the task's own hooks.

    Args:
        task: A task for which :func:`is_computed` holds.
        documents: Those that have a reply, in order.
        replies: By document id.

    Returns:
        By filter name.

    Raises:
        RepliesError: The replies do not fit the task.
    """
    check_kinds(task, replies)
    given = [replies[document["doc_id"]] for document in documents]
    found = {}
    for name in task.rules:
        samples = samples_of(task, name, documents, given)
        wrong = wrong_answers(documents, samples, [reply.text for reply in given])
        by_id = {str(one["doc_id"]): sample for one, sample in zip(documents, samples, strict=True)}
        scores = of_samples(task, versioned_rule(task, name), by_id, documents)
        found[name] = replace(scores, wrong_kinds=count_kinds(wrong))
    return found


def of_samples(task: TaskFile, rule: str, by_id: Mapping[str, Sample], columns: Documents) -> Computed:
    """Return the scores of samples under one rule, by the task's own aggregations.

    Args:
        task: A task for which :func:`is_aggregated` holds.
        rule: Name and version of the rule.
        by_id: What the task's hook gave, by document id.
        columns: What groups the samples, in the same order: documents, or records with the same columns.
    """
    samples = list(by_id.values())
    metrics = metric_list(task)
    computed = {one["metric"]: one["aggregation"]([sample[one["metric"]] for sample in samples]) for one in metrics}
    scores = tuple(
        score(
            one["metric"],
            computed[one["metric"]],
            computed.get(f"{one['metric']}{_ERROR}", math.nan),
            _number_of_units(task, one, samples) if f"{one['metric']}{_ERROR}" in computed else None,
            higher_is_better=one["higher_is_better"],
        )
        for one in metrics
        if not one["metric"].endswith(_ERROR)
    )
    records = [first_record(sample) for sample in samples]
    reasons = Counter(str(record["reason"]) for record in records if "reason" in record)
    groups = {} if task.process_results in ROTATED else _groups(task, columns, samples, metrics)
    return Computed(rule, scores, by_id, dict(reasons.most_common()), groups)


def first_record(sample: Sample) -> Mapping[str, Any]:
    """Return the record of a sample's first metric; a withheld sample has it behind ``items`` only."""
    found: Mapping[str, Any] = next(iter(sample.items()))[1]
    return found


def metric_list(task: TaskFile) -> Sequence[Mapping[str, Any]]:
    """Return the task's metrics, those that are standard errors included; none for a group."""
    found: Sequence[Mapping[str, Any]] = [] if task.metric_list is None else task.metric_list.resolve()
    return found


def score(metric: str, value: float, error: float, units: int | None, *, higher_is_better: bool) -> Score:
    """Return a metric with its interval.

    Args:
        metric: Its name.
        value: Its value; a whole number is a count.
        error: Its standard error; NaN if there is none.
        units: Number of independent units behind the error; None if not known.
        higher_is_better: Direction.
    """
    share = is_share(metric, value)
    low, high = interval(value, error, units, share)
    return Score(metric, value, error, low, high, share, higher_is_better)


def _number_of_units(task: TaskFile, metric: Mapping[str, Any], samples: Sequence[Sample]) -> int:
    """Return how many units the samples belong to that count for a metric."""
    records = [sample[metric["metric"]] for sample in samples]
    return len({unit for unit in _counted_units(task, metric["aggregation"], records) if unit is not None})


def _counted_units(task: TaskFile, aggregation: Any, records: Sequence[Sample]) -> list[Hashable | None]:
    """Return the unit of each record, None where it does not count."""
    units = [_unit(record, number) for number, record in enumerate(records)]
    if task.process_results not in _ONE_BY_ONE:
        return units
    return [None if math.isnan(aggregation([one])) else unit for one, unit in zip(records, units, strict=True)]


def _unit(record: Sample, number: int) -> Hashable:
    found = record.get("unit", record.get("image_id"))
    return ("sample", number) if found is None else str(found)


def _groups(
    task: TaskFile, documents: Documents, samples: Sequence[Sample], metrics: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[Group, ...]]:
    """Return accuracy by the columns that the task names."""
    found = by_group(documents, samples, metrics, task.breakdown)
    if not found:
        return {}
    (accuracy,) = (one for one in metrics if one["metric"] == _MAIN)
    units = _counted_units(task, accuracy["aggregation"], [sample[_MAIN] for sample in samples])
    return {
        column: tuple(
            Group(
                value,
                one.questions,
                (score(_MAIN, one.accuracy, one.error, in_group[value], higher_is_better=True),),
            )
            for value, one in groups.items()
        )
        for column, groups in found.items()
        for in_group in [_units_by_value(documents, column, units)]
    }


def _units_by_value(documents: Documents, column: str, units: Sequence[Hashable | None]) -> dict[str, int]:
    members: dict[str, set[Hashable]] = {}
    for document, unit in zip(documents, units, strict=True):
        for value in values_in(document, column):
            members.setdefault(value, set()).update(() if unit is None else (unit,))
    return {value: len(found) for value, found in members.items()}
