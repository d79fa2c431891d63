"""What the harness recorded of a run, and its scores under each rule beside what the replies give.

Scores are computed again from the replies, or from the scores that a run recorded. What would load a model, ask a judge
or write a file is never computed again. Replies that do not fit their task raise RepliesError.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from medtasks.audit.error_classes import count_kinds, wrong_answers
from medtasks.audit.groups import with_interval
from medtasks.audit.report.contents import RuleScores, Score
from medtasks.audit.scoring import (
    Documents,
    Replies,
    count_reasons,
    rows_of,
    rule_scores,
)
from medtasks.errors import UnknownName
from medtasks.extract.extractor_registry import extractor_of
from medtasks.metrics.metric import Estimate, undeclared
from medtasks.metrics.metric import Score as SampleScore
from medtasks.runs.run import TaskRun
from medtasks.tasks.task_file import TaskFile

NOT_DEFINED = "It is not defined for these replies: none of them counts for it."
NOT_COMPUTED = "It was not computed in the run."
_ERROR = "_stderr"
_BYPASS = "bypass"  # what the harness writes with --predict_only
_NO_FILTER = "none"  # what the harness calls the filter of a task that names none
_SAME = 1e-9


@dataclass(frozen=True)
class Computed:
    """Scores of one rule, computed from the replies."""

    samples: Mapping[str, SampleScore]  # what the task's family made of each reply, by document id
    report: RuleScores  # what follows from them, without the rule's name in the task and what it does


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to a task whose scores follow from replies alone, by name of the row."""
    computed = {}
    for name, (rule, by_id) in scores_by_id(task, documents, replies).items():
        scores = list(by_id.values())
        wrong = () if task.family.paired else wrong_answers(task, documents, scores, replies)
        report = rule_scores(task, rule, scores, documents)
        computed[name] = Computed(by_id, replace(report, wrong_kinds=count_kinds(wrong)))
    return computed


def scores_by_id(
    task: TaskFile, documents: Documents, replies: Replies
) -> dict[str, tuple[str, dict[str, SampleScore]]]:
    """Return name and version of the rule, and scores by id, by name of the row; all documents have a reply."""
    ids = [str(document["doc_id"]) for document in documents]
    rows = rows_of(task, documents, replies)
    return {name: (rule, dict(zip(ids, scores, strict=True))) for name, (rule, scores) in rows.items()}


def without_metrics(rule: str, by_id: Mapping[str, SampleScore]) -> Computed:
    """Return how many replies were ok, ambiguous, refused, ..., the most frequent first, and nothing else."""
    return Computed(by_id, RuleScores("", rule, "", (), count_reasons(by_id.values())))


def of_scores(task: TaskFile, rule: str, by_id: Mapping[str, SampleScore], columns: Documents) -> Computed:
    """Return the results of :func:`~medtasks.audit.scoring.rule_scores` with the samples' scores by document id."""
    return Computed(by_id, rule_scores(task, rule, list(by_id.values()), columns))


def recorded_values(task: TaskRun) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the numbers of a row of the results file; what the harness itself adds to a metric is left out."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for key, value in task.scores.items():
        metric, _, name = key.rpartition(",")
        if not metric or _ERROR in metric or metric == _BYPASS or not _is_number(value):
            continue
        error: Any = task.scores.get(f"{metric}{_ERROR},{name}")
        found.setdefault(name, {})[metric] = (value, float(error) if _is_number(error) else math.nan)
    return found


def _rows(recorded: TaskRun, task: TaskFile | None) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the recorded numbers; earlier versions of judged tasks named no filter, and the harness called it none."""
    values = recorded_values(recorded)
    own = list(task.rows) if task and task.family.extractor is None else []
    if _NO_FILTER in values and own:
        return {own[0] if name == _NO_FILTER else name: row for name, row in values.items()}
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rule_reports(
    recorded: TaskRun, task: TaskFile | None, computed: Mapping[str, Computed]
) -> tuple[tuple[RuleScores, ...], list[str]]:
    """Return the scores of a task (None: it is not ours) under each of its rules, and sentences on what does not agree.

    Recorded values count. Where they differ from those computed from the recorded replies, a sentence says so.
    """
    values = _rows(recorded, task)
    notes: list[str] = []
    reports = []
    for name in dict.fromkeys([*(task.rows if task else ()), *values, *computed]):
        if name not in values and name not in computed:
            continue
        rule, describes = _rule(recorded, task, name)
        again = (computed.get(name) or without_metrics(rule, {})).report
        row = values.get(name, {})
        scores = tuple(_scores(recorded, task, row, again))
        known = again.failures
        undefined = {
            one.metric: known.get(one.metric) or (NOT_DEFINED if task is None or task.is_computed else NOT_COMPUTED)
            for one in scores
            if math.isnan(one.value)
        }
        notes += [
            f"{recorded.name}, {name}, {one.metric}: the run recorded {_number(*row[one.metric])}, its recorded "
            f"replies give {_number(one.value, one.error)} under today's rule; the recorded score is shown."
            for one in again.scores
            if one.metric in row and not _agrees(row[one.metric], one)
        ]
        reports.append(replace(again, name=name, describes=describes, scores=scores, failures=undefined))
    return tuple(reports), notes


def _rule(recorded: TaskRun, task: TaskFile | None, name: str) -> tuple[str, str]:
    """Return the rule that the run names, whose version it does not tell, else the task's; and what it does."""
    row = task.rows.get(name) if task else None
    own = row and row.extractor
    rule = recorded.rules.get(name) or own or ""
    shown = task.versioned_rule(row) if task and row and own and not recorded.rules else rule
    try:
        return shown, extractor_of(rule).summary
    except UnknownName:
        return shown, ""


def _scores(
    recorded: TaskRun, task: TaskFile | None, values: Mapping[str, tuple[float, float]], again: RuleScores
) -> Iterator[Score]:
    """Yield the recorded values; one that the replies confirm has an interval that knows its number of units."""
    computed = {one.metric: one for one in again.scores}
    own = {one.name: one for one in task.metrics} if task else {}
    for metric in dict.fromkeys([*own, *values, *computed]):
        known = computed.get(metric)
        if known is not None and (metric not in values or _agrees(values[metric], known)):
            yield known
        elif metric in values:
            declared = own.get(metric) or undeclared(metric, recorded.higher_is_better.get(metric))
            yield with_interval(declared, Estimate(*values[metric]))


def _agrees(recorded: tuple[float, float], computed: Score) -> bool:
    value, error = recorded
    return _same(value, computed.value) and (
        computed.by_construction or math.isnan(error) or _same(error, computed.error)
    )


def _same(first: float, second: float) -> bool:
    return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=_SAME, abs_tol=_SAME)


def _number(value: float, error: float) -> str:
    return f"{value:.12g}" if math.isnan(error) else f"{value:.12g} (standard error {error:.12g})"
