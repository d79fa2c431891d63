"""DICOM files as viewers show them, in 8 bits.

Stored values become the modality's (Hounsfield units for CT), then grey values by the file's VOI lookup table or,
without one, by its first window (DICOM PS3.3 C.11.2). Enhanced objects have both in the functional groups of their
frame. A file with neither is scaled from its least to its largest value, padding left out: CT scanners store 16 bits
and use a fraction of them, so that the range of the bits would show an almost flat grey. Grey of up to 8 unsigned bits
is ready to be shown and keeps the range of its bits, as colours do.

``PresentationLUTShape`` says whether grey is inverted, else ``MONOCHROME1`` is. Padding (``PixelPaddingValue`` to
``PixelPaddingRangeLimit``) is no part of the body (PS3.3 C.7.5.1.1.2) and black in the end, like the air around it;
DCMTK shows it by its value, which is white around many mammograms. Pixels that are not square are resampled.

Uncompressed and RLE-compressed files need only ``pydicom``; JPEG, JPEG-LS and JPEG 2000 need the other packages of the
extra ``dicom``. JPEG with 12 bits per value takes ``pylibjpeg-libjpeg``, whose licence is the GPL.
"""

import contextlib
import importlib
import math
import re
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from medtasks.data.images.deep_images import from_unit, to_unit, used_bits
from medtasks.data.images.square_pixels import with_square_pixels
from medtasks.data.images.strict_pillow import (
    ConvertedImage,
    ImageSource,
    NoReader,
    Range,
    UnclearRange,
    UnreadableImage,
)
from medtasks.data.named_files import MOST_MEMORY, MOST_WHOLE, check_size
from medtasks.errors import MedTasksError, UnusableFile

_COST = 45  # bytes of memory for a value, as measured
_READY_BITS = 8
_CUT = (AttributeError, EOFError, KeyError, struct.error)
_BROKEN = (*_CUT, IndexError, RuntimeError, TypeError, ValueError)
_LONGEST_CAUSE = 300  # characters
_FUNCTIONAL_GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
_SHOWN_BY = ("PixelMeasuresSequence", "PixelValueTransformationSequence", "FrameVOILUTSequence")
# Transfer syntax of files that do not name theirs, by implicit VR and little-endian order.
_SYNTAXES: Mapping[tuple[bool, bool], str] = {
    (True, True): "1.2.840.10008.1.2",
    (False, True): "1.2.840.10008.1.2.1",
    (False, False): "1.2.840.10008.1.2.2",
}
_COLOUR_TABLES = tuple(
    f"{colour}PaletteColorLookupTableData" for colour in ("Red", "Green", "Blue", "Alpha")
)
_SIDES = ("NumberOfFrames", "Rows", "Columns", "SamplesPerPixel")
# Height and width of a pixel, in DCMTK's order.
_SPACINGS = (
    "PixelSpacing",
    "ImagerPixelSpacing",
    "NominalScannedPixelSpacing",
    "PixelAspectRatio",
)
# Least width of a window by its function; ``math.ulp(0)`` is the least positive number.
_NARROWEST = {"LINEAR": 1.0, "LINEAR_EXACT": math.ulp(0), "SIGMOID": math.ulp(0)}
# Code strings of the attributes below.
_CODE = re.compile(
    "[A-Z]{1,3}|MONOCHROME[12]|PALETTE COLOR|YBR_[A-Z0-9_]+|IDENTITY|INVERSE|LINEAR|LINEAR_EXACT|SIGMOID"
)
# Attributes of DICOM files by the fact that they are shown as.
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "modality": ("Modality",),
    "values stand for": ("PhotometricInterpretation", "PresentationLUTShape"),
    "window": ("WindowCenter", "WindowWidth", "VOILUTFunction"),
    "rescale": ("RescaleSlope", "RescaleIntercept"),
    "padding": ("PixelPaddingValue", "PixelPaddingRangeLimit"),
    "spacing": ("PixelSpacing", "ImagerPixelSpacing", "PixelAspectRatio", "SliceThickness"),
    "orientation": ("ImageOrientationPatient", "PatientOrientation", "ViewPosition"),
    "frames": ("NumberOfFrames",),
}


