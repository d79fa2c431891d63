"""Tasks by name, read without the harness: ours, those in the user's folders, and the members of groups and tags.

They come from four places, and of two with one name the first counts, as in the harness: folders of the user's
(``--include_path``, see :func:`including`), this package, ``MEDTASKS_HOME/tasks``, and installed packages
(:func:`installed_tasks`). Variants are found by name (:mod:`medtasks.tasks.task_variants`). ``<task>_sanity`` and
``<task>_stress`` are tags: the task and all its sanity or stress variants. For the harness a task without a file gets a
temporary one that is complete, as does one that names a family (:func:`index_entries`).
"""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from medtasks.data.variants import SANITY, STRESS
from medtasks.errors import (
    MedTasksError,
    RepliesError,
    UnknownName,
    join_names,
    one_line,
    unknown_name,
    warn_once,
)
from medtasks.home import own_tasks_folders
from medtasks.tasks.installed_packages import folder_of_package, task_packages
from medtasks.tasks.task_file import TaskFile, description_in, task_file_of
from medtasks.tasks.task_index import (
    Config,
    Configs,
    NewConfig,
    dump_task_file,
    harness_folder,
    index_tasks,
    is_short,
    mapping_in,
    read_config,
    tasks_folder,
    with_image_roots,
)
from medtasks.tasks.task_variants import (
    ENDINGS,
    TWIN_ENDING,
    listed_changes,
    listed_variants,
    twin_changes,
)

INCLUDE = "--include_path"
TAG_ENDINGS: Mapping[str, Sequence[str]] = {"_sanity": SANITY, "_stress": STRESS}
"""Variants that are selected together with their task, by the ending of the tag."""
VARIANT_OF = "medtasks_variant_of"
"""Key of an entry of the harness's index for a variant, or for the tag of a task's variants."""

TasksByName = Mapping[str, TaskFile]
IndexEntries = dict[str, NewConfig]  # entries of the harness's index by name

_included: TasksByName = {}


def include(folders: Sequence[Path]) -> None:
    """Look for tasks in these folders of the user's, too, from now on. The first of two with one name counts.

    Raises:
        MedTasksError: A folder does not exist, or a task file in it is damaged.
    """
    global _included
    for folder in folders:
        if not folder.is_dir():
            raise MedTasksError(
                f"there is no folder {folder}; give the one with your task files with {INCLUDE}"
            )
    _included = _by_name(_tasks([Path(os.path.abspath(folder)) for folder in folders]))


@contextlib.contextmanager
def including(folders: Sequence[Path]) -> Iterator[None]:
    """Include folders, see :func:`include`, within this block only. Without folders, those of before stay included."""
    global _included
    before = _included
    try:
        if folders:
            include(folders)
        yield
    finally:
        _included = before


def included_option(*names: str) -> str:
    """Return the option by which a command finds these tasks, by default all of the user's.

    Example:
        >>> included_option("mediconfusion")  # a task of ours needs none
        ''
    """
    return "".join(f" {INCLUDE} {shlex.quote(folder)}" for folder in included_folders(*names))


def included_folders(*names: str) -> list[str]:
    """Return the folders of the user's that hold the files of these tasks, by default of all that are included."""
    folders: dict[str, None] = {}
    for name in names or _included:
        variant = variant_of(name)
        base = variant[0] if variant else name
        if base in _included:
            folders[str(_included[base].path.parent)] = None
    return list(folders)


def few_shot_problems(configs: Configs) -> list[str]:
    """Return why ``--num_fewshot`` cannot be given to tasks, a sentence each.

    Args:
        configs: Contents of the tasks' files, by name.
    """
    ignoring = []
    failing = []
    for name, config in configs.items():
        if config.get("num_fewshot") == 0:
            ignoring.append(name)
        elif not config.get("fewshot_config"):
            failing.append(name)
    problems = []
    for names, effect in (
        (ignoring, "has no effect on {}, whose files set it to 0"),
        (failing, "has no examples to draw for {}, whose files have no fewshot_config"),
    ):
        if not names:
            continue
        twins = [
            f"{name}{TWIN_ENDING}" for name in names if f"{name}{TWIN_ENDING}" in task_files()
        ]
        instead = (
            f"choose {join_names(twins)} instead, in lmms_eval" if twins else "leave it out"
        )
        problems.append(f"--num_fewshot {effect.format(join_names(names))}; {instead}")
    return problems


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


