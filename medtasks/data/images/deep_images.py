"""Images of more than 8 bits per value, scaled linearly to 8 bits, and DICOM files through the window they ask for.

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

DICOM: stored values become the modality's (Hounsfield units for CT), then grey values by the file's VOI lookup table
or, without one, by its first window (DICOM PS3.3 C.11.2); ``MONOCHROME1`` is inverted. A file with neither is scaled
from its least to its largest value, padding (``PixelPaddingValue`` to ``PixelPaddingRangeLimit``) left out: CT scanners
store 16 bits and use a fraction of them, so that the range of the bits would show an almost flat grey. Grey of up to 8
unsigned bits is ready to be shown and keeps the range of its bits, as colours do.

Uncompressed and RLE-compressed files need only ``pydicom``; JPEG 2000 needs ``pylibjpeg-openjpeg`` too. The extra
``dicom`` installs both.
"""

import contextlib
import importlib
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medtasks.data.images.strict_pillow import ON_BLACK, NoReader, Range, Source, UnclearRange, UnreadableImage
from medtasks.errors import MedTasksError

_LEAST_USED = 1 / 4  # of the range; 14 of 16 bits stay below
_BITS, _WHITE_IS_ZERO, _FORMAT = 258, 262, 339  # TIFF tags
_MAX_SAMPLE, _S_MIN_SAMPLE, _S_MAX_SAMPLE = 281, 340, 341
_UNSIGNED = 1
_FULL = 16  # bits


def scaled(image: Image.Image, raw: str, source: Source, value_range: Range | None) -> tuple[Image.Image, list[str]]:
    """Scale an image of more than 8 bits to 8: grey or RGB, on black where it is transparent; with its conversions.

    Args:
        image: Opened from ``source``; decoded here.
        raw: Pillow's name for the layout of the values in the file.
        source: The file.
        value_range: Values that are black and white, where a user knows better than the file.

    Raises:
        UnclearRange: The values that are black and white are unknown.
        OSError: The file is damaged.
    """
    values, alpha = _samples(image, raw, source)
    depths: tuple[int, ...] = ()  # bits of each channel from the sBIT chunk of a PNG file, if one precedes the pixels
    if image.format == "PNG":
        with contextlib.ExitStack() as opened:
            stream = opened.enter_context(source.open("rb")) if isinstance(source, Path) else source
            stream.seek(0)
            data, at = stream.read(), 8
        while at + 8 <= len(data) and not depths and (name := data[at + 4 : at + 8]) != b"IDAT":
            length = int.from_bytes(data[at : at + 4], "big")
            depths = tuple(data[at + 8 : at + 8 + length]) if name == b"sBIT" else ()
            at += 12 + length
    if value_range is not None:
        low, high = value_range
        done = f"more than 8 bits scaled from {low:g}..{high:g}, as given"
    else:
        finite = values[np.isfinite(values)]
        least, largest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        (low, high), done = _file_range(image, values, depths, (least, largest))
        if 0 < largest - least < (high - low) * _LEAST_USED:
            raise UnclearRange(
                f"its values go from {least:g} to {largest:g} only, so that a model would see it almost flat ({done})",
                (least, largest),
            )
    share = to_unit(values, low, high)
    if getattr(image, "tag_v2", {}).get(_WHITE_IS_ZERO) == 0:
        share = 1 - share
    conversions = [done]
    if alpha is not None:
        opacity = to_unit(alpha, 0, 2 ** _used_bits(alpha, depths[-1:]) - 1)
        if opacity.min() < 1:
            conversions.append(ON_BLACK)
            if not raw.startswith("RGBa"):  # these are multiplied already
                share = share * (opacity if share.ndim == 2 else opacity[..., None])
    return from_unit(share), conversions


def to_unit(values: Any, low: float, high: float) -> Any:
    """Return values as fractions of a range, those beyond it cut off; what is no number is the lowest."""
    numbers = np.nan_to_num(np.asarray(values, np.float64), nan=low, posinf=high, neginf=low)
    return np.clip((numbers - low) / (high - low), 0, 1)


def from_unit(share: Any) -> Image.Image:
    """Return fractions as an image of 8 bits, rounded to the nearest."""
    return Image.fromarray((share * 255 + 0.5).astype(np.uint8))


