"""Facts about an image from its file's header, for people who wonder what was done with it.

Headers hold names of patients. Only the attributes named here are read, and a value that is neither a number nor a code
is withheld.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from medtasks.data.images.file_kinds import describe_file, is_bare_data_set, is_dicom, read_head
from medtasks.data.images.strict_pillow import open_image, strict_decoding
from medtasks.data.images.volume_files import is_volume
from medtasks.errors import MedTasksError

_CODE = re.compile(
    "[A-Z]{1,3}|MONOCHROME[12]|PALETTE COLOR|YBR_[A-Z0-9_]+|IDENTITY|INVERSE|LINEAR|LINEAR_EXACT|SIGMOID"
)
"""Code strings of the attributes below."""
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
"""Attributes of DICOM files by the fact that they are shown as."""
_BITS = {"1": 1, "I;16": 16, "I": 32, "F": 32}  # of a value, by Pillow's mode; 8 in others
_PNG_DEPTH = 24  # place of the byte in the file
_TIFF_DEPTH, _ORIENTATION = 258, 274  # tags


def header_facts(path: Path) -> dict[str, str]:
    """Return what the header of an image file says about its pixels, by name of the fact.

    What cannot be read is left out: the caller shows why.
    """
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError, MedTasksError):
        head = read_head(path)
        if is_volume(path):
            facts["kind"] = "volume"
        elif is_dicom(head):
            _add_dicom_facts(path, facts)
        else:
            _add_plain_facts(path, head, facts)
    return facts


def _add_plain_facts(path: Path, head: bytes, facts: dict[str, str]) -> None:
    """Add the facts of a file that Pillow reads, or of a DICOM file without preamble."""
    try:
        with strict_decoding(), open_image(path) as image:
            facts["kind"] = str(image.format)
            facts["size"] = f"{image.width} x {image.height}"
            facts["bits"] = _bits_of(image, head)
            turn = image.getexif().get(_ORIENTATION, 1)
            if turn != 1:
                facts["orientation"] = f"EXIF {int(turn)}"
            if image.mode != "P":
                facts["values"] = _span(image.getextrema())
    except UnidentifiedImageError:
        if is_bare_data_set(head):
            _add_dicom_facts(path, facts)
        else:
            facts["kind"] = describe_file(head).partition(";")[0] or "unknown"


def _bits_of(image: Image.Image, head: bytes) -> str:
    """Describe depth and channels of an image that is opened, by its file where that says more than Pillow."""
    tags: Any = getattr(image, "tag_v2", {})
    depth = max(tags.get(_TIFF_DEPTH, (_BITS.get(image.mode, 8),)))
    if image.format == "PNG":
        depth = head[_PNG_DEPTH]
    channels = len(image.getbands())
    return f"{depth}, {channels} channel{'' if channels == 1 else 's'}"


def _span(extrema: Any) -> str:
    """Describe least and largest value, of all channels together."""
    ends = extrema if isinstance(extrema[0], tuple) else (extrema,)
    return f"{min(low for low, _ in ends):g} to {max(high for _, high in ends):g}"


def _add_dicom_facts(path: Path, facts: dict[str, str]) -> None:
    """Add the facts of a DICOM file; those that follow a damaged part are missing."""
    # NumPy, which most images and commands do without.
    from medtasks.data.images.dicom_images import lift_functional_groups, reading_dicom

    facts["kind"] = "DICOM"
    with reading_dicom("a DICOM file", path, force=True) as (pydicom, dataset):
        syntax = dataset.file_meta.get("TransferSyntaxUID")
        if syntax in pydicom.uid.UID_dictionary:
            facts["kind"] += f", {syntax.name}"
        facts["size"] = f"{int(dataset.Columns)} x {int(dataset.Rows)}"
        signed = "signed" if dataset.get("PixelRepresentation") else "unsigned"
        facts["bits"] = f"{int(dataset.BitsStored)} of {int(dataset.BitsAllocated)}, {signed}"
        lift_functional_groups(dataset)
        for fact, names in _ATTRIBUTES.items():
            texts = []
            for name in [name for name in names if name in dataset]:
                label = f"{name} " if len(names) > 1 else ""
                texts.append(label + _technical(dataset.get(name)))
            if texts:
                facts[fact] = ", ".join(texts)
        if dataset.get("VOILUTSequence"):
            facts["window"] = "VOI table"
        stored = dataset.pixel_array
        ends = (float(stored.min()), float(stored.max()))
        facts["values"] = _span(ends)
        slope = float(dataset.get("RescaleSlope") or 1)
        intercept = float(dataset.get("RescaleIntercept") or 0)
        if (slope, intercept) != (1, 0):
            rescaled = sorted(end * slope + intercept for end in ends)
            facts["values"] += f", rescaled {rescaled[0]:g} to {rescaled[1]:g}"


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
