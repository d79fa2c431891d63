"""Checklist pages: subjects of a reporting checklist in our own words, next to the facts that a run recorded.

A page is an aid for filling in the published checklist. It never says that a study complies with one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.home import packaged_facts
from medtasks.report import wording
from medtasks.report.page import TEMPLATES, write_rendered
from medtasks.report.report_model import RunReport, TaskReport
from medtasks.report.sentences import quotable_sentences
from medtasks.report.tables import Table, cells
from medtasks.report.wording import (
    change_text,
    clusters_in_words,
    count,
    label,
    measure_text,
    names_by,
    p_value,
    pair_rows,
    quantity,
    questions,
    score_text,
)
from medtasks.runs.run_notes import moment
from medtasks.scores.score_model import RuleScores

AUTHORS = "to be stated by the authors"
_Facts = dict[str, list[str]]  # texts by key of a fact in ``checklists.toml``
_CLINICAL = ("sensitivity", "specificity", "ppv", "npv")
_PUBLISHED = 5  # results named; the report has all
_SOURCES = ("source", "revision", "rows", "images")  # settings that say where the data are from


def checklist_table(report: RunReport, name: str) -> Table:
    """Return a checklist with what a run proves of each item.

    Args:
        report: Report of the run.
        name: A key of ``checklists`` in ``checklists.toml``.
    """
    contents = packaged_facts(__package__, "checklists")
    checklist = contents["checklists"][name]
    facts = _facts_by_key(report, contents["facts"])
    rows = []
    for item, subject, keys, by_authors in checklist["items"]:
        lines = list(chain.from_iterable(facts[key] for key in keys.split()))
        if by_authors:
            lines.append(f"{AUTHORS}: {by_authors}")
        elif not keys:
            lines.append(AUTHORS)
        rows.append(cells(item, subject, "\n".join(lines)))
    return Table(
        label("checklist", name),
        f"{checklist['title']}: what this run proves, {report.title}. Numbers follow {checklist['source']}.",
        "llp",
        cells("Item", "Subject, in our words", "From this run"),
        rows,
        wording.warnings_by_task(report.tasks),
        (contents["aid"],),
    )


def _facts_by_key(report: RunReport, sources: Mapping[str, Mapping[str, Any]]) -> _Facts:
    """Return lines on each fact, by its key: what the run proves, else where the fact comes from."""
    recorded = {"model": report.model, "run": moment(report.run_at), **report.facts}
    facts_by_task = {task.name: task_facts(task) for task in report.tasks}
    for task, (_, comparison, _) in quotable_sentences(report).items():
        facts_by_task[task]["comparison"] = comparison
    facts = {}
    for key, source in sources.items():
        lines = []
        for fact in filter(recorded.get, source.get("recorded", ())):
            lines.append(f"{fact}: {recorded[fact]}.")
        alike = names_by(
            (task, texts[key]) for task, texts in facts_by_task.items() if texts.get(key)
        )
        for text, tasks in alike.items():
            lines.append(f"{tasks}: {text.rstrip('.')}.")
        unknown = (
            f"{key.replace('_', ' ')}: not recorded in this run; it comes from {source['by']}."
        )
        facts[key] = lines or [unknown]
    return facts


def write_checklist(report: RunReport, name: str, path: Path) -> Table:
    """Write a checklist as a page of its own, and return its table.

    Args:
        report: Report of the run.
        name: A key of ``checklists`` in ``checklists.toml``.
        path: File of the page.

    Raises:
        MedTasksError: The page cannot be written.
    """
    from markupsafe import Markup

    table = checklist_table(report, name)
    write_rendered(
        "checklist",
        path,
        report=report,
        table=table,
        aid=table.notes[0],
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
    )
    return table


def task_facts(task: TaskReport) -> dict[str, str]:
    """Return the facts of a task that a run proves.

    Returns:
        Texts by key of a fact in ``checklists.toml``; an empty one if the run does not prove it.
    """
    settings = task.settings
    published = task.published[:_PUBLISHED]
    facts = {
        "task": [task.describes, f"version {settings.get('version', 'not recorded')}"],
        "images": [task.image_conversions],
        "counts": [
            f"{questions(task)} samples answered",
            f"in no score: {task.largest_loss or 'none'}",
        ],
        "published": [f"{score.model} {score.printed} ({score.source})" for score in published],
    }
    if task.dataset:
        facts["data"] = [
            task.dataset,
            task.access or "access unknown",
            f"fingerprint {task.fingerprint or 'not recorded'}",
            *(f"{name} {settings[name]}" for name in _SOURCES if name in settings),
        ]
    if "rows left out" in settings:
        complete = "all rows of the source" if task.complete_data else "a part of the source"
        facts["left_out"] = [complete, settings["rows left out"]]
    if task.repeats:
        facts["repeats"] = [f"{task.repeats.repeats} repeats, seeds {task.repeats.seeds}"]
    facts |= _reading_facts(task.rules) | _score_facts(task)
    joined = {key: "; ".join(filter(None, texts)) for key, texts in facts.items()}
    return {**settings, **joined}


def _reading_facts(rules: Sequence[RuleScores]) -> _Facts:
    """Return facts on the extraction of answers and on errors, by key."""
    facts: _Facts = {"rules": [], "invalid": [], "errors": [], "judge": []}
    for rule in rules:
        facts["rules"].append(f"{rule.name}: {rule.rule}, {rule.describes}".rstrip(", ."))
        if rate := rule.estimates.get("invalid_rate"):
            facts["invalid"].append(f"{rule.name} {score_text(rate)} without a valid answer")
        numbers = {**rule.reasons, **rule.wrong_kinds}
        if rule.pairs:
            for name, _, totals in pair_rows([rule.pairs]):
                numbers[name] = totals[0]
        facts["errors"].append(f"{rule.name}: {_counts(numbers)}")
        facts["errors"] += _class_errors(rule)
        facts["judge"] += [text for text in rule.remarks if text.startswith("Judge: ")]
    facts["judge"] = list(dict.fromkeys(facts["judge"]))
    return facts


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count(total)}" for kind, total in numbers.items())


def _class_errors(rule: RuleScores) -> Iterator[str]:
    """Yield the calls of each class under a rule: of samples with the class, then of those without it."""
    for class_numbers in rule.by_class:
        name = class_numbers.name
        yield f"{name} present ({rule.name}): {_counts(asdict(class_numbers.present))}"
        yield f"{name} absent ({rule.name}): {_counts(asdict(class_numbers.absent))}"


def _score_facts(task: TaskReport) -> _Facts:
    """Return the scores of a task, their uncertainty and their robustness, by key of a fact."""
    metrics = dict.fromkeys(rule.scores[0].metric for rule in task.rules if rule.scores)
    definitions = []
    for name in metrics:
        if name in task.metrics:
            definitions.append(f"{name}: {task.metrics[name].description}".rstrip("."))
    results = []
    intervals = []
    for rule in task.rules:
        for score in filter(None, map(rule.estimates.get, metrics)):
            name = f"{score.metric} ({rule.name})"
            results.append(f"{name} {score_text(score)}")
            if score.clusters:
                clusters = clusters_in_words(score) or quantity(score.clusters, score.unit)
                intervals.append(f"{name} over {clusters}")
    if intervals:
        few = dict.fromkeys(chain.from_iterable(rule.few_clusters for rule in task.rules))
        intervals = ["95 % intervals with clustered errors", *intervals, *few]
    return {
        "metrics": definitions,
        "results": [*results, *chain.from_iterable(map(_clinical_facts, task.rules))],
        "intervals": intervals,
        "subgroups": [*_group_facts(task.rules[-1])] if task.rules else [],
        "stress": [*_gain_facts(task)],
    }


def _clinical_facts(rule: RuleScores) -> Iterator[str]:
    """Yield sensitivity, specificity and predictive values of each class under a rule."""
    for class_numbers in rule.by_class:
        for metric in filter(_CLINICAL.__contains__, class_numbers.numbers):
            value = measure_text(class_numbers.numbers[metric], share=True)
            yield f"{metric} of {class_numbers.name} ({rule.name}) {value}"


def _gain_facts(task: TaskReport) -> Iterator[str]:
    """Yield the gains of a task over its variants, once for rules that read the same answers."""
    for gain in task.gains:
        if not gain.same_as:
            share = task.is_share(gain.metric, gain.score)
            yield (
                f"{gain.metric} ({gain.rule}) minus that of {gain.task} ({gain.variant}) {change_text(gain, share)}, "
                f"corrected p {p_value(gain.p_holm)}"
            )


def _group_facts(rule: RuleScores) -> Iterator[str]:
    """Yield the main score by group under a rule, a text per column."""
    for column, groups in rule.groups.items():
        scores = []
        for group in groups:
            scores.append(
                f"{group.name} ({count(group.questions)}) {score_text(group.scores[0])}"
            )
        yield f"{column} ({rule.name}): {', '.join(scores)}"
