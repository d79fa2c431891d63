"""What the harness recorded of a run, and its scores under each rule beside what the replies give.

Scores are computed again from the replies, or from the scores that a run recorded. What would load a model, ask a judge
or write a file is never computed again. Replies that do not fit their task raise RepliesError.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medtasks.audit.report.contents import Group, PairOutcomes, RuleReport, Score
from medtasks.audit.scoring import (
    Documents,
    Replies,
    by_group,
    count_kinds,
    few_clusters,
    rows_of,
    said_of,
    with_interval,
    wrong_answers,
)
from medtasks.errors import UnknownName
from medtasks.extract.registry import extractor_of
from medtasks.families.paired_choice import mean_over_answers, mean_over_pairs, paired_answers
from medtasks.metrics.metric import Estimate, evaluate, undeclared
from medtasks.metrics.metric import Score as SampleScore
from medtasks.metrics.pairs import TOTAL, PairedAnswer, ScoredPair, answers_by_pair, complete_pairs, count
from medtasks.runs.run import TaskRun
from medtasks.tasks.task_file import TaskFile

CATEGORIES = "categories"
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
    report: RuleReport  # what follows from them, without the rule's name in the task and what it does
    few_clusters: tuple[str, ...] = ()  # a sentence where intervals rest on few clusters


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to a task whose scores follow from replies alone, by name of the row."""
    computed = {}
    for name, (rule, by_id) in scores_by_id(task, documents, replies).items():
        found = of_scores(task, rule, by_id, documents)
        wrong = {} if task.family.paired else count_kinds(wrong_answers(task, documents, list(by_id.values()), replies))
        computed[name] = replace(found, report=replace(found.report, wrong_kinds=wrong))
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
    reasons = Counter(str(one["reason"]) for one in by_id.values() if "reason" in one)
    return Computed(by_id, RuleReport("", rule, "", (), dict(reasons.most_common())))


def of_scores(task: TaskFile, rule: str, by_id: Mapping[str, SampleScore], columns: Documents) -> Computed:
    """Return what follows from the scores of samples, by document id, of a task whose metrics follow from them alone.

    ``columns`` group the scores and are in the same order: documents, or scores with the same columns.
    """
    scores = list(task.family.settled(list(by_id.values())))
    estimates = evaluate(task.metrics, scores)
    table = tuple(with_interval(one, estimates[one.name]) for one in task.metrics)
    stopped = any(score.get("stops") for score in scores)
    why = next(said_of(task, columns, scores), "") if stopped else ""
    undefined = {one.metric: why for one in table if why and math.isnan(one.value)}
    report = replace(without_metrics(rule, by_id).report, scores=table, failures=undefined)
    if task.family.paired:
        answers = paired_answers(task.metrics[0].selection(scores))
        report = replace(report, groups={CATEGORIES: _categories(answers)}, pairs=_outcomes(answers))
    else:
        groups = by_group(task, columns, scores)
        report = replace(report, groups={column: tuple(found.values()) for column, found in groups.items()})
    return Computed(by_id, report, tuple(few_clusters(task.metrics, estimates)))


def _categories(answers: Sequence[PairedAnswer]) -> tuple[Group, ...]:
    """Return scores by medical area; a pair counts once for each of its images there, as in the benchmark."""
    by_category = {name: counts for name, counts in count(answers).items() if name != TOTAL}
    pairs = complete_pairs(answers)
    ordered = sorted(by_category, key=lambda name: (-by_category[name].images, name))
    return tuple(_category(name, by_category[name].images, answers, pairs) for name in ordered)


def _category(name: str, images: int, answers: Sequence[PairedAnswer], pairs: Sequence[ScoredPair]) -> Group:
    here = [one for one in answers if name in one.categories]
    images_of = {pair: sum(name in one.categories for one in (pair.first, pair.second)) for pair in pairs}
    solved = mean_over_pairs(
        "set_accuracy",
        lambda pair: float(pair.solved),
        units=lambda _: pairs,
        weights=lambda units: [float(images_of[pair]) for pair in units],
    )
    right = mean_over_answers("individual_accuracy", lambda one: one.correct, units=lambda _: answers_by_pair(here))
    scores = (with_interval(one, one.estimate(())) for one in (solved, right))
    return Group(name, images, tuple(scores))


def _outcomes(answers: Sequence[PairedAnswer]) -> PairOutcomes:
    pairs = complete_pairs(answers)
    valid = [pair for pair in pairs if pair.valid and not pair.solved]
    invalid = Counter((pair.first.value is None) + (pair.second.value is None) for pair in pairs)
    same = Counter(str(pair.first.value) for pair in valid if pair.confused)
    return PairOutcomes(
        both_right=sum(pair.solved for pair in pairs),
        swapped=sum((one.first.value, one.second.value) == (one.second.target, one.first.target) for one in valid),
        same=dict(sorted(same.items())),
        one_invalid=invalid[1],
        both_invalid=invalid[2],
        incomplete=len({one.pair_id for one in answers}) - len(pairs),
    )


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
) -> tuple[tuple[RuleReport, ...], list[str]]:
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
    recorded: TaskRun, task: TaskFile | None, values: Mapping[str, tuple[float, float]], again: RuleReport
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
    return _same(value, computed.value) and (math.isnan(error) or _same(error, computed.error))


def _same(first: float, second: float) -> bool:
    return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=_SAME, abs_tol=_SAME)


def _number(value: float, error: float) -> str:
    return f"{value:.12g}" if math.isnan(error) else f"{value:.12g} (standard error {error:.12g})"
