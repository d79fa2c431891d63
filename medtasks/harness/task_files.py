"""Tasks as data, read without the harness: names, descriptions, datasets and answer rules.

They come from three places, and of two with one name the first counts, as in the harness: folders of the user's
(``--include_path``, see :func:`including`), this package, and ``MEDTASKS_HOME/tasks``. Sanity variants
(:mod:`medtasks.harness.variants`) have no files; they are found by name.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from medtasks.data.home import own_tasks_folder
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name
from medtasks.families import FAMILIES
from medtasks.harness.eligibility import ROTATED_SCORING, variants_for
from medtasks.harness.task_index import DottedName, TaskIndex, index_tasks, read_config, resolved, with_image_roots
from medtasks.plugin import tasks_folder

_PREPARED = "medtasks.data.path_of."
_UNNAMED, _AS_IT_IS = "none", "take_first"  # the harness's one filter where a file names none
_LIKELIHOODS, _LIKELIHOOD_RULE = "multiple_choice", "untied"
_SCORING = frozenset({*FAMILIES, *ROTATED_SCORING.values()})
_ASK_A_JUDGE = frozenset(hook for hook, family in FAMILIES.items() if family.rule is None)
INCLUDE = "--include_path"


class ListedMetrics(tuple[Mapping[str, Any], ...]):
    """Metrics that stand in a task's file one by one."""

    def resolve(self) -> Any:
        """Import their aggregations."""
        return [resolved(dict(one)) for one in self]

    @property
    def is_ours(self) -> bool:
        """Whether this package aggregates them all."""
        given = [one.get("aggregation") for one in self]
        return all(isinstance(one, DottedName) and one.is_ours for one in given)


@dataclass(frozen=True)
class TaskFile:
    """One task or group.

    Attributes:
        name: Name for ``--tasks``.
        kind: ``"task"`` or ``"group"``.
        path: The YAML file.
        description: One line.
        dataset: Name of its prepared dataset; None for a group, and for a task whose documents were not prepared here.
        guarded_as: Name whose access level holds for its text: its dataset, or the one that its metadata name.
        output_type: ``"generate_until"`` or ``"multiple_choice"``, or None for a group.
        rules: Answer rule by filter name; empty where a judge reads the replies.
        option_forms: How options are written for the rule, by filter name, where the task says so.
        fenced: Names of filters whose replies a judge gets between marks (:mod:`medtasks.judges.fence`).
        process_results: The scoring hook; None for a group, and where the harness scores by itself.
        metric_list: Its metrics; None likewise.
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
    guarded_as: str | None = None
    output_type: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    option_forms: Mapping[str, str] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()
    process_results: DottedName | None = None
    metric_list: DottedName | ListedMetrics | None = None
    members: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    breakdown: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    variant: str | None = None
    base: str | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether its file is one of this package."""
        return self.path.is_relative_to(tasks_folder())

    @property
    def only_harness(self) -> str:
        """Why only the harness can score it, in words that go behind its name; empty where we can, too."""
        if self.kind == "group":
            return "is a group; take its member tasks one by one"
        if self.process_results is None:
            return "is scored by metrics of the harness alone, because its file names no process_results"
        if not self.process_results.is_ours or self.process_results not in _SCORING:
            return f"is scored by {self.process_results}, which is no hook of medtasks"
        if self.metric_list is None or not self.metric_list.is_ours:
            return "has metrics that are not those of medtasks"
        if not self.rules and self.process_results not in _ASK_A_JUDGE:
            return "has no filter that names a rule of medtasks"
        return ""


@dataclass(frozen=True)
class _Included:
    """Folders of the user's that are looked into.

    Attributes:
        tasks: Their tasks and groups by name.
        lost: Folders that a recorded run took tasks from and that are not here.
    """

    tasks: Mapping[str, TaskFile] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


_included = _Included()


def include(folders: Sequence[Path], lost: Sequence[str] = ()) -> None:
    """Look for tasks in these folders of the user's, too, from now on; the first of two with one name counts.

    Args:
        folders: Folders with task files; they may lie anywhere in them.
        lost: Folders that a recorded run took tasks from and that are not here; messages name them.

    Raises:
        MedTasksError: A folder is not there, or a task file in it is damaged.
    """
    global _included
    for folder in folders:
        if not folder.is_dir():
            raise MedTasksError(f"there is no folder {folder}; give the one with your task files with {INCLUDE}")
    index = index_tasks([Path(os.path.abspath(folder)) for folder in folders], strict=True)
    _included = _Included({task.name: task for task in _tasks(index)}, tuple(lost))


@contextlib.contextmanager
def including(folders: Sequence[Path], lost: Sequence[str] = ()) -> Iterator[None]:
    """Do the same within this block only; with neither folders nor lost ones, what was included before remains."""
    global _included
    before = _included
    try:
        if folders or lost:
            include(folders, lost)
        yield
    finally:
        _included = before


def included_option(name: str) -> str:
    """Return what a command needs besides a task's name to find it: `` --include_path FOLDER``, mostly nothing."""
    from medtasks.harness.variants import variant_of

    base, _ = variant_of(name) or (name, "")
    task = _included.tasks.get(base)
    return f" {INCLUDE} {shlex.quote(str(task.path.parent))}" if task else ""


