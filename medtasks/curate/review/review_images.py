"""Images of a study as a reviewer sees them: the pixels that a model is given, whatever the file's format."""

import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image

from medtasks.curate.study import StudyImage
from medtasks.data.images.decoding import LINEAR, decoded

_KEPT = 8  # images
_QUALITY = 85


@dataclass(frozen=True)
class ShownImage:
    """One image, encoded so that every browser shows it."""

    png: bytes
    conversions: tuple[str, ...]  # what was done with the file's values; empty for 8 bits as stored


class ReviewImages:
    """Images of a study by id; the last ones are kept. Threads may share it."""

    def __init__(self, images: Mapping[str, StudyImage]) -> None:
        self._images = images
        self._kept = lru_cache(_KEPT)(self._encode)
        self._lock = threading.Lock()

    def shown(self, image: str) -> ShownImage:
        """Return an image as models see it.

        Raises:
            KeyError: The study does not have this id.
            UnreadableImage: The file is missing, not that of the study any more, or no model could be shown it. The
                message names no file.
        """
        with self._lock:  # one large image in memory at a time
            return self._kept(image)

    def _encode(self, image: str) -> ShownImage:
        seen = decoded(io.BytesIO(self._images[image].read()), LINEAR)
        return ShownImage(_encoded(seen.pixels, "PNG", compress_level=1), seen.conversions)

    def thumbnail(self, image: str, side: int) -> bytes:
        """Return an image at most ``side`` pixels wide and high, as JPEG; errors as above."""
        pixels = decoded(io.BytesIO(self._images[image].read()), LINEAR, side).pixels
        pixels.thumbnail((side, side))
        return _encoded(pixels, "JPEG", quality=_QUALITY)


def _encoded(pixels: Image.Image, kind: str, **settings: int) -> bytes:
    stream = io.BytesIO()
    pixels.save(stream, kind, **settings)
    return stream.getvalue()
