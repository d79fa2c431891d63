"""Tables of one task: scores, baselines, sanity variants, published results, pairs, calibration and groups."""

from collections.abc import Iterable, Iterator, Sequence

from medtasks.audit.report.contents import PublishedScore, RuleReport, TaskReport
from medtasks.audit.report.page.rows import (
    baseline_metrics,
    footnotes,
    group_columns,
    group_metrics,
    group_questions,
    group_score,
    is_share,
    metrics_of,
    pair_rows,
    score_of,
)
from medtasks.audit.report.page.words import count, number, p_value
from medtasks.audit.report.tables.cells import (
    INTERVALS,
    Cell,
    Table,
    cells,
    difference,
    estimate,
    label,
    name_cell,
    questions,
    scored,
)
from medtasks.stats.calibration import Measure


def task_tables(task: TaskReport) -> list[Table]:
    """Return a task's tables; those about something that it does not have are without rows."""
    tables = [_scores(task), _baselines(task), _gains(task), _published(task), _pairs(task), _calibration(task)]
    return [*tables, *_groups(task)]


def _scores(task: TaskReport) -> Table:
    rows = [
        (name_cell(metric), *(Cell(scored(score_of(rule, metric))) for rule in task.rules))
        for metric in metrics_of(task)
    ]
    rules = [f"{rule.name}: {rule.rule}. {rule.describes}".rstrip(". ") + "." for rule in task.rules]
    failures = [
        f"{metric} under {rule.name} has no value: {why.rstrip('.')}."
        for rule in task.rules
        for metric, why in rule.failures.items()
    ]
    withheld = ["Credentialed data: only scores are shown."] if task.withheld else []
    return Table(
        label=label(task.name, "scores"),
        caption="Scores.",
        columns="l" + "r" * max(1, len(task.rules)),
        headings=(Cell("Metric"), *([name_cell(rule.name) for rule in task.rules] or cells("no scores"))),
        rows=((Cell("questions"), *cells(*[questions(task)] * max(1, len(task.rules)))), *rows),
        notes=(INTERVALS, *rules, *failures, *task.missing, *withheld),
    )


def _baselines(task: TaskReport) -> Table:
    rows = [
        (
            name_cell(metric),
            name_cell(rule.name),
            Cell(scored(score)),
            *(
                Cell(number(one.scores.get(rule.name, {}).get(metric, float("nan")), score.share))
                for one in task.baselines
            ),
        )
        for metric in baseline_metrics(task)
        for rule in task.rules
        if (score := score_of(rule, metric))
    ]
    return Table(
        label=label(task.name, "baselines"),
        caption="Baselines that see no image.",
        columns="llr" + "r" * len(task.baselines),
        headings=(*cells("Metric", "Rule", "This run"), *cells(*(one.name for one in task.baselines))),
        rows=tuple(rows),
        notes=(INTERVALS, *(f"{one.name}: {one.describes}" for one in task.baselines if one.describes)),
    )


def _gains(task: TaskReport) -> Table:
    rows = []
    for gain in task.gains:
        share = is_share(task, gain.metric)
        rows.append(
            (
                Cell(gain.variant),
                name_cell(gain.rule),
                name_cell(gain.metric),
                *cells(
                    count(gain.samples),
                    number(gain.score, share),
                    number(gain.variant_score, share),
                    difference(gain.difference, gain.low, gain.high, share),
                    p_value(gain.p),
                ),
            )
        )
    return Table(
        label=label(task.name, "gains"),
        caption="Score minus that of a sanity variant on the same questions.",
        columns="lllrrrrr",
        headings=cells("Variant", "Rule", "Metric", "Questions", "Task", "Variant", "Difference", "p"),
        rows=tuple(rows),
        notes=(INTERVALS,),
    )


