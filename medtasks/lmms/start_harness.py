"""Start lmms-eval for ``medtasks run``: as ``python -m lmms_eval`` does, but Ctrl-C prints no traceback."""

import sys
from types import TracebackType


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    sys.excepthook = _show_uncaught
    from lmms_eval.cli.dispatch import main  # takes seconds, in which Ctrl-C may come

    main()
