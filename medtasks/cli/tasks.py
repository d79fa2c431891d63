"""``medtasks tasks`` and ``medtasks path``."""

from medtasks.plugin import tasks_folder
from medtasks.task_files import task_files


def list_tasks() -> None:
    """List our tasks and groups with one line of description each."""
    width = max(len(name) for name in task_files())
    for task in task_files().values():
        print(f"{task.name:<{width}}  {task.kind:<5}  {task.description}")  # noqa: T201


def show_path() -> None:
    """Print the folder to give as --include-path where the harness cannot find plug-ins by itself."""
    print(tasks_folder())  # noqa: T201
