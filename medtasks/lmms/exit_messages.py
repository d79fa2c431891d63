"""What must be read is printed last: behind the harness's tracebacks, lists of two hundred names, and tables."""

import atexit
import contextlib
import os
import sys
import traceback

from medtasks.errors import MedTasksError
from medtasks.runs.redaction import redacted, without_home

ERROR_VARIABLE = "MEDTASKS_ERROR_FILE"
"""Environment variable by which ``medtasks run`` names a new file for the error that ends the harness."""
_LONGEST = 500


def end_after(error: Exception, *, debug: bool) -> None:
    """End the process with code 1, and leave the error to ``medtasks run`` in one sentence.

    An error that the user can fix shows no traceback, unless ``debug`` is set.
    """
    sentence = " ".join(str(error).split())[:_LONGEST]
    if debug or not isinstance(error, MedTasksError):
        traceback.print_exc()
        sentence = f"{type(error).__name__}: {sentence}"
    sentence = without_home(redacted(sentence))
    _say(f"medtasks: {sentence}")
    with contextlib.suppress(OSError), open(os.environ.get(ERROR_VARIABLE, os.devnull), "x", encoding="utf-8") as file:
        file.write(sentence)
    raise SystemExit(1) from None


def say_last(sentence: str) -> None:
    """Print a sentence when the process ends; of several processes of a run only the first one does."""
    if os.environ.get("RANK", "0") == "0":
        atexit.register(_say, f"medtasks: {sentence}")


def _say(sentence: str) -> None:
    with contextlib.suppress(ValueError):  # somebody has closed the stream
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201
