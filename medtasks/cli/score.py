"""``medtasks score``: score recorded replies again, without a model."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from medtasks import __version__
from medtasks.data.provenance_of import provenance
from medtasks.data.store import load_documents
from medtasks.errors import MedTasksError, RepliesError
from medtasks.metrics.pairs import TOTAL
from medtasks.replies import read_replies
from medtasks.scoring import METRICS, RuleScore, score_replies
from medtasks.task_files import task_file

_out = Console(soft_wrap=True, highlight=False)


def score(
    task: Annotated[str, typer.Argument(help="One of our tasks, see 'medtasks tasks'.")],
    replies: Annotated[
        Path, typer.Argument(help='Lines of {"doc_id", "reply"}, or a samples file written by the harness.')
    ],
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write everything as JSON.")] = None,
) -> None:
    """Score recorded replies under every answer rule of a task, in total and per category."""
    chosen = task_file(task)
    if chosen.dataset is None:
        raise RepliesError(f"'{task}' is a group; score its member tasks one by one")
    documents = load_documents(chosen.dataset)
    recorded = read_replies(replies, documents)
    scores = score_replies(chosen, documents, recorded)
    data = provenance(chosen.dataset)
    missing = len(documents) - len(recorded)
    if json_file:
        summary = {
            "task": task,
            "medtasks": __version__,
            "data": data,
            "replies": len(recorded),
            "missing": missing,
            "rules": {name: rule.as_dict() for name, rule in scores.items()},
        }
        _write(json_file, json.dumps(summary, indent=2) + "\n")
    _print(task, scores, len(recorded), len(documents))
    if data["sample"]:
        _out.print("SAMPLE DATA: drawn pictures; these scores say nothing about a model.")
    elif not data["complete"]:
        _out.print("INCOMPLETE DATA: parts of the published set were left out; do not compare with published scores.")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def _print(task: str, scores: dict[str, RuleScore], replies: int, documents: int) -> None:
    totals = Table("% ± standard error", title=f"{task}: {replies} of {documents} questions answered")
    for name in scores:
        totals.add_column(name, justify="right")
    for metric in METRICS:
        totals.add_row(metric, *(_with_error(rule, metric) for rule in scores.values()))
    for reason in sorted({reason for rule in scores.values() for reason in rule.reasons}):
        totals.add_row(f"replies: {reason}", *(str(rule.reasons.get(reason, 0)) for rule in scores.values()))
    _out.print(totals)
    if replies < documents:
        _out.print(f"Questions without a reply, left out and not counted as wrong: {documents - replies}.")
    cut = next(iter(scores.values())).table[TOTAL].incomplete_pairs
    if cut:
        _out.print(f"Pairs with one reply only, left out of set accuracy and confusion: {cut}.")
    for name, rule in scores.items():
        _out.print(_categories(name, rule))


def _categories(name: str, rule: RuleScore) -> Table:
    table = Table("category", title=f"{name} ({rule.rule}), %")
    for column in ("images", "set", "individual", "confusion", "invalid"):
        table.add_column(column, justify="right")
    for category, counts in rule.table.items():
        if category == TOTAL:
            table.add_section()
        table.add_row(category, str(counts.images), *(_percent(getattr(counts, metric)) for metric in METRICS))
    return table


def _with_error(rule: RuleScore, metric: str) -> str:
    return f"{_percent(getattr(rule.table[TOTAL], metric))} ± {_percent(rule.errors[metric])}"


def _percent(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{100 * value:.2f}"
