"""Disk, memory, PyTorch with what is built against it, and the GPUs it sees."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medtasks.audit.doctor.child_process import Told
from medtasks.audit.doctor.findings import MACHINE, TORCH, Finding
from medtasks.data.home import HOME_VARIABLE, home

LITTLE_DISK_GB = 5.0  # free disk, in GB (10^9 bytes), below which weights and datasets may not fit
LITTLE_MEMORY_GB = 4.0  # free memory below which few models fit
_MEMORY = Path("/proc/meminfo")
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_MODULES = ("torch", "torchvision", "transformers")
_DRIVER = Path("/proc/driver/nvidia/version")
_INSTALL = "pip install --force-reinstall torch torchvision, both from one index (https://pytorch.org/get-started)"


def disks() -> Iterator[Finding]:
    """Look at the disks under the data folder, the Hub's cache and the temporary folder."""
    yield _disk("data folder", home(), HOME_VARIABLE)
    from huggingface_hub.constants import HF_HOME

    yield _disk("Hub cache", Path(HF_HOME), "HF_HOME")
    try:
        temporary = Path(tempfile.gettempdir())
    except FileNotFoundError:
        found = "no temporary folder can be written to"
        yield MACHINE.problem("temporary folder", found, "export TMPDIR=<a folder with room>")
    else:
        yield _disk("temporary folder", temporary, "TMPDIR")


def memory() -> Iterator[Finding]:
    """Look at the free memory; of a container with a limit, at no more than that."""
    free = _free_memory()
    if free is None:
        found = f"{_MEMORY} does not say how much memory is free"
        yield MACHINE.note("memory", found, "see with the system's own monitor that 4 GB or more are free")
        return
    found = f"{free / 1e9:.1f} GB of memory are free"
    if free / 1e9 < LITTLE_MEMORY_GB:
        yield MACHINE.warning("memory", found, "end other programs, or use a machine with more memory")
    else:
        yield MACHINE.ok("memory", found)


def _disk(name: str, folder: Path, variable: str) -> Finding:
    fix = f"make room, or export {variable}=<a folder with room>"
    place = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
    if not place.is_dir():
        return MACHINE.problem(name, f"{place} is a file and should be a folder", fix)
    reason = _refusal(place)
    if reason:
        fix = f"make {place} writable, or export {variable}=<a folder of your own>"
        return MACHINE.problem(name, f"{place} cannot be written to ({reason})", fix)
    free = shutil.disk_usage(place).free / 1e9
    found = f"{free:,.1f} GB are free for {folder}"
    return MACHINE.warning(name, found, fix) if free < LITTLE_DISK_GB else MACHINE.ok(name, found)


def _refusal(folder: Path) -> str:
    """Return why nothing can be written to a folder; empty if it can. The file it tries with has no name."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0")
    except OSError as error:
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return ""


def _free_memory() -> int | None:
    """Return bytes that can be had, by the kernel's own estimate."""
    limits = [int(text) for path in _CONTAINER_LIMITS if (text := _text(path)).isdigit()]
    for line in _text(_MEMORY).splitlines():
        if line.startswith("MemAvailable:"):
            return min(int(line.split()[1]) * 1024, *limits) if limits else int(line.split()[1]) * 1024
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def torch_stack(told: Told) -> Iterator[Finding]:
    """Look at how the imports went, and at the devices, as the child ``torch`` told."""
    if told.broken_off is not None:
        found = f"importing {told.broken_off['begun']} ended the process ({told.how})"
        yield TORCH.problem(str(told.broken_off["begun"]), found, _INSTALL)
        return
    steps = {name: told.step(name) for name in _MODULES}
    for name, step in steps.items():
        yield from _module(name, step)
    # What a build is for, such as cpu or cu130; empty where its version does not say.
    known = {name: str(step["version"]) for name, step in steps.items() if "version" in step}
    builds = {name: version.partition("+")[2] for name, version in known.items() if name != "transformers"}
    if len(set(builds.values())) > 1 and all(builds.values()):
        what = " and ".join(f"{name} {steps[name]['version']}" for name in builds)
        yield TORCH.warning("builds", f"{what} are not built for the same device", _INSTALL)
    if not steps["torch"]["error"]:
        yield from _devices(told.step("devices"))


def _module(name: str, step: Mapping[str, Any]) -> Iterator[Finding]:
    if not step["installed"]:
        if name != "torchvision":  # only some models of the harness need that
            yield TORCH.problem(name, f"{name} is not installed", f"pip install {name}")
        return
    if step["error"]:
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
    here = _DRIVER.exists() or shutil.which("nvidia-smi") is not None
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if here and built_for == "CPU":
        found = "this machine has an NVIDIA driver, but the installed torch is built for the CPU"
        return TORCH.warning("GPU", found, _INSTALL)
    if here and hidden is not None:
        found = f"torch finds no GPU; CUDA_VISIBLE_DEVICES is '{hidden}'"
        return TORCH.warning("GPU", found, "unset CUDA_VISIBLE_DEVICES")
    if here:
        found = f"this machine has an NVIDIA driver, but torch, built for {built_for}, finds no GPU"
        return TORCH.warning("GPU", found, "nvidia-smi; ask for a GPU where a queue gives them out")
    found = f"torch, built for {built_for}, finds no GPU, so that models run on the CPU"
    return TORCH.note("GPU", found, "use a machine with a GPU for models of billions of parameters")
