"""The option ``--include_path`` of commands that look for tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from medtasks.harness.recorded_folders import recorded_folders
from medtasks.harness.task_files import INCLUDE, including

IncludePath = Annotated[
    list[Path] | None,
    typer.Option(
        INCLUDE,
        "--include-path",
        metavar="FOLDER",
        help="Folder with task files of your own; the folder a run was given is known from its results.",
    ),
]


def look_into(context: typer.Context, folders: Sequence[Path] | None, runs: Sequence[Path] = ()) -> None:
    """Look for tasks in folders of the user's, too, until the command ends; they count before those that runs name."""
    found, lost = recorded_folders(runs)
    given = list(folders or ())
    context.with_resource(including([*given, *found], () if given else lost))
