"""All tables of a report for an issue or a paper, apart from how they are written.

Of the run and of comparisons with other runs; of a task its scores, baselines, sanity variants, published results,
pairs, calibration and groups.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from medtasks.audit.report import rows as report_rows
from medtasks.audit.report.contents import PublishedScore, RunComparison, RunReport, Score, TaskReport
from medtasks.audit.report.words import (
    INTERVALS,
    NOT_DEFINED,
    VARIANTS,
    coded,
    count,
    difference,
    estimate,
    moment,
    number,
    p_value,
    points,
    questions,
    scored,
    warnings,
)

_SHOWN = 12  # characters of a fingerprint, enough to tell data apart


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str
    code: bool = False  # whether it is a name as one types it
    marks: tuple[int, ...] = ()  # numbers of the notes that are about it


@dataclass(frozen=True)
class Table:
    """One table."""

    label: str  # unique in the report; of letters, digits and "-_."
    caption: str
    columns: str  # a letter per column: l and r for left and right, p for long text
    headings: tuple[Cell, ...]
    rows: Sequence[tuple[Cell, ...]]  # cells, one per column
    warnings: tuple[str, ...] = ()  # what must not be overlooked; rows of the table, before the others
    notes: tuple[str, ...] = ()  # sentences below the table; a cell's marks count from 1
    ours: int = 0  # how many of the first rows are of this run, where others follow that are not; else 0


def name_cell(text: str) -> Cell:
    """Return a cell with a name as one types it."""
    return Cell(text, code=True)


def cells(*texts: str | Cell) -> tuple[Cell, ...]:
    """Return a cell per text; what is one already stays as it is."""
    return tuple(Cell(text) if isinstance(text, str) else text for text in texts)


def label(*parts: str) -> str:
    """Return a label that differs for different parts.

    Example:
        >>> label("a task", "scores")
        'a-20-task.scores'
    """
    return ".".join(coded(part, end="-") for part in parts)


def task_tables(task: TaskReport) -> list[Table]:
    """Return a task's tables; those about something that it does not have are without rows."""
    tables = [
        _scores(task),
        baselines_table(task),
        gains_table(task),
        thinking_table(task),
        lengths_table(task),
        repeats_table(task),
        _published(task),
        _pairs(task),
        _calibration(task),
    ]
    return [*tables, *_groups(task)]


def _scores(task: TaskReport) -> Table:
    width = max(1, len(task.rules))
    rows = [
        cells(name_cell(metric), *(scored(report_rows.score_of(rule, metric)) for rule in task.rules))
        for metric in report_rows.metrics_of(task)
    ]
    rules = [f"{rule.name}: {rule.rule}. {rule.describes}".rstrip(". ") + "." for rule in task.rules]
    causes: dict[tuple[str, str], list[str]] = {}
    for rule in task.rules:
        for metric, why in rule.failures.items():
            causes.setdefault((rule.name, why.rstrip(".")), []).append(metric)
    failures = [f"{', '.join(metrics)} under {rule} has no value: {why}." for (rule, why), metrics in causes.items()]
    withheld = ["Credentialed data: only scores are shown."] if task.withheld else []
    return Table(
        label=label(task.name, "scores"),
        caption="Scores.",
        columns="l" + "r" * width,
        headings=cells("Metric", *(name_cell(rule.name) for rule in task.rules), *["no scores"] * (not task.rules)),
        rows=[cells("questions", *[questions(task)] * width), *rows],
        notes=(INTERVALS, *rules, *failures, *task.missing, *withheld),
    )


def baselines_table(task: TaskReport) -> Table:
    """Return the scores of a task next to those of its baselines."""
    rows = []
    for metric in report_rows.baseline_metrics(task):
        for rule in task.rules:
            if score := report_rows.score_of(rule, metric):
                values = (one.scores.get(rule.name, {}).get(metric, float("nan")) for one in task.baselines)
                shown = (number(value, report_rows.is_share(task, metric, value)) for value in values)
                rows.append(cells(name_cell(metric), name_cell(rule.name), scored(score), *shown))
    tests = [
        f"This run minus {one.name}, {metric} ({rule}): "
        f"{difference(found.difference, found.low, found.high, report_rows.is_share(task, metric, found.first))}, "
        f"p = {p_value(found.p)} ({found.test}, on the same questions)."
        for one in task.baselines
        for rule, (metric, found) in one.tests.items()
    ]
    return Table(
        label=label(task.name, "baselines"),
        caption="Baselines that see no image.",
        columns="llr" + "r" * len(task.baselines),
        headings=cells("Metric", "Rule", "This run", *(one.name for one in task.baselines)),
        rows=rows,
        notes=(INTERVALS, *tests, *(f"{one.name}: {one.describes}" for one in task.baselines if one.describes)),
    )


