"""A Python whose large libraries are imported already, so that a fresh process of the harness costs no ten seconds.

``server.py`` imports them once for each worker of pytest and forks for each start; ``client.py`` stands in for the
``python`` that is started, with its arguments, folder, variables, streams, signals and end. Nothing of the harness or
of medtasks is imported before the fork: both are fresh in each process, as are the working folder and the variables.
A start that would run otherwise in a cold process is cold, and so is every start where the system is not Linux: the
client then becomes the real Python.
"""

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from .quick_yaml import read_yaml_quickly

__all__ = [
    "read_yaml_quickly",
    "reasons_to_start_cold",
    "run_fresh",
    "start_fresh",
    "start_from_here_warm",
    "warm",
]

_HERE = Path(__file__).parent
# Libraries look at them when they are imported, so a start with other values is cold.
_VARIABLES = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # left behind by what ran in this process


def run_fresh(
    command: Sequence[str], folder: Path, *, cold: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python or a console script in a folder, with this process's environment but for some variables.

    Args:
        command: Of which the first is ``sys.executable``, ``python`` or the name of a console script.
        folder: The working folder.
        cold: The real Python, whatever it costs.
        variables: Those that differ; ``RANK`` and the like never go on.
    """
    line, environment = _fresh(command, cold, variables)
    return subprocess.run(line, env=environment, cwd=folder, capture_output=True, text=True, timeout=400, check=False)


def start_fresh(command: Sequence[str], folder: Path, log: Path, **variables: str) -> "subprocess.Popen[bytes]":
    """Start a command with the real Python and let it write to a file.

    A warm process outlives a SIGKILL of its client for a moment, and holds its locks while the test goes on.
    """
    line, environment = _fresh(command, True, variables)
    with log.open("w") as said:
        return subprocess.Popen(line, env=environment, cwd=folder, stdout=said, stderr=said)


def _fresh(command: Sequence[str], cold: bool, variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_RANKS}
    environment |= {**_VARIABLES, **variables}
    line = list(command) if cold or not hasattr(os, "pidfd_open") else warm(command, environment["PATH"])
    return line, environment


def warm(command: Sequence[str], path: str) -> list[str]:
    """Return a command with a warm Python in place of the real one; console scripts are looked for in ``path``."""
    python = str(_serving() / "python")
    if command[0] in ("python", sys.executable):
        return [python, *command[1:]]
    script = shutil.which(command[0], path=path)
    assert script is not None, f"no command {command[0]}"
    return [python, script, *command[1:]]


def start_from_here_warm(patch: pytest.MonkeyPatch) -> None:
    """Let what this process itself starts as ``sys.executable`` be warm."""
    patch.setattr(sys, "executable", warm(["python"], "")[0])
    for name, value in _VARIABLES.items():
        patch.setenv(name, value)


def reasons_to_start_cold() -> list[str]:
    """Return a line for each start that was cold, and why."""
    return (_serving() / "log").read_text().splitlines()


@functools.cache
def _serving() -> Path:
    """Start the server that ends with this process, and return its folder."""
    folder = Path(_UNTIL_THE_END.enter_context(tempfile.TemporaryDirectory(prefix="warm-")))
    address, executable = folder / "socket", folder / "python"
    client = [sys.executable, "-I", "-S", str(_HERE / "client.py"), str(address), sys.executable]
    executable.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    executable.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MEDTASKS_", "PYTEST_"))}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, (folder / "log").open("w") as log:
        listener.bind(str(address))
        listener.listen(64)  # clients wait until the libraries are imported
        server = subprocess.Popen(
            [sys.executable, str(_HERE / "server.py"), str(listener.fileno()), str(executable)],
            env={**own, **_VARIABLES, "HF_HOME": str(folder / "hf")},
            stdin=subprocess.PIPE,  # its end is the server's
            stdout=log,
            stderr=log,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    _UNTIL_THE_END.enter_context(server)
    return folder


_UNTIL_THE_END = contextlib.ExitStack()
atexit.register(_UNTIL_THE_END.close)
