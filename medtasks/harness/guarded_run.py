"""The tasks of a run before it begins, sorted by where they come from, together with what the harness is told."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from medtasks.data.schema import SPLIT
from medtasks.data.store import open_documents
from medtasks.data.variants import ROTATED
from medtasks.errors import MedTasksError
from medtasks.harness.harness_options import HarnessOptions
from medtasks.harness.manifest import Notice, Severity
from medtasks.harness.task_files import included_option, task_config, task_file, tasks_of
from medtasks.harness.task_index import DottedName, TaskIndex, harness_folder, index_tasks

_SHOWN = 4
_OURS = "medtasks.data.path_of."
_WILD = re.compile(r"[*?\[\]]+")


def refuse(sentence: str) -> Notice:
    """Return the notice that a run may not begin."""
    return Notice(kind=Severity.REFUSE, sentence=sentence)


def warn(sentence: str) -> Notice:
    """Return the notice that a run will not be what it seems."""
    return Notice(kind=Severity.WARN, sentence=sentence)


def listed(names: Sequence[str]) -> str:
    """Return names as words, only the first where there are many.

    Example:
        >>> listed(["one", "two", "three"])
        'one, two and three'
    """
    if len(names) > _SHOWN:
        return f"{', '.join(names[:_SHOWN])} and {len(names) - _SHOWN} more"
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


@dataclass(frozen=True)
class GuardedRun:
    """What is about to be run.

    Attributes:
        names: Tasks, groups and tags as given.
        options: The harness's options.
    """

    names: Sequence[str]
    options: HarnessOptions

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
        theirs = {task: path.removeprefix(_OURS) for task, path in paths.items() if _is_ours(path)}
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


def _is_ours(path: object) -> TypeGuard[DottedName]:
    return isinstance(path, DottedName) and path.startswith(_OURS)


@dataclass(frozen=True)
class Rows:
    """What the harness counts of a task.

    Attributes:
        count: Rows; 0 for a dataset that is not there or damaged: why, is said elsewhere.
        units: What belongs together, for each row; empty where each row is a question of its own.
        kind: What a unit is called, in the plural.
        parts: What its rows are, one sentence without its end.
        loss: What becomes of a unit that is cut.
    """

    count: int = 0
    units: Sequence[str] = ()
    kind: str = "pairs"
    parts: str = "each image of a pair is one"
    loss: str = "are then in no score of pairs"


def rows_of(task: str, dataset: str) -> Rows:
    """Return the rows of a task in their order.

    Args:
        task: Its name, ours or not.
        dataset: Its prepared dataset.
    """
    try:
        table = open_documents(dataset)[SPLIT]
    except MedTasksError:
        return Rows()
    if tasks_of(task) == [task] and task_file(task).variant == ROTATED:
        asked = zip(table["doc_id"], table["options"], strict=True)
        units = [question for question, options in asked for _ in options]
        rotation, loss = "each rotation of a question is one", "have then no worst case and no flips"
        return Rows(len(units), units, "questions", rotation, loss)
    return Rows(len(table), list(table["pair_id"]) if "pair_id" in table.column_names else ())
