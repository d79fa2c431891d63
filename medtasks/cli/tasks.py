"""``medtasks tasks`` and ``medtasks path``."""

from typing import Annotated

import typer

from medtasks.cli.output import IncludePath, look_into
from medtasks.tasks.task_files import TAG_ENDING, task_files, variants_of
from medtasks.tasks.task_index import lm_eval_tasks_folder, tasks_folder


def list_tasks(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="List only lines with all these words.")
    ] = None,
    sanity: Annotated[
        bool, typer.Option("--sanity", help="List the sanity variants of image tasks: <task>_blind and so on.")
    ] = False,
    thinking: Annotated[bool, typer.Option("--thinking", help="List the tasks that have thinking variants.")] = False,
    include_path: IncludePath = None,
) -> None:
    """List our tasks and groups with a short description, or their variants."""
    look_into(context, include_path)
    tasks = task_files()
    width = max(len(name) for name in tasks)
    for task in tasks.values():
        variants = variants_of(task, sanity=sanity, thinking=thinking)
        if variants:
            endings = [f"_{variant.variant}" for variant in variants] + [TAG_ENDING] * bool(sanity and task.variants)
            line = f"{task.name:<{width}}  {' '.join(endings)}"
        elif sanity or thinking:
            continue
        else:
            line = f"{task.name:<{width}}  {task.kind:<5}  {task.description}"
        if all(word.lower() in line.lower() for word in words or ()):
            print(line)  # noqa: T201


def show_path(
    lm_eval: Annotated[
        bool, typer.Option("--lm-eval", help="The folder with the text-only tasks for lm-eval.")
    ] = False,
) -> None:
    """Print the folder to give as --include_path to a harness that cannot find plug-ins by itself."""
    print(lm_eval_tasks_folder() if lm_eval else tasks_folder())  # noqa: T201
