"""Whether two images look the same: a perceptual hash finds candidates, a comparison of their details decides.

Medical images of one kind look alike, so a short hash with a generous distance calls every chest X-ray a copy of
every other. Here a pair counts as near-duplicate when both hold:

1. The 256-bit DCT hashes (``imagehash.phash`` with ``hash_size=16``) differ in at most :data:`DISTANCE` bits, or in at
   least 256 less that many, which an inverted image does.
2. The details correlate by at least :data:`LIKENESS`: sketches of 64 x 64 pixels (28 x 28 where an image is smaller
   than 56) without their slow variation of brightness and with equal local contrast.

Measured by ``benchmarks/duplicate_recall.py`` on drawn images of 224 x 224 pixels, 1,000 each of eight kinds that
look alike within a kind. Of 499,500 pairs of different images of a kind, taken for copies with the default
distance: eyes 18 (by the hash alone: 296), eyes of 28 x 28 pixels 0 (304), chests, heads, retinas, cells, ultrasound
sectors and textures 0. With distance 32 it is 2 for eyes, with 48 it is 52. Of copies are found: re-encoded (JPEG
quality 50 to 95), resized (a quarter to twice as large), brightness, contrast, gamma and window changed, noisy,
softened, inverted, or with a plain border 100 %; with a line of text or cropped by 1 % 99.6 %; with equalised
histogram 64 %; cropped by 2 % or more, or rotated by 3 degrees, hardly any. Copies reduced to 28 x 28 pixels are
found when that was done with a bicubic filter (100 %), with a bilinear one 30 %; images of that size that were
re-encoded at JPEG quality 75 are missed. Neighbouring slices of a volume or frames of a video may count as copies:
nothing here tells them apart.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

BITS = 256
DISTANCE = 40
"""Default of how many bits of the hashes of near-duplicates may differ."""
SIDE, TINY_SIDE = 64, 28
LIKENESS = {SIDE: 0.85, TINY_SIDE: 0.985}
"""Least correlation of the details of near-duplicates, by the side of the sketches compared."""
TURNS = {
    "": None,
    "mirrored": Image.Transpose.FLIP_LEFT_RIGHT,
    "upside down mirrored": Image.Transpose.FLIP_TOP_BOTTOM,
    "rotated by 90 degrees": Image.Transpose.ROTATE_90,
    "rotated by 180 degrees": Image.Transpose.ROTATE_180,
    "rotated by 270 degrees": Image.Transpose.ROTATE_270,
    "rotated by 90 degrees and mirrored": Image.Transpose.TRANSPOSE,
    "rotated by 270 degrees and mirrored": Image.Transpose.TRANSVERSE,
}
"""The eight ways to lay an image, by what is said of one laid that way."""

Sketch = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_SMALLEST = 56  # pixels of the shorter side; a quarter of the usual 224
_FLAT = 8  # grey levels
_BORDER = 4  # grey levels that a plain border may vary by, which JPEG makes of a single one
_SPECKS = 0.005  # share of a border's line that may differ more
_CORE = 0.2  # an image that is narrower than this without its border has none
_BLUR, _FLOOR = 2.0, 4.0  # pixels; grey levels of contrast below which there is only noise
_ROWS, _COLUMNS = 64, 4096  # of one block of comparisons, which stays near the processor
_BLOCK = 4096


def sketches(image: Image.Image) -> list[Sketch]:
    """Return small grey versions of an image: of the whole, and of what is inside a plain border if it has one.

    One or two arrays of shape (64, 64); none for an image that shows a single grey, which resembles any other.
    """
    grey = image.convert("L")
    whole = _sketch(grey)
    if int(whole.max()) - int(whole.min()) <= _FLAT:
        return []
    box = _inside_border(np.asarray(grey))
    return [whole] if box == (0, 0, *grey.size) else [whole, _sketch(grey.crop(box))]


def turned(sketch: Sketch, turn: str) -> Sketch:
    """Return a sketch laid one of the ways of :data:`TURNS`."""
    method = TURNS[turn]
    return sketch if method is None else np.asarray(Image.fromarray(sketch).transpose(method))


def perceptual_hash(sketch: Sketch) -> bytes:
    """Return the hash of a sketch: 32 bytes."""
    import imagehash

    found = imagehash.phash(Image.fromarray(sketch), hash_size=16, highfreq_factor=4)
    return np.packbits(found.hash).tobytes()


def stacked(hashes: list[bytes]) -> Hashes:
    """Return hashes as an array of shape (hashes, 4)."""
    return np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, BITS // 64)


def side_compared(first: tuple[int, int], second: tuple[int, int]) -> int:
    """Return the side of the sketches to compare two images by, given their sizes in pixels."""
    return SIDE if min(*first, *second) >= _SMALLEST else TINY_SIDE


def details(shown: npt.NDArray[np.uint8], side: int) -> npt.NDArray[np.float32]:
    """Return what tells images of one kind apart, as vectors of length 1 whose product is their correlation.

    Sketches have the shape (sketches, 64, 64), details (sketches, side * side); ``side`` is :data:`SIDE`, or
    :data:`TINY_SIDE` for images too small to have more.
    """
    from scipy import ndimage  # type: ignore[import-untyped]  # it has no types

    # Sketches of a large image hold more than those of a small one until both are reduced.
    bicubic = Image.Resampling.BICUBIC
    reduced = shown if side == SIDE else [Image.fromarray(sketch).resize((side, side), bicubic) for sketch in shown]
    grey = np.stack([np.asarray(sketch, np.float32) for sketch in reduced])
    fine = grey - ndimage.gaussian_filter(grey, (0, _BLUR, _BLUR), mode="nearest")
    wide = 1.5 * _BLUR
    contrast = np.sqrt(ndimage.gaussian_filter(fine * fine, (0, wide, wide), mode="nearest"))
    even = (fine / (contrast + _FLOOR)).reshape(len(grey), side * side)
    even -= even.mean(axis=1, keepdims=True)
    length = np.linalg.norm(even, axis=1, keepdims=True)
    vectors: npt.NDArray[np.float32] = even / np.maximum(length, 1e-6)
    return vectors


def close_pairs(first: Hashes, second: Hashes, distance: int) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    """Find the pairs among hashes of shapes (n, 4) and (m, 4) that differ in at most ``distance`` bits.

    Yields:
        For a part of ``second`` each, in order: its end, and four arrays of equal length: row in ``first``, row in
        ``second``, bits that differ (or do not), and whether one image is inverted.
    """
    columns = np.ascontiguousarray(first.T)
    with ThreadPoolExecutor() as workers:
        for start in range(0, len(second), _BLOCK):
            end = min(start + _BLOCK, len(second))
            compare = partial(_compare, columns, second[:end], distance)
            row, other, bits, inverted = map(
                np.concatenate, zip(*workers.map(compare, range(start, end, _ROWS)), strict=True)
            )
            yield end, row, other, bits, inverted


def _compare(columns: Hashes, rows: Hashes, distance: int, offset: int) -> tuple[Any, ...]:
    """Compare a few rows with all hashes: two of the four words first, which settles nearly all."""
    part = rows[offset : offset + _ROWS]
    found: list[tuple[Any, ...]] = []
    for start in range(0, max(columns.shape[1], 1), _COLUMNS):
        block = columns[:, start : start + _COLUMNS]
        half = np.bitwise_count(part[:, 0, None] ^ block[0])
        half += np.bitwise_count(part[:, 1, None] ^ block[1])
        row, column = np.nonzero((half <= distance) | (half >= BITS // 2 - distance))
        rest = np.bitwise_count(part[row, 2:] ^ block[2:, column].T).sum(axis=1, dtype=np.int64)
        differ = half[row, column] + rest
        inverted = differ > BITS // 2
        bits = np.where(inverted, BITS - differ, differ)
        near = bits <= distance
        found.append((column[near] + start, row[near] + offset, bits[near], inverted[near]))
    return tuple(np.concatenate(kind) for kind in zip(*found, strict=True))


def _sketch(grey: Image.Image) -> Sketch:
    return np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def _inside_border(grey: npt.NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return the box inside the plain border: left, top, right, bottom."""
    height, width = grey.shape
    left, top = _plain_lines(grey.T), _plain_lines(grey)
    right, bottom = width - _plain_lines(grey.T[::-1]), height - _plain_lines(grey[::-1])
    if right - left < _CORE * width or bottom - top < _CORE * height:
        return 0, 0, width, height
    return left, top, right, bottom


def _plain_lines(lines: npt.NDArray[np.uint8]) -> int:
    """Return how many lines from the first on have its grey."""
    level = float(np.median(lines[0]))
    for number, line in enumerate(lines):
        if np.count_nonzero(np.abs(line - level) > _BORDER) > _SPECKS * line.size:
            return number
    return len(lines)
