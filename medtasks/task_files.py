"""Our task YAML as data, read without the harness: names, descriptions, datasets and answer rules."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from medtasks.data.home import own_tasks_folder
from medtasks.errors import unknown_name
from medtasks.plugin import tasks_folder


class DottedName(str):
    """What stands behind ``!function`` in a task file."""

    def resolve(self) -> Any:
        """Import what it names."""
        module, _, name = self.rpartition(".")
        return getattr(importlib.import_module(module), name)


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
        option_forms: How options are written for the rule, by filter name, where the task says so.
        process_results: The scoring hook, or None for a group.
        metric_list: Its metrics, or None for a group.
        members: Names of a group's tasks and groups.
        tags: Names under which the task is selected together with others.
        breakdown: Columns by which ``medtasks score`` groups its questions.
    """

    name: str
    kind: str
    path: Path
    description: str
    dataset: str | None = None
    output_type: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    option_forms: Mapping[str, str] = field(default_factory=dict)
    process_results: DottedName | None = None
    metric_list: DottedName | None = None
    members: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    breakdown: tuple[str, ...] = ()


class _Loader(yaml.SafeLoader):
    """Leaves ``!function a.b`` unresolved, so that listing tasks imports nothing."""


_Loader.add_constructor("!function", lambda _, node: DottedName(node.value))


def task_files() -> Mapping[str, TaskFile]:
    """Return all our tasks and groups by name, sorted, with those of the user's own datasets."""
    found = [*_in_folder(tasks_folder()), *map(_read, own_tasks_folder().rglob("*.yaml"))]
    return {task.name: task for task in sorted(found, key=lambda task: task.name)}


@cache
def _in_folder(folder: Path) -> tuple[TaskFile, ...]:
    return tuple(map(_read, folder.rglob("*.yaml")))


def task_file(name: str) -> TaskFile:
    """Return one of our tasks or groups.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    if name not in task_files():
        raise unknown_name("task", name, task_files())
    return task_files()[name]


def task_config(name: str) -> dict[str, Any]:
    """Return what a task's file and the files it includes say, with unresolved dotted names.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    return _with_included(task_file(name).path)


def resolved(value: Any) -> Any:
    """Return a configuration value with every dotted name in it replaced by what it names."""
    if isinstance(value, DottedName):
        return value.resolve()
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    return [resolved(item) for item in value] if isinstance(value, list) else value


def _read(path: Path) -> TaskFile:
    config = _with_included(path)
    metadata = config["metadata"]
    if "group" in config:
        return TaskFile(config["group"], "group", path, metadata["description"], members=tuple(config["task"]))
    steps = {
        pipeline["name"]: step for pipeline in config["filter_list"] for step in pipeline["filter"] if "rule" in step
    }
    return TaskFile(
        name=config["task"],
        kind="task",
        path=path,
        description=metadata["description"],
        dataset=metadata["dataset"],
        output_type=config["output_type"],
        rules={name: step["rule"] for name, step in steps.items()},
        option_forms={name: step["option"] for name, step in steps.items() if "option" in step},
        process_results=config["process_results"],
        metric_list=config["metric_list"],
        tags=tuple([tags] if isinstance(tags := config.get("tag", []), str) else tags),
        breakdown=tuple(metadata.get("breakdown", ())),
    )


def _with_included(path: Path) -> dict[str, Any]:
    """Read a file and what it includes, as the harness does: its own keys replace included ones whole."""
    config: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    names = config.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [names] if isinstance(names, str) else reversed(names):  # of several, the first one wins
        merged |= _with_included(path.parent / name)
    return merged | config
