"""Tasks by name, read without the harness: ours, those in the user's folders, and what stands behind groups and tags.

They come from three places, and of two with one name the first counts, as in the harness: folders of the user's
(``--include_path``, see :func:`including`), this package, and ``MEDTASKS_HOME/tasks``. Sanity variants have no files;
they are found by name:

============  =========================================================================================================
variant       how its questions differ from those of the task
============  =========================================================================================================
``_blind``    the question's image is not shown. Images of solved examples in the prompt remain, and Med-Flamingo's text
              looks at the last one of them
``_blank``    a uniform grey image of the same size stands in place of each image of the question; models that keep
              images' proportions still see these
``_swapped``  the question comes with another image: the other one of its pair, else that of another patient or case
``_rotated``  every question is asked once for each rotation of its options, see :mod:`medtasks.families.rotations`
============  =========================================================================================================

Thinking variants have none either: ``_think`` and ``_think_boxed`` ask the same with an instruction to reason first,
see :mod:`medtasks.tasks.thinking_variants`; no image is needed for them.

A task whose metadata have ``few_shot`` has a twin ``<task>_5shot``, which shows five solved examples first, and
variants of its own. A model that looks at the images loses with the first three what the images tell; what it keeps, it
has read from the question. ``<task>_sanity`` is a tag: the task and all its variants.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name
from medtasks.home import own_tasks_folders
from medtasks.tasks.task_file import TWIN_ENDING, TaskFile, following, group_file, task_file_of
from medtasks.tasks.task_index import (
    TaskIndex,
    index_tasks,
    listed_variants,
    mapping_in,
    read_config,
    tasks_folder,
    variant_changes,
    with_image_roots,
)
from medtasks.tasks.thinking_variants import THINKING

INCLUDE = "--include_path"
TAG_ENDING = "_sanity"

_included: Mapping[str, TaskFile] = {}


def include(folders: Sequence[Path]) -> None:
    """Look for tasks in these folders of the user's, too, from now on; the first of two with one name counts.

    Raises MedTasksError where a folder is not there, or a task file in it is damaged.
    """
    global _included
    for folder in folders:
        if not folder.is_dir():
            raise MedTasksError(f"there is no folder {folder}; give the one with your task files with {INCLUDE}")
    index = index_tasks([Path(os.path.abspath(folder)) for folder in folders], strict=True)
    _included = {task.name: task for task in _tasks(index)}


@contextlib.contextmanager
def including(folders: Sequence[Path]) -> Iterator[None]:
    """Do the same within this block only; without folders, what was included before remains."""
    global _included
    before = _included
    try:
        if folders:
            include(folders)
        yield
    finally:
        _included = before


def included_option(*names: str) -> str:
    """Return what a command needs to find these tasks, by default all: `` --include_path FOLDER``, mostly nothing."""
    bases = [variant[0] if (variant := variant_of(name)) else name for name in names or _included]
    folders = dict.fromkeys(str(_included[base].path.parent) for base in bases if base in _included)
    return "".join(f" {INCLUDE} {shlex.quote(folder)}" for folder in folders)


def refuse_shipped_names() -> None:
    """Raise MedTasksError where an included file has the name of a task or group of ours, or of a variant of one."""
    shipped = _Tasks({}, {})
    for name, task in _included.items():
        ours = shipped.get(name) or _variant(name, shipped)
        if ours is not None and ours.path != task.path:
            raise MedTasksError(
                f"{task.path} has a task '{name}', which is a name of ours, and recorded runs of that name are scored "
                f"by our task alone; rename it, or leave out {INCLUDE}"
            )


def task_files() -> Mapping[str, TaskFile]:
    """Return all tasks and groups by name, sorted: ours, of the user's own datasets, and of included folders.

    Few-shot twins are listed, variants are not; :func:`task_file` knows both. A damaged file raises MedTasksError.
    """
    return _Tasks(_included, {task.name: task for task in _tasks(index_tasks(own_tasks_folders(), strict=True))})


class _Tasks(Mapping[str, TaskFile]):
    """Tasks and groups by name; a look-up reads at most one file of ours, only a listing reads them all."""

    def __init__(self, included: Mapping[str, TaskFile], own: Mapping[str, TaskFile]) -> None:
        self._included, self._own = included, own

    def __getitem__(self, name: str) -> TaskFile:
        for tasks in (self._included, _shipped(name.removesuffix(TWIN_ENDING)), self._own):
            if name in tasks:
                return tasks[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        shipped = (name for file in _shipped_paths() for name in _shipped(file))
        return iter(sorted({*self._included, *shipped, *self._own}))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _shipped(file: str) -> Mapping[str, TaskFile]:
    """Return our task or group of this name and the others of its file, such as its few-shot twin."""
    path = _shipped_paths().get(file)
    return {} if path is None else {task.name: task for task in _tasks(index_tasks([path], strict=True))}


@cache
def _shipped_paths() -> Mapping[str, Path]:
    """Return the paths of our task files by task: each file is named after its task or group, which others follow."""
    paths = {path.stem: path for path in tasks_folder().glob("*/*.yaml")}
    folders = sorted({path.parent for path in paths.values()})
    return paths | {name: paths[base] for folder in folders for name, base, _ in listed_variants(folder)}


def _tasks(index: TaskIndex) -> Iterator[TaskFile]:
    """Yield the tasks and groups of an index; tasks that are Python classes only the harness knows."""
    for name, config in index.groups.items():
        yield group_file(name, config, index.paths[name], index.members[name])
    for name, config in index.configs.items():
        if "class" not in config:
            task = task_file_of(name, config, index.paths[name])
            yield task
            if "few_shot" in mapping_in(config, "metadata") and f"{name}{TWIN_ENDING}" not in index:
                yield task.as_twin(config)
            for differs in variant_changes(task.path).values() if task.is_shipped else ():
                yield following(task, config, differs)


def task_file(name: str) -> TaskFile:
    """Return a task or group, or a variant of a task; UnknownName suggests the nearest name."""
    known = task_files()
    task = known.get(name) or _variant(name, known)
    if task is None:
        hint = f"a task from a folder of your own needs {INCLUDE} FOLDER"
        raise UnknownName(f"{unknown_name('task', name, known, 'medtasks tasks')}; {hint}")
    return task


def scored_task(name: str) -> TaskFile:
    """Return a task whose replies can be scored without the harness; RepliesError for any other."""
    task = task_file(name)
    if task.only_harness:
        raise RepliesError(f"'{name}' {task.only_harness}")
    return task


def task_config(name: str) -> dict[str, Any]:
    """Return what a task's file and the files it includes say, with unresolved dotted names.

    Of a few-shot twin or a sanity variant, what its task says with what it changes. Errors: :func:`task_file`.
    """
    task = task_file(name)
    config = with_image_roots(read_config(task.path), task.path.parent)
    return config | task.changes(config)


def variant_of(task_name: str) -> tuple[str, str] | None:
    """Return the name of the base task and of the variant that a name stands for; None for no variant of ours.

    Example:
        >>> variant_of("mediconfusion_gd_blind")
        ('mediconfusion_gd', 'blind')
        >>> variant_of("mediconfusion_gd") is None
        True
    """
    found = _variant(task_name, task_files())
    return None if found is None else (str(found.base), str(found.variant))


def _variant(name: str, known: Mapping[str, TaskFile]) -> TaskFile | None:
    for variant in (*VARIANTS, *THINKING):
        base = known.get(name.removesuffix(f"_{variant}"))
        if name not in known and base is not None and variant in (*base.variants, *base.thinking):
            return base.as_variant(variant)
    return None


def variants_of(task: TaskFile, *, sanity: bool = True, thinking: bool = False) -> list[TaskFile]:
    """Return the sanity or thinking variants of a task, or both; a name that belongs to a file is not among them."""
    known, variants = task_files(), (*(task.variants if sanity else ()), *(task.thinking if thinking else ()))
    return [task.as_variant(variant) for variant in variants if f"{task.name}_{variant}" not in known]


def tagged_tasks(tag: str) -> list[TaskFile]:
    """Return a task and its variants for the tag ``<task>_sanity``; nothing for another name."""
    base = task_files().get(tag.removesuffix(TAG_ENDING))
    if base is None or not tag.endswith(TAG_ENDING) or not base.variants:
        return []
    return [base, *variants_of(base)]


def members_of(name: str) -> list[TaskFile]:
    """Return the tasks behind a task, group or tag, each once; none for a name that is not ours."""
    return list({task.name: task for task in _members(name, ())}.values())


def tasks_of(name: str) -> list[str]:
    """Return the names of the tasks behind a task, group or tag; none for a name that is not ours."""
    return [task.name for task in members_of(name)]


def _members(name: str, above: tuple[str, ...]) -> Iterator[TaskFile]:
    known = task_files()
    if name not in known:
        variant = _variant(name, known)
        yield from [variant] if variant else tagged_tasks(name)
        yield from (task for task in known.values() if name in task.tags)
    elif known[name].kind == "group":
        inside = [list(_members(one, (*above, name))) for one in known[name].members if one not in above]
        # A user's group with tasks of the harness is the harness's to open, or those would be forgotten.
        yield from (task for tasks in inside for task in tasks if all(inside))
    else:
        yield known[name]


def main_metrics_first(task: str, metrics: Iterator[str] | Sequence[str]) -> list[str]:
    """Return names of metrics, without ``_stderr``, in the order of a task's own list, which begins with its main one.

    Those that are not in it come behind, in their own order; of a group the first member's list counts.
    """
    listed: list[str] = []
    with contextlib.suppress(MedTasksError):  # a task that is not ours has no list
        first = task_file(task)
        while first.members:
            first = task_file(first.members[0])
        listed = [] if first.metric_list is None else [str(metric["metric"]) for metric in first.metric_list.resolve()]
    places = {name: place for place, name in enumerate(listed)}
    return sorted(dict.fromkeys(metrics), key=lambda name: places.get(name, len(places)))
