"""Images of more than 8 bits per value, scaled linearly to 8 bits.

Black and white come from what the file says, never from its own darkest and brightest value, which would make a normal
and an overexposed image look the same:

- PNG: all 16 bits; with an ``sBIT`` chunk of fewer bits, these, unless a value exceeds them: then the values were
  stretched to 16 bits as the PNG specification asks.
- TIFF: ``SMinSampleValue`` and ``SMaxSampleValue``; else ``BitsPerSample``, or ``MaxSampleValue`` where it is all ones
  (4095 names a bit depth; 3187 is a statistic of the values, which TIFF 6.0 forbids to show by).
- JPEG 2000, PGM: 16 bits, to which Pillow stretches whatever the file has.
- Floats from 0 to 1: this range.

Refused are floats beyond 0 to 1, signed values and 32 bits, and values that span less than a quarter of their range
(mostly 10 to 14 of 16 bits, or Hounsfield units with an offset), which a model would see almost flat; the range can be
given.

Pillow itself reads 16 bits per colour as 8 by dropping the low byte. Here both bytes count.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medtasks.data.images.strict_pillow import (
    ON_BLACK,
    ConvertedImage,
    ImageSource,
    Range,
    UnclearRange,
    open_image,
)
from medtasks.data.images.value_ranges import central_range

_LEAST_USED = 1 / 4  # of the range; 14 of 16 bits stay below
_BITS, _WHITE_IS_ZERO, _FORMAT = 258, 262, 339  # TIFF tags
_MAX_SAMPLE, _S_MIN_SAMPLE, _S_MAX_SAMPLE = 281, 340, 341
_UNSIGNED = 1
_FULL = 16  # bits
_LARGEST = 2**_FULL - 1
# Ends of Pillow's names for layouts with the high byte first.
_BIG_ENDIAN = ("B", "N") if sys.byteorder == "big" else ("B",)

DeclaredRange = tuple[Range, str]
"""Values that are black and white by a file's metadata, and the name of the conversion from them."""


def scale_to_8_bits(
    image: Image.Image,
    raw: str,
    source: ImageSource,
    value_range: Range | None,
) -> ConvertedImage:
    """Scale an image of more than 8 bits to 8, in grey or RGB, on black where it is transparent.

    Args:
        image: Opened from ``source``; decoded here.
        raw: Pillow's name for the layout of the values in the file.
        source: The file.
        value_range: Values that are black and white, where a user knows better than the file; None takes those of the
            file.

    Returns:
        The image and its conversions.

    Raises:
        UnclearRange: The values that are black and white are unknown, or the image uses so little of the range that
            its file says that a model would see it almost flat.
        OSError: The file is damaged.
    """
    values, alpha = _samples(image, raw, source)
    depths = _png_depths(source) if image.format == "PNG" else ()
    if value_range is not None:
        low, high = value_range
        done = f"more than 8 bits scaled from {low:g}..{high:g}, as given"
    else:
        finite = values[np.isfinite(values)]
        least = float(finite.min()) if finite.size else 0.0
        largest = float(finite.max()) if finite.size else 0.0
        (low, high), done = _file_range(image, values, depths, (least, largest))
        darkest, brightest = _range_of_most(finite, least, largest)
        if 0 < brightest - darkest < (high - low) * _LEAST_USED:
            raise UnclearRange(
                f"its values go from {least:g} to {largest:g}, nearly all of them from {darkest:g} to {brightest:g}, "
                f"so that a model would see it almost flat ({done})",
                (darkest, brightest),
            )
    share = to_unit(values, low, high)
    if getattr(image, "tag_v2", {}).get(_WHITE_IS_ZERO) == 0:
        share = 1 - share
    conversions = [done]
    if alpha is not None:
        opacity = to_unit(alpha, 0, 2 ** used_bits(alpha, depths[-1:]) - 1)
        if opacity.min() < 1:
            conversions.append(ON_BLACK)
            if not raw.startswith("RGBa"):  # these are multiplied already
                share = share * (opacity if share.ndim == 2 else opacity[..., None])
    return from_unit(share), conversions


def _range_of_most(values: Any, least: float, largest: float) -> Range:
    """Return the :func:`central_range` of an image, as exact as 16 bits are.

    Args:
        values: All finite values; may be none.
        least: The least of them.
        largest: The largest of them.
    """
    steps = (values - least) * (_LARGEST / ((largest - least) or 1)) + 0.5
    counts = np.bincount(steps.astype(np.uint16), minlength=_LARGEST + 1)
    levels = np.linspace(least, largest, _LARGEST + 1)
    return central_range(levels.tolist(), counts.tolist())


def _png_depths(source: ImageSource) -> tuple[int, ...]:
    """Return the bits of each channel from the sBIT chunk of a PNG file, if one precedes the pixels."""
    with contextlib.ExitStack() as opened:
        stream = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
        stream.seek(0)
        data = stream.read()
    at = 8
    while at + 8 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        name = data[at + 4 : at + 8]
        if name == b"IDAT":
            return ()
        depths = tuple(data[at + 8 : at + 8 + length])
        if name == b"sBIT" and depths:
            return depths
        at += 12 + length
    return ()


def to_unit(values: Any, low: float, high: float) -> Any:
    """Return values as fractions of a range.

    Values beyond the range are cut off, and one that is no number is the lowest.

    Args:
        values: Numbers of any shape.
        low: Value that becomes 0.
        high: Value that becomes 1.

    Example:
        >>> to_unit([-5, 0, 25, 500], 0, 100).tolist()
        [0.0, 0.0, 0.25, 1.0]
    """
    numbers = np.nan_to_num(np.asarray(values, np.float64), nan=low, posinf=high, neginf=low)
    return np.clip((numbers - low) / (high - low), 0, 1)


