"""Settings of the metrics that are models."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from medtasks.errors import MedTasksError
from medtasks.metrics.text_cache import default_cache_folder
from medtasks.metrics.weights import weights_info

if TYPE_CHECKING:
    import torch

DEVICE_VARIABLE = "MEDTASKS_METRICS_DEVICE"
DTYPE_VARIABLE = "MEDTASKS_METRICS_DTYPE"
_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class ModelSettings:
    """How a metric's model is run.

    ``weights`` is the file or folder of a metric that is one model; those of several are given by entry of
    :data:`medtasks.metrics.weights.WEIGHTS`, which goes before. Else they are what ``medtasks weights fetch`` brought.
    """

    weights: Path | None = None
    named_weights: Mapping[str, Path] = field(default_factory=dict, hash=False)
    device: str = "auto"  # "cpu", "cuda", "cuda:1", or the GPU if there is one
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the encoder; bfloat16 is faster and changes scores a little
    batch_size: int | None = None  # texts per pass; None: the metric's own
    cache: Path | None = field(default_factory=default_cache_folder)  # for what the model said of texts; None: not kept
    progress: bool = True  # whether to show a progress bar

    def __post_init__(self) -> None:
        """Raise UnknownName where weights are named that are no entry."""
        for name in self.named_weights:
            weights_info(name)

    def weights_for(self, name: str) -> Path | None:
        """Return the path given for one entry of weights, else ``weights``."""
        return self.named_weights.get(name, self.weights)

    @classmethod
    def from_environment(cls) -> "ModelSettings":
        """Return what ``MEDTASKS_METRICS_DEVICE`` and ``MEDTASKS_METRICS_DTYPE`` say, or raise a MedTasksError."""
        dtype = os.environ.get(DTYPE_VARIABLE, "").strip() or "float32"
        if dtype not in _DTYPES:
            raise MedTasksError(f"{DTYPE_VARIABLE}={dtype} is not known; it is one of {', '.join(_DTYPES)}")
        device = os.environ.get(DEVICE_VARIABLE, "").strip() or "auto"
        return cls(device=device, dtype="bfloat16" if dtype == "bfloat16" else "float32")

    def torch_device(self) -> "torch.device":
        """Return the device, or raise a MedTasksError if it is not known or not there."""
        import torch

        name = self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise MedTasksError(
                f"device '{name}' for metrics cannot be used ({error}); take 'cpu' or 'auto'"
            ) from error
        return device