@contextlib.contextmanager
def reading_dicom(
    source: ImageSource,
    name: str = "a DICOM file",
    *,
    force: bool = False,
    headers_only: bool = False,
    cost: int = _COST,
) -> Iterator[tuple[Any, Any]]:
    """Yield ``pydicom`` and a file's data set, without its warnings.

    Args:
        source: The file.
        name: Name of the file or its kind, for messages.
        force: Read a data set without preamble, too.
        headers_only: Stop before the pixels.
        cost: Bytes of memory for each of its values, where these are read.

    Raises:
        MedTasksError: pydicom is not installed.
        UnreadableImage: The file is damaged, or the block finds that.
        UnusableFile: It would fill the memory.
    """
    try:
        pydicom = importlib.import_module("pydicom")
    except ImportError:
        raise MedTasksError(
            f"{name} needs pydicom; install it with `pip install 'medtasks[dicom]'`"
        ) from None
    opened = source.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source)
    try:
        with warnings.catch_warnings(), opened as stream:
            warnings.simplefilter("ignore")  # about header fields that do not matter here
            _check_deflated(pydicom, stream)
            dataset = pydicom.dcmread(stream, force=force, stop_before_pixels=headers_only)
            sides = [dataset.get(side) or 1 for side in _SIDES]
            check_size(math.prod(sides, start=1 if headers_only else cost), MOST_MEMORY)
            if not dataset.file_meta.get("TransferSyntaxUID"):
                syntax = _SYNTAXES[dataset.original_encoding]
                dataset.file_meta.TransferSyntaxUID = pydicom.uid.UID(syntax)
            yield pydicom, dataset
    except pydicom.errors.InvalidDicomError as error:
        raise UnreadableImage("it is no DICOM file") from error
    except _CUT as error:
        raise UnreadableImage("it is truncated or holds no image") from error
    except (*_BROKEN, pydicom.errors.BytesLengthException) as error:
        raise UnreadableImage(_cause(error)) from error


def _cause(error: Exception) -> str:
    """Return pydicom's reason on one line, and the packages that help."""
    first, *reasons = [line.strip() for line in str(error).strip().split("\n")]
    if "missing dependencies" in first:
        return f"{first.rstrip(':')}; `pip install 'medtasks[dicom]'` installs decoders"
    cause = f"{first} {'; '.join(reasons)}".strip()[:_LONGEST_CAUSE] or type(error).__name__
    if "precision" in cause and "pylibjpeg:" not in cause:
        cause += (
            "; `pip install pylibjpeg-libjpeg`, whose licence is the GPL, installs a decoder"
        )
    return cause


def read_window(source: ImageSource, value_range: Range | None) -> ConvertedImage:
    """Read the image of a DICOM file, with or without preamble, in grey or RGB, and its conversions.

    Args:
        source: The file.
        value_range: Values of the modality that are black and white, in place of the file's own window.

    Raises:
        NoReader: pydicom is not installed.
        UnclearRange: The values that are black and white are unknown.
        UnreadableImage: The file is damaged, or holds no image or several.
        UnusableFile: It would fill the memory.
    """
    try:
        with reading_dicom(source, force=True) as (pydicom, dataset):
            frames = numbers_of(dataset, "NumberOfFrames")
            if frames and frames[0] > 1:
                raise UnreadableImage(
                    f"it holds {frames[0]:g} frames; save the one to show by itself"
                )
            _lift_functional_groups(dataset)
            stored = dataset.pixel_array
            palette = dataset.PhotometricInterpretation == "PALETTE COLOR"
            if palette or stored.ndim == 3:
                image = _colour_image(pydicom.pixels, dataset, stored, palette)
                done = ["DICOM colours"]
            else:
                image, done = _grey_image(dataset, stored, value_range)
            return _apply_spacing(dataset, image, done)
    except UnusableFile:
        raise
    except MedTasksError as missing:
        raise NoReader(str(missing)) from missing


