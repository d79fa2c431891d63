"""Entry point of the harness's model discovery, which also makes our tasks visible.

The harness has no entry point for tasks, so the callable it loads for models adds our task folder to its search path,
see :mod:`medtasks.harness.discovery`. Everything here is light: the harness's task index is touched only once it has
been imported by somebody else.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from medtasks.harness import AUTOLOAD_VARIABLE
from medtasks.harness.wrapping import or_warn

_TASKS_MODULE = "lmms_eval.tasks"
_MODELS = {
    "hf_vlm": "medtasks.model_adapters.hf_vlm.HfVlm",
    "llava_med": "medtasks.model_adapters.llava_med.LlavaMed",
    "med_flamingo": "medtasks.model_adapters.med_flamingo.MedFlamingo",
    "medtasks_tiny": "medtasks.model_adapters.tiny.MedTasksTiny",
    "radfm": "medtasks.model_adapters.radfm.RadFM",
}


def model_manifests() -> list[Any]:
    """Return the manifests of our model adapters and put our tasks on the harness's search path.

    Never raises: one broken plug-in would hide all others from the harness. ``MEDTASKS_AUTOLOAD=0`` turns both off.
    """
    if os.environ.get(AUTOLOAD_VARIABLE, "1") == "0":
        return []
    manifests: list[Any] = []
    with or_warn():
        _once_imported(_TASKS_MODULE, _extend_task_search)
        from lmms_eval.models.registry_v2 import ModelManifest

        manifests += [ModelManifest(model_id=name, simple_class_path=path) for name, path in _MODELS.items()]
    return manifests


def _extend_task_search(module: ModuleType) -> None:
    from medtasks.harness.discovery import extend_task_search

    extend_task_search(module)


def _once_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    module = sys.modules.get(name)
    if module is not None:
        action(module)
    elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(name, action))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Runs an action on a module right after its first import, so that we need not import it ourselves."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute, action = spec.loader.exec_module, self._action

        def execute_then_act(module: ModuleType) -> None:
            execute(module)
            action(module)

        spec.loader.exec_module = execute_then_act  # type: ignore[method-assign]  # of this one loader
        return spec
