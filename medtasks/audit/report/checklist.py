"""Checklist pages: subjects of a reporting checklist in our own words, next to the facts that a run recorded.

A page is an aid for filling in the published checklist. It never says that a study complies with one.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from medtasks.audit.report import wording
from medtasks.audit.report.contents import RunReport, TaskReport
from medtasks.audit.report.page import TEMPLATES, write_rendered
from medtasks.audit.report.sentences import quotable_sentences
from medtasks.audit.report.task_tables import label
from medtasks.audit.report.wording import count, difference, names_by, number, p_value, pair_rows, questions, scored
from medtasks.audit.tables import Cell, Table, cells
from medtasks.errors import unknown_name
from medtasks.home import packaged_facts

AUTHORS = "to be stated by the authors"
AID = (
    "This page is an aid for filling in the published checklist, whose own wording counts. It is no statement of "
    "compliance: it lists what one run recorded, in our own words, and leaves the rest to the authors."
)
_CLINICAL = ("sensitivity", "specificity", "ppv", "npv", "auroc")  # beginnings of names of metrics
_PUBLISHED = 5  # results named; the report has all


@cache
def checklists() -> Mapping[str, Any]:
    """Return ``checklists.toml``, which explains itself."""
    return packaged_facts(__package__, "checklists")


def checklist_table(report: RunReport, name: str) -> Table:
    """Return a checklist with what a run proves of each item. UnknownName if there is no such checklist."""
    known = checklists()["checklists"]
    if name not in known:
        raise unknown_name("checklist", name, known)
    facts, rows = run_facts(report), []
    for item, subject, keys, rest in known[name]["items"]:
        lines = [line for key in keys.split() for line in facts[key]]
        if rest or not lines:
            lines.append(f"{AUTHORS}: {rest}" if rest else AUTHORS)
        rows.append(cells(item, subject, Cell("\n".join(lines))))
    caption = f"{known[name]['title']}: what this run proves, {report.title}. Numbers follow {known[name]['source']}."
    headings = cells("Item", "Subject, in our words", "From this run")
    warnings = tuple(f"{task.name}: {text}" for task in report.tasks for text in wording.warnings(task))
    return Table(label("checklist", name), caption, "llp", headings, rows, warnings, (AID,))


def write_checklist(report: RunReport, name: str, path: Path) -> None:
    """Write a checklist as a page of its own. Raises UnknownName, or MedTasksError if it cannot be written."""
    from markupsafe import Markup

    table, style = checklist_table(report, name), (TEMPLATES / "page.css").read_text(encoding="utf-8")
    title = checklists()["checklists"][name]["title"]
    write_rendered("checklist", path, report=report, heading=title, table=table, aid=AID, style=Markup(style))


def run_facts(report: RunReport) -> dict[str, list[str]]:
    """Return everything that a run proves, lines by key; a fact that it lacks is one line on what records it."""
    times = {"model": report.model, "run": wording.moment(report.run_at)}
    recorded = {**{name: value for name, value in times.items() if value}, **report.facts}
    compared = {name: {"comparison": parts[1]} for name, parts in quotable_sentences(report).items()}
    by_task = {
        task.name: {**task.settings, **_data_facts(task), **_score_facts(task), **compared.get(task.name, {})}
        for task in report.tasks
    }
    facts: dict[str, list[str]] = {}
    for key, source in checklists()["facts"].items():
        lines = [f"{name}: {recorded[name]}." for name in source.get("recorded", ()) if name in recorded]
        alike = names_by((name, known[key]) for name, known in by_task.items() if known.get(key))
        lines += [f"{names}: {text.rstrip('.')}." for text, names in alike.items()]
        facts[key] = lines or [f"{key.replace('_', ' ')}: not recorded in this run; it comes from {source['by']}."]
    return facts


def _data_facts(task: TaskReport) -> dict[str, str]:
    """Return what is known of a task, its data and its replies, by key of a fact."""
    settings = task.settings
    known = [f"{name} {settings[name]}" for name in ("source", "revision", "rows", "images") if name in settings]
    fingerprint = f"fingerprint {task.fingerprint or 'not recorded'}"
    complete = "all rows of the source" if task.complete_data else "a part of the source"
    errors = []
    for rule in task.rules:
        outcomes = pair_rows([rule.pairs]) if rule.pairs else []
        kinds = {**rule.reasons, **rule.wrong_kinds, **{name: numbers[0] for name, _, numbers in outcomes}}
        errors.append(f"{rule.name}: {', '.join(f'{kind} {count(total)}' for kind, total in kinds.items())}")
    rates = [(rule.name, rule.estimates.get("invalid_rate")) for rule in task.rules]
    judges = dict.fromkeys(text for rule in task.rules for text in rule.remarks if text.startswith("Judge: "))
    return {
        "task": f"{task.describes}, version {settings.get('version', 'not recorded')}",
        "data": ", ".join([task.dataset, task.access or "access unknown", fingerprint, *known]) if task.dataset else "",
        "left_out": f"{complete}; {settings['rows left out']}" if "rows left out" in settings else "",
        "images": task.image_conversions,
        "counts": f"{questions(task)} samples answered; in no score: {task.lost or 'none'}",
        "invalid": "; ".join(f"{name} {scored(rate)} without a valid answer" for name, rate in rates if rate),
        "rules": "; ".join(f"{rule.name}: {rule.rule}, {rule.describes}".rstrip(", .") for rule in task.rules),
        "errors": "; ".join(errors),
        "judge": " ".join(judges),
    }


def _score_facts(task: TaskReport) -> dict[str, str]:
    """Return the scores of a task, their uncertainty and their robustness, by key of a fact."""
    clinical = [name for name in task.metric_names if name.startswith(_CLINICAL)]
    names = dict.fromkeys([*(rule.scores[0].metric for rule in task.rules if rule.scores), *clinical])
    described = (f"{name}: {task.metrics[name].description if name in task.metrics else ''}" for name in names)
    scores = [(rule.name, score) for rule in task.rules for name in names if (score := rule.estimates.get(name))]
    errors = [f"{score.metric} ({name}) over {score.clusters} clusters" for name, score in scores if score.clusters]
    few = dict.fromkeys(sentence for rule in task.rules for sentence in rule.few_clusters)
    sizes = [
        f"{column} {group.name} ({count(group.questions)}): {rule.name} {scored(group.scores[0])}"
        for rule in task.rules[-1:]
        for column, groups in rule.groups.items()
        for group in groups
        if group.scores
    ]
    gains = []
    for gain in (gain for gain in task.gains if not gain.same_as):
        change = difference(gain.difference, gain.low, gain.high, task.is_share(gain.metric, gain.score))
        gains.append(
            f"{gain.metric} ({gain.rule}) minus that of {gain.task} {change}, corrected p {p_value(gain.p_holm)}"
        )
    seeds = ", ".join(map(str, task.repeats.seeds)) if task.repeats else ""
    calibration = [
        f"{name}: calibration error {number(measures.ece.value, False)}, Brier {number(measures.brier.value, False)}"
        for name, measures in task.calibration.items()
    ]
    published = [f"{score.model} {score.printed} ({score.source})" for score in task.published[:_PUBLISHED]]
    return {
        "metrics": "; ".join(text.rstrip(": .") for text in described),
        "results": "; ".join(f"{score.metric} ({name}) {scored(score)}" for name, score in scores),
        "intervals": "; ".join(["95 % intervals with clustered errors", *errors, *few]) if errors else "",
        "subgroups": "; ".join(sizes),
        "stress": "; ".join(gains),
        "repeats": f"{task.repeats.repeats} repeats, seeds {seeds}" if task.repeats else "",
        "calibration": "; ".join(calibration),
        "published": "; ".join(published),
    }
