"""The names that task files use (:mod:`medtasks.harness.published_names`), each looked up when it is asked for."""

import sys
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


for _name in (_VARIANTS, *hook_modules()):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _Names(f"{__name__}.{_name}")
