"""``medtasks score``: score recorded replies again, without a model."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from medtasks import __version__
from medtasks.audit.doctor.weights import fetch_command
from medtasks.audit.report.words import number, with_error
from medtasks.audit.scoring import (
    OF_ANSWERS,
    PAIR_METRICS,
    RowScores,
    count_kinds,
    export_wrong_answers,
    score_replies,
)
from medtasks.cli.output import (
    IncludePath,
    JsonFile,
    look_into,
    number_table,
    out,
    print_state_of_data,
    say,
    write_json,
)
from medtasks.errors import MedTasksError, RepliesError
from medtasks.metrics.metric import AnyMetric
from medtasks.metrics.pairs import TOTAL
from medtasks.runs.replies import read_replies, take_answer_field
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit, SampleCounts
from medtasks.runs.sources import Source, replies_to
from medtasks.tasks.documents import private_datasets, task_documents, task_provenance
from medtasks.tasks.task_files import scored_task


def score(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="One of our tasks, see 'medtasks tasks'.")],
    replies: Annotated[
        list[Path],
        typer.Argument(
            help="Folder of a run (its --output_path), of which the newest results of TASK count; or files of one run: "
            'samples files of the harness, or lines of {"doc_id", "reply"} or {"id", "reply"}.'
        ),
    ],
    answer_field: Annotated[
        str | None,
        typer.Option(help="Replies are JSON objects: score only this field of each, for example answer_choice."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="For reports: a metric besides the task's own, see 'medtasks metrics'.")
    ] = None,
    export_errors: Annotated[
        Path | None, typer.Option(help="CSV file for all wrong answers, for a human to judge.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Of a folder with runs of several models, this one.")] = None,
    max_failed: Annotated[
        str,
        typer.Option("--max-failed", help="Samples (5), or share of them (1%), that may be without reply or verdict."),
    ] = DEFAULT_LIMIT,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Score recorded replies under every answer rule of a task; pairs also per category, others by group.

    Samples that the model did not answer, or that a judge failed to read, are in no score; the exit code is 1 where
    they are more than --max-failed.
    """
    limit = FailureLimit.parse(max_failed)
    look_into(context, include_path, replies)
    chosen = scored_task(task)
    if export_errors and not any(one.name in OF_ANSWERS for one in chosen.metrics):
        raise RepliesError(f"'{task}' scores no single answers as right or wrong, so --export-errors would list none")
    documents = task_documents(chosen)
    files = [replies_to(task, Source(path, model)) for path in replies]
    recorded = read_replies(files, documents)
    if answer_field is not None:
        recorded = take_answer_field(recorded, answer_field)
    further = [name for name in metric or () if name not in {one.name for one in chosen.metrics}]
    rules = score_replies(chosen, documents, recorded, further)
    if export_errors:
        private = private_datasets(chosen, documents)
        export_wrong_answers(export_errors, private, {name: found.wrong for name, found in rules.items()})
    data = task_provenance(chosen, documents)
    counted: dict[str, Any] = {"replies": len(recorded), "missing": len(documents) - len(recorded)}
    if answer_field is not None:
        counted["answer_field"] = answer_field
    summary = {"schema_version": 1, "task": task, "medtasks": __version__, "data": data, **counted}
    write_json(json_file, {**summary, "rules": {name: rule.as_dict() for name, rule in rules.items()}})
    for file in sorted({*files} - {*replies}):
        say(f"Replies: {file}")
    metrics = next(iter(rules.values())).metrics
    title = f"{task}: {len(recorded)} of {len(documents)} questions answered"
    if chosen.family.paired:
        _print_scores(title, rules, [metric for metric in metrics if metric.name in PAIR_METRICS])
        _print_categories(rules)
    else:
        _print_scores(title, rules, metrics)
        _print_groups(rules)
        _print_wrong(rules)
    _print_notes(rules, data, len(recorded), len(documents))
    if problems := list(_problems(rules, limit)):
        raise MedTasksError("\n".join(problems))


