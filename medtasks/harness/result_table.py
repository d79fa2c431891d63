"""The table that the harness prints, with the main metric of our tasks first; it sorts metrics by the alphabet."""

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from medtasks.metric_order import main_first

_MARK = "_medtasks_ordered"


def order_table(module: ModuleType) -> None:
    """Wrap ``make_table`` of ``lmms_eval.evaluator``, once; values and rows stay what they are.

    Raises:
        AttributeError: This version of the harness has no such function.
    """
    make_table = module.make_table
    if getattr(make_table, _MARK, False):
        return

    @functools.wraps(make_table)
    def ordered(result_dict: Mapping[str, Any], column: str = "results", *args: Any, **kwargs: Any) -> Any:
        rows = {name: _placed(name, row) for name, row in result_dict[column].items()}
        return make_table({**result_dict, column: rows}, column, *args, **kwargs)

    setattr(ordered, _MARK, True)
    module.make_table = ordered


class _Key(str):
    """A key that is sorted by its metric's place in the task's list."""

    __slots__ = ("place",)
    place: int

    def __lt__(self, other: str) -> bool:
        mine, theirs = self.place, getattr(other, "place", self.place)
        return mine < theirs if mine != theirs else str(self) < str(other)


def _placed(task: str, row: Mapping[str, Any]) -> dict[str, Any]:
    metrics = sorted({key.partition(",")[0] for key in row})
    places = {metric: place for place, metric in enumerate(main_first(task, metrics))}
    placed = {}
    for name, value in row.items():
        key = _Key(name)
        key.place = places[name.partition(",")[0]]
        placed[key] = value
    return placed