def _samples(image: Image.Image, raw: str, source: Source) -> tuple[Any, Any]:
    """Return the values (rows x columns, for colours x 3), and the opacity in 16 bits or None."""
    image.load()
    clear = image.info.get("transparency")
    if image.mode not in ("RGB", "RGBA"):
        grey = np.asarray(image)
        grey = grey.view(np.uint32) if raw == "I;32N" else grey
        return grey, None if clear is None else np.where(grey == clear, 0, 2**_FULL - 1)
    if raw.startswith("LA"):  # four bytes per pixel, as in RGBA: the same filters apply
        pixels = _decoded_as(source, "RGBA").astype(np.uint16)
        return pixels[..., 0] << 8 | pixels[..., 1], pixels[..., 2] << 8 | pixels[..., 3]
    # Both orders of bytes are asked for, and Pillow keeps the first byte of one and the second of the other.
    layout = raw.partition(";")[0].replace("a", "A")
    first, second = (_decoded_as(source, f"{layout};16{order}").astype(np.uint16) for order in "BL")
    big_endian = raw.endswith("B") or (raw.endswith("N") and sys.byteorder == "big")
    pixels = first << 8 | second if big_endian else second << 8 | first
    if image.mode == "RGBA":
        return pixels[..., :3], pixels[..., 3]
    return pixels, None if clear is None else np.where((pixels == clear).all(axis=2), 0, 2**_FULL - 1)


def _decoded_as(source: Source, raw: str) -> Any:
    with Image.open(source) as image:
        file: Any = image
        args = (raw if isinstance(tile.args, str) else (raw, *tile.args[1:]) for tile in file.tile)
        file.tile = [tile._replace(args=layout) for tile, layout in zip(file.tile, args, strict=True)]
        return np.array(image)


def _file_range(image: Any, values: Any, depths: tuple[int, ...], ends: Range) -> tuple[Range, str]:
    """Return the values that are black and white by the file's metadata, and the conversion's name.

    ``depths`` are a PNG file's significant bits by channel; ``ends`` are the least and the largest value.
    """
    if image.format == "PNG":
        bits = _used_bits(values, depths[:3] if values.ndim == 3 else depths[:1])
    elif image.format in ("JPEG2000", "PPM") and image.mode.startswith("I"):
        bits = _FULL
    else:
        tags = image.tag_v2 if image.format == "TIFF" else {_FORMAT: (0,)}  # other formats say nothing
        low, high = tags.get(_S_MIN_SAMPLE), tags.get(_S_MAX_SAMPLE)
        kind, full = max(tags.get(_FORMAT, (_UNSIGNED,))), max(tags.get(_BITS, (1,)))
        low = (0,) if low is None and kind == _UNSIGNED else low
        if low is not None and high is not None and min(low) < max(high):
            return (float(min(low)), float(max(high))), "scaled from the SMinSampleValue..SMaxSampleValue of its file"
        if kind != _UNSIGNED or full > _FULL:
            floats = values.dtype.kind == "f"
            if floats and ends[0] >= 0 and ends[1] <= 1:
                return (0.0, 1.0), "floats scaled from 0..1"
            raise UnclearRange(
                f"its {'floats' if floats else 'signed or 32-bit values'} go from {ends[0]:g} to {ends[1]:g}, and no "
                f"bit depth gives their range",
                ends,
            )
        stated = int(max(tags.get(_MAX_SAMPLE, (0,))))
        named = stated.bit_length() if stated & (stated + 1) == 0 else 0
        bits = _used_bits(values, (named or full,), full)
    return (0.0, float(2**bits - 1)), f"{bits} bits scaled from 0..{2**bits - 1}"


def _used_bits(values: Any, named: tuple[int, ...], full: int = _FULL) -> int:
    """Return the number of bits that a file declares; all, where a value exceeds that."""
    bits = max(named, default=full)
    return bits if 0 < bits < full and int(values.max()) < 2**bits else full


_READY_BITS = 8
_CUT_DICOM = (AttributeError, EOFError, KeyError, struct.error)
_BROKEN_DICOM = (*_CUT_DICOM, IndexError, RuntimeError, TypeError, ValueError)


@contextlib.contextmanager
def reading_dicom(name: str) -> Iterator[Any]:
    """Yield ``pydicom``, whose errors become :class:`UnreadableImage` within the block, and its warnings nothing."""
    try:
        pydicom = importlib.import_module("pydicom")
    except ImportError:
        raise MedTasksError(f"{name} needs pydicom; install it with `pip install 'medtasks[dicom]'`") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about header fields that do not matter here
            yield pydicom
    except pydicom.errors.InvalidDicomError as error:
        raise UnreadableImage("it is no DICOM file") from error
    except _BROKEN_DICOM as error:
        cause = str(error).strip().split("\n")[0].rstrip(":") or type(error).__name__
        if "missing dependencies" in cause:
            cause += "; `pip install 'medtasks[dicom]' python-gdcm` installs decoders"
        raise UnreadableImage(
            "it is truncated or holds no image" if isinstance(error, _CUT_DICOM) else cause
        ) from error


