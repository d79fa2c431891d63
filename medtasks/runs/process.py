"""Identity of a process: whether the one that made a run is still running."""

import contextlib
import hashlib
import os
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

_START_OF_MACHINE = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


class RunProcess(BaseModel):
    """A process, told apart from later ones with the same number; the other fields are None outside Linux."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    began: int | None  # in clock ticks since the machine started, independent of the clock's setting
    place: str | None  # digest of the machine's start and the process namespace, within which numbers are comparable


def this_process() -> RunProcess:
    """Return the identity of the calling process."""
    return _identity(os.getpid())


def is_running(process: RunProcess) -> bool | None:
    """Return whether a process is still running; None if that cannot be seen from here."""
    if process.place is None or process.began is None or process.place != _namespace():
        return None
    began = _began(process.pid)
    if began is None:
        try:
            os.kill(process.pid, 0)
        except PermissionError:  # another user's process, which a machine may hide
            return None
        except OSError:
            pass
    return began == process.began


def descendants(pid: int) -> list[RunProcess]:
    """List the running children of a process, their children and so on."""
    try:
        processes = [_identity(child.pid) for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
    return [process for process in processes if process.began is not None]


def send(process: RunProcess, number: int) -> None:
    """Send a signal to a process if it is still running and may be signalled."""
    if is_running(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def _identity(pid: int) -> RunProcess:
    return RunProcess(pid=pid, began=_began(pid), place=_namespace())


def _began(pid: int) -> int | None:
    """Return the start of a process; None if there is none, or only a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
    except psutil.Error:
        return None


def _namespace() -> str | None:
    try:
        start, namespace = _START_OF_MACHINE.read_text(), os.readlink(_NAMESPACE)
    except OSError:
        return None
    return hashlib.sha256(f"{start}{namespace}".encode()).hexdigest()[:16]
