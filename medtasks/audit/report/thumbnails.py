"""Small copies of images for a page that has to hold them all."""

import base64
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from PIL import Image

from medtasks.data.dataset_manifest import decoding_of_file
from medtasks.data.images.decoding import Decoding, decoded_somehow
from medtasks.data.images.strict_pillow import strict_decoding

BUDGET = 18_000_000  # characters that all images together may take in the page
# Longer sides in pixels, from the first choice to the last.
SIDES = (512, 448, 384, 320, 256, 224, 192, 160, 128, 96)
_QUALITY = 80
_PROBED = 24  # images from which the size of all is estimated
_HEADROOM = 1.08  # the images probed may be simpler than the others
_BLOCK = 64
_WORKERS = min(8, os.cpu_count() or 1)  # each holds one whole image
LEFT_OUT = "left out to keep this file small"

_File = tuple[Path, Decoding]


@dataclass(frozen=True)
class Thumbnail:
    """A small copy of an image, or the reason why it is missing."""

    uri: str  # JPEG as a data URI; empty if there is no image
    width: int = 0  # of the image as models see it, in pixels; 0 without an image
    height: int = 0
    remark: str = ""  # why there is no image, or the conversions of its pixels; mostly empty


@dataclass(frozen=True)
class Thumbnails:
    """Small copies of many images."""

    side: int  # their longer side at most, in pixels
    by_file: Mapping[Path, Thumbnail]  # one for every file asked for

    @property
    def left_out(self) -> int:
        """Number of images that had no room."""
        return sum(image.remark == LEFT_OUT for image in self.by_file.values())

    @property
    def unreadable(self) -> int:
        """Number of files that are missing or damaged."""
        return sum(not image.uri for image in self.by_file.values()) - self.left_out


def thumbnails(
    files: Iterable[Path], budget: int = BUDGET, decodings: Mapping[Path, Decoding] = MappingProxyType({})
) -> Thumbnails:
    """Return small copies of images, as models see them, that fit into a page together.

    The more images, the smaller they are; what does not fit at the smallest size is left out, the last files first.
    The result does not depend on the number of processors. A file named twice is read once; those that are missing or
    damaged get a remark. All together take no more characters than the budget. Files that ``decodings`` names are
    decoded otherwise than the prepared dataset says in which they lie.
    """
    distinct = {file: decodings.get(file) or decoding_of_file(file) for file in dict.fromkeys(files)}
    with strict_decoding(), ThreadPoolExecutor(_WORKERS) as workers:
        listed = list(distinct.items())
        sides = SIDES[SIDES.index(_likely_side(listed, budget, workers)) :]
        for side in sides[:-1]:
            made = _made(listed, side, budget, workers)
            if len(made) == len(distinct):
                return Thumbnails(side, dict(zip(distinct, made, strict=True)))
        made = _made(listed, sides[-1], budget, workers)
    made += [Thumbnail("", remark=LEFT_OUT)] * (len(distinct) - len(made))
    return Thumbnails(sides[-1], dict(zip(distinct, made, strict=True)))


def _likely_side(files: Sequence[_File], budget: int, workers: ThreadPoolExecutor) -> int:
    """Return the largest side at which all are likely to fit, from the sizes of some."""
    if len(files) <= _PROBED:
        return SIDES[0]
    probed = [files[number * len(files) // _PROBED] for number in range(_PROBED)]
    images = [image for image, _ in workers.map(lambda file: _seen(file, SIDES[0]), probed) if image]
    for side in SIDES:
        size = sum(len(_uri(image, side)) for image in images)
        if size / _PROBED * len(files) * _HEADROOM <= budget:
            return side
    return SIDES[-1]


def _made(files: Sequence[_File], side: int, budget: int, workers: ThreadPoolExecutor) -> list[Thumbnail]:
    """Return copies of the first files, as many as fit."""
    made: list[Thumbnail] = []
    # In blocks, because an executor would work on all files although the room ends with one of the first.
    for start in range(0, len(files), _BLOCK):
        for image in workers.map(lambda file: _thumbnail(file, side), files[start : start + _BLOCK]):
            budget -= len(image.uri)
            if budget < 0:
                return made
            made.append(image)
    return made


def _thumbnail(file: _File, side: int) -> Thumbnail:
    image, seen = _seen(file, side)
    return replace(seen, uri=_uri(image, side)) if image else seen


def _seen(file: _File, side: int) -> tuple[Image.Image | None, Thumbnail]:
    """Return an image of about the size, if it can be read, and its facts."""
    path, decoding = file
    try:
        seen = decoded_somehow(path, decoding, side)
    except FileNotFoundError:
        return None, Thumbnail("", remark="the file is missing")
    except Exception:  # noqa: BLE001  # a damaged file raises whatever its decoder likes; no image breaks the report
        return None, Thumbnail("", remark="the file cannot be read as a picture")
    # A draft of a JPEG has at least these sides already.
    seen.pixels.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    red, *others = (band.tobytes() for band in seen.pixels.split())
    is_grey = all(band == red for band in others)  # which takes a third of the bytes
    image = seen.pixels.getchannel("R") if is_grey else seen.pixels
    return image, Thumbnail("", *seen.size, "; ".join(seen.conversions))


def _uri(image: Image.Image, side: int) -> str:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
