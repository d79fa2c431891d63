"""The task whose questions a file answers, where they are not those of the task that the user named."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from medtasks.data.samples import Documents
from medtasks.errors import MedTasksError
from medtasks.runs.foreign.foreign_rows import ForeignFile
from medtasks.runs.foreign.row_matching import match_each
from medtasks.runs.foreign.sample_index import SampleIndex
from medtasks.tasks.documents import task_documents
from medtasks.tasks.question_files import is_local
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_files

_ROWS = 200  # of the file, which are enough to tell


def nearest_task(file: ForeignFile, task: TaskFile) -> tuple[str, int, int]:
    """Find the other task on this machine that most rows of a file answer.

    Args:
        file: Rows that do not answer the task.
        task: The task that the user named.

    Returns:
        Its name, empty if no row answers any; the number of rows that answer it; and that of the rows read.
    """
    step = max(1, len(file.rows) // _ROWS)
    rows = file.rows[::step][:_ROWS]
    sample = replace(file, rows=rows)
    nearest = ""
    most = 0
    for name, documents in _other_questions(task):
        with contextlib.suppress(MedTasksError):
            matches = match_each(sample, SampleIndex(documents))
            count = sum(bool(match.samples) for match in matches)
            if count > most:
                nearest = name
                most = count
    return nearest, most, len(rows)


def _other_questions(task: TaskFile) -> Iterator[tuple[str, Documents]]:
    """Yield the questions of each other dataset that is on this machine, with the first task that asks them."""
    datasets = {task.dataset or task.name}
    for other in task_files().values():
        dataset = other.dataset or other.name
        if other.kind == "group" or dataset in datasets:
            continue
        datasets.add(dataset)
        with contextlib.suppress(MedTasksError):
            if other.dataset is not None or is_local(task_config(other.name)):
                yield other.name, task_documents(other)
