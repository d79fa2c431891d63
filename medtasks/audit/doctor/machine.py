"""Disk, memory, PyTorch with what is built against it, and the GPUs it sees."""

import importlib
import importlib.util
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil

from medtasks.audit.doctor.findings import MACHINE, TORCH, Finding, State
from medtasks.errors import one_line
from medtasks.home import HOME_VARIABLE, home

LITTLE_DISK_GB = 5.0  # free disk, in GB (10^9 bytes), below which weights and datasets may not fit
LITTLE_MEMORY_GB = 4.0  # free memory below which few models fit
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_STACK = ("torch", "torchvision", "transformers")
_CPU = "the CPU"
_INSTALL = "pip install --force-reinstall torch torchvision, both from one index (https://pytorch.org/get-started)"


def disks() -> Iterator[Finding]:
    """Look at the disks under the data folder, the Hub's cache and the temporary folder."""
    from huggingface_hub.constants import HF_HOME

    yield _disk("data folder", home(), HOME_VARIABLE)
    yield _disk("Hub cache", Path(HF_HOME), "HF_HOME")
    yield _disk("temporary folder", Path(tempfile.gettempdir()), "TMPDIR")


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


def torch_stack() -> Iterator[Finding]:
    """Import torch and what is built against it, and ask torch for its devices."""
    findings = [finding for name in _STACK if (finding := _module(name)) is not None]
    yield from findings
    if findings[0].state is State.OK:
        yield from _devices()


def _module(name: str) -> Finding | None:
    if importlib.util.find_spec(name) is None:
        # only some models of the harness need torchvision
        problem = TORCH.problem(name, f"{name} is not installed", f"pip install {name}")
        return None if name == "torchvision" else problem
    try:
        module = importlib.import_module(name)
        is_usable = name != "transformers" or module.utils.is_torch_available()
    except Exception as error:  # noqa: BLE001 - a wrong build fails in many ways
        fix = _INSTALL if name != "transformers" else "pip install --upgrade 'transformers>=5'"
        return TORCH.problem(name, f"{name} cannot be imported ({one_line(error)})", fix)
    if not is_usable:
        found = f"transformers {module.__version__} does not accept the installed torch, and runs no model"
        return TORCH.problem(name, found, "pip install --upgrade torch torchvision")
    return TORCH.ok(name, f"{name} {module.__version__} can be imported")


def _devices() -> Iterator[Finding]:
    import torch

    devices: list[tuple[str, int, int]] = []
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for index in range(torch.cuda.device_count()) if torch.cuda.is_available() else ():
                devices.append((torch.cuda.get_device_name(index), *torch.cuda.mem_get_info(index)))
        except Exception as failure:  # noqa: BLE001 - drivers fail in many ways
            error = one_line(failure)
    said = [" ".join(str(one.message).split()) for one in caught if issubclass(one.category, UserWarning)]
    for text in said:
        found = f"torch says: {text.rstrip('.')}"
        yield TORCH.warning("GPU", found, "update the driver, or install a torch built for this one")
    if error:
        found = f"torch cannot use the GPU ({error})"
        yield TORCH.warning("GPU", found, "nvidia-smi; restart what occupies the GPU, or use --device cpu")
        return
    for index, (name, free, total) in enumerate(devices):
        found = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        if free / 1e9 < LITTLE_MEMORY_GB:
            fix = "nvidia-smi shows who uses it; wait, or choose another with CUDA_VISIBLE_DEVICES"
            yield TORCH.warning(f"GPU {index}", found, fix)
        else:
            yield TORCH.ok(f"GPU {index}", found)
    if not devices and not said:
        other = f"ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else _CPU
        yield _no_device(f"CUDA {torch.version.cuda}" if torch.version.cuda else other)


def _no_device(built_for: str) -> Finding:
    found = f"torch, built for {built_for}, finds no GPU"
    if shutil.which("nvidia-smi") is None:
        fix = "use a machine with a GPU for models of billions of parameters"
        return TORCH.note("GPU", f"{found}, so that models run on the CPU", fix)
    if built_for == _CPU:
        return TORCH.warning("GPU", f"{found}, but this machine has an NVIDIA driver", _INSTALL)
    if (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return TORCH.warning("GPU", f"{found}; CUDA_VISIBLE_DEVICES is '{hidden}'", "unset CUDA_VISIBLE_DEVICES")
    fix = "nvidia-smi; ask for a GPU where a queue gives them out"
    return TORCH.warning("GPU", f"{found}, but this machine has an NVIDIA driver", fix)
