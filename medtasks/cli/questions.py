"""``medtasks questions``: questions in files, for a model that lives elsewhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli.options import IncludePath, look_into
from medtasks.cli.output import out, say
from medtasks.errors import MedTasksError
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import members_of, task_file


class QuestionForm(StrEnum):
    """Form of the files with questions."""

    MESSAGES = "messages"
    BATCH = "openai-batch"


def questions(
    context: typer.Context,
    tasks: Annotated[
        list[str], Argument(help="Tasks, variants, groups or tags, see 'medtasks tasks'.")
    ],
    folder: Annotated[
        Path, Option("--out", help="New folder; several tasks have a folder each in it.")
    ],
    form: Annotated[
        QuestionForm,
        Option(
            "--format",
            help="Lines of messages with image files, or requests of OpenAI's batches.",
        ),
    ] = QuestionForm.MESSAGES,
    limit: Annotated[
        int | None, Option(min=1, help="Number of questions of each task, the first ones.")
    ] = None,
    include_path: IncludePath = None,
) -> None:
    """Write prompts and images of tasks into files, to have them answered by a model that 'medtasks run' cannot ask.

    The folder gets a README that says how to go on; 'medtasks score' reads the replies. Members of a group that cannot
    be asked so are left out and named, and the exit code is 1.
    """
    from medtasks.running.question_writer import write_questions

    look_into(context, include_path)
    chosen: dict[str, TaskFile] = {}
    for name in tasks:
        chosen |= {task.name: task for task in members_of(name) or [task_file(name)]}
    left_out = 0
    for task in chosen.values():
        folder_of_task = folder if len(chosen) == 1 else folder / task.name
        try:
            with out.status(f"Writing the questions of {task.name} ..."):
                written = write_questions(
                    task, folder_of_task, batch=form is QuestionForm.BATCH, limit=limit
                )
        except MedTasksError as error:
            if len(chosen) == 1:
                raise
            out.print(f"[yellow]left out[/] {task.name}: ", end="")
            say(str(error))
            left_out += 1
            continue
        say(
            f"{written.samples} questions of {task.name} in {folder_of_task}; its README.md says how to go on"
        )
    if left_out:
        raise typer.Exit(1)
