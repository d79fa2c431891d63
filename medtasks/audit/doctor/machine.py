"""Disk and memory."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from medtasks.audit.doctor.findings import MACHINE, Finding
from medtasks.audit.doctor.torch_stack import LITTLE_MEMORY_GB
from medtasks.data.home import HOME_VARIABLE, home

LITTLE_DISK_GB = 5.0
"""Free disk below which weights and datasets may not fit, in GB (10^9 bytes)."""

_MEMORY = Path("/proc/meminfo")
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


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
    if free < LITTLE_DISK_GB:
        return MACHINE.warning(name, found, fix)
    return MACHINE.ok(name, found)


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
