"""Names of hooks in task files, ``medtasks.hooks.<module>.<name>``, and the question type that a hook scores."""

import contextlib
import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

from medtasks.families.family import TaskFamily
from medtasks.tasks.task_index import DottedName

HOOKS = "medtasks.hooks."


def function_of(hook: object) -> Any:
    """Return the function that a hook of ours names, in a task file or as a text; any other value as it is."""
    name = (
        hook
        if isinstance(hook, DottedName)
        else DottedName(hook)
        if isinstance(hook, str)
        else None
    )
    if name is not None and name.is_ours:
        with contextlib.suppress(
            ImportError, AttributeError
        ):  # is reported where the task is checked
            return name.resolve()
    return hook


def hook_name(hook: object) -> str:
    """Return the dotted name of a function, or of the one that a hook names; a name of the user's as it is."""
    function = function_of(hook)
    if isinstance(function, str):
        return function
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"


def family_of(hook: object) -> TaskFamily | None:
    """Return the family that a hook scores for; None for one that is not ours."""
    return getattr(function_of(hook), "family", None)


@cache
def hook_modules() -> Mapping[str, Any]:
    """Return the modules with hooks by name; those of missing packages are left out."""
    modules = {}
    for module in pkgutil.iter_modules(importlib.import_module(HOOKS.rstrip(".")).__path__):
        with contextlib.suppress(ImportError):  # filters need the harness
            modules[module.name] = importlib.import_module(f"{HOOKS}{module.name}")
    return modules


def families() -> dict[str, TaskFamily]:
    """Return all families by the module of their hooks."""
    hooks = {
        name: getattr(module, "process_results", None) for name, module in hook_modules().items()
    }
    return {name: hook.family for name, hook in hooks.items() if hook is not None}


def public_hooks() -> list[str]:
    """Return the names that task files may use, to suggest the nearest one."""
    names: list[str] = []
    for name, module in hook_modules().items():
        public = (
            ["process_results", "METRIC_LIST"]
            if hasattr(module, "process_results")
            else vars(module)
        )
        names += [
            f"{HOOKS}{name}.{attribute}" for attribute in public if not attribute.startswith("_")
        ]
    return names
