"""Waits of tests for what another process or thread does, however slow the machine is."""

import subprocess
import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds after which something is broken and not slow


def wait_until(
    condition: Callable[[], object], process: "subprocess.Popen[bytes] | None" = None
) -> None:
    """Wait until ``condition()`` holds, which ``process`` has to bring about before it ends."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        assert process is None or process.poll() is None or condition(), (
            "the process ended before"
        )
        time.sleep(0.02)