def windowed(source: Source, value_range: Range | None) -> tuple[Image.Image, list[str]]:
    """Read the image of a DICOM file, grey or RGB, and its conversions.

    ``value_range`` are values of the modality that are black and white, in place of the file's own window.
    """
    try:
        with reading_dicom("a DICOM file") as pydicom:
            dataset = pydicom.dcmread(source)
            stored = dataset.pixel_array
            kind = str(dataset.PhotometricInterpretation)
            if int(dataset.get("NumberOfFrames") or 1) > 1:
                raise UnreadableImage(f"it holds {dataset.NumberOfFrames} frames; save the one to show by itself")
            if kind == "PALETTE COLOR":
                stored = pydicom.pixels.apply_color_lut(stored, dataset)
            if stored.ndim == 3:
                from_table = kind == "PALETTE COLOR"
                white = np.iinfo(stored.dtype).max if from_table else 2 ** int(dataset.BitsStored) - 1
                return from_unit(to_unit(stored, 0, white)), ["DICOM colours"]
            share, done = _grey(pydicom.pixels, dataset, stored, value_range)
    except MedTasksError as missing:
        raise NoReader(str(missing)) from missing
    if kind == "MONOCHROME1":
        return from_unit(1 - share), [done, "MONOCHROME1 inverted"]
    return from_unit(share), [done]


def _grey(pixels: Any, dataset: Any, stored: Any, value_range: Range | None) -> tuple[Any, str]:
    """Return grey values from 0 to 1 before any inversion, and where their range comes from."""
    values = pixels.apply_modality_lut(stored, dataset).astype(np.float64)
    if value_range is not None:
        return to_unit(values, *value_range), f"DICOM scaled from {value_range[0]:g}..{value_range[1]:g}, as given"
    if dataset.get("VOILUTSequence"):  # the first table; pydicom's own code takes 8-bit tables to have 256 entries
        table = dataset.VOILUTSequence[0]
        entries, first, bits = (int(number) for number in table.LUTDescriptor)
        order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        packed = isinstance(table.LUTData, bytes)
        greys = np.frombuffer(table.LUTData, f"{order}u2") if packed else np.asarray(table.LUTData)
        at = np.clip(np.rint(values).astype(np.int64) - first, 0, min(entries or 2**16, len(greys)) - 1)
        return to_unit(greys[at], 0, 2**bits - 1), "DICOM VOI table applied"
    if all(dataset.get(name) not in (None, "") for name in ("WindowCenter", "WindowWidth")):
        # The first window: PS3.3 C.11.2.1.2.1, C.11.2.1.3.1 and C.11.2.1.3.2.
        center, width = (float(np.atleast_1d(dataset[name].value)[0]) for name in ("WindowCenter", "WindowWidth"))
        form = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
        if form == "SIGMOID" and width > 0:
            return 1 / (1 + np.exp(-4 * (values - center) / width)), "DICOM window applied"
        if form == "LINEAR":
            center, width = center - 0.5, width - 1
        if form not in ("LINEAR", "LINEAR_EXACT") or width < 0:
            raise UnreadableImage(f"its window ({form}, width {dataset.WindowWidth}) is none that DICOM knows")
        threshold = (values > center).astype(np.float64)  # a width of 1
        share = to_unit(values, center - width / 2, center + width / 2) if width else threshold
        return share, "DICOM window applied"
    if int(dataset.get("BitsStored", 64)) <= _READY_BITS and not dataset.PixelRepresentation:
        bounds = np.array([0, 2**dataset.BitsStored - 1], stored.dtype)
        low, high = sorted(map(float, pixels.apply_modality_lut(bounds, dataset)))
        return to_unit(values, low, high), f"DICOM without a window scaled from the {dataset.BitsStored} bits stored"
    visible, padding = values, dataset.get("PixelPaddingValue")
    if padding is not None and stored.dtype.kind in "iu":
        limit = dataset.get("PixelPaddingRangeLimit")
        # PS3.3 C.7.5.1.1.2; some files write a negative padding as an unsigned number.
        ends = np.array([padding, padding if limit is None else limit], np.int64).astype(stored.dtype)
        visible = values[(stored < ends.min()) | (stored > ends.max())]
    if not visible.size:
        raise UnreadableImage("all of its pixels are padding")
    low, high = float(visible.min()), float(visible.max())
    if low == high:
        raise UnclearRange(f"it has no window, and all its values are {low:g}", (low, high))
    return to_unit(values, low, high), "DICOM without a window scaled from its least to its largest value"
