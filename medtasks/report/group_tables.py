"""Tables of classes and of groups of samples: clinical numbers, and main scores by column."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    difference,
    label,
    measure_text,
    names_by,
    number,
    p_statement,
    p_value,
    quantity,
    score_cell,
    score_text,
)
from medtasks.scores.score_model import ColumnTest, Group, MetricScore, RuleScores

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
    """Yield two tables of classes under each rule that has them.

    Args:
        name: Name of the task.
        rules: Scores of the task; those without numbers by class are skipped.

    Yields:
        The cross table of targets and calls, then the clinical numbers, with a row per class.
    """
    for rule in rules:
        if not rule.by_class:
            continue
        rows = []
        for class_numbers in rule.by_class:
            for target, calls in (
                ("present", class_numbers.present),
                ("absent", class_numbers.absent),
            ):
                numbers = (calls.positive, calls.negative, calls.invalid, calls.failed)
                rows.append(cells(name_cell(class_numbers.name), target, *map(count, numbers)))
        yield Table(
            label(name, "cross", rule.name),
            f"Cross table by class, {rule.title}.",
            "llrrrr",
            cells("Class", "Target", "Called positive", "Called negative", "Invalid", "Failed"),
            rows,
        )
        yield _clinical_table(name, rule)


def _clinical_table(name: str, rule: RuleScores) -> Table:
    """Return the clinical numbers of a task's classes under a rule, and why some are undefined."""
    first = rule.by_class[0]
    prevalence = "" if first.prevalence is None else number(first.prevalence)
    titles = {}
    for metric, title in _NUMBERS.items():
        if metric in first.numbers:
            titles[metric] = title.format(prevalence=prevalence)
    rows = []
    undefined = []
    for class_numbers in rule.by_class:
        numbers = [_clinical_cell(class_numbers, metric) for metric in titles]
        rows.append((name_cell(class_numbers.name), *numbers))
        for metric, cause in class_numbers.undefined.items():
            undefined.append((f"{titles[metric]} of {class_numbers.name}", cause))
    notes = [INTERVALS, _CALLS]
    if prevalence:
        notes.append(_AT.format(prevalence=prevalence))
    for cause, names in names_by(undefined).items():
        notes.append(f"Not defined: {names}, because {cause}.")
    return Table(
        label(name, "clinical", rule.name),
        f"Clinical numbers by class, {rule.title}.",
        "l" + "r" * len(titles),
        cells("Class", *titles.values()),
        rows,
        notes=notes,
    )


def _clinical_cell(class_numbers: ClassNumbers, metric: str) -> Cell:
    value = class_numbers.numbers[metric]
    is_share = not metric.startswith("lr_")
    bar = (value.value, value.low, value.high) if is_share else ()
    text = measure_text(value, share=is_share)
    return Cell(text, remark=class_numbers.undefined.get(metric, ""), bar=bar)


def group_tables(task: TaskReport, column: str) -> Iterator[Table]:
    """Yield the scores by the groups of a column.

    Args:
        task: Report of the task.
        column: Name of the column, a key of ``task.group_sizes``.

    Yields:
        A table per metric, followed by the published results of the same groups if there are any.
    """
    rules = [rule for rule in task.distinct_rules if column in rule.groups]
    groups = groups_under(rules, column)
    metrics: dict[str, None] = {}
    for group in groups:
        metrics |= dict.fromkeys(score.metric for score in group.scores)
    small = small_groups(groups)
    headings = [Cell(column), Cell("Questions")]
    for rule in rules:
        headings += cells(name_cell(rule.title), f"{rule.title}: gap to all others")
    for metric in metrics:
        rows = []
        for name, size in task.group_sizes[column].items():
            remark = "too few to compare" if name in small else ""
            row = [
                Cell(name, remark=remark, link=_link_to_items(task, column, name)),
                Cell(count(size)),
            ]
            for rule in rules:
                row.append(score_cell(rule.group_score(column, name, metric)))
                row.append(_gap_cell(rule, column, name, metric))
            rows.append(tuple(row))
        yield Table(
            label(task.name, column, metric),
            f"{metric} by {column}.",
            "lr" + "rr" * len(rules),
            cells(*headings),
            rows,
            notes=[*_group_notes(task, rules, column, metric)],
        )
        published = published_group_table(task, column, metric)
        if published.rows:
            yield published


