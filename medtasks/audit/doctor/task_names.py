"""Names of tasks: where two files give the same one, the harness takes the first and says nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from medtasks.audit.doctor.findings import TASKS, Finding
from medtasks.audit.doctor.harness import harness_folder
from medtasks.audit.doctor.scope import Scope
from medtasks.data.home import dataset_folder, own_tasks_folder
from medtasks.data.manifest import FILE_NAME
from medtasks.errors import near_match
from medtasks.harness.task_files import task_files
from medtasks.harness.task_index import index_tasks, tasks_folder

_NOT_WALKED = {"__pycache__", ".ipynb_checkpoints"}


class _Loader(getattr(yaml, "CFullLoader", yaml.FullLoader)):  # type: ignore[misc]  # which of them is not known before
    """Stops at a file where the harness stops at it: at a tag that nobody knows, too."""


_Loader.add_constructor("!function", lambda _, node: str(node.value))


def collisions(scope: Scope) -> Iterator[Finding]:
    """Look for our names, or those of the chosen tasks, among the harness's own, and for the user's among ours."""
    shipped = _named(tasks_folder())
    ours = own_names()
    if scope.chosen:
        ours = (ours & {*scope.names}) | {task.name for task in scope.tasks}
    harness = harness_folder() / "tasks"
    if not harness.is_dir():
        fix = "pip install --force-reinstall lmms_eval"
        yield TASKS.problem("names", f"lmms-eval has no folder of tasks at {harness}", fix)
        return
    taken = {name: path for name, path in _named(harness).items() if name in ours}
    for name, path in taken.items():
        found = f"'{name}' is a name of lmms-eval's own tasks, too, and the harness takes {path}"
        yield TASKS.problem(name, found, f"rename it in {path}, or where medtasks has it")
    for path in _yaml_files(own_tasks_folder()):
        for name in shipped.keys() & index_tasks([path]).paths:
            found = f"'{name}' is a name of medtasks, too, and the harness does not take {path}"
            yield TASKS.problem(name, found, f"rename it in {path}")
    if not taken:
        yield TASKS.ok("names", f"no task of lmms-eval has one of the names of ours ({len(ours)})")


def foreign_names(scope: Scope) -> Iterator[Finding]:
    """Look for the chosen names that are not ours among the harness's tasks."""
    if not scope.foreign:
        return
    known = _named(harness_folder() / "tasks")
    ours = [*task_files(), *(tag for task in task_files().values() for tag in task.tags)]
    for name in scope.foreign:
        if name in known:
            found = f"'{name}' is a task of lmms-eval itself, whose data and metrics are not looked at"
            yield TASKS.note(name, found, f"try it: lmms_eval --tasks {name} --limit 1")
        else:
            found = f"there is no task '{name}', neither here nor in lmms-eval{near_match(name, ours)}"
            yield TASKS.problem(name, found, "medtasks tasks lists ours")


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
            yield TASKS.problem(path.stem, found, f"mend or delete {path}")
        else:
            yield from _data_gone(path)
    if count and not wrong:
        yield TASKS.ok("own files", f"the task files in {folder} can be read ({count})")


def own_names() -> set[str]:
    """Return the names of our tasks, groups and tags, with those of the user that can be read."""
    return {*_named(tasks_folder()), *_named(own_tasks_folder())}


def _named(folder: Path) -> dict[str, Path]:
    """Return a file for each task, group and tag that the files in a folder name; the harness knows no other."""
    index = index_tasks([folder])
    # A class of the harness has no tags.
    tagged = {task for task, config in index.configs.items() if "class" not in config}
    tags = {tag: [index.paths[task] for task in tasks if task in tagged] for tag, tasks in index.members.items()}
    return {**{tag: paths[0] for tag, paths in tags.items() if paths}, **index.paths}


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.yaml") if not _NOT_WALKED & {*path.relative_to(folder).parts})


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
    yield TASKS.warning(path.stem, f"the dataset '{dataset}' of {path} is gone", fix)


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
