"""One model over the GPUs of one process: the language model's layers in a row, all that sees images on the first."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from accelerate import dispatch_model, infer_auto_device_map
from accelerate.utils import get_balanced_memory, get_max_memory
from torch import nn

from medtasks.errors import AdapterArgumentError

N = TypeVar("N", bound=nn.Module)


def check_device_map(device_map: str | None, device: torch.device, processes: int, model: str) -> None:
    """Check that a model can be spread here; to be called before weights are read.

    Args:
        device_map: The argument: ``auto``, or ``None`` for one device.
        device: Device of this process.
        processes: Processes of the run.
        model: Model id, for messages.

    Raises:
        AdapterArgumentError: There are several processes, there is no GPU, or a GPU other than the first is asked for.
    """
    if device_map is None:
        return
    spread = f"{model}: device_map='{device_map}' spreads a model over the GPUs of one process"
    if processes > 1:
        raise AdapterArgumentError(f"{spread}, but {processes} run; leave the argument out or start one process.")
    if device.type != "cuda":
        raise AdapterArgumentError(f"{spread}, but this one computes on {device.type}; leave the argument out.")
    if device.index:
        raise AdapterArgumentError(
            f"{spread} from the first on, not from {device}; leave 'device' out, and choose the GPUs with "
            f"CUDA_VISIBLE_DEVICES."
        )


def place(network: N, device: torch.device, device_map: str | None, model: str) -> N:
    """Put a network where it computes; types stay as they are, so that rotary frequencies remain float32.

    Args:
        network: Network with a ``language_model``, on the CPU.
        device: Device of the whole network, or of all but the language model.
        device_map: See :func:`check_device_map`.
        model: Model id, for messages.

    Returns:
        The network.

    Raises:
        AdapterArgumentError: The GPUs have no room for it.
    """
    if device_map is None:
        return network.to(device)
    language: Any = network.language_model
    place_around(network, language, device)
    # The memory that is free now is what the parts around the language model leave of the first GPU.
    spread(language, planned(language, gpu_memory(), model))
    return network


def place_around(network: nn.Module, language: nn.Module, device: torch.device) -> None:
    """Move everything but the language model."""
    for part in network.children():
        if part is not language:
            part.to(device)
    for name, parameter in list(network.named_parameters(recurse=False)):
        setattr(network, name, nn.Parameter(parameter.to(device), parameter.requires_grad))


def gpu_memory() -> dict[int, int]:
    """Return the free memory of every GPU in bytes."""
    return {gpu: free for gpu, free in get_max_memory().items() if isinstance(gpu, int)}


def planned(language: Any, memory: Mapping[int, int], model: str) -> dict[str, int]:
    """Plan which part of a language model goes where, evenly and in the order of its layers.

    Args:
        language: A transformers model.
        memory: Free memory per GPU, in bytes.
        model: Model id, for messages.

    Returns:
        GPU of each part by its name; a layer is never cut.

    Raises:
        AdapterArgumentError: It does not fit.
    """
    whole = sorted(language._no_split_modules)
    room = get_balanced_memory(language, max_memory=dict(memory), no_split_module_classes=whole)
    found = infer_auto_device_map(
        language, max_memory={gpu: room[gpu] for gpu in memory}, no_split_module_classes=whole
    )
    if any(not isinstance(gpu, int) for gpu in found.values()):
        free = sum(memory.values()) / 2**30
        raise AdapterArgumentError(
            f"{model}: device_map='auto' finds {free:.1f} GiB free on {len(memory)} GPU(s), too little for this model; "
            f"free some, use more GPUs, or give dtype=bfloat16."
        )
    return dict(found)


def spread(language: Any, device_map: Mapping[str, Any]) -> None:
    """Put the parts of a language model where the map says; results come back to where its inputs are.

    Args:
        language: A transformers model.
        device_map: Device by name of the part. Layers keep their keys and values where they are.
    """
    skipped = sorted(language._skip_keys_device_placement or ())
    dispatch_model(language, dict(device_map), skip_keys=skipped, force_hooks=True)