def _apply_spacing(dataset: Any, image: Image.Image, done: list[str]) -> ConvertedImage:
    """Scale an image by the first known spacing of its pixels, and add that to its conversions.

    Args:
        dataset: Of the file. Without a spacing, pixels are taken to be square.
        image: In 8 bits.
        done: Conversions so far.

    Raises:
        UnreadableImage: No image has such pixels.
        UnusableFile: The result would fill the memory.
    """
    for name in _SPACINGS:
        spacing = numbers_of(dataset, name)
        if len(spacing) == 2 and min(spacing) > 0:
            squared = with_square_pixels(image, *spacing)
            if squared is not image:
                done.append(f"pixels made square by {name}")
            return squared, done
    return image, done


def _check_deflated(pydicom: Any, stream: IO[bytes]) -> None:
    """Raise UnusableFile if what is deflated in a file would fill the memory, and rewind it."""
    stream.seek(0)
    pydicom.filereader.read_preamble(stream, force=True)
    meta = pydicom.filereader._read_file_meta_info(stream)  # the public one takes no stream
    if meta.get("TransferSyntaxUID") == pydicom.uid.DeflatedExplicitVRLittleEndian:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        check_size(len(inflater.decompress(stream.read(), MOST_WHOLE + 1)))
    stream.seek(0)


def numbers_of(dataset: Any, name: str) -> list[float]:
    """Return the numbers of an attribute, with decimal commas as points.

    Args:
        dataset: Data set of pydicom.
        name: Keyword of the attribute; a missing or blank one has no numbers.

    Raises:
        UnreadableImage: A value is no finite number.
    """
    try:
        parts = list(map(str, np.ravel(dataset.get(name, ""))))
    except (TypeError, ValueError):  # of pydicom on what is no number
        parts = dataset.get_item(name).value.decode("ascii", "replace").split("\\")
    parts = [part.strip(" \0") for part in parts]
    with contextlib.suppress(ValueError):
        numbers = [float(part.replace(",", ".")) for part in parts if part not in ("", "None")]
        if all(map(math.isfinite, numbers)):
            return numbers
    raise UnreadableImage(f"its {name} is {', '.join(parts)} and no number")


def _lift_functional_groups(dataset: Any) -> None:
    """Copy what the functional groups of a single frame say about its grey values to where other objects have it."""
    for groups in _FUNCTIONAL_GROUPS:
        for group in dataset.get(groups) or ():
            for macro in _SHOWN_BY:
                for item in group.get(macro) or ():
                    dataset.update(item)


def _colour_image(pixels: Any, dataset: Any, stored: Any, palette: bool) -> Image.Image:
    """Return a DICOM image in colour, from its palette or from its stored colours."""
    if not palette:
        return from_unit(to_unit(stored, 0, 2 ** int(dataset.BitsStored) - 1))
    is_little = dataset.original_encoding[1]
    if is_little != (sys.byteorder == "little"):  # pydicom takes tables to be in this order
        for table in _COLOUR_TABLES:
            if table in dataset:
                swapped = np.frombuffer(dataset[table].value, "u2").byteswap()
                dataset[table].value = swapped.tobytes()
    colours = pixels.apply_color_lut(stored, dataset)
    named = tuple(int(number) for number in dataset.RedPaletteColorLookupTableDescriptor[2:])
    bits = used_bits(colours, named, 8 * colours.itemsize)
    return from_unit(to_unit(colours, 0, 2**bits - 1))


def _grey_image(
    dataset: Any,
    stored: Any,
    value_range: Range | None,
) -> ConvertedImage:
    """Return a DICOM image in grey, and its conversions.

    Args:
        dataset: Of the file.
        stored: Its values, shape (rows, columns).
        value_range: Values of the modality that are black and white; None takes those of the file.
    """
    padding = is_padding(dataset, stored)
    share, scaling = _scale_grey(dataset, stored, padding, value_range)
    done = [scaling]
    is_inverted = dataset.PhotometricInterpretation == "MONOCHROME1"
    shape = dataset.get("PresentationLUTShape")
    if shape == "INVERSE" or (is_inverted and shape != "IDENTITY"):
        share = 1 - share
        done.append(
            "MONOCHROME1 inverted" if is_inverted else "inverted by PresentationLUTShape"
        )
    if share[padding].any():
        share[padding] = 0
        done.append("padding black")
    return from_unit(share), done