def gains_table(task: TaskReport) -> Table:
    """Return the differences of a task from its sanity variants."""
    rows = []
    for gain in task.gains:
        share = report_rows.is_share(task, gain.metric, gain.score, gain.variant_score)
        values = (number(gain.score, share), number(gain.variant_score, share))
        gained = difference(gain.difference, gain.low, gain.high, share)
        names = (name_cell(gain.rule), name_cell(gain.metric))
        rows.append(cells(gain.variant, *names, count(gain.samples), *values, gained, p_value(gain.p)))
    return Table(
        label=label(task.name, "gains"),
        caption="Score minus that of a sanity variant on the same questions.",
        columns="lllrrrrr",
        headings=cells("Variant", "Rule", "Metric", "Questions", "Task", "Variant", "Difference", "p"),
        rows=rows,
        notes=(
            INTERVALS,
            *(f"{name}: {what}." for name, what in VARIANTS.items() if name in {gain.variant for gain in task.gains}),
        ),
    )


def thinking_table(task: TaskReport) -> Table:
    """Return the differences of a thinking variant from its direct form."""
    found = task.thinking
    rows = []
    for gain in found.gains if found else ():
        share = report_rows.is_share(task, gain.metric, gain.score, gain.variant_score)
        values = (number(gain.variant_score, share), number(gain.score, share))
        gained = difference(gain.difference, gain.low, gain.high, share)
        names = (name_cell(gain.rule), name_cell(gain.metric))
        rows.append(cells(*names, count(gain.samples), *values, gained, p_value(gain.p)))
    return Table(
        label=label(task.name, "thinking"),
        caption=f"Thinking against the direct form ({found.base if found else ''}), on the same questions.",
        columns="llrrrrr",
        headings=cells("Rule", "Metric", "Questions", "Direct", "Thinking", "Gain", "p"),
        rows=rows,
        notes=(INTERVALS,),
    )


def lengths_table(task: TaskReport) -> Table:
    """Return the score of a thinking variant by the length of its replies."""
    found = task.thinking
    rows = [
        cells(f"{count(one.least)} to {count(one.most)}", count(one.questions), scored(one.score))
        for one in (found.bins if found else ())
    ]
    said = [f"Reasoning never ended: {scored(found.truncated)}.", report_rows.said_of_lengths(found)] if found else []
    return Table(
        label=label(task.name, "lengths"),
        caption=f"{found.bins[0].score.metric} by length of the reply." if found and found.bins else "",
        columns="lrr",
        headings=cells(f"Length, {found.unit}" if found else "", "Questions", "Score"),
        rows=rows,
        notes=(INTERVALS, *said),
    )


def repeats_table(task: TaskReport) -> Table:
    """Return mean, spread and majority over the repeats of a task."""
    found = task.repeats
    rows = []
    for row in found.rows if found else ():
        for one in row.scores:
            ends = (number(one.values[0], one.share), number(one.values[-1], one.share))
            whole = Score(one.metric, one.mean, one.error, one.low, one.high, one.share, higher_is_better=None)
            numbers = (scored(whole), points(one.spread, one.share), *ends)
            rows.append(cells(name_cell(row.name), name_cell(one.metric), *numbers, scored(one.majority)))
    votes = [f"{report_rows.votes(row)}." for row in found.rows] if found else []
    seeds = ", ".join(map(str, found.seeds)) if found else ""
    return Table(
        label=label(task.name, "repeats"),
        caption=f"{found.repeats if found else 0} repeats with other seeds.",
        columns="llrrrrr",
        headings=cells("Rule", "Metric", "Mean of repeats", "Spread", "Lowest", "Highest", "Majority"),
        rows=rows,
        notes=(
            INTERVALS,
            f"Seeds: {seeds}. Interval of the mean: over questions and replies, each question averaged first. Spread: "
            f"standard deviation over repeats, of replies to the same questions alone. Majority: score of the answer "
            f"that most repeats gave, without failed replies and replies without an answer; another quantity than the "
            f"mean.",
            *(found.notes if found else ()),
            *votes,
        ),
    )


