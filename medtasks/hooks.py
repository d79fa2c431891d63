"""The names that task files use (:mod:`medtasks.harness.published_names`), each looked up when it is asked for."""

import sys
from collections.abc import Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from medtasks.harness.published_names import hook_modules, published

_VARIANTS = "variants"
__path__: list[str] = []  # so that Python takes what is below for modules of this one


class _Names(MetaPathFinder, Loader):
    """Import of the modules of names, which have no files."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in (_VARIANTS, *hook_modules()) else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = partial(_named, module.__name__)


def _named(module: str, name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if module == f"{__name__}.{_VARIANTS}":  # these names follow from the user's files and data
        from medtasks.harness.documents import variant_hook

        return variant_hook(name)
    return published(f"{module}.{name}")


sys.meta_path.append(_Names())
