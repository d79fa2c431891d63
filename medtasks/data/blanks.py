"""Uniform grey stand-ins of the same size as an image, for the ``_blank`` variant."""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from medtasks.data.home import home, written_whole
from medtasks.data.nifti import HEADER_BYTES, NiftiHeader, read_header
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError

GREY = (128, 128, 128)
FOLDER_NAME = "blank_volumes"
_VOXELS_AT = 352  # bytes
_PIECE = 1 << 20  # bytes


def blank_image(image: Image.Image) -> Image.Image:
    """Return a grey RGB image of the same size."""
    return Image.new("RGB", image.size, GREY)


def blank_volume(path: Path) -> Path:
    """Return a grey volume of the same size and orientation, written once below ``MEDTASKS_HOME``.

    Its voxels are 0.5, which models that scale volumes to 0 and 1 leave as it is. Nothing else of the original's file
    is in it, and nothing of its name in that of the new one. An OSError is about the original, a MedTasksError about
    the new one.
    """
    try:
        with gzip.open(path) as plain:
            header = read_header(plain.read(HEADER_BYTES))
    except (EOFError, zlib.error) as error:
        raise UnreadableImage(f"it cannot be unpacked: {error}") from error
    beginning = _beginning(header)
    blank = home() / FOLDER_NAME / f"{hashlib.sha256(beginning).hexdigest()[:16]}.nii.gz"
    if not blank.is_file():
        try:
            _write(blank, beginning, int(np.prod(header.shape, dtype=np.int64)))
        except OSError as error:
            raise MedTasksError(
                f"cannot write a grey volume in {blank.parent} ({error.strerror or error}); make room there, or set "
                f"MEDTASKS_HOME to another folder"
            ) from error
    return blank


def _beginning(header: NiftiHeader) -> bytes:
    """Return the header of a volume of bytes that are 1 and mean 0.5."""
    spacing = np.linalg.norm(header.directions, axis=0)
    made = bytearray(_VOXELS_AT)
    struct.pack_into("<i", made, 0, 348)
    struct.pack_into("<8h", made, 40, 3, *header.shape, 1, 1, 1, 1)
    struct.pack_into("<2h", made, 70, 2, 8)
    struct.pack_into("<4f", made, 76, 1, *(float(size) or 1 for size in spacing))
    struct.pack_into("<3f", made, 108, _VOXELS_AT, 0.5, 0)
    struct.pack_into("<2h", made, 252, 0, 1)
    struct.pack_into("<12f", made, 280, *(float(value) for row in header.directions for value in (*row, 0)))
    made[344:348] = b"n+1\0"
    return bytes(made)


def _write(path: Path, beginning: bytes, voxels: int) -> None:
    with (
        written_whole(path) as partial,
        partial.open("wb") as stream,
        gzip.GzipFile("", "wb", mtime=0, fileobj=stream) as packed,
    ):
        packed.write(beginning)
        for start in range(0, voxels, _PIECE):
            packed.write(b"\1" * min(_PIECE, voxels - start))
