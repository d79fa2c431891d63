"""Tables of classes and of groups of samples: clinical numbers, and main scores by column."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from urllib.parse import urlencode

from medtasks.metrics.clinical import ClassNumbers
from medtasks.report.published_tables import published_group_table
from medtasks.report.report_model import TaskReport
from medtasks.report.tables import Cell, Table, cells, name_cell
from medtasks.report.wording import (
    INTERVALS,
    cluster_notes,
    count,
    counted,
    difference,
    estimate,
    label,
    names_by,
    number,
    p_statement,
    p_value,
    score_cell,
    scored,
)
from medtasks.scores.score_model import ColumnTest, RuleScores

_NUMBERS = {  # heading by name of a clinical number
    "sensitivity": "Sens.",
    "specificity": "Spec.",
    "ppv": "PPV",
    "npv": "NPV",
    "lr_positive": "LR+",
    "lr_negative": "LR−",
    "ppv_adjusted": "PPV at {prevalence}",
    "npv_adjusted": "NPV at {prevalence}",
}
_CALLS = (
    "Sensitivity: called, of all answered samples with the class; specificity: not called, of those without it. An "
    "invalid reply calls nothing, so that it is wrong in both. PPV and NPV: right calls of all valid ones, at the "
    "prevalence of these data. LR+ and LR−: how many times as likely a positive or negative call is with the class as "
    "without it. Failed replies are in none of these."
)
_AT = "PPV and NPV at {prevalence}: for that prevalence, from the likelihood ratios."


def class_tables(name: str, rules: Iterable[RuleScores]) -> Iterator[Table]:
    """Yield cross table and clinical numbers of each class of a task, under each rule."""
    for rule in rules:
        if not rule.by_class:
            continue
        rows = []
        for of_class in rule.by_class:
            for target, calls in (("present", of_class.present), ("absent", of_class.absent)):
                numbers = map(count, (calls.positive, calls.negative, calls.invalid, calls.failed))
                rows.append(cells(name_cell(of_class.name), target, *numbers))
        headings = cells(
            "Class", "Target", "Called positive", "Called negative", "Invalid", "Failed"
        )
        caption = f"Cross table by class, {rule.title}."
        yield Table(label(name, "cross", rule.name), caption, "llrrrr", headings, rows)

        first = rule.by_class[0]
        prevalence = "" if first.prevalence is None else number(first.prevalence)
        columns = [metric for metric in _NUMBERS if metric in first.numbers]
        headings = cells(
            "Class", *(_NUMBERS[metric].format(prevalence=prevalence) for metric in columns)
        )
        rows = [
            cells(
                name_cell(of_class.name), *(_clinical_cell(of_class, metric) for metric in columns)
            )
            for of_class in rule.by_class
        ]
        why = names_by(
            (f"{_NUMBERS[metric].format(prevalence=prevalence)} of {of_class.name}", cause)
            for of_class in rule.by_class
            for metric, cause in of_class.undefined.items()
        )
        undefined = (f"Not defined: {names}, because {cause}." for cause, names in why.items())
        at = [_AT.format(prevalence=prevalence)] if prevalence else []
        caption, notes = (
            f"Clinical numbers by class, {rule.title}.",
            (INTERVALS, _CALLS, *at, *undefined),
        )
        columns_of_table = "l" + "r" * len(columns)
        yield Table(
            label(name, "clinical", rule.name),
            caption,
            columns_of_table,
            headings,
            rows,
            notes=notes,
        )


def _clinical_cell(of_class: ClassNumbers, metric: str) -> Cell:
    value, share = of_class.numbers[metric], not metric.startswith("lr_")
    bar = (value.value, value.low, value.high) if share else ()
    text = estimate(value.value, value.low, value.high, share)
    return Cell(text, remark=of_class.undefined.get(metric, ""), bar=bar)


def group_tables(task: TaskReport, column: str) -> Iterator[Table]:
    """Yield the scores by the groups of a column, a table per metric, and published ones after it."""
    rules = [rule for rule in task.distinct_rules if column in rule.groups]
    groups = list(chain.from_iterable(rule.groups[column] for rule in rules))
    small = {group.name for group in groups if not (group.compared or group.drawn)}
    scores = chain.from_iterable(group.scores for group in groups)
    for metric in dict.fromkeys(score.metric for score in scores):
        rows = []
        for name, size in task.group_sizes[column].items():
            query = {"task": task.name, "column": column, "group": name}
            remark = "too few to compare" if name in small else ""
            row = [
                Cell(
                    name,
                    remark=remark,
                    link=urlencode(query, errors="replace") if task.items else "",
                )
            ]
            row.append(Cell(count(size)))
            for rule in rules:
                row += [
                    score_cell(rule.group_score(column, name, metric)),
                    _gap_cell(rule, column, name, metric),
                ]
            rows.append(tuple(row))
        notes = _group_notes(task, rules, column, metric)
        headings = list(cells(column, "Questions"))
        for rule in rules:
            headings += cells(name_cell(rule.title), f"{rule.title}: gap to all others")
        columns = "lr" + "rr" * len(rules)
        name = label(task.name, column, metric)
        yield Table(
            name, f"{metric} by {column}.", columns, tuple(headings), rows, notes=tuple(notes)
        )
        published = published_group_table(task, column, metric)
        if published.rows:
            yield published


def _group_notes(
    task: TaskReport, rules: Sequence[RuleScores], column: str, metric: str
) -> Iterator[str]:
    """Yield notes on the intervals and tests of a column, and on groups that are not compared."""
    groups = [group for rule in rules for group in rule.groups[column]]
    if any(group.compared for group in groups):
        yield "Brackets hold intervals that hold for all compared groups together in 95 of 100 cases."
    for rule in rules:
        yield from _column_notes(rule, column, metric)
    missing = max(rule.counts.scored for rule in rules) - sum(task.group_sizes[column].values())
    if missing > 0:  # groups of a sample may be several
        yield f"In no group, without {column}: at least {counted(missing, 'sample')}."
    small = {
        group.name: rules[0].group_score(column, group.name, metric)
        for group in groups
        if not group.compared
    }
    yield from cluster_notes(small)
    if any(group.drawn for group in groups):
        yield "Groups of drawn questions are not compared; brackets hold 95 % intervals of their own."
    elif values := ", ".join(
        name for name, score in small.items() if score and score.clusters != 1
    ):
        yield f"Worth less than 20 samples and not compared, with 95 % intervals of their own: {values}."


def _gap_cell(rule: RuleScores, column: str, name: str, metric: str) -> Cell:
    """Return the gap of a group to all other samples, with the p-value of its test on the page."""
    for group in rule.groups[column]:
        for position, score in enumerate(group.scores):
            if (group.name, score.metric) == (name, metric) and position < len(group.gaps):
                gap, p = group.gaps[position], group.p_holm[position]
                remark = "" if math.isnan(p) else p_statement(p)
                return Cell(difference(gap.value, gap.low, gap.high, score.share), remark=remark)
    return Cell("")


def finding(rule: RuleScores, column: str, test: ColumnTest) -> str:
    """Name the group that differs from all others, with its difference, if the test supports it."""
    if not test.different:
        return "no group was shown to differ"
    gap = _gap_cell(rule, column, test.different, test.overall.metric)
    return f"{test.different} differs from all others by {gap.text}"


def _column_notes(rule: RuleScores, column: str, metric: str) -> Iterator[str]:
    """Yield the score of all samples, whether groups differ at all, and which one does."""
    number_of_tests = sum(map(len, rule.column_tests.values()))
    for test in rule.column_tests.get(column, ()):
        if test.overall.metric == metric:
            corrected = f", corrected for {number_of_tests} such tests {p_value(test.p_holm)}" * (
                number_of_tests > 1
            )
            yield (
                f"All questions, {rule.title}: {scored(test.overall)}. Any difference between groups, {rule.title}: "
                f"{p_statement(test.p)}{corrected}: {finding(rule, column, test)}."
            )
