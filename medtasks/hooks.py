"""The names that task files use (:mod:`medtasks.harness.published_names`), each looked up when it is asked for."""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from medtasks.harness.published_names import hook_modules, published

_VARIANTS = "variants"
__path__: list[str] = []  # so that Python takes what is below for modules of this one


class _Names(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == f"{__name__}.{_VARIANTS}":  # what these ask follows from the user's files and data
            from medtasks.harness.documents import variant_hook

            return variant_hook(name)
        return published(f"{self.__name__}.{name}")


class _Import(MetaPathFinder, Loader):
    """Import of a module of names, which has no file."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        return ModuleSpec(name, self) if package == __name__ and module in (_VARIANTS, *hook_modules()) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Names(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


sys.meta_path.append(_Import())
