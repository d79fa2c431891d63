"""Running :mod:`medtasks.audit.doctor.child`, and reading what it told before it ended."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError

TIMEOUT_S = 180.0  # after which a child is given up; importing torch from a network disk may take a minute


@dataclass(frozen=True)
class Told:
    """What a child told."""

    steps: dict[str, dict[str, Any]] = field(default_factory=dict)  # fields by key of the steps that ended
    broken_off: dict[str, Any] | None = None  # fields of the step in which the child ended too early, or None
    how: str = ""  # how it ended too early, in words; empty if it did not

    def step(self, key: str) -> dict[str, Any]:
        """Return the fields of a step; MedTasksError: the child ended before it."""
        if key not in self.steps:
            raise MedTasksError(f"the process that looks at it ended too early ({self.how}); run the command again")
        return self.steps[key]


def told_by(subject: str, names: Sequence[str] = ()) -> Told:
    """Start a child that looks at ``plug_ins``, ``torch`` or ``harness``, wait for it, and return what it told."""
    # -P: the harness's command does not have the working folder on its path, either.
    command = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), subject, *names]
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
        output, code = ran.stdout, ran.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}" if code else ""
    except subprocess.TimeoutExpired as late:
        output, how = late.stdout or b"", f"no end within {TIMEOUT_S:g} s"
    except OSError as error:
        return Told(how=f"it could not be started: {error.strerror or error}")
    steps: dict[str, dict[str, Any]] = {}
    begun: dict[str, Any] | None = None
    for line in output.decode().splitlines(keepends=True):
        if line.endswith("\n"):  # else it was killed at this line
            begun = json.loads(line)
            if "done" in begun:
                steps[begun.pop("done")], begun = begun, None
    return Told(steps, begun, how)
