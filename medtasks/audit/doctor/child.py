"""Looking at what only an import tells, in a process of its own: torch takes seconds, and foreign code may do anything.

``python child.py plug_ins|torch|harness [NAME ...]`` writes lines of JSON to the standard output it was started with:
``{"begun": KEY}`` before each step and ``{"done": KEY, ...}`` after it, so that the reader knows which step killed it.
Run by its path: it must say something also where this package cannot be imported.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

GROUP = "lmms_eval.models"
_LONGEST_MESSAGE = 300

Tell = Callable[..., None]


def main() -> None:
    """Look at what the command line names."""
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what foreign code prints is no report

    def tell(**fields: Any) -> None:
        report.write(json.dumps(fields) + "\n")
        report.flush()

    {"plug_ins": _plug_ins, "torch": _torch, "harness": _harness}[sys.argv[1]](tell)


@contextmanager
def _step(tell: Tell, key: str) -> Iterator[dict[str, Any]]:
    """Tell of one step: what it puts into the yielded fields, its error and its warnings."""
    fields: dict[str, Any] = {"error": ""}
    tell(begun=key)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield fields
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit, too: the code is foreign
            words = f"{type(error).__name__}: {' '.join(str(error).split())}"
            fields["error"] = words[:_LONGEST_MESSAGE].rstrip(": ")
    said = [" ".join(str(one.message).split()) for one in caught if issubclass(one.category, UserWarning)]
    tell(done=key, warnings=[text[:_LONGEST_MESSAGE] for text in said], **fields)


def _plug_ins(tell: Tell) -> None:
    """Load each model plug-in of the harness on its own."""
    points = list(importlib.metadata.entry_points(group=GROUP))
    shown: list[importlib.metadata.EntryPoint] = []
    real = importlib.metadata.entry_points
    # The harness asks for the plug-ins while it is imported, and afterwards through the name it imported.
    importlib.metadata.entry_points = lambda **_: importlib.metadata.EntryPoints(shown)  # type: ignore[assignment]  # a stand-in
    with _step(tell, "registry") as fields:
        importlib.import_module("lmms_eval.models")
        from lmms_eval.models.registry_v2 import ModelRegistryV2
    importlib.metadata.entry_points = real
    if fields["error"]:
        return
    for number, point in enumerate(points):
        with _step(tell, f"plug-in {number}") as fields:
            distribution = point.dist
            of_package = (distribution.name, distribution.version) if distribution else ("", "")
            fields |= zip(("name", "distribution", "version"), (point.name, *of_package), strict=True)
            tell(begun=f"plug-in {number}", **fields)
            shown[:] = [point]
            registry = ModelRegistryV2()
            registry.load_entrypoint_manifests(GROUP)
            fields["models"] = registry.list_model_names()


def _torch(tell: Tell) -> None:
    """Import torch and what is built against it, and ask torch for its devices."""
    for name in ("torch", "torchvision", "transformers"):
        with _step(tell, name) as fields:
            fields["installed"] = importlib.util.find_spec(name) is not None
            if fields["installed"]:
                module = importlib.import_module(name)
                fields["version"] = str(module.__version__)
                if name == "transformers":
                    fields["uses_torch"] = bool(module.utils.is_torch_available())
    with _step(tell, "devices") as fields:
        import torch

        other = f"ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else "CPU"
        fields["built_for"] = f"CUDA {torch.version.cuda}" if torch.version.cuda else other
        devices: list[dict[str, Any]] = []
        for index in range(torch.cuda.device_count()) if torch.cuda.is_available() else ():
            free, total = torch.cuda.mem_get_info(index)
            devices.append({"name": torch.cuda.get_device_name(index), "free": free, "total": total})
        fields["devices"] = devices


def _harness(tell: Tell) -> None:
    """Start the harness's task index as a run does, and see which of the named tasks are not in it."""
    with _step(tell, "index") as fields:
        importlib.import_module("lmms_eval.models")  # loads the plug-ins, ours among them
        from lmms_eval.tasks import TaskManager

        fields["missing"] = sorted(set(sys.argv[2:]) - set(TaskManager().all_tasks))


if __name__ == "__main__":
    main()
