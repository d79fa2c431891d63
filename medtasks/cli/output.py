"""What commands share: options, sentences, columns and tables on one console, and files that are whole."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from medtasks.audit.tables import Table, plain, terminal
from medtasks.errors import MedTasksError
from medtasks.runs.result_files import recorded_folders
from medtasks.tasks.task_files import INCLUDE, including, refuse_shipped_names

ModelName = Annotated[str | None, typer.Option("--model", help="Of a folder with runs of several models, this one.")]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Samples of a task (5), or share of them (1%), without a reply or verdict.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write everything as JSON.")]
out = Console(soft_wrap=True, highlight=False)
IncludePath = Annotated[
    list[Path] | None,
    typer.Option(
        INCLUDE,
        "--include-path",
        metavar="FOLDER",
        help="Folder with task files of your own. They can run code: give only a folder you trust.",
    ),
]


def say(text: str) -> None:
    """Print a text as it is, names in it may hold what looks like markup; but no orders to the terminal."""
    out.print(plain(text), markup=False)


def say_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts in columns as wide as their longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show(table: Table) -> None:
    """Print a table."""
    out.print(terminal(table))


def print_state_of_data(data: Mapping[str, Mapping[str, Any]]) -> None:
    """Say which of the data, by the name they are shown with, are drawn or cut; an only one needs no name."""
    drawn = [name for name, facts in data.items() if facts["sample"]]
    cut = [name for name, facts in data.items() if not (facts["sample"] or facts["complete"])]
    if drawn:
        out.print(f"SAMPLE DATA{_named(drawn)}: drawn pictures; these scores say nothing about a model.")
    if cut:
        out.print(
            f"INCOMPLETE DATA{_named(cut)}: parts of the published set were left out; do not compare with "
            f"published scores."
        )


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if any(names) else ""


def write_text(path: Path | None, text: str) -> None:
    """Write a file, if one is asked for; MedTasksError: it cannot be written."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path | None, content: Any) -> None:
    """Write a value of JSON types likewise."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def look_into(context: typer.Context, folders: Sequence[Path] | None, runs: Sequence[Path] = ()) -> None:
    """Look for tasks in the user's folders, too, until the command ends; those that recorded runs name are not read."""
    context.with_resource(including(folders or ()))
    if runs:
        refuse_shipped_names()
    if not folders and (recorded := recorded_folders(runs)):
        say(
            f"note: the run took tasks from {', '.join(recorded)}, which is not loaded: its task files can run code; "
            f"give it with {INCLUDE} only if you trust them"
        )
