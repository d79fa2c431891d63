"""Tables of a whole report: summary, tasks, and facts about the run."""

import math
from dataclasses import replace

from medtasks.report import wording
from medtasks.report.report_model import RunReport, TaskReport
from medtasks.report.sentences import image_gain, quotable_sentences
from medtasks.report.tables import NOT_DEFINED, Cell, Table, cells, name_cell
from medtasks.report.task_tables import task_tables
from medtasks.report.wording import INTERVALS, label, score_cell
from medtasks.runs.run_notes import moment
from medtasks.scores.score_model import RuleScores

_FINGERPRINT = 12  # characters of a fingerprint, enough to tell data apart
_IMAGE_GAIN = (
    "Image gain: the score minus that of the same model without the image, where that was run. Of pairs it is "
    "that of single answers, or of pairs over those with swapped images: set accuracy without images is 0 by "
    "construction."
)


def report_tables(report: RunReport) -> list[tuple[str, list[Table]]]:
    """Return all tables of a report.

    Returns:
        Heading and tables of each section. Tables without a row are left out.
    """
    summary = summary_table(report)
    sentences_by_task = quotable_sentences(report).items()
    quotes = [cells(name_cell(name), " ".join(parts)) for name, parts in sentences_by_task]
    sentences = Table(
        label("sentences"), "Sentences to quote.", "lp", cells("Task", "Sentences"), quotes
    )
    summary = replace(summary, notes=(*summary.notes, *report.notes))
    sections = [("Summary", [sentences, summary])]
    for task in report.tasks:
        sections.append((task.name, _tables_of_task(task, report.title)))
    rows = [cells(name_cell(name), why) for name, why in report.missing.items()]
    missing = Table(
        label("missing"),
        "Tasks that were asked for and have no results.",
        "lp",
        cells("Task", "Why"),
        rows,
    )
    sections.append(("Run", [missing, facts_table(report)]))
    with_rows = []
    for heading, tables in sections:
        if kept := [table for table in tables if table.rows]:
            with_rows.append((heading, kept))
    return with_rows


def _tables_of_task(task: TaskReport, title: str) -> list[Table]:
    """Return the tables of a task, the first of which describes it."""
    about = task.describes
    if about and about[-1] not in ".?!":
        about += "."
    data = ""
    if task.dataset:
        data = f"Data: {task.dataset}, fingerprint {task.fingerprint[:_FINGERPRINT] or 'not recorded'}."
    notes = [*task.draw, *task.missing]
    if task.withheld:
        notes.append("Credentialed data: only scores are shown.")
    tables = []
    for table in task_tables(task):
        caption = f"{table.caption} {task.name}, {title}."
        tables.append(replace(table, caption=caption, warnings=wording.warnings(task)))
    first = tables[0]
    caption = " ".join(filter(None, (first.caption, about, data)))
    tables[0] = replace(first, caption=caption, notes=(*first.notes, *notes))
    return tables


def summary_table(report: RunReport) -> Table:
    """Return the main score of each task under each rule."""
    rows = []
    pairs = []
    for task in report.tasks:
        tags = ["sample data"] if task.sample_data else []
        if task.withheld:
            tags.append("withheld")
        name = Cell(
            task.name, code=True, remark=", ".join(tags), link=wording.anchor(task.name)
        )
        remark = "not all" if task.answered < task.documents else ""
        answered = Cell(wording.questions(task), remark=remark)
        if not task.rules:
            rows.append(cells(name, "no score: see its section", *[""] * 5, answered))
        for rule in task.distinct_rules:
            rows.append(cells(name, *_summary_cells(task, rule), answered))
            if rule.pairs and (counts := wording.decided_pairs(rule.pairs)):
                pairs.append(
                    f"{task.name}, {rule.title}: pairs solved : wrong on both sides {counts}."
                )
    headings = cells(
        "Task", "Rule", "Metric", "Score", "Invalid", "Best baseline", "Image gain", "Questions"
    )
    return Table(
        label("summary"),
        f"Main scores: {report.title}.",
        "lllrrrrr",
        headings,
        rows,
        wording.warnings_by_task(report.tasks),
        (INTERVALS, _IMAGE_GAIN, *pairs),
    )


def _summary_cells(task: TaskReport, rule: RuleScores) -> list[str | Cell]:
    """Return rule, metric, score, invalid replies, best baseline and image gain."""
    score = rule.scores[0] if rule.scores else None
    metric = NOT_DEFINED
    direction = ""
    baseline = NOT_DEFINED
    mark = math.nan
    if score:
        metric = score.metric
        direction = "lower is better" if score.higher_is_better is False else ""
        if best := task.best_baseline(rule):
            mark = best[1]
            baseline = f"{wording.number(mark, score.share)} ({best[0].name})"
    gain, remark = image_gain(task, rule)
    change = NOT_DEFINED
    if gain:
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        change = wording.change_text(gain, share) + remark
    invalid = rule.estimates.get("invalid_rate")
    replies = sum(rule.reasons.values())
    invalid_share = math.nan
    if invalid:
        invalid_share = invalid.value
    elif replies:
        invalid_share = 1 - rule.reasons.get("ok", 0) / replies
    return [
        name_cell(rule.title),
        Cell(metric, code=True, remark=direction),
        score_cell(score, rule.failures.get(metric, ""), mark),
        wording.number(invalid_share),
        baseline,
        change,
    ]


def facts_table(report: RunReport) -> Table:
    """Return the recorded facts about a run."""
    own = {
        "model": report.model,
        "run": moment(report.run_at),
        "report": moment(report.created),
    }
    facts = {name: value for name, value in own.items() if value}
    rows = [cells(name, value) for name, value in {**facts, **report.facts}.items()]
    return Table(
        label("run"), "What is recorded about the run.", "lp", cells("Fact", "Value"), rows
    )
