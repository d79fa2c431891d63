"""Small copies of pictures for a page that has to hold them all."""

import base64
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from medtasks.data.decoding import strict_decoding

BUDGET = 18_000_000
"""Characters that all pictures together may take in the page."""
SIDES = (512, 448, 384, 320, 256, 224, 192, 160, 128, 96)
"""Longer sides in pixels, from the first choice to the last."""

_QUALITY = 80
_PROBED = 24  # pictures from which the size of all is estimated
_HEADROOM = 1.08  # the pictures probed may be simpler than the others
_BLOCK = 64
_WORKERS = min(8, os.cpu_count() or 1)  # each holds one whole picture
_DARK, _BRIGHT = 0.5, 99.5  # percentiles, as for slices of volumes
_DEEP = ("I", "F")  # modes whose values do not fit into 8 bits start with these
_PREFIX = "data:image/jpeg;base64,"

LEFT_OUT = "left out to keep this file small"


@dataclass(frozen=True)
class Thumbnail:
    """A small copy of a picture, or why there is none.

    Attributes:
        uri: JPEG as a data URI; empty if there is no picture.
        width: Of the picture itself, in pixels; 0 if there is none.
        height: Likewise.
        remark: Why there is no picture, or how it differs from its file; mostly empty.
    """

    uri: str
    width: int = 0
    height: int = 0
    remark: str = ""


@dataclass(frozen=True)
class Thumbnails:
    """Small copies of many pictures.

    Attributes:
        side: Their longer side at most, in pixels.
        by_file: One for every file asked for.
    """

    side: int
    by_file: Mapping[Path, Thumbnail]

    @property
    def left_out(self) -> int:
        """How many pictures had no room."""
        return sum(one.remark == LEFT_OUT for one in self.by_file.values())

    @property
    def unreadable(self) -> int:
        """How many files are missing or damaged."""
        return sum(not one.uri for one in self.by_file.values()) - self.left_out


def thumbnails(files: Iterable[Path], budget: int = BUDGET) -> Thumbnails:
    """Return small copies of pictures that fit into a page together.

    The more pictures, the smaller they are; what does not fit at the smallest size is left out, the last files first.
    The result does not depend on the number of processors.

    Args:
        files: Pictures; a file named twice is read once. Files that are missing or damaged get a remark.
        budget: Characters that all together may take.
    """
    distinct = list(dict.fromkeys(files))
    with strict_decoding(), ThreadPoolExecutor(_WORKERS) as workers:
        sides = SIDES[SIDES.index(_likely_side(distinct, budget, workers)) :]
        for side in sides[:-1]:
            made = _made(distinct, side, budget, workers)
            if len(made) == len(distinct):
                return Thumbnails(side, dict(zip(distinct, made, strict=True)))
        made = _made(distinct, sides[-1], budget, workers)
    made += [Thumbnail("", remark=LEFT_OUT)] * (len(distinct) - len(made))
    return Thumbnails(sides[-1], dict(zip(distinct, made, strict=True)))


def _likely_side(files: Sequence[Path], budget: int, workers: ThreadPoolExecutor) -> int:
    """Return the largest side at which all are likely to fit, from the size of some."""
    if len(files) <= _PROBED:
        return SIDES[0]
    probed = [files[number * len(files) // _PROBED] for number in range(_PROBED)]
    shown = list(workers.map(lambda file: _shown(file, SIDES[0]), probed))
    for side in SIDES:
        size = sum(len(_uri(one.image, side)) for one in shown if one.image)
        if size / _PROBED * len(files) * _HEADROOM <= budget:
            return side
    return SIDES[-1]


def _made(files: Sequence[Path], side: int, budget: int, workers: ThreadPoolExecutor) -> list[Thumbnail]:
    """Return copies of the first files, as many as fit."""
    made: list[Thumbnail] = []
    for one in _in_blocks(files, side, workers):
        budget -= len(one.uri)
        if budget < 0:
            break
        made.append(one)
    return made


def _in_blocks(files: Sequence[Path], side: int, workers: ThreadPoolExecutor) -> Iterator[Thumbnail]:
    # In blocks, because an executor would work on all files although the room ends with one of the first.
    for start in range(0, len(files), _BLOCK):
        yield from workers.map(lambda file: _thumbnail(file, side), files[start : start + _BLOCK])


def _thumbnail(file: Path, side: int) -> Thumbnail:
    shown = _shown(file, side)
    return (
        Thumbnail(_uri(shown.image, side), *shown.size, shown.remark)
        if shown.image
        else Thumbnail("", 0, 0, shown.remark)
    )


@dataclass(frozen=True)
class _Shown:
    """A picture in 8 bits, or why there is none, and the size of the picture itself."""

    image: Image.Image | None
    size: tuple[int, int]
    remark: str


def _shown(file: Path, side: int) -> _Shown:
    try:
        shown = _of_picture(file, side)
    except FileNotFoundError:
        return _Shown(None, (0, 0), "the file is missing")
    except Exception:  # noqa: BLE001  # a damaged file raises whatever its decoder likes; no picture breaks the report
        return _Shown(None, (0, 0), "the file cannot be read as a picture")
    if shown.image:
        shown.image.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return shown


def _uri(image: Image.Image, side: int) -> str:
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=_QUALITY)
    return _PREFIX + base64.b64encode(buffer.getvalue()).decode("ascii")


def _of_picture(file: Path, side: int) -> _Shown:
    with Image.open(file) as image:
        size = image.size
        image.draft(None, (side, side))  # a JPEG is then decoded at a half, a quarter or an eighth of its size
        if image.mode.startswith(_DEEP):
            return _Shown(_windowed(image), size, "more than 8 bits per pixel, shown from its darkest to its brightest")
        if image.has_transparency_data:
            return _Shown(_opaque(image.convert("RGBA")), size, "its transparent parts are shown on a plain ground")
        return _Shown(image.convert("L" if image.mode in ("1", "L") else "RGB"), size, "")


def _windowed(image: Image.Image) -> Image.Image:
    """Return grey values of more than 8 bits in 8; Pillow would cut them off at 255."""
    import numpy as np

    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    dark, bright = np.percentile(values, (_DARK, _BRIGHT))
    if bright <= dark:
        dark, bright = values.min(), values.max()
    grey = np.clip((values - dark) / max(float(bright - dark), 1e-12), 0, 1) * 255
    return Image.fromarray(grey.round().astype(np.uint8))


def _opaque(image: Image.Image) -> Image.Image:
    """Return an image on the ground, black or white, on which what it shows stands out."""
    alpha = image.getchannel("A")
    grey = image.convert("L").histogram(mask=alpha.point(lambda value: 255 if value >= 128 else 0))
    mean = sum(value * number for value, number in enumerate(grey)) / max(sum(grey), 1)
    ground = Image.new("RGB", image.size, "white" if mean < 128 else "black")
    ground.paste(image.convert("RGB"), mask=alpha)
    return ground