def groups_under(rules: Iterable[RuleScores], column: str) -> list[Group]:
    """Return the groups of a column under several rules, rule by rule.

    Args:
        rules: Rules that all have the column.
        column: Name of the column.
    """
    return list(chain.from_iterable(rule.groups[column] for rule in rules))


def small_groups(groups: Iterable[Group]) -> set[str]:
    """Return the names of the groups that are too small to be compared.

    Args:
        groups: Groups of one column. Those of a draw are never compared, whatever their size, and not among the names.
    """
    return {group.name for group in groups if not (group.compared or group.drawn)}


def _link_to_items(task: TaskReport, column: str, group: str) -> str:
    """Return the link that shows the items of a group on the page; empty if the report has no items."""
    if not task.items:
        return ""
    return urlencode({"task": task.name, "column": column, "group": group}, errors="replace")


def _group_notes(
    task: TaskReport,
    rules: Sequence[RuleScores],
    column: str,
    metric: str,
) -> Iterator[str]:
    """Yield notes on the intervals and tests of a column, and on groups that are not compared."""
    groups = groups_under(rules, column)
    if any(group.compared for group in groups):
        yield "Brackets hold intervals that hold for all compared groups together in 95 of 100 cases."
    for rule in rules:
        yield from _column_notes(rule, column, metric)
    missing = max(rule.counts.scored for rule in rules) - sum(task.group_sizes[column].values())
    if missing > 0:  # groups of a sample may be several
        yield f"In no group, without {column}: at least {quantity(missing, 'sample')}."
    scores = {}
    for group in groups:
        if not group.compared:
            scores[group.name] = rules[0].group_score(column, group.name, metric)
    yield from _uncompared_notes(scores, drawn=any(group.drawn for group in groups))


def _uncompared_notes(
    scores: Mapping[str, MetricScore | None],
    *,
    drawn: bool,
) -> Iterator[str]:
    """Yield notes on the scores of groups that are not compared, which may be those of drawn questions."""
    yield from cluster_notes(scores)
    with_interval = [name for name, score in scores.items() if score and score.clusters != 1]
    if drawn:
        yield "Groups of drawn questions are not compared; brackets hold 95 % intervals of their own."
    elif with_interval:
        yield (
            f"Worth less than 20 samples and not compared, with 95 % intervals of their own: "
            f"{', '.join(with_interval)}."
        )


def _gap_cell(rule: RuleScores, column: str, name: str, metric: str) -> Cell:
    """Return the gap of a group to all other samples, with the p-value of its test on the page.

    The cell is empty for a group that is not compared, and has no p-value (NaN) if its gap is not tested.
    """
    for group in rule.groups[column]:
        # Groups that are not compared have scores without gaps.
        for score, gap, p in zip(group.scores, group.gaps, group.p_holm, strict=False):
            if (group.name, score.metric) == (name, metric):
                text = difference(gap.value, gap.low, gap.high, score.share)
                return Cell(text, remark="" if math.isnan(p) else p_statement(p))
    return Cell("")


def finding(rule: RuleScores, column: str, test: ColumnTest) -> str:
    """Name the group that differs from all others.

    Args:
        rule: Scores under the rule that was tested.
        column: Column of the groups.
        test: Test of the column in one metric.

    Returns:
        A clause with the group and its gap, or that no group was shown to differ.
    """
    if not test.different:
        return "no group was shown to differ"
    gap = _gap_cell(rule, column, test.different, test.overall.metric)
    return f"{test.different} differs from all others by {gap.text}"


def _column_notes(rule: RuleScores, column: str, metric: str) -> Iterator[str]:
    """Yield the score of all samples, whether groups differ at all, and which one does."""
    number_of_tests = sum(map(len, rule.column_tests.values()))
    for test in rule.column_tests.get(column, ()):
        if test.overall.metric != metric:
            continue
        p = p_statement(test.p)
        if number_of_tests > 1:
            p += f", corrected for {number_of_tests} such tests {p_value(test.p_holm)}"
        yield (
            f"All questions, {rule.title}: {score_text(test.overall)}. Any difference between groups, {rule.title}: "
            f"{p}: {finding(rule, column, test)}."
        )
