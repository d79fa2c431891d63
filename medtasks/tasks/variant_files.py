"""Tasks without files for the harness: few-shot twins, sanity and thinking variants, also of tasks of the user's own.

The harness reads a task from a file, so each gets one that includes its task's file and says what is different, in a
folder that lives as long as this process.
"""

import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import TAG_ENDING, task_files, variants_of
from medtasks.tasks.task_index import SETTINGS, dumped, read_config, with_image_roots

VARIANT_OF = "medtasks_variant_of"
"""Key of an entry of the harness's index that stands for a variant, or for the tag of a task's variants."""


def index_entries(index: Mapping[str, Mapping[str, Any]], *, sanity: bool = True) -> dict[str, dict[str, Any]]:
    """Return entries of the harness's task index for few-shot twins, other variants if wanted, and their tags.

    They are made for those of our tasks that no file of the harness or the user has replaced, and only under names that
    are free.
    """
    entries: dict[str, dict[str, Any]] = {}
    for task in task_files().values():
        listed = index.get(task.origin or task.name, {})
        if os.path.abspath(str(listed.get("yaml_path"))) != str(task.path):
            continue
        if task.origin and task.name not in index:
            entries[task.name] = {**listed, "yaml_path": _file(task)}
            for tag in task.tags:
                known = entries.get(tag) or index.get(tag) or {"type": "tag", "task": [], "yaml_path": -1}
                entries[tag] = {**known, "task": [*known["task"], task.name]}
        made = [one for one in variants_of(task, sanity=sanity, thinking=sanity) if one.name not in index]
        entries |= {one.name: {**listed, "yaml_path": _file(one), VARIANT_OF: task.name} for one in made}
        names, tag = [one.name for one in made if one.variant in task.variants], task.name + TAG_ENDING
        if names and tag not in index:
            entries[tag] = {"type": "tag", "task": [task.name, *names], "yaml_path": -1, VARIANT_OF: task.name}
    return entries


def _file(task: TaskFile) -> str:
    config = read_config(task.path)
    placed = with_image_roots(config, task.path.parent)
    moved = {SETTINGS: placed[SETTINGS]} if placed.get(SETTINGS) != config.get(SETTINGS) else {}
    path = Path(_folder().name) / f"{task.name}.yaml"
    path.write_text(dumped({"include": str(task.path), **moved, **task.changes(config)}), encoding="utf-8")
    return str(path)


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="medtasks_variants_")
