"""Rows of the page's tables that are more than a list of what a report says."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from medtasks.audit.report.contents import (
    Baseline,
    ComparedScore,
    Gain,
    PairOutcomes,
    RepeatedRow,
    RuleReport,
    RunReport,
    Score,
    TaskReport,
    Thinking,
)
from medtasks.audit.report.words import coded
from medtasks.stats.calibration import Calibration, CoveragePoint

INVALID_RATE = "invalid_rate"
_LEVEL = 0.05
_COVERAGE_ROWS = 10


@dataclass(frozen=True)
class SummaryRow:
    """One reading of one task in the summary."""

    task: TaskReport
    rule: RuleReport
    score: Score | None  # main metric; None where nothing is scored
    invalid: float  # share of invalid replies; NaN where it is not known
    baseline: tuple[Baseline, float] | None  # the best of those that do not look, and its value
    gain: Gain | None  # what the pictures add; None without a blind variant


@dataclass(frozen=True)
class PublishedRow:
    """One row of a list of results; of this run if ``score`` is given."""

    model: str
    value: float
    printed: str
    source: str
    footnote: int
    score: Score | None


@dataclass(frozen=True)
class PublishedList:
    """Results of one metric, best first."""

    metric: str
    share: bool
    higher_is_better: bool
    rows: tuple[PublishedRow, ...]


def summary(report: RunReport) -> list[SummaryRow]:
    """Return a row per task and reading."""
    return [_summary_row(task, rule) for task in report.tasks for rule in task.rules]


def _summary_row(task: TaskReport, rule: RuleReport) -> SummaryRow:
    score = rule.scores[0] if rule.scores else None
    gains = [
        one for one in task.gains if score and (one.variant, one.rule, one.metric) == ("blind", rule.name, score.metric)
    ]
    return SummaryRow(
        task, rule, score, _invalid(rule), best_baseline(task, rule) if score else None, gains[0] if gains else None
    )


def _invalid(rule: RuleReport) -> float:
    for score in rule.scores:
        if score.metric == INVALID_RATE:
            return score.value
    replies = sum(rule.reasons.values())
    return 1 - rule.reasons.get("ok", 0) / replies if replies else math.nan


def best_baseline(task: TaskReport, rule: RuleReport) -> tuple[Baseline, float] | None:
    """Return which baseline does best at the main metric of a reading, and its value."""
    main = rule.scores[0]
    found = [(one, one.scores.get(rule.name, {}).get(main.metric, math.nan)) for one in task.baselines]
    defined = [entry for entry in found if not math.isnan(entry[1])]
    sign = -1 if main.higher_is_better is False else 1
    return max(defined, key=lambda entry: sign * entry[1], default=None)


def shows_thinking(report: RunReport) -> bool:
    """Return whether anything is known of thinking variants or repeats."""
    return any(task.thinking or task.repeats for task in report.tasks)


def said_of_lengths(thinking: Thinking) -> str:
    """Return how long replies are, in one sentence; empty where nobody knows."""
    if math.isnan(thinking.mean):
        return ""
    what = "Tokens per reply" if thinking.unit == "tokens" else "Words of reasoning per reply (tokens were not counted)"
    said = f"{what}: mean {thinking.mean:,.0f}, median {thinking.median:,.0f}, longest {thinking.most:,.0f}"
    if thinking.at_limit is None:
        return f"{said}."
    return f"{said}; {thinking.at_limit:,} of {thinking.answered:,} used up the {thinking.limit:,} new tokens."


def votes(row: RepeatedRow) -> str:
    """Return how many samples, ties and failures are behind the majority under one reading."""
    said = f"{row.samples} samples, {row.ties} ties, {row.failed_replies} failed replies"
    return f"{row.name}: {said}, {row.failed_samples} failed samples"


def metrics_of(task: TaskReport) -> list[str]:
    """Return the names of a task's metrics, in the order in which the readings have them."""
    return list(dict.fromkeys(score.metric for rule in task.rules for score in rule.scores))


def score_of(rule: RuleReport, metric: str) -> Score | None:
    """Return one metric under one reading."""
    return next((score for score in rule.scores if score.metric == metric), None)


def is_share(task: TaskReport | None, metric: str, *values: float) -> bool:
    """Return whether values of a task's metric are fractions; False for a metric that is not ours."""
    declared = task.metrics.get(metric) if task else None
    return declared is not None and declared.is_share(*values)


def baseline_metrics(task: TaskReport) -> list[str]:
    """Return the metrics that any baseline has."""
    known = {metric for one in task.baselines for scores in one.scores.values() for metric in scores}
    return [metric for metric in metrics_of(task) if metric in known]


def footnotes(task: TaskReport) -> list[str]:
    """Return the distinct remarks on published results."""
    return list(dict.fromkeys(one.remark for one in task.published if one.remark))


