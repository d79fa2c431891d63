"""Options that several commands share, printing on one console, and writing of files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer import Option

from medtasks.audit.tables import Table, plain, terminal
from medtasks.errors import MedTasksError
from medtasks.runs.result_files import recorded_folders
from medtasks.tasks.task_files import INCLUDE, including, refuse_shipped_names

out = Console(soft_wrap=True, highlight=False)

ModelName = Annotated[str | None, Option("--model", help="Model to take from a folder with runs of several models.")]
MaxFailed = Annotated[str, Option("--max-failed", help="Number (5) or share (1%) of samples without reply or verdict.")]
JsonFile = Annotated[Path | None, Option("--json", help="Also write everything as JSON.")]
IncludePath = Annotated[
    list[Path] | None,
    Option(
        INCLUDE,
        "--include-path",
        metavar="FOLDER",
        help="Folder with your own task files. They can run code: give only a folder you trust.",
    ),
]


def named_values(option: str, texts: Sequence[str], form: str) -> list[tuple[str, str]]:
    """Split values such as ``NAME=PATH`` of an option. Raises BadParameter for one of another form."""
    pairs = []
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise typer.BadParameter(f"{option} {text} is not of the form {form}")
        pairs.append((name, value))
    return pairs


def look_into(context: typer.Context, folders: Sequence[Path] | None, runs: Sequence[Path] = ()) -> None:
    """Find tasks in the user's folders, too, until the command ends; folders recorded in runs are only mentioned."""
    context.with_resource(including(folders or ()))
    if runs:
        refuse_shipped_names()
    if not folders and (recorded := recorded_folders(runs)):
        say(
            f"note: the run took tasks from {', '.join(recorded)}, which is not loaded: its task files can run code; "
            f"give it with {INCLUDE} only if you trust them"
        )


def say(text: str) -> None:
    """Print a text literally: no markup, and no control sequences for the terminal."""
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
    """Name the datasets that are synthetic or incomplete; the name of a single one may be empty."""
    synthetic = [name for name, facts in data.items() if facts["sample"]]
    incomplete = [name for name, facts in data.items() if not (facts["sample"] or facts["complete"])]
    drawn = "synthetic images; these scores say nothing about a model."
    cut = "parts of the published set were left out; do not compare with published scores."
    for title, names, consequence in (("SAMPLE DATA", synthetic, drawn), ("INCOMPLETE DATA", incomplete, cut)):
        if names:
            of_data = f" ({', '.join(names)})" if any(names) else ""
            out.print(f"{title}{of_data}: {consequence}")


def write_text(path: Path | None, text: str) -> None:
    """Write a file, if a path is given. Raises MedTasksError if it cannot be written."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path | None, content: Any) -> None:
    """Write a value as JSON, if a path is given. Raises MedTasksError if it cannot be written."""
    write_text(path, json.dumps(content, indent=2) + "\n")
