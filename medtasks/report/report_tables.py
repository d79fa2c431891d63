"""Tables of a whole report: summary, comparisons with other runs, tasks, and facts about the run."""

import math
from dataclasses import replace

from medtasks.report import wording
from medtasks.report.report_model import RunComparison, RunReport
from medtasks.report.sentences import image_gain, quotable_sentences
from medtasks.report.tables import NOT_DEFINED, Cell, Table, cells, name_cell
from medtasks.report.task_tables import task_tables
from medtasks.report.wording import INTERVALS, label, score_cell
from medtasks.runs.run_notes import moment
from medtasks.stats.paired import ALPHA

_FINGERPRINT = 12  # characters of a fingerprint, enough to tell data apart


def report_tables(report: RunReport) -> list[tuple[str, list[Table]]]:
    """Return all tables of a report by section; those without a row are left out."""
    comparisons = [comparison_table(report, other, position) for position, other in enumerate(report.comparisons, 1)]
    summary = summary_table(report)
    quotes = [cells(name_cell(name), " ".join(parts)) for name, parts in quotable_sentences(report).items()]
    sentences = Table(label("sentences"), "Sentences to quote.", "lp", cells("Task", "Sentences"), quotes)
    sections = [("Summary", [sentences, replace(summary, notes=(*summary.notes, *report.notes)), *comparisons])]
    for task in report.tasks:
        tables = [
            replace(table, caption=f"{table.caption} {task.name}, {report.title}.", warnings=wording.warnings(task))
            for table in task_tables(task)
        ]
        about = task.describes + "." * bool(task.describes and task.describes[-1] not in ".?!")
        if task.dataset:
            fingerprint = f"fingerprint {task.fingerprint[:_FINGERPRINT] or 'not recorded'}"
            about = f"{about} Data: {task.dataset}, {fingerprint}.".lstrip()
        notes = (*tables[0].notes, *task.missing, *["Credentialed data: only scores are shown."] * task.withheld)
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
    rows, pairs = [], list[str]()
    for task in report.tasks:
        tags = ["sample data"] * task.sample_data + ["withheld"] * task.withheld
        name = Cell(task.name, code=True, remark=", ".join(tags), link=wording.anchor(task.name))
        answered = Cell(wording.questions(task), remark="not all" if task.answered < task.documents else "")
        if not task.rules:
            rows.append(cells(name, "no score: see its section", *[""] * 5, answered))
        for rule in task.distinct_rules:
            score = rule.scores[0] if rule.scores else None
            share, metric = bool(score and score.share), score.metric if score else NOT_DEFINED
            direction = "lower is better" if score and score.higher_is_better is False else ""
            better = Cell(metric, code=True, remark=direction)
            best = task.best_baseline(rule) if score else None
            baseline = f"{wording.number(best[1], share)} ({best[0].name})" if best else NOT_DEFINED
            gain, remark = image_gain(task, rule)
            gained = NOT_DEFINED
            if gain:
                gain_share = task.is_share(gain.metric, gain.score, gain.variant_score)
                gained = wording.difference(gain.difference, gain.low, gain.high, gain_share) + remark
            main = score_cell(score, rule.failures.get(metric, ""), best[1] if best else math.nan)
            replies = sum(rule.reasons.values())
            invalid = rule.estimates.get("invalid_rate")
            share_invalid = 1 - rule.reasons.get("ok", 0) / replies if replies else math.nan
            invalid_share = wording.number(invalid.value if invalid else share_invalid)
            rows.append(cells(name, name_cell(rule.title), better, main, invalid_share, baseline, gained, answered))
            if rule.pairs and (counts := wording.decided_pairs(rule.pairs)):
                pairs.append(f"{task.name}, {rule.title}: pairs solved : wrong on both sides {counts}.")
    explained = (
        "Image gain: the score minus that of the same model without the image, where that was run. Of pairs it is "
        "that of single answers, or of pairs over those with swapped images: set accuracy without images is 0 by "
        "construction."
    )
    headings = cells("Task", "Rule", "Metric", "Score", "Invalid", "Best baseline", "Image gain", "Questions")
    caption, notes = f"Main scores: {report.title}.", (INTERVALS, explained, *pairs)
    warnings = tuple(f"{task.name}: {text}" for task in report.tasks for text in wording.warnings(task))
    return Table(label("summary"), caption, "lllrrrrr", headings, rows, warnings, notes)


def comparison_table(report: RunReport, other: RunComparison, position: int) -> Table:
    """Return the tests between a run and another one."""
    tasks = {task.name: task for task in report.tasks}
    rows = []
    tests = [score for score in other.scores if not score.same_as]
    order = [*tasks, *(test.task for test in tests)]
    for score in sorted(tests, key=lambda test: order.index(test.task)):
        alike = [
            twin.rule
            for twin in other.scores
            if (twin.task, twin.metric, twin.same_as) == (score.task, score.metric, score.rule)
        ]
        names = map(name_cell, (score.task, ", ".join([score.rule, *alike]), score.metric))
        values = (wording.number(score.first, score.share), wording.number(score.second, score.share))
        difference = wording.difference(score.difference, score.low, score.high, score.share)
        test = (difference, score.test, wording.p_value(score.p), wording.p_value(score.p_holm))
        higher = "the other run is higher" if score.difference > 0 else "this run is higher"
        verdict = "no test" if math.isnan(score.p_holm) else higher if score.p_holm < ALPHA else "no difference shown"
        if report.primary:
            verdict = report.primary.lead(score.task, score.metric) + verdict
        samples = f"{wording.count(score.samples)} ({wording.count(score.units)})"
        rows.append(cells(*names, samples, *values, *test, verdict, wording.points(score.detectable, score.share)))
    headings = cells(
        *("Task", "Rule", "Metric", "Questions (units)", "This run", "Other run", "Other minus this"),
        *("Test", "p", "p, Holm", "Finding", "Detectable"),
    )
    rows = rows or [cells("nothing could be compared", *[""] * 11)]
    compared = [task for task in report.tasks if task.name in {score.task for score in other.scores}]
    warnings = tuple(f"{task.name}: {text}" for task in compared for text in wording.warnings(task))
    caption = f"{other.name} compared with this run, {report.title}."
    holm = (
        "p, Holm: corrected for all tests against other runs, unlike p and the intervals; classes are a family "
        "of their own."
    )
    smallest = (
        "the smallest true difference found with 80 % power at the level that the correction leaves; n/a also where so "
        "few units or differing samples could show none."
    )
    notes = (INTERVALS, holm, f"Detectable: {smallest}", *other.notes)
    return Table(label("comparison", str(position)), caption, "lllrrrrlrrlr", headings, rows, warnings, notes)


def facts_table(report: RunReport) -> Table:
    """Return the recorded facts about a run."""
    times = {"model": report.model, "run": moment(report.run_at), "report": moment(report.created)}
    facts = {**{name: value for name, value in times.items() if value}, **report.facts}
    rows = [cells(name, value) for name, value in facts.items()]
    return Table(label("run"), "What is recorded about the run.", "lp", cells("Fact", "Value"), rows)
