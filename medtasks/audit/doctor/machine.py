"""Disk, memory, PyTorch with what is built against it, and the GPUs it sees."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from medtasks.audit.doctor.children import Told
from medtasks.audit.doctor.findings import MACHINE, TORCH, Finding
from medtasks.data.home import HOME_VARIABLE, home

LITTLE_DISK_GB = 5.0  # free disk, in GB (10^9 bytes), below which weights and datasets may not fit
LITTLE_MEMORY_GB = 4.0  # free memory below which few models fit
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_INSTALL = "pip install --force-reinstall torch torchvision, both from one index (https://pytorch.org/get-started)"


def disks() -> Iterator[Finding]:
    """Look at the disks under the data folder, the Hub's cache and the temporary folder."""
    from huggingface_hub.constants import HF_HOME

    yield _disk("data folder", home(), HOME_VARIABLE)
    yield _disk("Hub cache", Path(HF_HOME), "HF_HOME")
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:
        found = "no temporary folder can be written to"
        yield MACHINE.problem("temporary folder", found, "export TMPDIR=<a folder with room>")
    else:
        yield _disk("temporary folder", temporary, "TMPDIR")


def _disk(name: str, folder: Path, variable: str) -> Finding:
    fix = f"make room, or export {variable}=<a folder with room>"
    place = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    if not place.is_dir():
        return MACHINE.problem(name, f"{place} is a file and should be a folder", fix)
    try:
        with tempfile.TemporaryFile(dir=place) as file:  # it has no name
            file.write(b"\0")
    except OSError as error:
        fix = f"make {place} writable, or export {variable}=<a folder of your own>"
        return MACHINE.problem(name, f"{place} cannot be written to ({error.strerror or type(error).__name__})", fix)
    free = shutil.disk_usage(place).free / 1e9
    found = f"{free:,.1f} GB are free for {folder}"
    return MACHINE.warning(name, found, fix) if free < LITTLE_DISK_GB else MACHINE.ok(name, found)


def memory() -> Iterator[Finding]:
    """Look at the free memory; of a container with a limit, at no more than that."""
    limits = [
        int(text) for path in _CONTAINER_LIMITS if path.is_file() and (text := path.read_text().strip()).isdigit()
    ]
    free = min(psutil.virtual_memory().available, *limits, float("inf")) / 1e9
    found = f"{free:.1f} GB of memory are free"
    if free < LITTLE_MEMORY_GB:
        yield MACHINE.warning("memory", found, "end other programs, or use a machine with more memory")
    else:
        yield MACHINE.ok("memory", found)


def torch_stack(told: Told) -> Iterator[Finding]:
    """Look at how the imports went, and at the devices, as the child ``torch`` told."""
    if told.broken_off is not None:
        found = f"importing {told.broken_off['begun']} ended the process ({told.how})"
        yield TORCH.problem(str(told.broken_off["begun"]), found, _INSTALL)
        return
    for name in ("torch", "torchvision", "transformers"):
        yield from _module(name, told.step(name))
    if not told.step("torch")["error"]:
        yield from _devices(told.step("devices"))


def _module(name: str, step: Mapping[str, Any]) -> Iterator[Finding]:
    if not step["installed"]:
        if name != "torchvision":  # only some models of the harness need that
            yield TORCH.problem(name, f"{name} is not installed", f"pip install {name}")
    elif step["error"]:
        fix = _INSTALL if name != "transformers" else "pip install --upgrade 'transformers>=5'"
        yield TORCH.problem(name, f"{name} cannot be imported ({step['error']})", fix)
    elif step.get("uses_torch") is False:
        found = f"transformers {step['version']} does not accept the installed torch, and runs no model"
        yield TORCH.problem(name, found, "pip install --upgrade torch torchvision")
    else:
        yield TORCH.ok(name, f"{name} {step['version']} can be imported")


def _devices(step: Mapping[str, Any]) -> Iterator[Finding]:
    for warning in step["warnings"]:
        found = f"torch says: {warning.rstrip('.')}"
        yield TORCH.warning("GPU", found, "update the driver, or install a torch built for this one")
    if step["error"]:
        found = f"torch cannot use the GPU ({step['error']})"
        yield TORCH.warning("GPU", found, "nvidia-smi; restart what occupies the GPU, or use --device cpu")
        return
    for index, device in enumerate(step["devices"]):
        free, total = device["free"] / 1e9, device["total"] / 1e9
        found = f"{device['name']}, {free:.1f} of {total:.1f} GB free"
        if free < LITTLE_MEMORY_GB:
            fix = "nvidia-smi shows who uses it; wait, or choose another with CUDA_VISIBLE_DEVICES"
            yield TORCH.warning(f"GPU {index}", found, fix)
        else:
            yield TORCH.ok(f"GPU {index}", found)
    if not step["devices"] and not step["warnings"]:
        yield _no_device(step["built_for"])


def _no_device(built_for: str) -> Finding:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if shutil.which("nvidia-smi") is None:
        found = f"torch, built for {built_for}, finds no GPU, so that models run on the CPU"
        return TORCH.note("GPU", found, "use a machine with a GPU for models of billions of parameters")
    if built_for == "CPU":
        found = "this machine has an NVIDIA driver, but the installed torch is built for the CPU"
        return TORCH.warning("GPU", found, _INSTALL)
    if hidden is not None:
        found = f"torch finds no GPU; CUDA_VISIBLE_DEVICES is '{hidden}'"
        return TORCH.warning("GPU", found, "unset CUDA_VISIBLE_DEVICES")
    found = f"this machine has an NVIDIA driver, but torch, built for {built_for}, finds no GPU"
    return TORCH.warning("GPU", found, "nvidia-smi; ask for a GPU where a queue gives them out")