def lost_folders() -> str:
    """Return the sentence part that names folders which a recorded run took tasks from and that are not here."""
    if not _included.lost:
        return ""
    return f"the run took tasks from {', '.join(_included.lost)}, which is not here: give its place with {INCLUDE}"


def task_files() -> Mapping[str, TaskFile]:
    """Return all tasks and groups by name, sorted: ours, of the user's own datasets, and of included folders.

    Only those with a file are listed; :func:`task_file` knows their sanity variants, too.

    Raises:
        MedTasksError: A task file of the user's is damaged.
    """
    own = {task.name: task for task in _tasks(index_tasks([own_tasks_folder()], strict=True))} if _has_own() else {}
    found = {**own, **_shipped(), **_included.tasks}
    return {name: found[name] for name in sorted(found)}


def _has_own() -> bool:
    return own_tasks_folder().is_dir()


@cache
def _shipped() -> Mapping[str, TaskFile]:
    return {task.name: task for task in _tasks(index_tasks([tasks_folder()], strict=True))}


def task_file(name: str) -> TaskFile:
    """Return a task or group, or a sanity variant of a task.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    from medtasks.harness.variants import variant_task

    known = task_files()
    found = known.get(name) or variant_task(name)
    if found is None:
        where = lost_folders() or f"a task from a folder of your own needs {INCLUDE} FOLDER"
        raise UnknownName(f"{unknown_name('task', name, known, 'medtasks tasks')}; {where}")
    return found


def scored_task(name: str) -> TaskFile:
    """Return a task whose replies can be scored without the harness.

    Raises:
        UnknownName: There is no such task.
        RepliesError: It is a group, or only the harness can score it.
    """
    task = task_file(name)
    if task.only_harness:
        raise RepliesError(f"'{name}' {task.only_harness}")
    return task


def task_config(name: str) -> dict[str, Any]:
    """Return what a task's file and the files it includes say, with unresolved dotted names.

    Of a sanity variant, what its task says with what the variant changes.

    Raises:
        UnknownName: There is no such task; the message suggests the nearest name.
    """
    from medtasks.harness.variants import overrides

    task = task_file(name)
    config = with_image_roots(read_config(task.path), task.path.parent)
    return config if task.variant is None else config | overrides(task, config)


def _tasks(index: TaskIndex) -> Iterator[TaskFile]:
    """Yield the tasks and groups of an index; tasks that are Python classes only the harness knows."""
    for name, config in index.groups.items():
        metadata = metadata_of(config)
        yield TaskFile(name, "group", index.paths[name], _described(metadata), members=index.members[name])
    for name, config in index.configs.items():
        if "class" not in config:
            yield _task(name, config, index.paths[name])


def _task(name: str, config: Mapping[str, Any], path: Path) -> TaskFile:
    metadata = metadata_of(config)
    prepared = str(config.get("dataset_path", ""))
    dataset = prepared.removeprefix(_PREPARED) if prepared.startswith(_PREPARED) else None
    steps = dict(_reading_steps(config))
    metrics = config.get("metric_list")
    tags = config.get("tag") or []
    return TaskFile(
        name=name,
        kind="task",
        path=path,
        description=_described(metadata),
        dataset=dataset,
        guarded_as=dataset or _text(metadata.get("dataset")),
        output_type=str(config.get("output_type", "generate_until")),
        rules={name: str(step["rule"]) for name, step in steps.items()},
        option_forms={name: step["option"] for name, step in steps.items() if "option" in step},
        fenced=tuple(_fenced(config)),
        process_results=hook if isinstance(hook := config.get("process_results"), DottedName) else None,
        metric_list=ListedMetrics(metrics) if isinstance(metrics, list) else metrics,
        tags=tuple([tags] if isinstance(tags, str) else tags),
        breakdown=tuple(metadata.get("breakdown", ())),
        variants=variants_for(config, dataset),
    )


def metadata_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a task's metadata; empty where its file has none."""
    found = config.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _described(metadata: Mapping[str, Any]) -> str:
    return _text(metadata.get("description")) or "your own"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _reading_steps(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the step that names a rule by filter name; where replies are taken as they are, the hook's own rule."""
    own = _own_rule(config)
    for pipeline in config.get("filter_list") or [{"name": _UNNAMED, "filter": [{"function": _AS_IT_IS}]}]:
        steps = pipeline.get("filter") or []
        named = next((step for step in steps if "rule" in step), None)
        if named is not None:
            yield str(pipeline["name"]), named
        elif own and all(step.get("function") == _AS_IT_IS for step in steps):
            yield str(pipeline["name"]), {"rule": own}


def _fenced(config: Mapping[str, Any]) -> Iterator[str]:
    for pipeline in config.get("filter_list") or ():
        if any(step.get("fenced") for step in pipeline.get("filter") or ()):
            yield str(pipeline["name"])


def _own_rule(config: Mapping[str, Any]) -> str | None:
    family = FAMILIES.get(str(config.get("process_results")))
    if family is None:
        return None
    return _LIKELIHOOD_RULE if config.get("output_type") == _LIKELIHOODS and family.rule else family.rule
