"""The nearest name for a task or model that the harness does not know, as the last thing its process prints.

Before it the harness prints a traceback, and of models a list of two hundred names.
"""

import functools
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from medtasks.errors import near_match
from medtasks.harness.last_words import say_last

_MARK = "_medtasks_hints"


def hint_at_tasks(manager: Any, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Note the nearest name for each that the harness will refuse: no pattern, no file, no task.

    Args:
        manager: The harness's ``TaskManager``.
        wanted: Names given to ``--tasks``.
        found: Those of them that it knows.
    """
    for name in wanted:
        if name not in found and "*" not in name and not os.path.exists(name):
            _hint("task", name, manager.all_tasks)


def hint_at_models(models: ModuleType) -> None:
    """Wrap ``get_model`` of ``lmms_eval.models``, once, so that the nearest name of an unknown model is noted."""
    get_model = models.get_model
    if getattr(get_model, _MARK, False):
        return

    @functools.wraps(get_model)
    def found_model(model_name: str, *args: Any, **kwargs: Any) -> Any:
        known = models.list_available_models(include_aliases=True)
        if model_name not in known:
            _hint("model", model_name, known)
        return get_model(model_name, *args, **kwargs)

    setattr(found_model, _MARK, True)
    vars(models)["get_model"] = found_model


def _hint(kind: str, name: str, known: Sequence[str]) -> None:
    hint = near_match(name, known)
    if hint:
        say_last(f"no {kind} '{name}'{hint}")
