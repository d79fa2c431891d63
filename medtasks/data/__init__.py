"""Datasets: what exists, preparing it, and where it lies."""

import sys
from types import ModuleType
from typing import Any


class _Names(ModuleType):
    """A module of task YAML, in which any dataset or task is a name; see :mod:`medtasks.data.dataset_lookup`."""

    def __getattr__(self, name: str) -> Any:
        from medtasks.data import dataset_lookup

        return getattr(dataset_lookup, self.__name__.rpartition(".")[2])(name)


label_of, path_of, provenance_of = (_Names(f"{__name__}.{name}") for name in ("label_of", "path_of", "provenance_of"))
sys.modules |= {module.__name__: module for module in (label_of, path_of, provenance_of)}
