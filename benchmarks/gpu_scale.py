"""Where the parts of ``on_gpu.py`` run and how large, and how they say what they have measured."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]


@dataclasses.dataclass(frozen=True)
class Scale:
    """Where and how large."""

    tiny: bool
    device: str
    peak: float | None = None  # operations per second, where they are given instead of measured

    @property
    def dtype(self) -> str:
        """Type of the models' weights."""
        return "float32" if self.tiny else "bfloat16"

    @property
    def batch_size(self) -> int:
        """Requests in a batch of a model."""
        return 6 if self.tiny else 64
