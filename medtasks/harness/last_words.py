"""What must be read is printed last: behind the harness's tracebacks, lists of two hundred names, and tables."""

import atexit
import contextlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from medtasks.errors import near_match
from medtasks.harness.wrapping import AnyFunction, wrap_once


def say_last(sentence: str) -> None:
    """Print a sentence when the process ends; of several processes of a run only the first one does."""
    if os.environ.get("RANK", "0") == "0":
        atexit.register(_say, f"medtasks: {sentence}")


def _say(sentence: str) -> None:
    with contextlib.suppress(ValueError):  # somebody has closed the stream
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201


def hint_at_tasks(manager: Any, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Note the nearest name for each wanted one that the harness will refuse: no pattern, no file, no task."""
    for name in wanted:
        if name not in found and "*" not in name and not os.path.exists(name):
            _hint("task", name, manager.all_tasks)


def hint_at_models(models: ModuleType) -> None:
    """Wrap ``get_model`` of ``lmms_eval.models``, once, so that the nearest name of an unknown model is noted."""

    def hinting(get_model: AnyFunction) -> AnyFunction:
        def found_model(model_name: str, *args: Any, **kwargs: Any) -> Any:
            known = models.list_available_models(include_aliases=True)
            if model_name not in known:
                _hint("model", model_name, known)
            return get_model(model_name, *args, **kwargs)

        return found_model

    wrap_once(models, "get_model", hinting)


def _hint(kind: str, name: str, known: Sequence[str]) -> None:
    hint = near_match(name, known)
    if hint:
        say_last(f"no {kind} '{name}'{hint}")