def from_unit(share: Any) -> Image.Image:
    """Return fractions as an image of 8 bits, rounded to the nearest.

    Args:
        share: Fractions of shape (rows, columns), or (rows, columns, 3) for colours.
    """
    return Image.fromarray((share * 255 + 0.5).astype(np.uint8))


def _samples(image: Image.Image, raw: str, source: ImageSource) -> tuple[Any, Any]:
    """Return the values (rows x columns, for colours x 3), and the opacity in 16 bits or None."""
    image.load()
    clear = image.info.get("transparency")
    if image.mode not in ("RGB", "RGBA"):
        grey = np.asarray(image)
        if raw == "I;32N":
            grey = grey.view(np.uint32)
        return grey, None if clear is None else np.where(grey == clear, 0, _LARGEST)
    if raw.startswith("LA"):  # four bytes per pixel, as in RGBA: the same filters apply
        pixels = _decoded_as(source, "RGBA").astype(np.uint16)
        return pixels[..., 0] << 8 | pixels[..., 1], pixels[..., 2] << 8 | pixels[..., 3]
    # Both orders of bytes are asked for, and Pillow keeps the first byte of one and the second of the other.
    layout = raw.partition(";")[0].replace("a", "A")
    first, second = (
        _decoded_as(source, f"{layout};16{order}").astype(np.uint16) for order in "BL"
    )
    pixels = first << 8 | second if raw.endswith(_BIG_ENDIAN) else second << 8 | first
    if image.mode == "RGBA":
        return pixels[..., :3], pixels[..., 3]
    if clear is None:
        return pixels, None
    return pixels, np.where((pixels == clear).all(axis=2), 0, _LARGEST)


def _decoded_as(source: ImageSource, raw: str) -> Any:
    """Decode a file as if its values had another layout, ``raw`` by Pillow's name, and return them."""
    with open_image(source) as image:
        file: Any = image
        tiles = []
        for tile in file.tile:
            layout = raw if isinstance(tile.args, str) else (raw, *tile.args[1:])
            tiles.append(tile._replace(args=layout))
        file.tile = tiles
        return np.array(image)


def _file_range(image: Any, values: Any, depths: tuple[int, ...], ends: Range) -> DeclaredRange:
    """Return the values that are black and white by the file's metadata, and the conversion's name.

    Args:
        image: The image.
        values: Its values.
        depths: Significant bits by channel of a PNG file; empty if the file does not say, and for other formats.
        ends: The least and the largest finite value.

    Raises:
        UnclearRange: The file does not say it, and the values are not floats from 0 to 1.
    """
    if image.format == "PNG":
        bits = used_bits(values, depths[:3] if values.ndim == 3 else depths[:1])
    elif image.format in ("JPEG2000", "PPM") and image.mode.startswith("I"):
        bits = _FULL
    elif image.format == "TIFF":
        return _tiff_range(image.tag_v2, values, ends)
    else:  # the file says nothing
        return _range_of_floats(values, ends)
    return _range_of_bits(bits)


def _tiff_range(tags: Any, values: Any, ends: Range) -> DeclaredRange:
    """Return :func:`_file_range` of a TIFF file, by its tags. Errors are the same, too."""
    kind = max(tags.get(_FORMAT, (_UNSIGNED,)))
    full = max(tags.get(_BITS, (1,)))
    low = tags.get(_S_MIN_SAMPLE)
    high = tags.get(_S_MAX_SAMPLE)
    if low is None and kind == _UNSIGNED:
        low = (0,)
    if low is not None and high is not None and min(low) < max(high):
        stated_range = (float(min(low)), float(max(high)))
        return stated_range, "scaled from the SMinSampleValue..SMaxSampleValue of its file"
    if kind != _UNSIGNED or full > _FULL:
        return _range_of_floats(values, ends)
    stated = int(max(tags.get(_MAX_SAMPLE, (0,))))
    named = stated.bit_length() if stated & (stated + 1) == 0 else 0
    return _range_of_bits(used_bits(values, (named,), full))


def _range_of_bits(bits: int) -> DeclaredRange:
    return (0.0, float(2**bits - 1)), f"{bits} bits scaled from 0..{2**bits - 1}"


def _range_of_floats(values: Any, ends: Range) -> DeclaredRange:
    """Return the range from 0 to 1, if the values are floats that lie in it.

    Raises:
        UnclearRange: They are other floats, or integers whose bit depth gives no range.
    """
    is_float = values.dtype.kind == "f"
    if is_float and ends[0] >= 0 and ends[1] <= 1:
        return (0.0, 1.0), "floats scaled from 0..1"
    raise UnclearRange(
        f"its {'floats' if is_float else 'signed or 32-bit values'} go from {ends[0]:g} to {ends[1]:g}, and no "
        f"bit depth gives their range",
        ends,
    )


def used_bits(values: Any, named: tuple[int, ...], full: int = _FULL) -> int:
    """Return the number of bits that a file declares.

    Args:
        values: All values of the image.
        named: Bits by channel; none if the file does not say it.
        full: Bits that are stored, which count where a value exceeds the declared ones.

    Example:
        >>> used_bits(np.array([0, 4095]), (12,)), used_bits(np.array([0, 4096]), (12,))
        (12, 16)
    """
    bits = max(named, default=full)
    return bits if 0 < bits < full and int(values.max()) < 2**bits else full