def is_padding(dataset: Any, stored: Any) -> Any:
    """Return the mask of padding pixels (PS3.3 C.7.5.1.1.2), of the shape of the ``stored`` values."""
    padding = dataset.get("PixelPaddingValue")
    if padding is None or stored.dtype.kind not in "iu":
        return np.zeros(stored.shape, bool)
    limit = dataset.get("PixelPaddingRangeLimit")
    # Some files write a negative padding as an unsigned number.
    ends = np.array([padding, padding if limit is None else limit], np.int64).astype(
        stored.dtype
    )
    return (stored >= ends.min()) & (stored <= ends.max())


def _scale_grey(
    dataset: Any,
    stored: Any,
    padding: Any,
    value_range: Range | None,
) -> tuple[Any, str]:
    """Return grey values from 0 to 1 before any inversion, and where their range comes from.

    Args:
        dataset: Of the file.
        stored: Its values, shape (rows, columns).
        padding: Mask of the pixels that are no part of the body.
        value_range: Values of the modality that are black and white; None takes those of the file.

    Raises:
        UnclearRange: The window is none that DICOM knows, or there is no window and all values are equal.
        UnreadableImage: There is no window, and all pixels are padding.
    """
    values = _of_modality(dataset, stored)
    if value_range is not None:
        low, high = value_range
        return to_unit(values, low, high), f"DICOM scaled from {low:g}..{high:g}, as given"
    if dataset.get("VOILUTSequence"):
        return _through_voi_table(dataset, values), "DICOM VOI table applied"
    try:
        centers = numbers_of(dataset, "WindowCenter")
        widths = numbers_of(dataset, "WindowWidth")
    except UnreadableImage as fault:
        raise _unclear(str(fault), values) from fault
    if centers and widths:
        return _through_window(dataset, values, centers[0], widths[0]), "DICOM window applied"
    bits = int(dataset.get("BitsStored", 64))
    if bits <= _READY_BITS and not dataset.PixelRepresentation:
        bounds = _of_modality(dataset, np.array([0, 2**bits - 1], stored.dtype))
        share = to_unit(values, *sorted(bounds))
        return share, f"DICOM without a window scaled from the {bits} bits stored"
    visible = values[np.isfinite(values) & ~padding]
    if not visible.size:
        raise UnreadableImage("all of its pixels are padding")
    low = float(visible.min())
    high = float(visible.max())
    if low == high:
        raise _unclear(f"it has no window, and all its values are {low:g}", values)
    share = to_unit(values, low, high)
    return share, "DICOM without a window scaled from its least to its largest value"


def _through_window(dataset: Any, values: Any, center: float, width: float) -> Any:
    """Return grey values from 0 to 1 by PS3.3 C.11.2.1.2.1, C.11.2.1.3.1 and C.11.2.1.3.2."""
    form = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
    if form == "LINEAR" and "PixelData" not in dataset:
        form = "LINEAR_EXACT"  # of floats, between which a step of one level has no meaning
    if width < _NARROWEST.get(form, math.inf):
        raise _unclear(
            f"its window ({form}, WindowWidth {width:g}) is none that DICOM knows", values
        )
    if form == "SIGMOID":
        return 1 / (1 + np.exp(-4 * (values - center) / width))
    if form == "LINEAR":
        center -= 0.5
        width -= 1
    if width == 0:
        return (values > center).astype(np.float64)
    return to_unit(values, center - width / 2, center + width / 2)


def _unclear(fault: str, values: Any) -> UnclearRange:
    return UnclearRange(fault, (float(np.nanmin(values)), float(np.nanmax(values))))


