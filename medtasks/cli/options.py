"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from medtasks.cli.output import say
from medtasks.runs.result_files import recorded_folders
from medtasks.tasks.task_files import INCLUDE, including, refuse_shipped_names

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
