"""Checklist pages: subjects of a reporting checklist in our own words, next to the facts that a run recorded.

A page is an aid for filling in the published checklist. It never says that a study complies with one.
"""

from dataclasses import asdict
from pathlib import Path

from medtasks.home import packaged_facts
from medtasks.report import wording
from medtasks.report.page import TEMPLATES, write_rendered
from medtasks.report.report_model import RunReport, TaskReport
from medtasks.report.sentences import quotable_sentences
from medtasks.report.tables import Table, cells
from medtasks.report.wording import (
    clusters_in_words,
    count,
    counted,
    difference,
    estimate,
    label,
    names_by,
    p_value,
    pair_rows,
    questions,
    scored,
)
from medtasks.runs.run_notes import moment

AUTHORS = "to be stated by the authors"
_CLINICAL = ("sensitivity", "specificity", "ppv", "npv")
_PUBLISHED = 5  # results named; the report has all


def checklist_table(report: RunReport, name: str) -> Table:
    """Return a checklist, one of ``checklists.toml``, with what a run proves of each item."""
    contents = packaged_facts(__package__, "checklists")
    checklist, rows = contents["checklists"][name], []
    known = {"model": report.model, "run": moment(report.run_at), **report.facts}
    compared = {task: {"comparison": parts[1]} for task, parts in quotable_sentences(report).items()}
    of_tasks = {task.name: task_facts(task) | compared.get(task.name, {}) for task in report.tasks}
    facts: dict[str, list[str]] = {}
    for key, source in contents["facts"].items():
        lines = [f"{fact}: {known[fact]}." for fact in source.get("recorded", ()) if known.get(fact)]
        alike = names_by((task, texts[key]) for task, texts in of_tasks.items() if texts.get(key))
        lines += [f"{tasks}: {text.rstrip('.')}." for text, tasks in alike.items()]
        facts[key] = lines or [f"{key.replace('_', ' ')}: not recorded in this run; it comes from {source['by']}."]
    for item, subject, keys, rest in checklist["items"]:
        lines = [line for key in keys.split() for line in facts[key]]
        lines += [f"{AUTHORS}: {rest}" if rest else AUTHORS] if rest or not keys else []
        rows.append(cells(item, subject, "\n".join(lines)))
    caption = f"{checklist['title']}: what this run proves, {report.title}. Numbers follow {checklist['source']}."
    headings = cells("Item", "Subject, in our words", "From this run")
    warnings = tuple(f"{task.name}: {text}" for task in report.tasks for text in wording.warnings(task))
    return Table(label("checklist", name), caption, "llp", headings, rows, warnings, (contents["aid"],))


def write_checklist(report: RunReport, name: str, path: Path) -> Table:
    """Write a checklist as a page of its own, and return its table. MedTasksError: it cannot be written."""
    from markupsafe import Markup

    table, style = checklist_table(report, name), Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
    write_rendered("checklist", path, report=report, table=table, aid=table.notes[0], style=style)
    return table


def task_facts(task: TaskReport) -> dict[str, str]:
    """Return what a run proves of a task, by key of a fact; empty if it does not."""
    settings, rules = task.settings, task.rules
    data = [task.dataset, task.access or "access unknown", f"fingerprint {task.fingerprint or 'not recorded'}"]
    data += [f"{name} {settings[name]}" for name in ("source", "revision", "rows", "images") if name in settings]
    complete = "all rows of the source" if task.complete_data else "a part of the source"
    outcomes = []
    for rule in rules:
        pairs = {name: numbers[0] for name, _, numbers in pair_rows([rule.pairs])} if rule.pairs else {}
        kinds = {**rule.reasons, **rule.wrong_kinds, **pairs}.items()
        outcomes.append(f"{rule.name}: {', '.join(f'{kind} {count(total)}' for kind, total in kinds)}")
        for of_class in rule.by_class:
            for target, calls in (("present", of_class.present), ("absent", of_class.absent)):
                read = ", ".join(f"{kind} {count(total)}" for kind, total in asdict(calls).items())
                outcomes.append(f"{of_class.name} {target} ({rule.name}): {read}")
    judges = dict.fromkeys(text for rule in rules for text in rule.remarks if text.startswith("Judge: "))
    rates = [(rule.name, rule.estimates.get("invalid_rate")) for rule in rules]
    facts = {
        "task": [task.describes, f"version {settings.get('version', 'not recorded')}"],
        "data": data if task.dataset else [],
        "left_out": [complete, settings["rows left out"]] if "rows left out" in settings else [],
        "images": [task.image_conversions],
        "counts": [f"{questions(task)} samples answered", f"in no score: {task.lost or 'none'}"],
        "invalid": [f"{name} {scored(rate)} without a valid answer" for name, rate in rates if rate],
        "rules": [f"{rule.name}: {rule.rule}, {rule.describes}".rstrip(", .") for rule in rules],
        "errors": outcomes,
        "judge": list(judges),
        "repeats": [f"{task.repeats.repeats} repeats, seeds {task.repeats.seeds}"] if task.repeats else [],
        "published": [f"{score.model} {score.printed} ({score.source})" for score in task.published[:_PUBLISHED]],
    }
    joined = {key: "; ".join(filter(None, texts)) for key, texts in {**facts, **_score_facts(task)}.items()}
    return {**settings, **joined}


def _score_facts(task: TaskReport) -> dict[str, list[str]]:
    """Return the scores of a task, their uncertainty and their robustness, by key of a fact."""
    names = dict.fromkeys(rule.scores[0].metric for rule in task.rules if rule.scores)
    clinical = [
        f"{metric} of {of_class.name} ({rule.name}) {estimate(numbers.value, numbers.low, numbers.high, True)}"
        for rule in task.rules
        for of_class in rule.by_class
        for metric, numbers in of_class.numbers.items()
        if metric in _CLINICAL
    ]
    scores = [(rule.name, score) for rule in task.rules for name in names if (score := rule.estimates.get(name))]
    errors = [
        f"{score.metric} ({rule}) over {clusters_in_words(score) or counted(score.clusters, score.unit)}"
        for rule, score in scores
        if score.clusters
    ]
    few = dict.fromkeys(sentence for rule in task.rules for sentence in rule.few_clusters)
    groups, gains = [], []
    for column, of_column in task.rules[-1].groups.items() if task.rules else ():
        shown = [f"{group.name} ({count(group.questions)}) {scored(group.scores[0])}" for group in of_column]
        groups.append(f"{column} ({task.rules[-1].name}): {', '.join(shown)}")
    for gain in (gain for gain in task.gains if not gain.same_as):
        change = difference(gain.difference, gain.low, gain.high, task.is_share(gain.metric, gain.score))
        compared = f"{gain.metric} ({gain.rule}) minus that of {gain.task} ({gain.variant})"
        gains.append(f"{compared} {change}, corrected p {p_value(gain.p_holm)}")
    return {
        "metrics": [f"{name}: {task.metrics[name].description}".rstrip(".") for name in names if name in task.metrics],
        "results": [*(f"{score.metric} ({rule}) {scored(score)}" for rule, score in scores), *clinical],
        "intervals": ["95 % intervals with clustered errors", *errors, *few] if errors else [],
        "subgroups": groups,
        "stress": gains,
    }
