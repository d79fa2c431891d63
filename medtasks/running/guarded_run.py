"""The tasks of a run before it begins, sorted by where they come from, together with what the harness is told."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from medtasks.data.shards import Shard
from medtasks.runs.harness_options import HarnessOptions
from medtasks.tasks.task_files import included_option, task_config, task_file, tasks_of
from medtasks.tasks.task_index import DottedName, TaskIndex, harness_folder, index_tasks

_OURS = "medtasks.data.path_of."
_WILD = re.compile(r"[*?\[\]]+")


@dataclass(frozen=True)
class GuardedRun:
    """What is about to be run: tasks, groups and tags as given, with the harness's options."""

    names: Sequence[str]
    options: HarnessOptions
    shard: Shard | None = None  # which part of the rows is asked; None for all

    @cached_property
    def ours(self) -> list[str]:
        """Names of our tasks, those of the user's own datasets and of ``--include_path`` among them."""
        return list(dict.fromkeys(task for name in self.names for task in tasks_of(name)))

    @property
    def published(self) -> list[str]:
        """Those of :attr:`ours` that ask with a published prompt."""
        return [name for name in self.ours if not included_option(name)]

    @cached_property
    def configs(self) -> dict[str, Mapping[str, Any]]:
        """What the task files that users write say, by task: ``--include_path``, named files, own datasets."""
        own = [name for name in self.ours if not task_file(name).is_shipped]
        files = [path for path in map(Path, self._foreign) if path.is_file()]
        named = {task: config for path in files for task, config in index_tasks([path]).configs.items()}
        return {**{name: task_config(name) for name in own}, **named}

    @cached_property
    def datasets(self) -> dict[str, str]:
        """Dataset by task, where its files say so."""
        ours = {name: dataset for name in self.ours if (dataset := task_file(name).guarded_as)}
        paths = {task: config.get("dataset_path") for task, config in self.configs.items()}
        theirs = {
            task: path.removeprefix(_OURS)
            for task, path in paths.items()
            if isinstance(path, DottedName) and path.startswith(_OURS)
        }
        return {**theirs, **ours}

    def count(self) -> int:
        """Return how many tasks the harness will run, members of its own groups and tags included."""
        known = {*self.ours, *self.configs}
        rest = [name for name in self._foreign if not Path(name).is_file()]
        pieces = [max(_WILD.split(name), key=len) for name in rest]
        folder = harness_folder() if rest else None
        index = index_tasks([folder], pieces if all(pieces) else ()) if folder else TaskIndex()
        return len(known.union(*(index.tasks_of(name) or [name] for name in rest)))

    @property
    def _foreign(self) -> list[str]:
        return [name for name in self.names if not tasks_of(name)]
