"""Names of tasks and models, looked up before anything starts: the harness takes half a minute to refuse one."""

import contextlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from medtasks.errors import near_match
from medtasks.harness.guarded_run import GuardedRun, refuse, warn
from medtasks.harness.manifest import Notice
from medtasks.harness.task_files import TAG_ENDING, task_files, tasks_of, variants_of
from medtasks.harness.task_index import TaskIndex, harness_folder, index_tasks

_PLUGINS = "LMMS_EVAL_PLUGINS"
_OURS = "medtasks."


def unknown_tasks(run: GuardedRun) -> Iterator[Notice]:
    """Refuse names and patterns that fit no task, group or tag: ours, the user's or the harness's."""
    foreign = foreign_names(run)
    if not foreign:
        return
    index = harness_index()
    known = {*our_names(), *index.configs, *index.members}
    for name in foreign:
        if name not in known and not any(fnmatchcase(one, name) for one in known):
            where = "neither here ('medtasks tasks' lists ours) nor in lmms-eval"
            yield refuse(f"there is no task '{name}', {where}{_hint(name, known)}")


def unknown_model(run: GuardedRun) -> Iterator[Notice]:
    """Refuse a model that is none of the harness's nor of a plug-in."""
    registry = _registry()
    name = run.options.text("model")
    known = registry.list_model_names() if registry else [name]
    if not name:
        yield refuse("no model is named, and the harness's default, 'hf', does not exist; give --model NAME")
    elif name not in known:
        where = "neither here nor in lmms-eval ('lmms-eval models' lists all)"
        yield refuse(f"there is no model '{name}', {where}{_hint(name, known)}")


def batch_size(run: GuardedRun) -> Iterator[Notice]:
    """Warn of a batch size that most of the harness's own models cannot read."""
    registry = _registry() if run.options.text("batch_size").startswith("auto") else None
    if registry is None or run.options.text("model") not in registry.list_model_names():
        return
    model = registry.resolve(run.options.text("model"), run.options.flag("force_simple"))
    if not model.class_path.startswith(_OURS):
        yield warn(
            f"--batch_size auto is made for the models of medtasks; most others read a number and stop at 'auto', "
            f"'{model.requested_name}' perhaps among them; give --batch_size N"
        )


def _registry() -> Any:
    """Return what knows the harness's models, in a tenth of a second; None if it cannot, which the harness reports."""
    with contextlib.suppress(Exception):  # a model's plug-in can fail in any way
        from lmms_eval.models import MODEL_REGISTRY_V2

        return MODEL_REGISTRY_V2
    return None


def foreign_names(run: GuardedRun) -> list[str]:
    """Return names given to ``--tasks`` that are neither ours nor those of a file or folder."""
    return [name for name in run.names if not tasks_of(name) and not os.path.exists(name)]


def our_names() -> Iterator[str]:
    """Yield every name of ours that ``--tasks`` takes: tasks, groups, tags, sanity variants."""
    for name, task in task_files().items():
        yield from (name, *task.tags, *(made.name for made in variants_of(task)))
        if task.variants:
            yield name + TAG_ENDING


def harness_index() -> TaskIndex:
    """Return the tasks of the harness itself and of plug-ins named in ``LMMS_EVAL_PLUGINS``, as it lists them."""
    folders = [folder] if (folder := harness_folder()) else []
    for plugin in filter(None, os.environ.get(_PLUGINS, "").split(",")):
        with contextlib.suppress(ImportError, ValueError):  # which the harness reports
            found = importlib.util.find_spec(f"{plugin}.tasks")
            folders += [Path(root) for root in (found and found.submodule_search_locations) or ()]
    return index_tasks(folders)


def _hint(name: str, known: Iterable[str]) -> str:
    return near_match(name, known) or "; no other name is like it"
