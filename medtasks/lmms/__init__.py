"""Everything that touches the inside of lmms-eval: discovery, evaluation, hooks, models' failures, kept answers.

The harness has no hooks for most of what our tasks need, so its functions are wrapped. One that does not fit a version
of the harness causes a warning, and hides no other plug-in or task.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

AUTOLOAD_VARIABLE = "MEDTASKS_AUTOLOAD"
"""Environment variable that hides our tasks and models from the harness if it is 0."""

_MARK = "_medtasks_wrapped"

AnyFunction = Callable[..., Any]


def wrap_once(owner: Any, name: str, around: AnyFunction) -> bool:
    """Replace one of the harness's functions by ``around(function, ...)``, if this is not done yet.

    Args:
        owner: Module or class of the function.
        name: Its name there.
        around: Takes the original function and the arguments of a call.

    Returns:
        Whether it was replaced now.

    Raises:
        AttributeError: This version of the harness has no such function.
    """
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return False

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(wrapper, _MARK, True)
    setattr(owner, name, wrapper)
    return True


@contextlib.contextmanager
def or_warn(
    lost: str = "register itself with",
    instead: str = 'name its tasks with --include_path "$(medtasks path)"',
) -> Iterator[None]:
    """Run a block, and turn an error into a warning.

    Args:
        lost: What medtasks could not do, before "this version of lmms-eval".
        instead: What to do instead.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001
        warnings.warn(
            f"medtasks could not {lost} this version of lmms-eval ({type(error).__name__}: {error}); {instead}",
            stacklevel=2,
        )


@contextlib.contextmanager
def replace_attribute(
    owner: Any,
    name: str,
    value: Any,
) -> Iterator[None]:
    """Replace an attribute of an object within the block.

    Example:
        >>> owner = contextlib.nullcontext("before")
        >>> with replace_attribute(owner, "enter_result", "within"):
        ...     owner.enter_result
        'within'
    """
    original = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if original is None:
            vars(owner).pop(name, None)
        else:
            setattr(owner, name, original)
