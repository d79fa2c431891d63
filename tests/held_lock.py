"""A lock file that another process holds, as far as the one under test can tell."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file. Not by filelock: once the harness is imported, all its locks of one process are one."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