def _published(task: TaskReport) -> Table:
    """Set published results, a model per row, below those of this run."""
    metrics = [metric for metric in metrics_of(task) if any(one.metric == metric for one in task.published)]
    remarks = footnotes(task)
    found = {(one.model, one.metric): one for one in task.published}
    ours = [
        (Cell(f"This run, {rule.name}"), *(Cell(scored(score_of(rule, metric))) for metric in metrics))
        for rule in task.rules
    ]
    theirs = [
        (Cell(model), *(_as_printed(task, found.get((model, metric)), remarks) for metric in metrics))
        for model in dict.fromkeys(one.model for one in task.published)
    ]
    sources = "; ".join(dict.fromkeys(one.source for one in task.published))
    return Table(
        label=label(task.name, "published"),
        caption=f"Published results ({sources}) and this run.",
        columns="l" + "r" * len(metrics),
        headings=(Cell("Model"), *map(name_cell, metrics)),
        rows=(*ours, *theirs) if metrics else (),
        notes=tuple(remarks),
        ours=len(ours),
    )


def _as_printed(task: TaskReport, score: PublishedScore | None, remarks: Sequence[str]) -> Cell:
    """Return a published score with as many digits as were printed, in percent where ours is."""
    if score is None:
        return Cell("")
    marks = (remarks.index(score.remark) + 1,) if score.remark else ()
    if not is_share(task, score.metric):
        return Cell(score.printed, marks=marks)
    digits = len(score.printed.partition(".")[2])
    in_percent = abs(float(score.printed) - score.value) > 1e-9 or digits <= 2
    return Cell(f"{100 * score.value:.{digits if in_percent else digits - 2}f}%", marks=marks)


def _pairs(task: TaskReport) -> Table:
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    rows = [(Cell(name), *cells(*map(count, numbers))) for name, _, numbers in pair_rows(list(outcomes.values()))]
    cut = max((one.incomplete for one in outcomes.values()), default=0)
    return Table(
        label=label(task.name, "pairs"),
        caption="What became of the pairs.",
        columns="l" + "r" * len(outcomes),
        headings=(Cell("Outcome"), *map(name_cell, outcomes)),
        rows=tuple(rows) if outcomes else (),
        notes=(f"Of {count(cut)} more pairs only one image was asked; they are in no score of pairs.",) if cut else (),
    )


def _calibration(task: TaskReport) -> Table:
    def measured(measure: Measure, share: bool = False) -> str:
        return estimate(measure.value, measure.low, measure.high, share)

    rows = [
        (
            name_cell(name),
            *cells(count(one.samples), measured(one.accuracy, True), number(one.confidence)),
            *cells(*(measured(measure) for measure in (one.ece, one.brier, one.aurc))),
        )
        for name, one in task.calibration.items()
    ]
    return Table(
        label=label(task.name, "calibration"),
        caption="Calibration of the likelihoods.",
        columns="lrrrrrr",
        headings=cells("Rule", "Questions", "Accuracy", "Confidence", "ECE", "Brier", "AURC"),
        rows=tuple(rows),
        notes=(INTERVALS, *dict.fromkeys(one.note for one in task.calibration.values())),
    )


def _groups(task: TaskReport) -> Iterator[Table]:
    for column, names in group_columns(task).items():
        rules = [rule for rule in task.rules if column in rule.groups]
        for metric in group_metrics(task, column):
            yield Table(
                label=label(task.name, column, metric),
                caption=f"{metric} by {column}.",
                columns="lr" + "r" * len(rules),
                headings=(Cell(column), Cell("Questions"), *(name_cell(rule.name) for rule in rules)),
                rows=tuple(_group_row(task, rules, column, name, metric) for name in names),
                notes=(INTERVALS,),
            )


def _group_row(task: TaskReport, rules: Iterable[RuleReport], column: str, name: str, metric: str) -> tuple[Cell, ...]:
    scores = (scored(group_score(rule, column, name, metric)) for rule in rules)
    return (Cell(name), Cell(count(group_questions(task, column, name))), *cells(*scores))
