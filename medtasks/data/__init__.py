"""Datasets: catalogue, preparation, and access to prepared ones."""

import sys
from types import ModuleType
from typing import Any


class _Names(ModuleType):
    """A module for task YAML with a name for every dataset or task; see :mod:`medtasks.data.dataset_lookup`."""

    def __getattr__(self, name: str) -> Any:
        from medtasks.data import dataset_lookup
        from medtasks.data.catalogue import CATALOGUE

        function = self.__name__.rpartition(".")[2]
        if function != "label_of" and not dataset_lookup.known(name):
            names = ", ".join(sorted(CATALOGUE))
            raise AttributeError(f"module {self.__name__!r} has no dataset {name!r}; known: {names}")
        return getattr(dataset_lookup, function)(name)


label_of, path_of, provenance_of = (_Names(f"{__name__}.{name}") for name in ("label_of", "path_of", "provenance_of"))
sys.modules |= {module.__name__: module for module in (label_of, path_of, provenance_of)}
