"""Vision features by image content, so that an image is looked at once however many questions are about it."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

from medtasks.errors import MedTasksError


def content_key(pixels: torch.Tensor) -> str:
    """Return a digest of a tensor's values, shape and type.

    Example:
        >>> content_key(torch.zeros(2)) == content_key(torch.zeros(2, dtype=torch.float64))
        False
    """
    digest = hashlib.blake2b(f"{tuple(pixels.shape)} {pixels.dtype}".encode(), digest_size=16)
    digest.update(pixels.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


class FeatureCache:
    """The features of the images used last, bounded by their size.

    Args:
        limit: Size of all kept features, in bytes; 0 keeps nothing.

    Attributes:
        used: Size of what is kept, in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._kept: OrderedDict[str, torch.Tensor] = OrderedDict()

    def features(
        self, pixels: Sequence[torch.Tensor | None], compute: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[torch.Tensor | None]:
        """Return the features of every row's images, computing those that are not kept.

        Images are computed one at a time: in a batch, rounding would depend on which of them happened to be kept.

        Args:
            pixels: Per row its images, shape (images, ...), or ``None``.
            compute: From one image, shape (1, ...), to its features; see ``MedicalAdapter.image_features``.

        Returns:
            Per row the features of its images, joined along the first dimension; ``None`` for a row without images.

        Raises:
            MedTasksError: ``compute`` gives something else than a tensor.
        """
        known: dict[str, torch.Tensor] = {}
        return [None if row is None or len(row) == 0 else self._of_row(row, compute, known) for row in pixels]

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.used = 0

    def _of_row(
        self, row: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor], known: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        found = []
        for image in (row[place : place + 1] for place in range(len(row))):
            key = content_key(image)
            if key not in known:  # within a batch nothing is computed twice, however little may be kept
                known[key] = self._kept[key] if key in self._kept else self._computed(image, compute)
                self._keep(key, known[key])
            found.append(known[key])
        return found[0] if len(found) == 1 else torch.cat(found)

    @staticmethod
    def _computed(image: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        features = compute(image)
        if not isinstance(features, torch.Tensor):
            raise MedTasksError(f"image_features must return a tensor, not {type(features).__name__}")
        return features.detach()

    def _keep(self, key: str, features: torch.Tensor) -> None:
        size = features.nbytes
        if key in self._kept:
            self._kept.move_to_end(key)
        elif size <= self._limit:
            # A view would keep the whole of what it is a part of.
            whole = features.untyped_storage().nbytes() == size
            self._kept[key] = features if whole else features.clone()
            self.used += size
            while self.used > self._limit:
                self.used -= self._kept.popitem(last=False)[1].nbytes
