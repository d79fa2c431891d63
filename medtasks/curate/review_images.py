"""A study's images as a reviewer sees them: the pixels that a model is given, whatever the file's format."""

import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from medtasks.curate.study import StudyImage
from medtasks.data.decoding import LINEAR, DecodedImage, decoded
from medtasks.data.strict_pillow import UnreadableImage

_KEPT_BYTES = 200_000_000
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
        self._kept: OrderedDict[str, ShownImage] = OrderedDict()
        self._lock = threading.Lock()

    def shown(self, image: str) -> ShownImage:
        """Return an image as models see it.

        Raises a KeyError for an id that the study does not have, and UnreadableImage, which names no file, for one that
        is missing, not the file of the study any more, or that no model could be shown.
        """
        found = self._images[image]
        with self._lock:  # one large image in memory at a time
            if image not in self._kept:
                seen = _seen(found)
                self._kept[image] = ShownImage(_encoded(seen.pixels, "PNG", compress_level=1), seen.conversions)
                while len(self._kept) > 1 and sum(len(one.png) for one in self._kept.values()) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(image)
            return self._kept[image]

    def thumbnail(self, image: str, side: int) -> bytes:
        """Return an image at most ``side`` pixels wide and high, as JPEG; errors as above."""
        pixels = _seen(self._images[image], side).pixels
        pixels.thumbnail((side, side))
        return _encoded(pixels, "JPEG", quality=_QUALITY)


def _seen(image: StudyImage, side: int | None = None) -> DecodedImage:
    try:
        data = Path(image.file).read_bytes()
    except OSError as error:
        raise UnreadableImage(f"its file cannot be read ({error.strerror or type(error).__name__})") from None
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise UnreadableImage("its file has changed since the study was made")
    return decoded(io.BytesIO(data), LINEAR, side)


def _encoded(pixels: Image.Image, kind: str, **settings: int) -> bytes:
    stream = io.BytesIO()
    pixels.save(stream, kind, **settings)
    return stream.getvalue()
