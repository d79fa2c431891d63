"""Starting :mod:`medtasks.audit.doctor.child`, and reading what it told before it ended."""

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


class Child:
    """One child process that looks at ``plug_ins``, ``torch`` or ``harness``; leaving its ``with`` block ends it."""

    def __init__(self, subject: str, names: Sequence[str] = ()) -> None:
        # -P: the harness's command does not have the working folder on its path, either.
        command = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), subject, *names]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def told(self) -> Told:
        """Wait for the child and return what it told."""
        try:
            output, _ = self._process.communicate(timeout=TIMEOUT_S)
            code = self._process.returncode
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
            how = f"no end within {TIMEOUT_S:g} s"
        steps: dict[str, dict[str, Any]] = {}
        begun: dict[str, Any] | None = None
        for line in output.splitlines(keepends=True):
            if line.endswith("\n"):  # else it was killed at this line
                begun = json.loads(line)
                if "done" in begun:
                    steps[begun.pop("done")], begun = begun, None
        return Told(steps, begun, how)
