"""``medtasks tasks`` and ``new``: tasks that there are, and a short task file for a user's questions."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli import data
from medtasks.cli.options import IncludePath, look_into
from medtasks.cli.output import say
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import check_task_name, tags_of, task_files, variants_of
from medtasks.tasks.task_index import dump_task_file, index_tasks


def tasks(
    context: typer.Context,
    words: Annotated[
        list[str] | None, Argument(metavar="[WORD]...", help="Show lines with all these words.")
    ] = None,
    sanity: Annotated[
        bool, Option("--sanity", help="List sanity and stress variants, such as _blind.")
    ] = False,
    thinking: Annotated[
        bool, Option("--thinking", help="List the tasks that have thinking variants.")
    ] = False,
    include_path: IncludePath = None,
) -> None:
    """List our tasks and groups with a short description, or their variants.

    'medtasks tasks expand FILE' prints a task file with all keys that its family supplies.
    """
    words = words or []
    match words:
        case ["expand", file]:
            _print_whole_file(Path(file))
            return
    look_into(context, include_path)
    files = task_files()
    width = max(map(len, files))
    for task in files.values():
        facts = _facts_of(task, sanity=sanity, thinking=thinking)
        line = f"{task.name:<{width}}  {facts}"
        if facts and all(word.lower() in line.lower() for word in words):
            print(line)  # noqa: T201


def _print_whole_file(path: Path) -> None:
    """Print a task file with all keys that its family supplies.

    Raises:
        MedTasksError: There is no such file, or no task in it.
    """
    if not path.is_file():
        raise MedTasksError(f"there is no task file {path}")
    index = index_tasks([path], strict=True)
    configs = [*index.configs.values(), *index.groups.values()]
    if not configs:
        raise MedTasksError(f"{path} has no task: a line task: NAME is missing")
    print(dump_task_file(dict(configs[0])), end="")  # noqa: T201


def _facts_of(task: TaskFile, *, sanity: bool, thinking: bool) -> str:
    """Return kind and description of a task, or the endings of its wanted variants and of their tags, if it has any."""
    if not (sanity or thinking):
        return f"{task.kind:<5}  {task.description}"
    variants = variants_of(task, sanity=sanity, thinking=thinking)
    endings = [f"_{variant.variant}" for variant in variants]
    if variants and sanity:
        endings += [tag.removeprefix(task.name) for tag in tags_of(task)]
    return " ".join(endings)


def new(
    context: typer.Context,
    task: Annotated[
        str, Argument(help="Name of the new task, in small letters, digits and underscores.")
    ],
    questions: Annotated[
        Path, Argument(help="Your questions: CSV, TSV, .xlsx, JSON, JSONL or parquet.")
    ],
) -> None:
    """Write a task file next to your questions: find the family that their columns fit, and check the task."""
    from medtasks.tasks.new_task import QuestionFile, new_task

    path = questions.absolute().with_name(f"{task}.yaml")
    check_task_name(task)
    if not questions.is_file():
        raise MedTasksError(f"there is no file {questions}")
    if path.exists():
        raise MedTasksError(f"{path} exists already; choose another name, or move it away")
    file = QuestionFile(questions.absolute())
    text = new_task(task, file)
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    say(f"{path}:\n{text}")
    if not file.images:
        say(
            "note: no column holds images or their paths, so the questions are asked without images"
        )
    if "patient_id" not in file.columns:
        say(
            "note: if several questions are of one patient, name their column: columns: {patient_id: COLUMN}"
        )
    data.verify(context, task, [path.parent])
