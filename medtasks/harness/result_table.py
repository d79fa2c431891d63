"""The main metric of our tasks first in the table that the harness prints, which it sorts by the alphabet."""

from collections.abc import Mapping, MutableMapping
from typing import Any

from medtasks.harness.task_files import main_metrics_first


def put_main_metrics_first(results: MutableMapping[str, Any]) -> None:
    """Let the keys of rows sort by the place of their metric in the task's list.

    Only a key's order changes: what is written, and what finds a value, is the same text.

    Args:
        results: What the harness's ``evaluate`` gives.
    """
    for column in ("results", "groups"):
        if column in results:
            results[column] = {task: _placed(task, row) for task, row in results[column].items()}


class _Key(str):
    """A key that is sorted by its metric's place."""

    __slots__ = ("place",)
    place: int

    def __lt__(self, other: str) -> bool:
        mine, theirs = self.place, getattr(other, "place", self.place)
        return mine < theirs if mine != theirs else str(self) < str(other)


def _placed(task: str, row: Mapping[str, Any]) -> dict[str, Any]:
    metrics = sorted({key.partition(",")[0] for key in row})
    places = {metric: place for place, metric in enumerate(main_metrics_first(task, metrics))}
    placed: dict[str, Any] = {}
    for name, value in row.items():
        key = _Key(name)
        key.place = places[name.partition(",")[0]]
        placed[key] = value
    return placed
