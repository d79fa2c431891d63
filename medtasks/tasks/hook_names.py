"""Names of hooks in task files, ``medtasks.hooks.<module>.<name>``, and the question type that a hook scores.

Used wherever a task file is read without the harness. A name that cannot be resolved is never an error here: it is
reported where the task is checked.
"""

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
    """Return the function that a hook of ours names, in a task file or as a text. Other values stay as they are.

    Example:
        >>> function_of("medtasks.hooks.images.images").__name__
        'images'
    """
    name = DottedName(hook) if type(hook) is str else hook
    if isinstance(name, DottedName) and name.is_ours:
        with contextlib.suppress(ImportError, AttributeError):
            return name.resolve()
    return hook


def hook_name(hook: object) -> str:
    """Return the dotted name of a function, or of the function that a hook of ours names.

    The name of a user's hook is returned as it is.

    Example:
        >>> hook_name("medtasks.hooks.prompts.lettered")
        'medtasks.prompts.template.lettered_prompt'
    """
    function = function_of(hook)
    if isinstance(function, str):
        return function
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"


def family_of(hook: object) -> TaskFamily | None:
    """Return the family that a hook scores for, or None for a hook that is not ours.

    Example:
        >>> family_of("medtasks.hooks.yes_no.process_results").name
        'yes/no'
    """
    return getattr(function_of(hook), "family", None)


@cache
def hook_modules() -> Mapping[str, Any]:
    """Return the modules with hooks by name. Those of missing packages are left out."""
    modules = {}
    for module in pkgutil.iter_modules(importlib.import_module(HOOKS.rstrip(".")).__path__):
        with contextlib.suppress(ImportError):  # filters need the harness
            modules[module.name] = importlib.import_module(f"{HOOKS}{module.name}")
    return modules


def families() -> dict[str, TaskFamily]:
    """Return all families by the module of their hooks."""
    by_module = {}
    for name, module in hook_modules().items():
        if hasattr(module, "process_results"):
            by_module[name] = module.process_results.family
    return by_module


def public_hooks() -> list[str]:
    """Return the names that task files may use, to suggest the nearest one."""
    names: list[str] = []
    for name, module in hook_modules().items():
        attributes = list(vars(module))
        if hasattr(module, "process_results"):
            attributes = ["process_results", "METRIC_LIST"]
        public = [attribute for attribute in attributes if not attribute.startswith("_")]
        names += [f"{HOOKS}{name}.{attribute}" for attribute in public]
    return names
