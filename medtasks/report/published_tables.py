"""Tables of published results below those of a run, over all questions and by group.

Published results have the digits that were printed, and are in percent where ours are.
"""

from collections.abc import Callable, Sequence

from medtasks.report.report_model import PublishedScore, TaskReport
from medtasks.report.tables import Cell, Row, Table, cells, name_cell
from medtasks.report.wording import label, score_cell
from medtasks.scores.score_model import MetricScore, RuleScores


def published_table(task: TaskReport) -> Table:
    """Return published results over all questions.

    Returns:
        A table with a row per model and source and a column per metric. It has no rows if nothing is published.
    """
    printed = {score.metric for score in task.published}
    metrics = [metric for metric in task.metric_names if metric in printed]
    rows = _rows(
        task, task.published, metrics, "metric", lambda rule, metric: rule.estimates.get(metric)
    )
    return Table(
        label(task.name, "published"),
        f"Published results ({_sources(task.published)}) and this run.",
        "l" + "r" * len(metrics),
        cells("Model", *map(name_cell, metrics)),
        rows if metrics else [],
        notes=_remarks(task.published),
        split=len(task.distinct_rules),
    )


def published_group_table(task: TaskReport, column: str, metric: str) -> Table:
    """Return published results by the groups of a column.

    Args:
        task: The task.
        column: Column of the groups.
        metric: Name of the metric.

    Returns:
        A table with a row per model and source and a column per group. It has no rows if nothing is published.
    """
    scores = []
    for score in task.published_groups:
        if score.column == column and score.metric == metric:
            scores.append(score)
    groups = list(dict.fromkeys(score.group for score in scores))
    rows = _rows(
        task,
        scores,
        groups,
        "group",
        lambda rule, group: rule.group_score(column, group, metric),
    )
    return Table(
        label(task.name, column, metric, "published"),
        f"Published {metric} by {column} ({_sources(scores)}) and this run.",
        "l" + "r" * len(groups),
        cells("Model", *groups),
        rows if groups else [],
        notes=_remarks(scores),
        split=len(task.distinct_rules),
    )


def _rows(
    task: TaskReport,
    scores: Sequence[PublishedScore],
    headings: Sequence[str],
    field: str,
    own_score: Callable[[RuleScores, str], MetricScore | None],
) -> list[Row]:
    """Return the rows of this run, one per rule, and those of published models.

    Args:
        task: The task with the rules of this run.
        scores: Published scores.
        headings: Headings of the columns after the first.
        field: Field of a published score that holds its heading.
        own_score: Function that returns this run's score under a rule and a heading.
    """
    remarks = _remarks(scores)
    rows = []
    for rule in task.distinct_rules:
        own_cells = [score_cell(own_score(rule, heading)) for heading in headings]
        rows.append(cells(f"This run, {rule.title}", *own_cells))
    by_place = {(score.model, score.source, getattr(score, field)): score for score in scores}
    models = dict.fromkeys((score.model, score.source, score.same_model) for score in scores)
    for model, source, same in models:
        row = [Cell(f"{model} (this model)" if same else model)]
        for heading in headings:
            score = by_place.get((model, source, heading))
            row.append(_published_cell(task, score, remarks) if score else Cell(""))
        rows.append(tuple(row))
    return rows


def _remarks(scores: Sequence[PublishedScore]) -> list[str]:
    return list(dict.fromkeys(score.remark for score in scores if score.remark))


def _sources(scores: Sequence[PublishedScore]) -> str:
    return "; ".join(dict.fromkeys(score.source for score in scores))


def _published_cell(task: TaskReport, score: PublishedScore, remarks: Sequence[str]) -> Cell:
    """Return a published score with the printed digits, in percent if ours are, and the number of its remark."""
    marks = (remarks.index(score.remark) + 1,) if score.remark else ()
    if not task.is_share(score.metric, score.value):
        return Cell(score.printed, marks=marks)
    digits = len(score.printed.partition(".")[2])
    if abs(float(score.printed) - score.value) <= 1e-9 and digits > 2:  # printed as a fraction
        digits -= 2
    return Cell(f"{100 * score.value:.{digits}f}%", marks=marks, bar=(score.value,))
