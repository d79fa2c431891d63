"""The harness's functions, with ours around them: it has no hooks for most of what our tasks need.

A function that does not fit a version of the harness says in one sentence what that costs, and hides no other plug-in
or task.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

_MARK = "_medtasks_wrapped"
_BY_PATH = 'name its tasks with --include_path "$(medtasks path)"'

AnyFunction = Callable[..., Any]


def wrap_once(owner: Any, name: str, around: Callable[[AnyFunction], AnyFunction]) -> bool:
    """Put a function around one of the harness's and return True, or False where it is there already.

    Raises AttributeError where this version of the harness has no such function.
    """
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return False
    wrapper = functools.wraps(original)(around(original))
    setattr(wrapper, _MARK, True)
    setattr(owner, name, wrapper)
    return True


def warn_of(error: Exception, lost: str = "register itself with", instead: str = _BY_PATH) -> None:
    """Warn that something could not be done with this version of the harness, and say what mends it."""
    warnings.warn(
        f"medtasks could not {lost} this version of lmms-eval ({type(error).__name__}: {error}); {instead}",
        stacklevel=2,
    )


@contextlib.contextmanager
def or_warn(*lost_and_instead: str) -> Iterator[None]:
    """Run a block and go on if it fails, with the warning of :func:`warn_of`."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warn_of(error, *lost_and_instead)
