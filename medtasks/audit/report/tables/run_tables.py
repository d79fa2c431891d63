"""All tables of a report: of the run, of its tasks, and of comparisons with other runs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from medtasks.audit.report.contents import RunComparison, RunReport, TaskReport
from medtasks.audit.report.page.rows import is_share, summary, task_named
from medtasks.audit.report.page.words import NOT_DEFINED, count, moment, number, p_value
from medtasks.audit.report.tables.cells import (
    INTERVALS,
    Cell,
    Table,
    cells,
    difference,
    label,
    name_cell,
    questions,
    scored,
    warnings,
)
from medtasks.audit.report.tables.task_tables import task_tables

_SHOWN = 12  # characters of a fingerprint, enough to tell data apart
_VERSIONS = ("medtasks", "lmms_eval", "torch", "transformers")  # the other ones stand in the table of the run


def report_tables(report: RunReport) -> list[tuple[str, list[Table]]]:
    """Return all tables of a report in sections with a heading; those without a row are left out."""
    sections = [("Summary", [_summary(report), *_comparisons(report)])]
    for task in report.tasks:
        about = f"{task.name}: {_about(report, task)}"
        tables = [
            replace(table, caption=f"{table.caption} {about}", warnings=warnings(task)) for table in task_tables(task)
        ]
        sections.append((task.name, tables))
    sections.append(("Run", [_missing(report), _facts(report)]))
    filled = [(heading, [table for table in tables if table.rows]) for heading, tables in sections]
    return [(heading, tables) for heading, tables in filled if tables]


def _about(report: RunReport, task: TaskReport) -> str:
    """Return what was evaluated, on which data, and by which versions."""
    described = [f"{task.describes.rstrip('.')}." if task.describes else "", _model(report)]
    if task.dataset:
        fingerprint = f"fingerprint {task.fingerprint[:_SHOWN]}" if task.fingerprint else "fingerprint not recorded"
        described.append(f"Data: {task.dataset}, {fingerprint}.")
    return " ".join(text for text in [*described, _versions(report)] if text)


def _model(report: RunReport) -> str:
    return f"Model: {report.model or 'not recorded'}."


def _versions(report: RunReport) -> str:
    recorded = report.facts.get("versions", "").split(", ")
    named = [version for version in recorded if version.partition(" ")[0] in _VERSIONS]
    return f"Versions: {', '.join(named)}." if named else ""


def _summary(report: RunReport) -> Table:
    rows = []
    for row in summary(report):
        share = bool(row.score and row.score.share)
        baseline = f"{number(row.baseline[1], share)} ({row.baseline[0].name})" if row.baseline else NOT_DEFINED
        gain = difference(row.gain.difference, row.gain.low, row.gain.high, share) if row.gain else NOT_DEFINED
        rows.append(
            (
                name_cell(row.task.name),
                name_cell(row.rule.name),
                name_cell(row.score.metric if row.score else NOT_DEFINED),
                *cells(scored(row.score), number(row.invalid), baseline, gain, questions(row.task)),
            )
        )
    return Table(
        label=label("summary"),
        caption=f"Main scores. {_model(report)} {_versions(report)}".rstrip(),
        columns="lllrrrrr",
        headings=cells("Task", "Rule", "Metric", "Score", "Invalid", "Best baseline", "Image gain", "Questions"),
        rows=tuple(rows),
        warnings=_warnings(report.tasks),
        notes=(
            INTERVALS,
            "Image gain: the score minus that of the same model without the image, where that was run.",
            *report.notes,
        ),
    )


def _warnings(tasks: Iterable[TaskReport]) -> tuple[str, ...]:
    return tuple(f"{task.name}: {text}" for task in tasks for text in warnings(task))


def _comparisons(report: RunReport) -> Iterator[Table]:
    for position, other in enumerate(report.comparisons, 1):
        yield _comparison(report, other, position)


def _comparison(report: RunReport, other: RunComparison, position: int) -> Table:
    rows = []
    for one in other.scores:
        share = is_share(task_named(report, one.task), one.metric)
        rows.append(
            (
                *map(name_cell, (one.task, one.rule, one.metric)),
                *cells(
                    f"{count(one.samples)} ({count(one.units)})",
                    number(one.first, share),
                    number(one.second, share),
                    difference(one.difference, one.low, one.high, share),
                    one.test,
                    p_value(one.p),
                    p_value(one.p_holm),
                    number(one.detectable, share),
                ),
            )
        )
    return Table(
        label=label("comparison", str(position)),
        caption=f"{other.name} compared with this run. {_model(report)} {_versions(report)}".rstrip(),
        columns="lllrrrrlrrr",
        headings=cells(
            *("Task", "Rule", "Metric", "Questions (units)", "This run", "Other run", "Other minus this"),
            *("Test", "p", "p, Holm", "Detectable"),
        ),
        rows=tuple(rows) or (cells("nothing could be compared", *[""] * 10),),
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
    rows = tuple(cells(name, value) for name, value in facts.items())
    return Table(label("run"), "What is recorded about the run.", "lp", cells("Fact", "Value"), rows)


def _missing(report: RunReport) -> Table:
    rows = tuple((name_cell(name), Cell(why)) for name, why in report.missing.items())
    return Table(label("missing"), "Tasks that were asked for and have no results.", "lp", cells("Task", "Why"), rows)
