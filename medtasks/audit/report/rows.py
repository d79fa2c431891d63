"""Selections from a report that its tables, its page and its figures share."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from medtasks.audit.report.contents import Baseline, PairOutcomes, RuleScores, RunReport, Score, TaskReport, Thinking
from medtasks.audit.report.wording import coded, count, p_value, scored
from medtasks.stats.calibration import Calibration, CoveragePoint

_COVERAGE_ROWS = 10


def best_baseline(task: TaskReport, rule: RuleScores) -> tuple[Baseline, float] | None:
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


def metrics_of(task: TaskReport) -> list[str]:
    """Return the names of a task's metrics, in the order in which the readings have them."""
    return list(dict.fromkeys(score.metric for rule in task.rules for score in rule.scores))


def is_share(task: TaskReport | None, metric: str, *values: float) -> bool:
    """Return whether values of a task's metric are fractions; False for a metric that is not ours."""
    declared = task.metrics.get(metric) if task else None
    return declared is not None and declared.is_share(*values)


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


def group_score(rule: RuleScores, column: str, name: str, metric: str) -> Score | None:
    """Return one metric of one group under one reading."""
    groups = [group for group in rule.groups.get(column, ()) if group.name == name]
    return next((score for group in groups for score in group.scores if score.metric == metric), None)


def is_compared(rules: Sequence[RuleScores], column: str, name: str) -> bool:
    """Return whether a group is large enough to be compared, under all readings."""
    return all(group.compared for rule in rules for group in rule.groups.get(column, ()) if group.name == name)


def said_of_groups(rules: Sequence[RuleScores], column: str, metric: str) -> tuple[str, ...]:
    """Return notes on the groups of a column: their intervals, the test of any difference, and those left out."""
    tests = []
    for rule in rules:
        of_metric = [
            p
            for group in rule.groups.get(column, ())
            for score, p in zip(group.scores, group.p_holm, strict=False)
            if score.metric == metric and not math.isnan(p)
        ]
        if of_metric:
            tests.append(f"Any difference between groups, {rule.name}: p = {p_value(min(of_metric))}.")
    names = dict.fromkeys(group.name for rule in rules for group in rule.groups.get(column, ()))
    small = ", ".join(name for name in names if not is_compared(rules, column, name))
    few = [f"Worth less than 20 samples and not compared, with 95 % intervals of their own: {small}."] if small else []
    return ("Brackets hold intervals that hold for all compared groups together in 95 of 100 cases.", *tests, *few)


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


def decided(outcomes: PairOutcomes) -> str:
    """Return the numbers of pairs that are solved and wrong on both sides, and the share solved; empty if unknown."""
    share = outcomes.solved_of_decided
    if share is None or math.isnan(share.value):
        return ""
    return f"{count(outcomes.both_right)} : {count(outcomes.both_wrong)}, {scored(share)}"


def calibrations(task: TaskReport) -> list[tuple[list[str], Calibration]]:
    """Return the calibrations of a task with the readings that they belong to; equal ones come once."""
    found: dict[str, tuple[list[str], Calibration]] = {}
    for name, calibration in task.calibration.items():
        found.setdefault(repr(calibration), ([], calibration))[0].append(name)  # NaN equals NaN
    return list(found.values())


def thinned(calibration: Calibration) -> list[CoveragePoint]:
    """Return about ten points of accuracy against coverage, from full coverage down."""
    points = calibration.coverage
    if len(points) <= _COVERAGE_ROWS:
        return list(points)
    wanted = [1 - step / _COVERAGE_ROWS for step in range(_COVERAGE_ROWS)]
    nearest = [min(points, key=lambda point: abs(point.coverage - share)) for share in wanted]
    return list(dict.fromkeys(nearest))


def anchor(name: str) -> str:
    """Return the name of a task as an id in the page.

    Example:
        >>> anchor("my task/1")
        'task-my-20task-2f1'
    """
    return "task-" + coded(name)


def why_undefined(rule: RuleScores, score: Score | None) -> str:
    """Return why a score has no value; empty if it has one."""
    return rule.failures.get(score.metric, "") if score and math.isnan(score.value) else ""
