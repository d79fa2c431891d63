"""What must be read is printed last: behind the harness's tracebacks, lists of names and tables."""

import atexit
import contextlib
import os
import sys


def say_last(sentence: str) -> None:
    """Print a sentence when the process ends; of several processes of a run only the first one does."""
    if os.environ.get("RANK", "0") == "0":
        atexit.register(_say, f"medtasks: {sentence}")


def _say(sentence: str) -> None:
    with contextlib.suppress(ValueError):  # somebody has closed the stream
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201