def task_files() -> TasksByName:
    """Return all tasks and groups by name, sorted: ours, of the user's own datasets and folders, and of packages.

    Few-shot twins are listed, variants are not; :func:`task_file` knows both.

    Raises:
        MedTasksError: A file is damaged.
    """
    others: dict[str, TaskFile] = {}
    for tasks in installed_tasks().values():
        others |= tasks
    users = _by_name(_tasks(own_tasks_folders()))
    for name in others.keys() & users.keys():
        warn_once(
            f"'{name}' is a task of an installed package ({others[name].path}) and one of your own, which counts "
            f"({users[name].path}); rename yours, or uninstall the package"
        )
    return _Tasks(_included, others | users)


@cache
def installed_tasks() -> Mapping[Path, TasksByName]:
    """Return the tasks of installed packages by name, for each of the folders that hold their files.

    A package that is broken, or has a name of ours, the harness's or another package's, is left out with a warning.
    Nothing is raised.
    """
    packages: dict[Path, TasksByName] = {}
    for point in task_packages():
        try:
            folder = folder_of_package(point)
            tasks = _by_name(_tasks([folder]))
            if not tasks:
                raise MedTasksError(f"{folder} holds no task file")
            taken = names_of_others(tasks)
            for others in packages.values():
                taken |= {name: others[name].path for name in others.keys() & tasks.keys()}
            for name, path in taken.items():
                raise MedTasksError(
                    f"{tasks[name].path} has a task '{name}', which is a name in {path}; rename it, or uninstall one "
                    f"of them"
                )
        except Exception as error:  # noqa: BLE001 - others' packages must not hide all tasks
            cause = str(error) if isinstance(error, MedTasksError) else one_line(error)
            warn_once(
                f"the tasks of the installed package '{point.name}' ({point.value}) are left out: {cause}"
            )
        else:
            packages[folder] = tasks
    return packages


def check_task_name(name: str) -> None:
    """Check the name of a new task.

    Raises:
        MedTasksError: The name is not of small letters, digits and underscores.
    """
    if not name.isidentifier() or name != name.lower():
        raise MedTasksError(
            f"'{name}' cannot be a task's name; take small letters, digits and underscores"
        )


def names_of_others(names: Collection[str]) -> dict[str, Path]:
    """Return the names that are taken by a task, variant, group or tag of ours or the harness, with their files."""
    shipped = _Tasks({}, {})
    paths: dict[str, Path] = {}
    for file in shipped.values():
        paths |= dict.fromkeys((file.name, *file.tags, *tags_of(file)), file.path)
    index = index_tasks(filter(None, [harness_folder()]), names)
    for name in names:
        if (variant := _variant(name, shipped)) is not None:
            paths[name] = variant.path
        elif name in index:  # a tag has no file of its own
            paths[name] = index.paths.get(name, Path("lmms_eval"))
    return {name: paths[name] for name in names if name in paths}


@dataclass(frozen=True, eq=False)
class _Tasks(Mapping[str, TaskFile]):
    """Tasks and groups by name. A look-up reads at most one file of ours, only a listing reads them all."""

    _included: TasksByName
    _users: TasksByName

    def __getitem__(self, name: str) -> TaskFile:
        for tasks in (self._included, _tasks_in(name.removesuffix(TWIN_ENDING))):
            if name in tasks:
                return tasks[name]
        return self._users[name]

    def __iter__(self) -> Iterator[str]:
        names = {*self._included, *self._users}
        return iter(sorted(names.union(*map(_tasks_in, _shipped_paths()))))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _tasks_in(file: str) -> TasksByName:
    """Return our task or group of this name and the others of its file, such as its few-shot twin."""
    path = _shipped_paths().get(file)
    if path is None:
        return {}
    return _by_name(_tasks([path]))


@cache
def _shipped_paths() -> Mapping[str, Path]:
    """Return the paths of our task files by task: each file is named after its task or group, which others follow."""
    paths = {path.stem: path for path in tasks_folder().glob("*/*.yaml")}
    for folder in sorted({path.parent for path in paths.values()}):
        for name, base, _ in listed_variants(folder):
            paths[name] = paths[base]
    return paths


def _by_name(tasks: Iterable[TaskFile]) -> dict[str, TaskFile]:
    return {task.name: task for task in tasks}


