"""Whether the process that made a run still runs."""

import contextlib
import hashlib
import os
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

_START_OF_MACHINE = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


class RunProcess(BaseModel):
    """A process, told apart from later ones with the same number; only Linux says enough for that, else it is None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    began: int | None  # in clock ticks since the start of the machine, which no setting of the clock changes
    # Digest of the machine's start and of the process namespace: numbers of processes can be compared only where it is
    # the same.
    place: str | None


def this_process() -> RunProcess:
    """Return the facts about the process that calls."""
    return _facts(os.getpid())


def is_running(process: RunProcess) -> bool | None:
    """Return whether a process still runs; None if that cannot be seen from here."""
    if process.place is None or process.began is None or process.place != _place():
        return None
    began = _began(process.pid)
    return None if began is None and _is_hidden(process.pid) else began == process.began


def descendants(pid: int) -> list[RunProcess]:
    """Return the processes that a process has started and those that these have, as far as they still run."""
    try:
        found = [_facts(child.pid) for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []
    return [process for process in found if process.began is not None]


def send(process: RunProcess, number: int) -> None:
    """Send a signal to a process if it still runs and may be signalled."""
    if is_running(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def _facts(pid: int) -> RunProcess:
    return RunProcess(pid=pid, began=_began(pid), place=_place())


def _began(pid: int) -> int | None:
    """Return when a process started; None if there is none, or only what its parent has not collected yet."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
    except psutil.Error:
        return None


def _is_hidden(pid: int) -> bool:
    """Return whether there is such a process of another user, which a machine may keep out of sight."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _place() -> str | None:
    try:
        start, namespace = _START_OF_MACHINE.read_text(), os.readlink(_NAMESPACE)
    except OSError:
        return None
    return hashlib.sha256(f"{start}{namespace}".encode()).hexdigest()[:16]
