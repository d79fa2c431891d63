"""Volumes (NIfTI, ``.nii.gz``) of a dataset, which are too large to copy: it only points to the files of its source.

One that is truncated, damaged or no NIfTI file with one volume is an :class:`UnreadableImage`.
"""

import contextlib
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from PIL import Image

from medtasks.data.strict_pillow import UnreadableImage

ENDING = ".nii.gz"
_PIECE = 1 << 20  # bytes
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
_DARK, _BRIGHT = 0.5, 99.5  # per cent of the voxels shown


class VolumeDigests(NamedTuple):
    """SHA-256 of a volume's file, and of what is packed in it."""

    file: str
    voxels: str


def is_volume(file: str | Path) -> bool:
    """Return whether a file is a volume, by its name."""
    return str(file).lower().endswith(ENDING)


@contextlib.contextmanager
def unpacked_volume(file: Path | IO[bytes]) -> Iterator[gzip.GzipFile]:
    """Open a volume, and turn what Python raises for a damaged one within the block into :class:`UnreadableImage`."""
    try:
        with gzip.open(file) as plain:
            yield plain
    except _BROKEN as error:
        raise UnreadableImage(f"it cannot be unpacked: {error}") from error


def volume_digests(path: Path) -> VolumeDigests:
    """Read a volume to its end; the digest of the unpacked file depends on header and voxels only."""
    from medtasks.data.nifti import HEADER_BYTES, read_header

    voxels, beginning, length = hashlib.sha256(), b"", 0
    with path.open("rb") as stream:
        packed = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        with unpacked_volume(stream) as plain:
            while piece := plain.read(_PIECE):
                beginning = beginning or piece[:HEADER_BYTES]
                voxels.update(piece)
                length += len(piece)
    if length < read_header(beginning).file_bytes:
        raise UnreadableImage("it holds fewer voxels than its header says")
    return VolumeDigests(packed, voxels.hexdigest())


def axial_slices(path: Path, count: int) -> list[Image.Image]:
    """Return images of a volume, for models that see no volumes.

    There are ``count``, evenly spread from feet to head; of a volume with fewer slices some come twice. They are grey,
    in RGB, as slices are printed: the front on top, the patient's right on the left. Black and white are the 0.5th and
    the 99.5th percentile of the voxels shown.
    """
    import numpy as np

    from medtasks.data.nifti import HEADER_BYTES, axial, read_header, slice_count

    with unpacked_volume(path) as plain:
        data = plain.read()
    header = read_header(data[:HEADER_BYTES])
    if len(data) < header.file_bytes:
        raise UnreadableImage("it holds fewer voxels than its header says")
    depth = slice_count(header)
    shown = axial(header, data, [int((number + 0.5) * depth / count) for number in range(count)])
    dark, bright = np.nanpercentile(shown, (_DARK, _BRIGHT))
    grey = np.nan_to_num(np.clip((shown - dark) / max(float(bright - dark), 1e-6), 0, 1)) * 255
    return [Image.fromarray(image).convert("RGB") for image in grey.round().astype(np.uint8)]
