"""Settings of neural metrics, and the cache of their results by text."""

import hashlib
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from medtasks.errors import MedTasksError
from medtasks.home import home
from medtasks.metrics.weight_files import weights_info
from medtasks.net.disk_cache import SqliteCache

if TYPE_CHECKING:
    import torch

Text = TypeVar("Text", bound=Hashable)
Value = TypeVar("Value")

_CANNOT_KEEP = (
    "Results of a metric's model cannot be kept in {path} ({error}); the run goes on, a rerun computes them again. "
    "Free some space, or remove that file if it is damaged."
)
_PUT_AFTER = 256  # values


def default_cache_folder() -> Path:
    """Return ``metrics`` below ``$MEDTASKS_HOME``."""
    return home() / "metrics"


def text_key(*texts: str) -> bytes:
    """Return the cache key of one or several texts, 32 bytes."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


class TextCache(SqliteCache):
    """Values by text for one model, in a file of ``folder``; None for no file.

    ``model``, the file's name, is a fingerprint of everything a value depends on besides the text: weights, vocabulary,
    dtype, and the version of the code.
    """

    def __init__(self, folder: Path | None, model: str) -> None:
        name = hashlib.sha256(model.encode()).hexdigest()[:32]
        super().__init__(None if folder is None else folder / f"{name}.sqlite", ("texts", "value"), _CANNOT_KEEP)

    def complete(
        self,
        keys: Mapping[Text, bytes],
        compute: Callable[[list[Text]], Iterable[tuple[int, Value]]],
        *,
        encode: Callable[[Value], bytes],
        decode: Callable[[bytes], Value],
    ) -> dict[Text, Value]:
        """Return the value of every text, from the cache or computed and then cached.

        ``keys`` are the :func:`text_key` of the texts. ``compute`` takes the texts without a value, if there are any,
        and yields ``(position, value)``; values before an error are cached, too.
        """
        stored = self.get(list(keys.values()))
        values = {text: decode(stored[key]) for text, key in keys.items() if key in stored}
        missing = [text for text in keys if text not in values]
        if not missing:
            return values
        fresh: dict[bytes, bytes] = {}
        try:
            for position, value in compute(missing):
                values[missing[position]] = value
                fresh[keys[missing[position]]] = encode(value)
                if len(fresh) >= _PUT_AFTER:
                    self.put(fresh)
                    fresh = {}
        finally:
            self.put(fresh)
        return values


DEVICE_VARIABLE = "MEDTASKS_METRICS_DEVICE"
DTYPE_VARIABLE = "MEDTASKS_METRICS_DTYPE"
_DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a metric's model.

    ``weights`` is the file or folder of a metric with one model; ``named_weights``, by entry of
    :data:`medtasks.metrics.weight_files.WEIGHTS`, take precedence; the default are the fetched weights.
    """

    weights: Path | None = None
    named_weights: Mapping[str, Path] = field(default_factory=dict, hash=False)
    device: str = "auto"  # "cpu", "cuda", "cuda:1", or "auto": the GPU if there is one
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the encoder; bfloat16 is faster and changes scores a little
    batch_size: int | None = None  # texts per pass; None: the metric's default
    cache: Path | None = field(default_factory=default_cache_folder)  # folder of results; None: no cache
    progress: bool = True  # whether to show a progress bar

    def __post_init__(self) -> None:
        """Raise UnknownName for weights that are no entry."""
        for name in self.named_weights:
            weights_info(name)

    def weights_for(self, name: str) -> Path | None:
        """Return the path of one entry of weights, else ``weights``."""
        return self.named_weights.get(name, self.weights)

    @classmethod
    def from_environment(cls) -> "ModelSettings":
        """Read ``MEDTASKS_METRICS_DEVICE`` and ``MEDTASKS_METRICS_DTYPE``; unknown values are a MedTasksError."""
        dtype = os.environ.get(DTYPE_VARIABLE, "").strip() or "float32"
        if dtype not in _DTYPES:
            raise MedTasksError(f"{DTYPE_VARIABLE}={dtype} is unknown; it is one of {', '.join(_DTYPES)}")
        device = os.environ.get(DEVICE_VARIABLE, "").strip() or "auto"
        return cls(device=device, dtype="bfloat16" if dtype == "bfloat16" else "float32")

    def torch_device(self) -> "torch.device":
        """Return the device; one that is unknown or not there is a MedTasksError."""
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
