"""Wrappers around the harness's functions, which has no hooks for most of what our tasks need.

A function that does not fit a version of the harness causes one warning, and hides no other plug-in or task.
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
    """Wrap one of the harness's functions and return True, or False if it is wrapped already.

    Raises AttributeError where this version of the harness has no such function.
    """
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return False
    wrapper = functools.wraps(original)(around(original))
    setattr(wrapper, _MARK, True)
    setattr(owner, name, wrapper)
    return True


@contextlib.contextmanager
def or_warn(lost: str = "register itself with", instead: str = _BY_PATH) -> Iterator[None]:
    """Run a block; an error becomes a warning that medtasks could not do ``lost``, and what to do ``instead``."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warnings.warn(
            f"medtasks could not {lost} this version of lmms-eval ({type(error).__name__}: {error}); {instead}",
            stacklevel=2,
        )
