"""Entry point of the harness's model discovery, which also makes our tasks visible.

The harness has no entry point for tasks, so the callable it loads for models adds our task folder to its search path,
see :mod:`medtasks.lmms.discovery`. Everything here is light: the harness's task index is touched only once it has
been imported by somebody else.
"""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from medtasks.lmms import AUTOLOAD_VARIABLE
from medtasks.lmms.wrapping import or_warn

_TASKS_MODULE = "lmms_eval.tasks"
_MODELS = {
    "hf_vlm": "medtasks.model_adapters.hf_vlm.HfVlm",
    "llava_med": "medtasks.model_adapters.llava_med.LlavaMed",
    "med_flamingo": "medtasks.model_adapters.med_flamingo.MedFlamingo",
    "medtasks_tiny": "medtasks.model_adapters.tiny.MedTasksTiny",
    "radfm": "medtasks.model_adapters.radfm.RadFM",
    "vlm_server": "medtasks.model_adapters.vlm_server.VlmServer",
}


def model_manifests() -> list[Any]:
    """Return the manifests of our model adapters and put our tasks on the harness's search path.

    Never raises: one broken plug-in would hide all others from the harness. ``MEDTASKS_AUTOLOAD=0`` turns both off.
    """
    if os.environ.get(AUTOLOAD_VARIABLE, "1") == "0":
        return []
    manifests: list[Any] = []
    with or_warn():
        if (module := sys.modules.get(_TASKS_MODULE)) is not None:
            _extend_task_search(module)
        elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _AfterImport())
        from lmms_eval.models.registry_v2 import ModelManifest

        manifests += [ModelManifest(model_id=name, simple_class_path=path) for name, path in _MODELS.items()]
    return manifests


def _extend_task_search(module: ModuleType) -> None:
    from medtasks.lmms.discovery import extend_task_search

    extend_task_search(module)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Makes our tasks visible right after the first import of the harness's, so that we need not import them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _TASKS_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_then_extend(module: ModuleType) -> None:
            execute(module)
            _extend_task_search(module)

        spec.loader.exec_module = execute_then_extend  # type: ignore[method-assign]  # of this one loader
        return spec