def _published(task: TaskReport) -> Table:
    """Set published results, a row per model and source, below those of this run."""
    metrics = [metric for metric in report_rows.metrics_of(task) if any(one.metric == metric for one in task.published)]
    remarks = report_rows.footnotes(task)
    known = {(one.model, one.source, one.metric): one for one in task.published}
    ours = [
        cells(f"This run, {rule.name}", *(scored(report_rows.score_of(rule, metric)) for metric in metrics))
        for rule in task.rules
    ]
    theirs = [
        cells(
            f"{model} (this model)" if same else model,
            *(_as_printed(task, known.get((model, source, metric)), remarks) for metric in metrics),
        )
        for model, source, same in dict.fromkeys((one.model, one.source, one.same_model) for one in task.published)
    ]
    sources = "; ".join(dict.fromkeys(one.source for one in task.published))
    return Table(
        label=label(task.name, "published"),
        caption=f"Published results ({sources}) and this run.",
        columns="l" + "r" * len(metrics),
        headings=cells("Model", *map(name_cell, metrics)),
        rows=[*ours, *theirs] if metrics else [],
        notes=tuple(remarks),
        ours=len(ours),
    )


def _as_printed(task: TaskReport, score: PublishedScore | None, remarks: Sequence[str]) -> Cell:
    """Return a published score with as many digits as were printed, in percent where ours is."""
    if score is None:
        return Cell("")
    marks = (remarks.index(score.remark) + 1,) if score.remark else ()
    if not report_rows.is_share(task, score.metric, score.value):
        return Cell(score.printed, marks=marks)
    digits = len(score.printed.partition(".")[2])
    in_percent = abs(float(score.printed) - score.value) > 1e-9 or digits <= 2
    return Cell(f"{100 * score.value:.{digits if in_percent else digits - 2}f}%", marks=marks)


def _pairs(task: TaskReport) -> Table:
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    rows = [cells(name, *map(count, numbers)) for name, _, numbers in report_rows.pair_rows(list(outcomes.values()))]
    cut = max((one.incomplete for one in outcomes.values()), default=0)
    return Table(
        label=label(task.name, "pairs"),
        caption="What became of the pairs.",
        columns="l" + "r" * len(outcomes),
        headings=cells("Outcome", *map(name_cell, outcomes)),
        rows=rows if outcomes else [],
        notes=(f"Of {count(cut)} more pairs only one image was asked; they are in no score of pairs.",) if cut else (),
    )


def _calibration(task: TaskReport) -> Table:
    rows = []
    for name, one in task.calibration.items():
        measures = (
            estimate(measure.value, measure.low, measure.high, False) for measure in (one.ece, one.brier, one.aurc)
        )
        accuracy = estimate(one.accuracy.value, one.accuracy.low, one.accuracy.high, True)
        rows.append(cells(name_cell(name), count(one.samples), accuracy, number(one.confidence), *measures))
    return Table(
        label=label(task.name, "calibration"),
        caption="Calibration of the likelihoods.",
        columns="lrrrrrr",
        headings=cells("Rule", "Questions", "Accuracy", "Confidence", "ECE", "Brier", "AURC"),
        rows=rows,
        notes=(INTERVALS, *dict.fromkeys(one.note for one in task.calibration.values())),
    )


def _groups(task: TaskReport) -> Iterator[Table]:
    for column, names in report_rows.group_columns(task).items():
        rules = [rule for rule in task.rules if column in rule.groups]
        for metric in report_rows.group_metrics(task, column):
            rows = []
            for name in names:
                scores = (scored(report_rows.group_score(rule, column, name, metric)) for rule in rules)
                rows.append(cells(name, count(report_rows.group_questions(task, column, name)), *scores))
            yield Table(
                label=label(task.name, column, metric),
                caption=f"{metric} by {column}.",
                columns="lr" + "r" * len(rules),
                headings=cells(column, "Questions", *(name_cell(rule.name) for rule in rules)),
                rows=rows,
                notes=(INTERVALS,),
            )