def _of_modality(dataset: Any, stored: Any) -> Any:
    """Return values of the modality, as floats. A slope or intercept that is blank changes nothing."""
    if dataset.get("ModalityLUTSequence"):
        pixels = importlib.import_module("pydicom.pixels")
        return pixels.apply_modality_lut(stored, dataset).astype(np.float64)
    slope, intercept = rescaling_of(dataset)
    return stored.astype(np.float64) * slope + intercept


def rescaling_of(dataset: Any) -> tuple[float, float]:
    """Return slope and intercept of the stored values, 1 and 0 where they are missing or blank.

    Raises:
        UnreadableImage: They are no finite numbers, or the slope is 0.
    """
    slope = next(iter(numbers_of(dataset, "RescaleSlope")), 1.0)
    intercept = next(iter(numbers_of(dataset, "RescaleIntercept")), 0.0)
    if slope == 0:
        raise UnreadableImage("its RescaleSlope is 0, which would make all values equal")
    return slope, intercept


def _through_voi_table(dataset: Any, values: Any) -> Any:
    # pydicom's own code takes tables of 8 bits to have 256 entries.
    """Return grey values from 0 to 1 by the file's VOI lookup table (PS3.3 C.11.2.1.1)."""
    table = dataset.VOILUTSequence[0]
    entries, first, bits = (int(number) for number in table.LUTDescriptor)
    order = "<" if dataset.original_encoding[1] else ">"
    packed = isinstance(table.LUTData, bytes)
    greys = np.frombuffer(table.LUTData, f"{order}u2") if packed else np.asarray(table.LUTData)
    at = np.clip(
        np.rint(values).astype(np.int64) - first, 0, min(entries or 2**16, len(greys)) - 1
    )
    return to_unit(greys[at], 0, 2**bits - 1)


# ---- facts of headers, for people ----


def add_dicom_facts(path: Path, facts: dict[str, str]) -> None:
    """Add facts from the header of a DICOM file by name, until a damaged part.

    Headers hold names of patients. Only technical attributes are read, and a value that is neither a number nor a code
    is withheld. Errors are those of :func:`reading_dicom`.
    """
    facts["kind"] = "DICOM"
    with reading_dicom(path, force=True) as (pydicom, dataset):
        syntax = dataset.file_meta.get("TransferSyntaxUID")
        if syntax in pydicom.uid.UID_dictionary:
            facts["kind"] += f", {syntax.name}"
        facts["size"] = f"{int(dataset.Columns)} x {int(dataset.Rows)}"
        signed = "signed" if dataset.get("PixelRepresentation") else "unsigned"
        facts["bits"] = f"{int(dataset.BitsStored)} of {int(dataset.BitsAllocated)}, {signed}"
        _lift_functional_groups(dataset)
        facts.update(_attributes(dataset))
        if dataset.get("VOILUTSequence"):
            facts["window"] = "VOI table"
        stored = dataset.pixel_array
        slope = float(dataset.get("RescaleSlope") or 1)
        intercept = float(dataset.get("RescaleIntercept") or 0)
        ends = sorted(float(end) * slope + intercept for end in (stored.min(), stored.max()))
        facts["values"] = f"{ends[0]:g} to {ends[1]:g}"


def _attributes(dataset: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each fact that a data set holds, and its values as text, separated by commas."""
    for fact, names in _ATTRIBUTES.items():
        texts = []
        for name in names:
            if name in dataset:
                label = f"{name} " if len(names) > 1 else ""
                texts.append(label + _technical(dataset.get(name)))
        if texts:
            yield fact, ", ".join(texts)


def _technical(value: Any) -> str:
    """Return the numbers or codes in an attribute as text, or that something else is withheld."""
    is_single = isinstance(value, str) or not hasattr(value, "__iter__")
    texts = []
    for part in [value] if is_single else value:
        text = str(part).strip()
        try:
            texts.append(f"{float(text):g}")
        except ValueError:
            texts.append(text if _CODE.fullmatch(text) else "withheld")
    return "\\".join(texts)
