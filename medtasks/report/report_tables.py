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


def report_tables(report: RunReport) -> list[tuple[str, list[Table]]]:
    """Return all tables of a report by section; those without a row are left out."""
    summary = summary_table(report)
    quotes = [
        cells(name_cell(name), " ".join(parts))
        for name, parts in quotable_sentences(report).items()
    ]
    sentences = Table(
        label("sentences"), "Sentences to quote.", "lp", cells("Task", "Sentences"), quotes
    )
    sections = [("Summary", [sentences, replace(summary, notes=(*summary.notes, *report.notes))])]
    for task in report.tasks:
        tables = [
            replace(
                table,
                caption=f"{table.caption} {task.name}, {report.title}.",
                warnings=wording.warnings(task),
            )
            for table in task_tables(task)
        ]
        about = task.describes + "." * bool(task.describes and task.describes[-1] not in ".?!")
        if task.dataset:
            fingerprint = f"fingerprint {task.fingerprint[:_FINGERPRINT] or 'not recorded'}"
            about = f"{about} Data: {task.dataset}, {fingerprint}.".lstrip()
        notes = (
            *tables[0].notes,
            *task.draw,
            *task.missing,
            *["Credentialed data: only scores are shown."] * task.withheld,
        )
        tables[0] = replace(tables[0], caption=f"{tables[0].caption} {about}".rstrip(), notes=notes)
        sections.append((task.name, tables))
    rows = [cells(name_cell(name), why) for name, why in report.missing.items()]
    caption = "Tasks that were asked for and have no results."
    missing = Table(label("missing"), caption, "lp", cells("Task", "Why"), rows)
    sections.append(("Run", [missing, facts_table(report)]))
    filled = [(heading, [table for table in tables if table.rows]) for heading, tables in sections]
    return [(heading, tables) for heading, tables in filled if tables]


def summary_table(report: RunReport) -> Table:
    """Return the main score of each task under each rule."""
    rows = []
    pairs = []
    for task in report.tasks:
        tags = ["sample data"] if task.sample_data else []
        if task.withheld:
            tags.append("withheld")
        name = Cell(task.name, code=True, remark=", ".join(tags), link=wording.anchor(task.name))
        answered = Cell(
            wording.questions(task), remark="not all" if task.answered < task.documents else ""
        )
        if not task.rules:
            rows.append(cells(name, "no score: see its section", *[""] * 5, answered))
        for rule in task.distinct_rules:
            rows.append(cells(name, *_summary_cells(task, rule), answered))
            if rule.pairs and (counts := wording.decided_pairs(rule.pairs)):
                pairs.append(
                    f"{task.name}, {rule.title}: pairs solved : wrong on both sides {counts}."
                )
    explained = (
        "Image gain: the score minus that of the same model without the image, where that was run. Of pairs it is "
        "that of single answers, or of pairs over those with swapped images: set accuracy without images is 0 by "
        "construction."
    )
    headings = cells(
        "Task", "Rule", "Metric", "Score", "Invalid", "Best baseline", "Image gain", "Questions"
    )
    caption = f"Main scores: {report.title}."
    notes = (INTERVALS, explained, *pairs)
    return Table(
        label("summary"),
        caption,
        "lllrrrrr",
        headings,
        rows,
        wording.warnings_by_task(report.tasks),
        notes,
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
    gained = NOT_DEFINED
    if gain:
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        gained = wording.difference(gain.difference, gain.low, gain.high, share) + remark
    invalid = rule.estimates.get("invalid_rate")
    replies = sum(rule.reasons.values())
    invalid_share = math.nan
    if invalid:
        invalid_share = invalid.value
    elif replies:
        invalid_share = 1 - rule.reasons.get("ok", 0) / replies
    main = score_cell(score, rule.failures.get(metric, ""), mark)
    title = name_cell(rule.title)
    return [
        title,
        Cell(metric, code=True, remark=direction),
        main,
        wording.number(invalid_share),
        baseline,
        gained,
    ]


def facts_table(report: RunReport) -> Table:
    """Return the recorded facts about a run."""
    times = {"model": report.model, "run": moment(report.run_at), "report": moment(report.created)}
    facts = {**{name: value for name, value in times.items() if value}, **report.facts}
    rows = [cells(name, value) for name, value in facts.items()]
    return Table(
        label("run"), "What is recorded about the run.", "lp", cells("Fact", "Value"), rows
    )
