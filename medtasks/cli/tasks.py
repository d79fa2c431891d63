"""``medtasks tasks`` and ``medtasks path``."""

from typing import Annotated

import typer

from medtasks.cli.output import IncludePath, look_into
from medtasks.harness.task_files import TAG_ENDING, task_files, variants_of
from medtasks.harness.task_index import lm_eval_tasks_folder, tasks_folder


def list_tasks(
    context: typer.Context,
    sanity: Annotated[
        bool, typer.Option("--sanity", help="List the sanity variants of image tasks: <task>_blind and so on.")
    ] = False,
    include_path: IncludePath = None,
) -> None:
    """List our tasks and groups with one line of description each, or their sanity variants."""
    look_into(context, include_path)
    known = task_files()
    width = max(len(name) for name in known)
    for task in known.values():
        if sanity and task.variants:
            endings = " ".join(f"_{made.variant}" for made in variants_of(task))
            print(f"{task.name:<{width}}  {endings} {TAG_ENDING}")  # noqa: T201
        elif not sanity:
            print(f"{task.name:<{width}}  {task.kind:<5}  {task.description}")  # noqa: T201


def show_path(
    lm_eval: Annotated[
        bool, typer.Option("--lm-eval", help="The folder with the text-only tasks for lm-eval.")
    ] = False,
) -> None:
    """Print the folder to give as --include_path where a harness cannot find plug-ins by itself."""
    print(lm_eval_tasks_folder() if lm_eval else tasks_folder())  # noqa: T201