def _tasks(folders: Iterable[Path]) -> Iterator[TaskFile]:
    """Yield the tasks and groups in folders and below, or files. Tasks that are Python classes only the harness knows.

    Raises:
        MedTasksError: A file is damaged.
    """
    index = index_tasks(folders, strict=True)
    for name, config in index.groups.items():
        members = index.members[name]
        yield TaskFile(
            name, "group", index.paths[name], description_in(config), members=members
        )
    for name, config in index.configs.items():
        if "class" in config:
            continue
        task = task_file_of(name, config, index.paths[name])
        yield task
        if "few_shot" in mapping_in(config, "metadata") and f"{name}{TWIN_ENDING}" not in index:
            twin = task.following(config, twin_changes(name, config))
            yield replace(twin, variants=task.variants, thinking=())
        if task.is_shipped:
            for differs in listed_changes(task.path):
                yield task.following(config, differs)


def task_file(name: str) -> TaskFile:
    """Return a task or group, or a variant of a task.

    Raises:
        UnknownName: There is no task of that name. The message suggests the nearest name.

    Example:
        >>> task_file("mediconfusion").output_type
        'generate_until'
    """
    tasks = task_files()
    task = tasks.get(name) or _variant(name, tasks)
    if task is None:
        hint = f"a task from a folder of your own needs {INCLUDE} FOLDER"
        raise UnknownName(f"{unknown_name('task', name, tasks, 'medtasks tasks')}; {hint}")
    return task


def scored_task(name: str) -> TaskFile:
    """Return a task whose replies can be scored without the harness.

    Raises:
        UnknownName: There is no task of that name.
        RepliesError: Only the harness can score the task.
    """
    task = task_file(name)
    if task.only_harness:
        raise RepliesError(f"'{name}' {task.only_harness}")
    return task


def task_config(name: str) -> dict[str, Any]:
    """Return a task's whole configuration, with unresolved dotted names.

    Raises:
        UnknownName: There is no task of that name.
    """
    return _config_of(task_file(name))


def _config_of(task: TaskFile) -> NewConfig:
    return {**with_image_roots(read_config(task.path), task.path.parent), **task.differs}


def variant_of(task_name: str) -> tuple[str, str] | None:
    """Return the base task and the variant in a name, or None if the name is that of no variant of ours.

    Example:
        >>> variant_of("mediconfusion_gd_blind")
        ('mediconfusion_gd', 'blind')
        >>> variant_of("mediconfusion_gd") is None
        True
    """
    task = _variant(task_name, task_files())
    return None if task is None else (str(task.base), str(task.variant))


def _variant(name: str, tasks: TasksByName) -> TaskFile | None:
    """Return the variant of this name of one of the tasks, or None if no such variant exists or a task has the name."""
    for variant in ENDINGS:
        base = tasks.get(name.removesuffix(f"_{variant}"))
        if (
            name not in tasks
            and base is not None
            and variant in (*base.variants, *base.thinking)
        ):
            return base.as_variant(variant, _config_of(base))
    return None


def variants_of(
    task: TaskFile, *, sanity: bool = True, thinking: bool = False
) -> list[TaskFile]:
    """Return variants of a task, without those whose name belongs to a file.

    Args:
        task: A task that is no variant.
        sanity: Whether sanity and stress variants are among them.
        thinking: Whether thinking variants are.
    """
    variants: list[str] = []
    if sanity:
        variants += task.variants
    if thinking:
        variants += task.thinking
    tasks = task_files()
    free = [variant for variant in variants if f"{task.name}_{variant}" not in tasks]
    config = _config_of(task) if free else {}
    return [task.as_variant(variant, config) for variant in free]


def tags_of(task: TaskFile) -> list[str]:
    """Return the tags under which a task is selected together with variants, such as ``<task>_sanity``."""
    tags = []
    for ending, variants in TAG_ENDINGS.items():
        if not {*variants}.isdisjoint(task.variants):
            tags.append(task.name + ending)
    return tags


def tagged_tasks(tag: str) -> list[TaskFile]:
    """Return a task and its variants for one of its :func:`tags_of`, an empty list for another name."""
    for ending, variants in TAG_ENDINGS.items():
        base = task_files().get(tag.removesuffix(ending)) if tag.endswith(ending) else None
        if base is not None and tag in tags_of(base):
            return [base, *(task for task in variants_of(base) if task.variant in variants)]
    return []


