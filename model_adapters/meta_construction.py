"""Building a network without memory for its weights, which are read from a checkpoint afterwards."""

from collections.abc import Callable
from typing import TypeVar

from accelerate import init_empty_weights
from torch import nn

M = TypeVar("M", bound=nn.Module)


def on_meta(build: Callable[[], M]) -> M:
    """Build a module whose parameters are on the meta device and whose buffers are real.

    Real buffers, because a checkpoint does not fill them: rotary frequencies and CLIP's position numbers. The
    frequencies stay float32 as long as nobody calls ``.to(dtype)`` on the module; cast parameters one by one, as
    :func:`~medtasks.model_adapters.checkpoint.fill` does.

    Args:
        build: Constructs the module.
    """
    with init_empty_weights(include_buffers=False):
        return build().eval()
