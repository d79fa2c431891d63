"""Our task YAML as data, read without the harness: names, descriptions, datasets and answer rules.

Sanity variants (:mod:`medtasks.sanity.variants`) have no files; they are found by name.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from medtasks.data.home import own_tasks_folder
from medtasks.errors import MedTasksError, unknown_name
from medtasks.plugin import tasks_folder
from medtasks.sanity.eligibility import variants_for


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
        variants: Names of its sanity variants (``blind``, ``blank``, ``swapped``, ``rotated``); none for a variant.
        variant: Which variant of ``base`` it is, None for a task with a file.
        base: Name of the task of which it is a variant, None for a task with a file.
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
    variants: tuple[str, ...] = ()
    variant: str | None = None
    base: str | None = None


# With libyaml it takes a tenth of the time.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Leaves ``!function a.b`` unresolved, so that listing tasks imports nothing."""


_Loader.add_constructor("!function", lambda _, node: DottedName(node.value))


def task_files() -> Mapping[str, TaskFile]:
    """Return all our tasks and groups by name, sorted, with those of the user's own datasets.

    Only those with a file are listed; :func:`task_file` knows their sanity variants, too.
    """
    found = [*_in_folder(tasks_folder()), *_of_the_user(own_tasks_folder())]
    return {task.name: task for task in sorted(found, key=lambda task: task.name)}


@cache
def _in_folder(folder: Path) -> tuple[TaskFile, ...]:
    return tuple(map(_read, folder.rglob("*.yaml")))


def _of_the_user(folder: Path) -> Iterator[TaskFile]:
    for path in folder.rglob("*.yaml"):
        try:
            yield _read(path)
        except (KeyError, TypeError):  # one that lacks our keys was put there for the harness alone
            continue
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            where = getattr(error, "problem_mark", None)
            line = f" in line {where.line + 1}" if where else ""
            raise MedTasksError(
                f"the task file {path} is damaged{line}, and the harness stops at it whatever task is chosen; mend it "
                f"or move it away"
            ) from error


def task_file(name: str) -> TaskFile:
    """Return one of our tasks or groups, or a sanity variant of a task.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    from medtasks.sanity.variants import variant_task

    known = task_files()
    found = known.get(name) or variant_task(name)
    if found is None:
        raise unknown_name("task", name, known)
    return found


def task_config(name: str) -> dict[str, Any]:
    """Return what a task's file and the files it includes say, with unresolved dotted names.

    Of a sanity variant, what its task says with what the variant changes.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    from medtasks.sanity.variants import overrides

    task = task_file(name)
    config = _with_included(task.path)
    return config if task.variant is None else config | overrides(task, config["metadata"])


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
        variants=variants_for(config),
    )


def _with_included(path: Path) -> dict[str, Any]:
    """Read a file and what it includes, as the harness does: its own keys replace included ones whole."""
    config = dict(_parsed(path, path.stat().st_mtime_ns))
    names = config.pop("include", [])
    merged: dict[str, Any] = {}
    for name in [names] if isinstance(names, str) else reversed(names):  # of several, the first one wins
        merged |= _with_included(path.parent / name)
    return merged | config


@lru_cache(maxsize=512)  # many tasks include one file
def _parsed(path: Path, modified: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    return found