def members_of(name: str, above: tuple[str, ...] = ()) -> list[TaskFile]:
    """Return the tasks of a task, variant, group or tag, each once.

    Args:
        name: The name. There are no tasks for one that is not ours, nor for a group with a member that is not.
        above: Groups that are being opened, which are left out of themselves.
    """
    tasks = task_files()
    if name not in tasks:
        variant = _variant(name, tasks)
        members = tagged_tasks(name) if variant is None else [variant]
        members += [task for task in tasks.values() if name in task.tags]
    elif tasks[name].kind == "group":
        members = []
        for member in tasks[name].members:
            if member in above:
                continue
            inside = members_of(member, (*above, name))
            if not inside:
                # A user's group with tasks of the harness is the harness's to open, or those would be forgotten.
                return []
            members += inside
    else:
        members = [tasks[name]]
    return list(_by_name(members).values())


def tasks_of(name: str) -> list[str]:
    """Return the names of the tasks of a task, variant, group or tag, none for a name that is not ours.

    Example:
        >>> tasks_of("mediconfusion_blind")
        ['mediconfusion_blind']
    """
    return [task.name for task in members_of(name)]


# ---- files for the harness ----


def index_entries(index: Configs, *, sanity: bool = True) -> IndexEntries:
    """Return entries of the harness's task index for tasks without files, and for the tags of their variants.

    They have free names only, and belong to tasks of ours that no file of the harness or the user has replaced.

    Args:
        index: The harness's index, entries by name.
        sanity: Whether sanity, stress and thinking variants have entries.
    """
    entries: IndexEntries = {}
    tasks = {**task_files()}
    taken = {*index, *tasks}
    for task in tasks.values():
        origin = index.get(task.origin or task.name, {})
        if os.path.abspath(str(origin.get("yaml_path"))) != str(task.path):
            continue  # the harness takes another file for this name
        is_new = task.origin is not None and task.name not in index
        if is_new or (not task.is_shipped and is_short(task.path)):
            entries[task.name] = _Entry(origin, task)
        variants = (*task.variants, *task.thinking) if sanity else ()
        free = {}  # names of variants that no other task has
        for variant in variants:
            name = f"{task.name}_{variant}"
            if name not in taken:
                free[variant] = name
                entries[name] = _Entry({**origin, VARIANT_OF: task.name}, task, variant)
        if is_new:
            _add_to_tags(task, entries, index)
        entries |= _variant_tags(task, free, index)
    return entries


def _add_to_tags(
    task: TaskFile,
    entries: IndexEntries,
    index: Configs,
) -> None:
    """Add a task to the entries of its tags, which begin with the members that the harness's index has."""
    empty: Config = {"type": "tag", "task": [], "yaml_path": -1}
    for tag in task.tags:
        entry = entries.get(tag) or index.get(tag) or empty
        entries[tag] = {**entry, "task": [*entry["task"], task.name]}


def _variant_tags(
    task: TaskFile,
    names: Mapping[str, str],
    index: Configs,
) -> IndexEntries:
    """Return entries of the free tags for a task with its variants, whose ``names`` are given by variant."""
    entries: IndexEntries = {}
    for ending, variants in TAG_ENDINGS.items():
        tag = task.name + ending
        members = [name for variant, name in names.items() if variant in variants]
        if members and tag not in index:
            entries[tag] = {
                "type": "tag",
                "task": [task.name, *members],
                "yaml_path": -1,
                VARIANT_OF: task.name,
            }
    return entries


class _Entry(dict[str, Any]):
    """Entry of a task without a file: its file is written when its path is first looked up.

    The harness indexes hundreds of variants at each start, and opens the files of those that were asked for.
    """

    def __init__(
        self,
        facts: Config,
        task: TaskFile,
        variant: str | None = None,
    ) -> None:
        super().__init__({key: value for key, value in facts.items() if key != "yaml_path"})
        self._task = task
        self._variant = variant

    def __missing__(self, key: str) -> Any:
        if key != "yaml_path":
            raise KeyError(key)
        task = self._task
        if self._variant is not None:
            task = task.as_variant(self._variant, _config_of(task))
        path = Path(_folder().name, f"{task.name}.yaml")
        path.write_text(dump_task_file(_config_of(task)), encoding="utf-8")
        self[key] = str(path)
        return self[key]


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="medtasks_variants_")
