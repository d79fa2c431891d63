"""``medtasks score``: score recorded replies again, without a model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from medtasks import __version__
from medtasks.audit.breakdowns import count_kinds, export_wrong_answers
from medtasks.audit.pair_scoring import METRICS, RuleScore, score_replies
from medtasks.audit.scoring import MetricScores, score_metrics
from medtasks.cli.included import IncludePath, look_into
from medtasks.cli.output import JsonFile, number_table, out, write_json
from medtasks.errors import MedTasksError, RepliesError
from medtasks.harness.replies import read_replies
from medtasks.harness.sample_counts import DEFAULT_LIMIT, FailureLimit, SampleCounts
from medtasks.harness.task_data import private_datasets, task_provenance
from medtasks.harness.task_files import scored_task
from medtasks.harness.variant_documents import task_documents
from medtasks.metrics.pairs import TOTAL
from medtasks.stats.score_text import is_share, number, with_error

Scores = RuleScore | MetricScores


def score(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="One of our tasks, see 'medtasks tasks'.")],
    replies: Annotated[
        list[Path],
        typer.Argument(
            help='Files of one run, or folders of them: lines of {"doc_id", "reply"}, or a samples file of the harness.'
        ),
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="For reports: a metric besides the task's own, see 'medtasks metrics'.")
    ] = None,
    export_errors: Annotated[
        Path | None, typer.Option(help="CSV file for all wrong answers, for a human to judge.")
    ] = None,
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
    documents = task_documents(chosen)
    recorded = read_replies(replies, documents)
    paired = "pair_id" in documents[0]
    own = chosen.metric_list.resolve() if chosen.metric_list else ()
    further = [name for name in metric or () if name not in {entry["metric"] for entry in own}]
    if paired and further:
        raise RepliesError(f"'{task}' compares no reports, so that it has no metrics but its own; leave out --metric")
    by_pair = score_replies(chosen, documents, recorded) if paired else {}
    by_metric = {} if paired else score_metrics(chosen, documents, recorded, further)
    if export_errors:
        private = private_datasets(chosen, documents)
        export_wrong_answers(export_errors, private, {name: found.wrong for name, found in by_metric.items()})
    data = task_provenance(chosen, documents)
    rules: dict[str, Scores] = {**by_pair, **by_metric}
    if json_file:
        counted = {"replies": len(recorded), "missing": len(documents) - len(recorded)}
        summary = {"task": task, "medtasks": __version__, "data": data, **counted}
        summary["rules"] = {name: rule.as_dict() for name, rule in rules.items()}
        write_json(json_file, summary)
    title = f"{task}: {len(recorded)} of {len(documents)} questions answered"
    if paired:
        _print_pairs(title, by_pair)
    else:
        _print_metrics(title, by_metric)
        _print_groups(by_metric)
        _print_wrong(by_metric)
    _print_notes(rules, data, len(recorded), len(documents))
    problems = [*_too_many_lost(rules, limit), *_not_computed(by_metric)]
    if problems:
        raise MedTasksError("\n".join(problems))


def _not_computed(scores: Mapping[str, MetricScores]) -> list[str]:
    failures = {name: cause for rule in scores.values() for name, cause in rule.failures.items()}
    return [f"{name} could not be computed: {cause}" for name, cause in failures.items()]


def _print_notes(rules: Mapping[str, Scores], data: Mapping[str, Any], replies: int, documents: int) -> None:
    """Say what the scores are of, and what is in none."""
    if replies < documents:
        out.print(f"Questions without a reply, left out and not counted as wrong: {documents - replies}.")
    if data["sample"]:
        out.print("SAMPLE DATA: drawn pictures; these scores say nothing about a model.")
    elif not data["complete"]:
        out.print("INCOMPLETE DATA: parts of the published set were left out; do not compare with published scores.")
    if injections := max((rule.possible_injection or 0 for rule in rules.values()), default=0):
        out.print(f"Replies that seem to address the judge: {injections} of {replies}; compare 'fenced'.")
    if (worst := _worst(rules)).lost:
        out.print(f"In no score: {worst}.")


def _too_many_lost(rules: Mapping[str, Scores], limit: FailureLimit) -> Iterator[str]:
    worst = _worst(rules)
    if not limit.allows(worst):
        again = "; judge them again with this command once the judge answers" if worst.unjudged else ""
        yield f"{worst}, which is more than --max-failed {limit}, and they are in no score{again}"


def _worst(rules: Mapping[str, Scores]) -> SampleCounts:
    return max((rule.counts for rule in rules.values()), key=lambda one: one.lost, default=SampleCounts(0, 0))


def _print_pairs(title: str, scores: Mapping[str, RuleScore]) -> None:
    cells = {
        metric: [
            with_error(getattr(rule.table[TOTAL], metric), rule.errors[metric], share=True) for rule in scores.values()
        ]
        for metric in METRICS
    }
    _print_totals(title, cells, {name: rule.reasons for name, rule in scores.items()})
    cut = next(iter(scores.values())).table[TOTAL].incomplete_pairs
    if cut:
        out.print(f"Pairs with one reply only, left out of set accuracy and confusion: {cut}.")
    for name, rule in scores.items():
        out.print(_categories(name, rule))


def _print_metrics(title: str, scores: Mapping[str, MetricScores]) -> None:
    first = next(iter(scores.values()))
    shares = {metric: all(is_share(metric, rule.values[metric]) for rule in scores.values()) for metric in first.values}
    cells = {
        metric: [
            with_error(rule.values[metric], rule.errors.get(metric, math.nan), share=share) for rule in scores.values()
        ]
        for metric, share in shares.items()
    }
    _print_totals(title, cells, {name: rule.reasons for name, rule in scores.items()})


def _print_groups(scores: Mapping[str, MetricScores]) -> None:
    for column, groups in next(iter(scores.values())).groups.items():
        title = f"accuracy by {column.replace('_', ' ')} ± standard error"
        table = number_table(column, ("questions", *scores), title)
        for value, first in groups.items():
            found = [rule.groups[column][value] for rule in scores.values()]
            accuracies = (with_error(one.accuracy, one.error, share=True) for one in found)
            table.add_row(value, str(first.questions), *accuracies)
        out.print(table)


def _print_wrong(scores: Mapping[str, MetricScores]) -> None:
    kinds = {name: count_kinds(rule.wrong) for name, rule in scores.items()}
    if not any(kinds.values()):
        return
    table = number_table("wrong answers", scores)
    for kind in dict.fromkeys(kind for counts in kinds.values() for kind in counts):
        table.add_row(kind, *(str(counts.get(kind, 0)) for counts in kinds.values()))
    out.print(table)


def _print_totals(title: str, cells: Mapping[str, Sequence[str]], reasons: Mapping[str, Mapping[str, int]]) -> None:
    totals = number_table("score ± standard error", reasons, title)
    for metric, row in cells.items():
        totals.add_row(metric, *row)
    for reason in sorted({reason for counts in reasons.values() for reason in counts}):
        totals.add_row(f"replies: {reason}", *(str(counts.get(reason, 0)) for counts in reasons.values()))
    out.print(totals)


def _categories(name: str, rule: RuleScore) -> Table:
    columns = ("images", "set", "individual", "confusion", "invalid")
    table = number_table("category", columns, f"{name} ({rule.rule})")
    for category, counts in rule.table.items():
        if category == TOTAL:
            table.add_section()
        shares = (number(getattr(counts, metric), share=True) for metric in METRICS)
        table.add_row(category, str(counts.images), *shares)
    return table