def report_tables(report: RunReport) -> list[tuple[str, list[Table]]]:
    """Return all tables of a report in sections with a heading; those without a row are left out."""
    comparisons = [comparison_table(report, other, position) for position, other in enumerate(report.comparisons, 1)]
    sections = [("Summary", [_summary(report), *comparisons])]
    for task in report.tasks:
        tables = [
            replace(table, caption=f"{table.caption} {task.name}, {report.title}.", warnings=warnings(task))
            for table in task_tables(task)
        ]
        tables[0] = replace(tables[0], caption=f"{tables[0].caption} {_about(task)}".rstrip())
        sections.append((task.name, tables))
    sections.append(("Run", [_missing(report), _facts(report)]))
    filled = [(heading, [table for table in tables if table.rows]) for heading, tables in sections]
    return [(heading, tables) for heading, tables in filled if tables]


def _about(task: TaskReport) -> str:
    described = task.describes + "." * bool(task.describes and task.describes[-1] not in ".?!")
    if not task.dataset:
        return described
    fingerprint = f"fingerprint {task.fingerprint[:_SHOWN]}" if task.fingerprint else "fingerprint not recorded"
    return f"{described} Data: {task.dataset}, {fingerprint}.".lstrip()


def _summary(report: RunReport) -> Table:
    rows = []
    for row in report_rows.summary(report):
        share = bool(row.score and row.score.share)
        names = map(name_cell, (row.task.name, row.rule.name, row.score.metric if row.score else NOT_DEFINED))
        baseline = f"{number(row.baseline[1], share)} ({row.baseline[0].name})" if row.baseline else NOT_DEFINED
        gain = difference(row.gain.difference, row.gain.low, row.gain.high, share) if row.gain else NOT_DEFINED
        rows.append(cells(*names, scored(row.score), number(row.invalid), baseline, gain, questions(row.task)))
    return Table(
        label=label("summary"),
        caption=f"Main scores: {report.title}.",
        columns="lllrrrrr",
        headings=cells("Task", "Rule", "Metric", "Score", "Invalid", "Best baseline", "Image gain", "Questions"),
        rows=rows,
        warnings=_warnings(report.tasks),
        notes=(
            INTERVALS,
            "Image gain: the score minus that of the same model without the image, where that was run.",
            *report.notes,
        ),
    )


def _warnings(tasks: Iterable[TaskReport]) -> tuple[str, ...]:
    return tuple(f"{task.name}: {text}" for task in tasks for text in warnings(task))


def comparison_table(report: RunReport, other: RunComparison, position: int) -> Table:
    """Return the tests between a run and another one."""
    tasks = {task.name: task for task in report.tasks}
    rows = []
    for one in [score for score in other.scores if not score.same_as]:
        share = report_rows.is_share(tasks.get(one.task), one.metric, one.first, one.second)
        names = map(name_cell, (one.task, report_rows.rules_of(other.scores, one), one.metric))
        values = (number(one.first, share), number(one.second, share))
        found = (difference(one.difference, one.low, one.high, share), one.test, p_value(one.p), p_value(one.p_holm))
        said = report_rows.finding(one)
        samples = f"{count(one.samples)} ({count(one.units)})"
        rows.append(cells(*names, samples, *values, *found, said, points(one.detectable, share)))
    return Table(
        label=label("comparison", str(position)),
        caption=f"{other.name} compared with this run, {report.title}.",
        columns="lllrrrrlrrlr",
        headings=cells(
            *("Task", "Rule", "Metric", "Questions (units)", "This run", "Other run", "Other minus this"),
            *("Test", "p", "p, Holm", "Finding", "Detectable"),
        ),
        rows=rows or [cells("nothing could be compared", *[""] * 11)],
        warnings=_warnings([task for task in report.tasks if task.name in {one.task for one in other.scores}]),
        notes=(
            INTERVALS,
            "p, Holm: corrected for all tests of the report.",
            "Detectable: the smallest true difference found with 80 % power.",
            *other.notes,
        ),
    )


def _facts(report: RunReport) -> Table:
    times = {"model": report.model, "run": moment(report.run_at), "report": moment(report.created)}
    facts = {**{name: value for name, value in times.items() if value}, **report.facts}
    rows = [cells(name, value) for name, value in facts.items()]
    return Table(label("run"), "What is recorded about the run.", "lp", cells("Fact", "Value"), rows)


def _missing(report: RunReport) -> Table:
    rows = [cells(name_cell(name), why) for name, why in report.missing.items()]
    return Table(label("missing"), "Tasks that were asked for and have no results.", "lp", cells("Task", "Why"), rows)
