"""Which device this process computes on, alone or as one of several ranks."""

import os

import torch
from loguru import logger

from medtasks.errors import AdapterArgumentError, MedTasksError


def check_processes(processes: int, model: str) -> None:
    """Check that accelerate and the harness, which reads ``WORLD_SIZE``, agree on the number of processes.

    They do not where several processes are started on a machine without GPU: accelerate then has to be told so.

    Raises:
        MedTasksError: They disagree; every process would take itself for the first.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != processes:
        raise MedTasksError(
            f"{model}: {started} processes were started, but accelerate connects {processes}; without a GPU start them "
            f"with `ACCELERATE_USE_CPU=true torchrun --nproc_per_node {started} -m lmms_eval ...`."
        )


def choose_device(requested: str | None, own: torch.device, processes: int, model: str) -> torch.device:
    """Return the device of this process.

    Args:
        requested: The argument ``device``, or ``None``.
        own: Device that accelerate gave to this process.
        processes: Number of processes of the run.
        model: Model id, for messages.

    Returns:
        The requested device; with several processes the one accelerate assigned, because they must not share a GPU.

    Raises:
        AdapterArgumentError: The device is not known, not present, or of another type than the processes talk over.
    """
    if requested is None:
        return own
    device = _existing(requested, model)
    if processes == 1:
        return device
    if device.type != own.type:
        raise AdapterArgumentError(
            f"{model}: device='{requested}' does not fit {processes} processes that talk over {own.type}; "
            f"leave the argument out{', or set ACCELERATE_USE_CPU=true' * (device.type == 'cpu')}."
        )
    if device.index is not None and device != own:
        logger.warning("{}: {} processes, so this one uses {} instead of {}", model, processes, own, device)
    return own


def _existing(requested: str, model: str) -> torch.device:
    try:
        device = torch.device(requested)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise AdapterArgumentError(f"{model}: device '{requested}' is not known; give cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise AdapterArgumentError(
            f"{model}: device '{requested}' is not present, this machine has {torch.cuda.device_count()} usable GPU(s)"
            f"; give --device cpu or one that exists."
        )
    return device
