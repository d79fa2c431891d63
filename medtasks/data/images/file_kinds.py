"""Kinds of files that are named like images and are none that can be read, by their first bytes."""

import re
from pathlib import Path
from typing import Literal

from medtasks.data.images.strict_pillow import ImageSource

GZIP = b"\x1f\x8b"
_HEAD_BYTES = 1024
_WEB_PAGE = re.compile(b"(?i)<(!doctype )?html")
_MARKS = (
    (0, b"version https://git-lfs", "a Git LFS pointer; run `git lfs pull` in its repository"),
    (128, b"DICM", "a DICOM file; only the image_rule linear reads those"),
    (0, b"PK\x03\x04", "a ZIP archive; unpack it"),
    (257, b"ustar", "a TAR archive; unpack it"),
    (0, b"7z\xbc\xaf", "a 7z archive; unpack it"),
    (0, GZIP, "a gzip archive; unpack it, or name a NIfTI volume .nii.gz"),
    (344, b"n+1\0", "a NIfTI volume; name it .nii"),
    (0, b"NRRD", "an NRRD volume; save its slices as PNG"),
    (0, b"\x93NUMPY", "a NumPy array; name a volume .npy, and save an image as PNG"),
    (0, b"\x89HDF", "an HDF5 file; save its images as PNG"),
    (0, b"PAR1", "a Parquet file; name it as the task's dataset"),
    (0, b"%PDF", "a PDF document; save its pages as PNG"),
    (0, b"%!PS", ""),  # EPS has no description: it would be called a text file
    (4, b"ftyp", "a HEIC image or a video; save it as PNG"),
    (0, b"\xff\x0a", "a JPEG XL image; save it as PNG"),
    (0, b"\xff\xd8\xff", "a damaged JPEG image; copy it again"),
    (0, b"\x89PNG", "a damaged PNG image; copy it again"),
)


def read_head(source: ImageSource) -> bytes:
    """Return a file's first 1,024 bytes, and rewind a stream."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    source.seek(0)
    head = source.read(_HEAD_BYTES)
    source.seek(0)
    return head


def is_dicom(head: bytes) -> bool:
    """Return whether a file is a DICOM file, by its mark."""
    return head[128:132] == b"DICM"


def is_bare_data_set(head: bytes) -> bool:
    """Return whether a file seems to be a DICOM data set without preamble, by its first element."""
    order: Literal["big", "little"] = "big" if head[:1] == b"\0" else "little"
    group = int.from_bytes(head[:2], order)
    element = int.from_bytes(head[2:4], order)
    if group not in (2, 8) or element >= 256:
        return False
    is_explicit = head[4:6].isalpha() and head[4:6].isupper()
    return is_explicit or int.from_bytes(head[4:8], order) < _HEAD_BYTES


def describe_file(head: bytes) -> str:
    """Describe a file that no image can be read from, and how to fix it.

    Args:
        head: Its first bytes, of :func:`read_head`.

    Returns:
        A noun, a semicolon and the remedy, such as ``a ZIP archive; unpack it``. Empty if its kind is unknown.

    Example:
        >>> describe_file(b"%PDF-1.7")
        'a PDF document; save its pages as PNG'
    """
    if not head.strip(b"\0"):
        return "only zero bytes; copy it again" if head else "an empty file; copy it again"
    for at, mark, description in _MARKS:
        if head[at : at + len(mark)] == mark:
            return description
    if _WEB_PAGE.search(head):
        return "a web page; download the image again, logged in if its site needs that"
    text = head.decode("utf-8", "replace")[:-1]  # the last letter may be cut
    if "".join(text.split()).isprintable() and "\ufffd" not in text:
        return "a text file; put the image in its place"
    return ""


def fault_of_content(head: bytes, mark: bytes, damage: str) -> str:
    """Describe a file that cannot be read as one of its kind: it is of another kind, or damaged.

    Args:
        head: Its first bytes, of :func:`read_head`.
        mark: First bytes of its kind.
        damage: The fault of a file with the mark, or of an unknown kind.

    Example:
        >>> fault_of_content(b"%PDF-1.7", GZIP, "it is damaged")
        'it is a PDF document; save its pages as PNG'
    """
    kind = "" if head.startswith(mark) else describe_file(head)
    return f"it is {kind}" if kind else damage
