"""DICOM files as a reader of the image sees them: through the window that the file asks for.

Stored values become the modality's (Hounsfield units for CT), then grey values by the file's VOI lookup table or,
without one, by its first window (DICOM PS3.3 C.11.2); ``MONOCHROME1`` is inverted. A file with neither is scaled from
its least to its largest value, padding (``PixelPaddingValue`` to ``PixelPaddingRangeLimit``) left out: CT scanners
store 16 bits and use a fraction of them, so that the range of the bits would show an almost flat grey. Grey of up to 8
unsigned bits is ready to be shown and keeps the range of its bits, as colours do.

Uncompressed and RLE-compressed files need only ``pydicom``; JPEG 2000 needs ``pylibjpeg-openjpeg`` too. The extra
``dicom`` installs both.
"""

import contextlib
import importlib
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from medtasks.data.images.deep_images import from_unit, to_unit
from medtasks.data.images.strict_pillow import NoReader, Range, Source, UnclearRange, UnreadableImage
from medtasks.errors import MedTasksError

_READY_BITS = 8
_BROKEN = (AttributeError, EOFError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError)


@contextlib.contextmanager
def reading_dicom(name: str) -> Iterator[Any]:
    """Yield ``pydicom``, whose errors become :class:`UnreadableImage` within the block, and its warnings nothing.

    A MedTasksError says that ``pydicom`` is not installed, which ``name`` needs.
    """
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
    except (*_BROKEN, struct.error) as error:
        cut = isinstance(error, AttributeError | KeyError | EOFError | struct.error)
        first = str(error).strip().split("\n")[0].rstrip(":") or type(error).__name__
        decoders = "; `pip install 'medtasks[dicom]' python-gdcm` installs decoders"
        more = decoders if "missing dependencies" in first else ""
        raise UnreadableImage("it is truncated or holds no image" if cut else first + more) from error


def windowed(source: Source, given: Range | None) -> tuple[Image.Image, list[str]]:
    """Read the image of a DICOM file, grey or RGB; and say what was done.

    ``given`` are values of the modality that are black and white, in place of the file's own window.

    Raises:
        UnclearRange: It has no window, and all its values are the same.
        UnreadableImage: See :func:`reading_dicom`; also where it holds several frames, or ``pydicom`` is missing.
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
            share, done = _grey(pydicom.pixels, dataset, stored, given)
    except MedTasksError as missing:
        raise NoReader(str(missing)) from missing
    if kind == "MONOCHROME1":
        return from_unit(1 - share), [done, "MONOCHROME1 inverted"]
    return from_unit(share), [done]


def _grey(pixels: Any, dataset: Any, stored: Any, given: Range | None) -> tuple[Any, str]:
    """Return grey values from 0 to 1 before any inversion, and where their range comes from."""
    values = pixels.apply_modality_lut(stored, dataset).astype(np.float64)
    if given is not None:
        return to_unit(values, *given), f"DICOM scaled from {given[0]:g}..{given[1]:g}, as given"
    if dataset.get("VOILUTSequence"):
        return _in_table(values, dataset), "DICOM VOI table applied"
    if all(dataset.get(name) not in (None, "") for name in ("WindowCenter", "WindowWidth")):
        return _in_window(values, dataset), "DICOM window applied"
    if int(dataset.get("BitsStored", 64)) <= _READY_BITS and not dataset.PixelRepresentation:
        ends = np.array([0, 2**dataset.BitsStored - 1], stored.dtype)
        low, high = sorted(map(float, pixels.apply_modality_lut(ends, dataset)))
        return to_unit(values, low, high), f"DICOM without a window scaled from the {dataset.BitsStored} bits stored"
    shown = values[~_is_padding(stored, dataset)]
    if not shown.size:
        raise UnreadableImage("all of its pixels are padding")
    low, high = float(shown.min()), float(shown.max())
    if low == high:
        raise UnclearRange(f"it has no window, and all its values are {low:g}", (low, high))
    return to_unit(values, low, high), "DICOM without a window scaled from its least to its largest value"


def _is_padding(stored: Any, dataset: Any) -> Any:
    """Return which stored values only fill the image up (DICOM PS3.3 C.7.5.1.1.2), as booleans."""
    padding = dataset.get("PixelPaddingValue")
    if padding is None or stored.dtype.kind not in "iu":
        return np.zeros(stored.shape, bool)
    limit = dataset.get("PixelPaddingRangeLimit")
    # Some files write a negative padding as an unsigned number.
    ends = np.array([padding, padding if limit is None else limit], np.int64).astype(stored.dtype)
    return (stored >= ends.min()) & (stored <= ends.max())


def _in_table(values: Any, dataset: Any) -> Any:
    """Return values by the first VOI lookup table; pydicom's own takes 8-bit tables to have 256 entries."""
    table = dataset.VOILUTSequence[0]
    entries, first, bits = (int(number) for number in table.LUTDescriptor)
    order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
    packed = isinstance(table.LUTData, bytes)
    greys = np.frombuffer(table.LUTData, f"{order}u2") if packed else np.asarray(table.LUTData)
    at = np.clip(np.rint(values).astype(np.int64) - first, 0, min(entries or 2**16, len(greys)) - 1)
    return to_unit(greys[at], 0, 2**bits - 1)


def _in_window(values: Any, dataset: Any) -> Any:
    """Return values through the first window: PS3.3 C.11.2.1.2.1, C.11.2.1.3.1 and C.11.2.1.3.2."""
    center, width = (float(np.atleast_1d(dataset[name].value)[0]) for name in ("WindowCenter", "WindowWidth"))
    form = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
    if form == "SIGMOID" and width > 0:
        return 1 / (1 + np.exp(-4 * (values - center) / width))
    if form == "LINEAR":
        center, width = center - 0.5, width - 1
    if form not in ("LINEAR", "LINEAR_EXACT") or width < 0:
        raise UnreadableImage(f"its window ({form}, width {dataset.WindowWidth}) is none that DICOM knows")
    # A width of 1 is a threshold.
    return to_unit(values, center - width / 2, center + width / 2) if width else (values > center).astype(np.float64)
