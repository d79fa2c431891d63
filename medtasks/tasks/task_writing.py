"""Writing task files of the user's own, below ``MEDTASKS_HOME``."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.home import own_tasks_folder
from medtasks.errors import MedTasksError
from medtasks.harness.task_files import tagged_tasks, task_files, variant_of
from medtasks.harness.task_index import DottedName, dumped, harness_folder


def own_task_path(name: str) -> Path:
    """Return the file of a task of the user's own, whether or not it exists."""
    return own_tasks_folder() / f"{name}.yaml"


def refuse_taken(name: str, mark: str, option: str) -> None:
    """Refuse a name that a task or dataset has already; the option gives another.

    Files with the mark as their first line may be overwritten.

    Raises:
        MedTasksError: It is taken, by the harness, by this package or by a file of the user's.
    """
    path = own_task_path(name)
    ours = {task.name: task.path for task in task_files().values()}
    tags = {tag for task in task_files().values() if task.path != path for tag in task.tags}
    taken = name in CATALOGUE or name in tags or variant_of(name) or tagged_tasks(name)
    if taken or ours.get(name, path) != path or _harness_knows(name):
        raise MedTasksError(f"there is a task or dataset '{name}' already; choose another name with {option}")
    if path.exists() and not path.read_text(encoding="utf-8").startswith(mark):
        raise MedTasksError(f"{path} was not written by this command; move it away, or choose another {option}")


def own_keys(task: str, dataset: str, tags: object) -> dict[str, Any]:
    """Return what a task file says of its name and its data, which are prepared."""
    return {
        "task": task,
        "task_alias": DottedName(f"medtasks.data.label_of.{task}"),
        "tag": tags,
        "dataset_path": DottedName(f"medtasks.data.path_of.{dataset}"),
    }


def own_metadata(metadata: Mapping[str, Any], dataset: str, **about: Any) -> dict[str, Any]:
    """Return a task's metadata for a copy of it on other data, which has no few-shot twin, or one with its own file."""
    data = {"dataset": dataset, "data": DottedName(f"medtasks.data.provenance_of.{dataset}")}
    return {**{name: value for name, value in metadata.items() if name != "few_shot"}, **about, **data}


def write_task_file(name: str, config: Mapping[str, Any], mark: str) -> None:
    """Write a task file that stands alone, in one step; the mark is its first line.

    Raises:
        MedTasksError: It cannot be written.
    """
    path, text = own_task_path(name), dumped(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(mark + text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise MedTasksError(
            f"cannot write the task file {path}: {error.strerror or error}; the dataset is prepared, make room and run "
            f"the same command again"
        ) from error


def _harness_knows(name: str) -> bool:
    """Return whether a task file of the harness names it; importing the harness would take long."""
    root = harness_folder()
    entry = re.compile(rb"^\s*(?:-\s|(?:-\s*)?(?:task|group|tag)\s*:)[^#\n]*\b" + name.encode() + rb"\b", re.MULTILINE)
    return root is not None and any(entry.search(path.read_bytes()) for path in root.rglob("*.yaml"))
