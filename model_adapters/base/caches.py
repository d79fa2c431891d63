"""Images by their content, and what is kept of them: the values that were used last, bounded by their size."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, MutableMapping, Sequence
from typing import Generic, TypeVar

import torch
from torch.utils.weak import WeakIdKeyDictionary

from medtasks.errors import MedTasksError

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """Values by key, up to ``limit`` bytes; the one that was not used for the longest time goes first.

    Example:
        >>> cache = BoundedCache[str](10)
        >>> cache.keep("a", "one", 6), cache.keep("b", "two", 6), cache.get("a"), cache.get("b")
        (None, None, None, 'two')
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return the value under a key, which counts as a use."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def keep(self, key: Hashable, value: Value, size: int) -> None:
        """Keep a value of ``size`` bytes under a new key; one that is larger than everything may be is not kept."""
        if size > self._limit or key in self._kept:
            return
        self._kept[key] = value, size
        self.used += size
        while self.used > self._limit:
            self.used -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.used = 0


_keys: MutableMapping[torch.Tensor, tuple[int, tuple[str, ...]]] = WeakIdKeyDictionary()
"""Per tensor that lives its version and keys. All options of a question hold one tensor, which is hashed several times
on its way otherwise; that of a volume has hundreds of megabytes."""


def content_key(pixels: torch.Tensor) -> str:
    """Return a digest of a tensor's values, shape and type; values that an expanded one repeats are read once.

    Example:
        >>> content_key(torch.zeros(2)) == content_key(torch.zeros(2, dtype=torch.float64))
        False
    """
    once = pixels.detach()
    for axis, step in enumerate(pixels.stride()):
        once = once.narrow(axis, 0, 1) if step == 0 and once.shape[axis] else once
    digest = hashlib.blake2b(f"{tuple(pixels.shape)} {tuple(once.shape)} {pixels.dtype}".encode(), digest_size=16)
    digest.update(once.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def image_keys(pixels: torch.Tensor | None) -> tuple[str, ...]:
    """Return one digest per image, shape (images, ...); a tensor is read once as long as it lives unchanged."""
    if pixels is None:
        return ()
    version = 0 if pixels.is_inference() else pixels._version
    known = _keys.get(pixels)
    if known is None or known[0] != version:
        known = _keys[pixels] = version, tuple(content_key(pixels[place : place + 1]) for place in range(len(pixels)))
    return known[1]


class FeatureCache(BoundedCache[torch.Tensor]):
    """Vision features: an image is looked at once, however many questions are about it."""

    def features(
        self, pixels: Sequence[torch.Tensor | None], compute: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return per row the features of its images, joined along the first dimension; ``None`` without images.

        Images, shape (1, ...), are computed one at a time: in a batch, rounding would depend on which of them happened
        to be kept.
        """
        known: dict[str, torch.Tensor] = {}  # within a batch nothing is computed twice, however little may be kept
        rows: list[torch.Tensor | None] = []
        for row in pixels:
            keys = image_keys(row)
            for place, key in enumerate(keys):
                if row is None or key in known:
                    continue
                features = self.get(key)
                if features is None:
                    features = compute(row[place : place + 1])
                    if not isinstance(features, torch.Tensor):
                        raise MedTasksError(f"image_features must return a tensor, not {type(features).__name__}")
                    features = features.detach()
                    # A view would keep the whole of what it is a part of.
                    whole = features.untyped_storage().nbytes() == features.nbytes
                    self.keep(key, features if whole else features.clone(), features.nbytes)
                known[key] = features
            of_row = [known[key] for key in keys]
            rows.append(torch.cat(of_row) if len(of_row) > 1 else next(iter(of_row), None))
        return rows
