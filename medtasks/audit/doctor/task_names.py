"""Names of tasks: where two files give the same one, the harness takes the first and says nothing."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from medtasks.audit.doctor.findings import TASKS, Finding, State
from medtasks.audit.doctor.harness import harness_folder
from medtasks.audit.doctor.scope import Scope
from medtasks.data.home import dataset_folder, own_tasks_folder
from medtasks.data.manifest import FILE_NAME
from medtasks.errors import near_match
from medtasks.harness.task_files import task_files
from medtasks.harness.task_index import tasks_folder

_NOT_WALKED = ("__pycache__", ".ipynb_checkpoints")


# With libyaml all 1,900 files of the harness take half a second.
class _Loader(getattr(yaml, "CFullLoader", yaml.FullLoader)):  # type: ignore[misc]
    """Reads a file as the harness does when it lists tasks: without importing what ``!function`` names."""


_Loader.add_constructor("!function", lambda _, node: str(node.value))


def collisions(scope: Scope) -> Iterator[Finding]:
    """Look for our names, or those of the chosen tasks, among the harness's own, and for the user's among ours."""
    shipped, own = _named(tasks_folder()), _named(own_tasks_folder())
    ours = {*shipped, *own}
    if scope.chosen:
        ours = (ours & {*scope.names}) | {task.name for task in scope.tasks}
    harness = harness_folder() / "tasks"
    if not harness.is_dir():
        fix = "pip install --force-reinstall lmms_eval"
        yield Finding(TASKS, "names", State.PROBLEM, f"lmms-eval has no folder of tasks at {harness}", fix)
        return
    taken = {name: path for name, path in _named(harness).items() if name in ours}
    for name, path in taken.items():
        found = f"'{name}' is a name of lmms-eval's own tasks, too, and the harness takes {path}"
        yield Finding(TASKS, name, State.PROBLEM, found, f"rename it in {path}, or where medtasks has it")
    for path in _yaml_files(own_tasks_folder()):
        for name in shipped.keys() & _defined_or_none(path)[:1]:
            found = f"'{name}' is a name of medtasks, too, and the harness does not take {path}"
            yield Finding(TASKS, name, State.PROBLEM, found, f"rename it in {path}")
    if not taken:
        found = f"no task of lmms-eval has one of the names of ours ({len(ours)})"
        yield Finding(TASKS, "names", State.OK, found)


def foreign_names(scope: Scope) -> Iterator[Finding]:
    """Look for the chosen names that are not ours among the harness's tasks."""
    if not scope.foreign:
        return
    known = _named(harness_folder() / "tasks")
    ours = [*task_files(), *(tag for task in task_files().values() for tag in task.tags)]
    for name in scope.foreign:
        if name in known:
            found = f"'{name}' is a task of lmms-eval itself, whose data and metrics are not looked at"
            yield Finding(TASKS, name, State.NOTE, found, f"try it: lmms_eval --tasks {name} --limit 1")
        else:
            found = f"there is no task '{name}', neither here nor in lmms-eval{near_match(name, ours)}"
            yield Finding(TASKS, name, State.PROBLEM, found, "medtasks tasks lists ours")


def own_files() -> Iterator[Finding]:
    """Look at the user's own task files: one that cannot be read takes all tasks of this package with it."""
    folder = own_tasks_folder()
    count = wrong = 0
    for path in _yaml_files(folder):
        count += 1
        trouble = _trouble(path)
        if trouble:
            wrong += 1
            found = f"{path} {trouble}, so that the harness lists none of our tasks"
            yield Finding(TASKS, path.stem, State.PROBLEM, found, f"mend or delete {path}")
        else:
            yield from _data_gone(path)
    if count and not wrong:
        yield Finding(TASKS, "own files", State.OK, f"the task files in {folder} can be read ({count})")


def defined_names(config: Any) -> list[str]:
    """Return the names a task file gives, as the harness lists them.

    Args:
        config: What the file says, see :class:`_Loader`.

    Example:
        >>> defined_names({"task": "a", "tag": ["b", "c"]})
        ['a', 'b', 'c']
        >>> defined_names({"group": "d", "task": ["a", "b"]})
        ['d']
    """
    if not isinstance(config, dict):
        return []
    task = config.get("task")
    if "class" not in config and isinstance(task, list):
        return [config["group"]] if isinstance(config.get("group"), str) else []
    if not isinstance(task, str):
        return []
    labels = [config.get(key, []) for key in ("tag", "group")] if "class" not in config else []
    return [task, *(name for label in labels for name in ([label] if isinstance(label, str) else label or []))]


def own_names() -> set[str]:
    """Return the names of our tasks, groups and tags, with those of the user that can be read."""
    return {*_named(tasks_folder()), *_named(own_tasks_folder())}


def _named(folder: Path) -> dict[str, Path]:
    """Return a file for each name that the files in a folder give."""
    return {name: path for path in _yaml_files(folder) for name in _defined_or_none(path)}


def _yaml_files(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_WALKED]
        yield from (Path(root, name) for name in sorted(files) if name.endswith(".yaml"))


def _trouble(path: Path) -> str:
    """Return in words why the harness cannot list a file; empty if it can."""
    try:
        config = _read(path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return f"is no valid YAML (line {mark.line + 1})" if mark else "is no valid YAML"
    except FileNotFoundError as error:
        return f"includes {error.filename}, which is not there"
    except RecursionError:
        return "includes itself, or others that include it"
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        return f"cannot be read ({type(error).__name__})"
    if not isinstance(config, dict):
        return "holds no keys and values"
    if isinstance(config.get("task"), list) and "class" not in config and "group" not in config:
        return "lists tasks of a group and has no 'group' with its name"
    return ""


def _data_gone(path: Path) -> Iterator[Finding]:
    config = _read(path)
    metadata = config.get("metadata")
    dataset = metadata.get("dataset") if isinstance(metadata, dict) else None
    if not isinstance(dataset, str) or (dataset_folder(dataset) / FILE_NAME).is_file():
        return
    fix = f"prepare '{dataset}' again with medtasks data prepare or medtasks data select, or delete {path}"
    yield Finding(TASKS, path.stem, State.WARNING, f"the dataset '{dataset}' of {path} is gone", fix)


def _read(path: Path) -> Any:
    """Return what a file and those it includes say, merged as the harness does."""
    config = yaml.load(path.read_bytes(), Loader=_Loader)
    if not isinstance(config, dict) or "include" not in config:
        return config
    included = config.pop("include")
    merged: dict[str, Any] = {}
    for name in [included] if isinstance(included, str) else reversed(included):
        merged |= _read(Path(name) if Path(name).is_file() else path.parent / name)
    return merged | config


def _defined_or_none(path: Path) -> list[str]:
    try:
        return defined_names(_read(path))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError):
        return []  # of the user's, :func:`own_files` says so