def published_lists(task: TaskReport) -> list[PublishedList]:
    """Return published results with those of this run among them, a list per metric."""
    remarks = footnotes(task)
    found = []
    for metric in dict.fromkeys(one.metric for one in task.published):
        rows = []
        for one in task.published:
            if one.metric == metric:
                footnote = remarks.index(one.remark) + 1 if one.remark else 0
                name = f"{one.model} (this model)" if one.same_model else one.model
                rows.append(PublishedRow(name, one.value, one.printed, one.source, footnote, None))
        ours = [(rule, score) for rule in task.rules if (score := score_of(rule, metric))]
        rows += [PublishedRow(f"This run, {rule.name}", one.value, "", "", 0, one) for rule, one in ours]
        upward = not ours or ours[0][1].higher_is_better is not False
        sign = -1 if upward else 1
        rows.sort(key=lambda row: (True, 0.0) if math.isnan(row.value) else (False, sign * row.value))
        share = is_share(task, metric, *(row.value for row in rows))
        found.append(PublishedList(metric, share, upward, tuple(rows)))
    return found


def group_columns(task: TaskReport) -> dict[str, list[str]]:
    """Return the names of all groups by column, in the order in which the readings have them."""
    found: dict[str, dict[str, None]] = {}
    for rule in task.rules:
        for column, groups in rule.groups.items():
            found.setdefault(column, {}).update(dict.fromkeys(group.name for group in groups))
    return {column: list(names) for column, names in found.items()}


def group_metrics(task: TaskReport, column: str) -> list[str]:
    """Return the metrics that the groups of a column have."""
    groups = [group for rule in task.rules for group in rule.groups.get(column, ())]
    return list(dict.fromkeys(score.metric for group in groups for score in group.scores))


def group_questions(task: TaskReport, column: str, name: str) -> int:
    """Return how many questions of a group were answered."""
    return max(
        (group.questions for rule in task.rules for group in rule.groups.get(column, ()) if group.name == name),
        default=0,
    )


def group_score(rule: RuleReport, column: str, name: str, metric: str) -> Score | None:
    """Return one metric of one group under one reading."""
    groups = [group for group in rule.groups.get(column, ()) if group.name == name]
    return next((score for group in groups for score in group.scores if score.metric == metric), None)


def names_in(mappings: Iterable[Mapping[str, int]]) -> list[str]:
    """Return the keys that are counted in any of several mappings, the most frequent first."""
    counts = sum(map(Counter, mappings), Counter[str]())
    return sorted(counts, key=lambda name: (-counts[name], name))


def pair_rows(outcomes: Sequence[PairOutcomes]) -> list[tuple[str, str, list[int]]]:
    """Return what can become of a pair: its name, what it means, and how often under each reading."""
    rows = [("Both right", "Both images answered rightly.", [one.both_right for one in outcomes])]
    for letter in sorted({letter for one in outcomes for letter in one.same}):
        same = [one.same.get(letter, 0) for one in outcomes]
        rows.append((f"Both answered {letter}", "The two images were not told apart.", same))
    return [
        *rows,
        ("Swapped", "Each image got the answer of the other.", [one.swapped for one in outcomes]),
        ("One invalid", "One of the two replies has no valid answer.", [one.one_invalid for one in outcomes]),
        ("Both invalid", "Neither reply has a valid answer.", [one.both_invalid for one in outcomes]),
    ]


def calibrations(task: TaskReport) -> list[tuple[list[str], Calibration]]:
    """Return the calibrations of a task with the readings that they belong to; equal ones come once."""
    found: dict[str, tuple[list[str], Calibration]] = {}
    for name, calibration in task.calibration.items():
        found.setdefault(repr(calibration), ([], calibration))[0].append(name)  # NaN equals NaN
    return list(found.values())


def complete_pairs(outcomes: PairOutcomes) -> int:
    """Return how many pairs are in the scores."""
    same = sum(outcomes.same.values())
    return outcomes.both_right + outcomes.swapped + same + outcomes.one_invalid + outcomes.both_invalid


def thinned(calibration: Calibration) -> list[CoveragePoint]:
    """Return about ten points of accuracy against coverage, from full coverage down."""
    points = calibration.coverage
    if len(points) <= _COVERAGE_ROWS:
        return list(points)
    wanted = [1 - step / _COVERAGE_ROWS for step in range(_COVERAGE_ROWS)]
    nearest = [min(points, key=lambda point: abs(point.coverage - share)) for share in wanted]
    return list(dict.fromkeys(nearest))


def finding(score: ComparedScore) -> str:
    """Return what a test says at a level of 5 %, corrected for all tests."""
    if math.isnan(score.p_holm):
        return "no test"
    if score.p_holm >= _LEVEL:
        return "no difference shown"
    return "the other run is higher" if score.difference > 0 else "this run is higher"


def rules_of(scores: Sequence[ComparedScore], test: ComparedScore) -> str:
    """Return the rules that a test is of: its own, and those with the same value of every sample."""
    alike = [one.rule for one in scores if (one.task, one.metric, one.same_as) == (test.task, test.metric, test.rule)]
    return ", ".join([test.rule, *alike])


def anchor(name: str) -> str:
    """Return the name of a task as an id in the page.

    Example:
        >>> anchor("my task/1")
        'task-my-20task-2f1'
    """
    return "task-" + coded(name)