def _print_notes(rules: Mapping[str, RowScores], data: Mapping[str, Any], replies: int, documents: int) -> None:
    """Say what the scores are of, and what is in none."""
    if replies < documents:
        out.print(f"Questions without a reply, left out and not counted as wrong: {documents - replies}.")
    print_state_of_data({"": data})
    if injections := max((rule.possible_injection or 0 for rule in rules.values()), default=0):
        out.print(f"Replies that seem to address the judge: {injections} of {replies}; compare 'fenced'.")
    if (worst := _worst(rules)).lost:
        out.print(f"In no score: {worst}.")


def _problems(rules: Mapping[str, RowScores], limit: FailureLimit) -> Iterator[str]:
    worst = _worst(rules)
    if not limit.allows(worst):
        again = "; judge them again with this command once the judge answers" if worst.unjudged else ""
        yield f"{worst}, which is more than --max-failed {limit}, and they are in no score{again}"
    failures = {name: cause for rule in rules.values() for name, cause in rule.failures.items()}
    fetch = fetch_command(failures)
    names_by_cause: dict[str, list[str]] = {}
    for name, cause in failures.items():
        why = f"weights are missing; run: {fetch}" if fetch and "medtasks weights fetch" in cause else cause
        names_by_cause.setdefault(why, []).append(name)
    yield from (f"{', '.join(names)} could not be computed: {why}" for why, names in names_by_cause.items())


def _worst(rules: Mapping[str, RowScores]) -> SampleCounts:
    return max((rule.counts for rule in rules.values()), key=lambda one: one.lost, default=SampleCounts(0, 0))


def _print_scores(title: str, rules: Mapping[str, RowScores], metrics: Iterable[AnyMetric]) -> None:
    table = number_table("score ± standard error", rules, title)
    for metric in metrics:
        estimates = [rule.estimates[metric.name] for rule in rules.values()]
        table.add_row(metric.name, *(with_error(one.value, one.error, metric.is_share(one.value)) for one in estimates))
    reasons = [rule.reasons for rule in rules.values()]
    _add_counts(table, "replies: ", reasons, sorted(set().union(*reasons)))
    out.print(table)


def _print_categories(rules: Mapping[str, RowScores]) -> None:
    cut = next(iter(rules.values())).categories[TOTAL].incomplete_pairs
    if cut:
        out.print(f"Pairs with one reply only, left out of set accuracy and confusion: {cut}.")
    for name, rule in rules.items():
        columns = ("images", "set", "individual", "confusion", "invalid")
        table = number_table("category", columns, f"{name} ({rule.rule})")
        for category, counts in rule.categories.items():
            if category == TOTAL:
                table.add_section()
            shares = (number(getattr(counts, metric)) for metric in PAIR_METRICS)
            table.add_row(category, str(counts.images), *shares)
        out.print(table)


def _print_groups(rules: Mapping[str, RowScores]) -> None:
    scores = _with_accuracy(rules)
    for column, groups in next(iter(scores.values())).groups.items() if scores else ():
        title = f"accuracy by {column.replace('_', ' ')} ± standard error"
        table = number_table(column, ("questions", *scores), title)
        for value, first in groups.items():
            accuracies = [rule.groups[column][value].scores[0] for rule in scores.values()]
            shown = (with_error(one.value, one.error, one.share) for one in accuracies)
            table.add_row(value, str(first.questions), *shown)
        out.print(table)


def _with_accuracy(rules: Mapping[str, RowScores]) -> dict[str, RowScores]:
    """Return the rows with an accuracy, whose groups and wrong answers mean something."""
    return {name: rule for name, rule in rules.items() if math.isfinite(rule.accuracy)}


def _print_wrong(rules: Mapping[str, RowScores]) -> None:
    scores = _with_accuracy(rules)
    kinds = [count_kinds(rule.wrong) for rule in scores.values()]
    if any(kinds):
        table = number_table("wrong answers", scores)
        _add_counts(table, "", kinds, dict.fromkeys(kind for counts in kinds for kind in counts))
        out.print(table)


def _add_counts(table: Table, prefix: str, counts: Sequence[Mapping[str, int]], names: Iterable[str]) -> None:
    for name in names:
        table.add_row(f"{prefix}{name}", *(str(one.get(name, 0)) for one in counts))
