"""Making room on the GPU for the metrics' models.

The harness drops the evaluated model's weights once all replies are there, as far as they are direct attributes of the
adapter. What an adapter keeps elsewhere, in a wrapper or a list, would still fill the GPU.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from loguru import logger

from medtasks.errors import MedTasksError
from medtasks.metrics.model_settings import ModelSettings

if TYPE_CHECKING:
    import torch

_DEPTH = 4  # adapter -> wrapper -> list -> model


@contextlib.contextmanager
def evaluated_models_on_cpu(settings: ModelSettings) -> Iterator[None]:
    """Move the weights of all living model adapters to the CPU within this block, if metrics run on a GPU.

    What cannot be moved stays, so that metrics may run short of memory, which they survive; what was moved goes back
    to where it was, so that the same adapter can answer another run.
    """
    away = _move_away() if _on_gpu(settings) else []
    try:
        yield
    finally:
        _move_back(away)


def _on_gpu(settings: ModelSettings) -> bool:
    try:
        return settings.torch_device().type == "cuda"
    except MedTasksError:  # the metrics say it themselves
        return False


def _move_away() -> "list[tuple[torch.Tensor, torch.device]]":
    import torch

    away = []
    for tensor in _weights():
        device = tensor.device
        if device.type != "cuda":
            continue
        try:
            tensor.data = tensor.data.to("cpu")
        except (RuntimeError, TypeError, ValueError, MemoryError):  # a kind of tensor that lives on its device only
            continue
        away.append((tensor, device))
    if away:
        torch.cuda.empty_cache()
    return away


def _move_back(away: "list[tuple[torch.Tensor, torch.device]]") -> None:
    lost = 0
    for tensor, device in away:
        try:
            tensor.data = tensor.data.to(device)
        except RuntimeError:  # another program took the memory meanwhile
            lost += 1
    if lost:
        logger.warning(
            "{} of {} tensors of the evaluated model could not go back to the GPU; load the model again before another "
            "run in this process.",
            lost,
            len(away),
        )


def _weights() -> "list[torch.Tensor]":
    modules = [module for adapter in _adapters() for module in _modules(adapter)]
    tensors = (tensor for module in modules for tensor in (*module.parameters(), *module.buffers()))
    return list({id(tensor): tensor for tensor in tensors}.values())


def _adapters() -> list[Any]:
    module = sys.modules.get("lmms_eval.api.model")
    if module is None:
        return []
    # By the type alone: some proxies import half a library when they are asked for their class.
    return [thing for thing in gc.get_objects() if module.lmms in type(thing).__mro__]


def _modules(adapter: Any) -> "Iterator[torch.nn.Module]":
    import torch

    seen: set[int] = set()
    layer = [adapter]
    for _ in range(_DEPTH):
        inner: list[Any] = []
        for thing in layer:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if isinstance(thing, torch.nn.Module):
                yield thing
            else:
                inner.extend(_parts(thing))
        layer = inner


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing)
    own = getattr(thing, "__dict__", None)
    return list(own.values()) if isinstance(own, dict) and not isinstance(thing, type) else []
