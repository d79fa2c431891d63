"""Our task YAML as data, read without the harness: names, descriptions, datasets and answer rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from medtasks.errors import unknown_name
from medtasks.plugin import tasks_folder


@dataclass(frozen=True)
class TaskFile:
    """One task or group.

    Attributes:
        name: Name for ``--tasks``.
        kind: ``"task"`` or ``"group"``.
        path: The YAML file.
        description: One line.
        dataset: Catalogue name of its dataset, or None for a group.
        output_type: ``"generate_until"`` or ``"multiple_choice"``, or None for a group.
        rules: Answer rule by filter name; empty where a judge reads the replies.
    """

    name: str
    kind: str
    path: Path
    description: str
    dataset: str | None = None
    output_type: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Reads ``!function a.b`` as the text ``a.b``."""


_Loader.add_constructor("!function", lambda _, node: str(node.value))


@cache
def task_files() -> Mapping[str, TaskFile]:
    """Return all our tasks and groups by name, sorted."""
    found = [_read(path) for path in tasks_folder().rglob("*.yaml")]
    return {task.name: task for task in sorted(found, key=lambda task: task.name)}


def task_file(name: str) -> TaskFile:
    """Return one of our tasks or groups.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    if name not in task_files():
        raise unknown_name("task", name, task_files())
    return task_files()[name]


def _read(path: Path) -> TaskFile:
    config: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    metadata = config["metadata"]
    if "group" in config:
        return TaskFile(config["group"], "group", path, metadata["description"])
    rules = {
        pipeline["name"]: step["rule"]
        for pipeline in config["filter_list"]
        for step in pipeline["filter"]
        if "rule" in step
    }
    return TaskFile(
        config["task"], "task", path, metadata["description"], metadata["dataset"], config["output_type"], rules
    )
