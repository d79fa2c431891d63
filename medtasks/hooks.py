"""Names that task files use (:mod:`medtasks.tasks.published_names`), each resolved on first use."""

import pkgutil
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from medtasks.families.family_registry import HOOKS, family_of
from medtasks.lmms.metric_hooks import metric_list, process_results
from medtasks.tasks.published_names import (
    METRIC_LIST,
    METRIC_LISTS,
    SETTINGS_OF,
    hook_modules,
    hook_place,
    prompt_settings,
)

_VARIANTS = "variants"
__path__: list[str] = []  # makes this module a package


class _Names(MetaPathFinder, Loader):
    """Importer of the modules of names, which have no files."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in (_VARIANTS, *hook_modules()) else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = partial(_attribute, module.__name__)


def _attribute(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if module == f"{__name__}.{_VARIANTS}":  # these names follow from the user's files and data
        from medtasks.tasks.documents import variant_hook

        return variant_hook(name)
    return published(f"{module}.{name}")


def published(hook: str) -> Any:
    """Resolve a name: a hook, a metric list, one of its aggregations, a prompt, a filter, or settings.

    Settings are a new copy each time, as the harness changes them.
    """
    module, _, name = hook.removeprefix(HOOKS).partition(".")
    if module == SETTINGS_OF:
        return prompt_settings(name)
    return _hook(hook)


@cache
def _hook(hook: str) -> Any:
    path = hook_place(hook)
    if path != hook:
        return pkgutil.resolve_name(":".join(path.rsplit(".", 1)))
    module, _, name = hook.removeprefix(HOOKS).partition(".")
    family = family_of(hook)
    if family is not None:
        made = process_results(family)
        made.__module__, made.__name__, made.__qualname__ = f"{HOOKS}{module}", name, name
        return made
    if f"{module}.{name}" in METRIC_LISTS:
        return metric_list(pkgutil.resolve_name(METRIC_LISTS[f"{module}.{name}"]))
    family = family_of(f"{HOOKS}{module}.process_results")
    entries = [] if family is None else metric_list(family.metrics)
    aggregations = {entry["metric"]: entry["aggregation"] for entry in entries}
    if entries and name == METRIC_LIST:
        return entries
    if name not in aggregations:
        raise AttributeError(f"there is no {hook}")
    return aggregations[name]


sys.meta_path.append(_Names())
