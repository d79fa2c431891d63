"""Whether the process that made a run still runs."""

import contextlib
import hashlib
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_PROC = Path("/proc")


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
    return RunProcess(pid=os.getpid(), began=_began(os.getpid()), place=_place())


def is_running(process: RunProcess) -> bool | None:
    """Return whether a process still runs; None if that cannot be seen from here."""
    if process.place is None or process.began is None or process.place != _place():
        return None
    began = _began(process.pid)
    return None if began is None and _is_hidden(process.pid) else began == process.began


def descendants(pid: int) -> list[RunProcess]:
    """Return the processes that a process has started and those that these have, as far as they still run."""
    place, facts = _place(), {int(path.name): _facts(int(path.name)) for path in _PROC.glob("[0-9]*")}
    found = [pid]
    for parent in found:
        found += [child for child, known in facts.items() if known and known[0] == parent]
    return [RunProcess(pid=child, began=known[1], place=place) for child in found[1:] if (known := facts[child])]


def send(process: RunProcess, number: int) -> None:
    """Send a signal to a process if it still runs and may be signalled."""
    if is_running(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def _began(pid: int) -> int | None:
    facts = _facts(pid)
    return facts and facts[1]


def _facts(pid: int) -> tuple[int, int] | None:
    """Return parent and start of a process; None if there is none, or only what its parent has not collected yet."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    # Counted without the number and the name, which may hold blanks: the state is first, the start the twentieth.
    return None if fields[0] in "ZX" else (int(fields[1]), int(fields[19]))


def _is_hidden(pid: int) -> bool:
    """Return whether there is such a process of another user, which a machine may keep out of ``/proc``."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def _place() -> str | None:
    try:
        start = (_PROC / "sys/kernel/random/boot_id").read_text()
        namespace = os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return None
    return hashlib.sha256(f"{start}{namespace}".encode()).hexdigest()[:16]
