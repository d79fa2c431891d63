"""The harness's process as ``medtasks run`` starts it (``python -m``): an error ends it with code 1.

lmms-eval itself prints the error of an evaluation and ends with 0.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from medtasks.errors import MedTasksError
from medtasks.lmms import replace_attribute
from medtasks.runs.redaction import redact, redacted_streams, without_home
from medtasks.tasks.task_files import included_folders

_STEP = 0.1  # seconds
ERROR_VARIABLE = "MEDTASKS_ERROR_FILE"
"""Environment variable with the path of a new file for the error that ends the harness."""


def end_after(error: Exception, *, debug: bool) -> NoReturn:
    """End the process with code 1, and leave the error to ``medtasks run`` in one sentence.

    Args:
        error: The error. One that the user can fix shows no traceback.
        debug: Whether to show the traceback of any error.

    Raises:
        SystemExit: Always, with code 1.
    """
    sentence = " ".join(redact(str(error)).split())[:500]
    if debug or not isinstance(error, MedTasksError):
        traceback.print_exc()
        sentence = f"{type(error).__name__}: {sentence}"
    sentence = without_home(sentence)
    say(sentence, in_all=True)
    with (
        contextlib.suppress(OSError),
        open(os.environ.get(ERROR_VARIABLE, os.devnull), "x", encoding="utf-8") as file,
    ):
        file.write(sentence)
    raise SystemExit(1) from None


def say(sentence: str, *, in_all: bool = False) -> None:
    """Print a sentence in the first of several processes of a run, or in all of them."""
    if in_all or os.environ.get("RANK", "0") == "0":
        with contextlib.suppress(ValueError):  # the stream may be closed
            print(f"medtasks: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def unclaimed_stamp(
    stamp_now: Callable[..., str],
    output: Path,
    claims: contextlib.ExitStack,
    **options: Any,
) -> str:
    """Return the time for the names of a run's files, when no other run into the folder has the same second.

    Args:
        stamp_now: The harness's function of the current time.
        output: Folder of the run's files.
        claims: Owner of the claim, an empty file that is deleted when it is closed, at the end of the run.
        options: Arguments of ``stamp_now``.
    """
    while True:
        stamp = stamp_now(**options)
        if os.environ.get("RANK", "0") != "0":  # it writes nothing
            return stamp
        claim = output / f".{stamp}"
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            time.sleep(_STEP)
            continue
        except OSError:
            return stamp  # is reported where the results cannot be written
        claims.callback(claim.unlink, missing_ok=True)
        return stamp


@contextlib.contextmanager
def _unclaimed_stamps(harness: Any, output: Path) -> Iterator[None]:
    """Let no two evaluations into a folder that end within the block have the same names of files."""
    with contextlib.ExitStack() as claims:
        stamp = partial(unclaimed_stamp, harness.utils.get_datetime_str, output, claims)
        with replace_attribute(harness.utils, "get_datetime_str", stamp):
            yield


def evaluate_here(arguments: Sequence[str], output: Path) -> None:
    """Evaluate in this process, with the tasks of included folders.

    Args:
        arguments: Arguments of the harness's command line.
        output: Folder for results.
    """
    from lmms_eval import __main__ as harness  # takes seconds

    with replace_attribute(
        sys, "argv", ["lmms_eval", *arguments, "--output_path", str(output)]
    ):
        _, args = harness.parse_eval_args()
    args.include_path = included_folders() or None
    with _unclaimed_stamps(harness, output):
        harness.cli_evaluate_single(args)


def main() -> None:
    """Evaluate as the command line says, without secrets in what is printed. Ctrl-C shows no traceback."""
    show = sys.excepthook

    def show_without_secrets(
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        """Show an error as Python does, but redacted, and nothing for Ctrl-C."""
        if not issubclass(kind, KeyboardInterrupt):
            with redacted_streams():
                show(kind, error, trace)

    sys.excepthook = show_without_secrets
    from lmms_eval import __main__ as harness  # takes seconds, in which Ctrl-C may come

    evaluate = harness.cli_evaluate_single

    def evaluate_or_end(args: Any) -> Any:
        """Evaluate as the harness does, and end the process after an error, which the harness would only print."""
        try:
            with _unclaimed_stamps(harness, Path(args.output_path or ".")):
                return evaluate(args)
        except Exception as error:  # noqa: BLE001 - the harness would only print it
            end_after(error, debug=args.verbosity == "DEBUG")

    harness.cli_evaluate_single = evaluate_or_end
    with redacted_streams():
        harness.cli_evaluate()


if __name__ == "__main__":
    main()
