"""Device of this process, and the device map of a model over all GPUs of one process.

Under a device map the language model's layers lie in a row, and all that sees images on the first GPU. What is not
known, not present or has no room is an ``AdapterArgumentError``.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from accelerate import dispatch_model, infer_auto_device_map
from accelerate.utils import get_balanced_memory, get_max_memory
from torch import nn

from medtasks.errors import AdapterArgumentError

N = TypeVar("N", bound=nn.Module)


def choose_device(requested: str | None, own: torch.device, processes: int, model: str) -> torch.device:
    """Return the requested device; with several processes the assigned one, because they must not share a GPU."""
    if requested is None:
        return own
    try:
        device = torch.device(requested)
    except RuntimeError:
        device = torch.device("meta")
    gpus = torch.cuda.device_count()
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and (device.index or 0) >= gpus):
        raise AdapterArgumentError(
            f"{model}: device '{requested}' is not present; give cpu, cuda or cuda:N, this machine has {gpus} usable "
            f"GPU(s)."
        )
    if processes == 1:
        return device
    if device.type != own.type:
        raise AdapterArgumentError(
            f"{model}: device='{requested}' does not fit {processes} processes that talk over {own.type}; "
            f"leave the argument out{', or set ACCELERATE_USE_CPU=true' * (device.type == 'cpu')}."
        )
    return own


def check_device_map(device_map: str | None, device: torch.device, processes: int, model: str) -> None:
    """Check that a model can be spread here; to be called before weights are read."""
    if device_map is not None and (processes > 1 or device.type != "cuda" or device.index):
        raise AdapterArgumentError(
            f"{model}: device_map='{device_map}' spreads a model over the GPUs of one process, from the first on; here "
            f"{processes} process(es) run on {device}: leave device_map out, or start one process without 'device' and "
            f"choose the GPUs with CUDA_VISIBLE_DEVICES."
        )


def place(network: N, language: Any, device: torch.device, device_map: str | None, model: str) -> N:
    """Put a network where it computes and return it; with a device map, all but its ``language`` model on ``device``.

    Types stay as they are, so that rotary frequencies remain float32.
    """
    if device_map is None:
        return network.to(device)
    for part in network.children():
        if part is not language and network is not language:
            part.to(device)
    # The memory that is free now is what the parts around the language model leave of the first GPU.
    memory = {gpu: free for gpu, free in get_max_memory().items() if isinstance(gpu, int)}
    dispatch(language, planned_map(language, memory, model))
    return network


def planned_map(language: Any, memory: Mapping[int, int], model: str) -> dict[str, int]:
    """Plan which part of a language model goes to which GPU, evenly and in order; a layer is never cut.

    ``memory`` is the free memory of every GPU in bytes.
    """
    whole = sorted(language._no_split_modules)
    balanced = get_balanced_memory(language, max_memory=dict(memory), no_split_module_classes=whole)
    room = {gpu: balanced[gpu] for gpu in memory}
    device_map = infer_auto_device_map(language, max_memory=room, no_split_module_classes=whole)
    if any(not isinstance(gpu, int) for gpu in device_map.values()):
        free = sum(memory.values()) / 2**30
        raise AdapterArgumentError(
            f"{model}: device_map='auto' finds {free:.1f} GiB free on {len(memory)} GPU(s), too little for this model; "
            f"free some, use more GPUs, or give dtype=bfloat16."
        )
    return dict(device_map)


def dispatch(language: Any, device_map: Mapping[str, Any]) -> None:
    """Put a language model's parts where the map says; results come back to its inputs, keys and values stay."""
    skipped = sorted(language._skip_keys_device_placement or ())
    dispatch_model(language, dict(device_map), skip_keys=skipped, force_hooks=True)
