"""Volumes (NIfTI, ``.nii.gz``) of a dataset, which are too large to copy: it only points to the files of its source.

One that is truncated, damaged or no NIfTI file with one volume is an :class:`UnreadableImage`.
"""

import contextlib
import gzip
import hashlib
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from PIL import Image

from medtasks.data.images.strict_pillow import UnreadableImage

ENDING = ".nii.gz"
HEADER_BYTES = 540  # of NIfTI-2, the longer version
_PIECE = 1 << 20  # bytes
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
_PLAIN_NUMBERS = (2, 4, 8, 16, 64, 256, 512, 768)  # NIfTI's codes: integers to 32 bits, floats to 64
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


def read_header(data: bytes) -> Any:
    """Return nibabel's header of a volume from the beginning of the unpacked file, ``HEADER_BYTES`` where it has them.

    UnreadableImage says that it is no NIfTI file, holds no single volume, voxels that are no plain numbers, or axes
    that point nowhere.
    """
    import nibabel

    for kind in (nibabel.Nifti1Header, nibabel.Nifti2Header):
        for order in "<>":
            header = kind(data[: kind.sizeof_hdr].ljust(kind.sizeof_hdr, b"\0"), order, check=False)
            if header["sizeof_hdr"] == kind.sizeof_hdr and header["magic"] == kind.single_magic:
                if len(data) < kind.sizeof_hdr:
                    raise UnreadableImage("its header is cut short")
                return _checked(header)
    raise UnreadableImage("it is no NIfTI file")


def _checked(header: Any) -> Any:
    axes, *sizes = header["dim"].tolist()
    if axes not in range(3, 8) or min(sizes[:3]) < 1 or any(size > 1 for size in sizes[3:axes]):
        raise UnreadableImage(f"it has the shape {tuple(sizes[:axes])} and is not one volume")
    if header["datatype"] not in _PLAIN_NUMBERS:
        raise UnreadableImage(f"its voxels are of type {header['datatype']} and no plain numbers")
    header["pixdim"][0] = -1 if header["pixdim"][0] < 0 else 1  # nibabel mends this and the next in what it loads
    header["pixdim"][1:4] = abs(header["pixdim"][1:4])
    with contextlib.suppress(ValueError):
        if all(towards in range(3) for towards, _ in _orientation(header)):
            return header
    raise UnreadableImage("its header does not say which way its axes run")


def _orientation(header: Any) -> Any:
    """Return for each axis of a volume which of right, front and head it is closest to, and whether backwards (-1)."""
    import nibabel

    return nibabel.io_orientation(header.get_best_affine())


def _check_length(header: Any, length: int) -> None:
    if length < int(header["vox_offset"]) + math.prod(header["dim"].tolist()[1:4]) * header.get_data_dtype().itemsize:
        raise UnreadableImage("it holds fewer voxels than its header says")


def volume_digests(path: Path) -> VolumeDigests:
    """Read a volume to its end; the digest of the unpacked file depends on header and voxels only."""
    voxels, beginning, length = hashlib.sha256(), b"", 0
    with path.open("rb") as stream:
        packed = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        with unpacked_volume(stream) as plain:
            while piece := plain.read(_PIECE):
                beginning = beginning or piece[:HEADER_BYTES]
                voxels.update(piece)
                length += len(piece)
    _check_length(read_header(beginning), length)
    return VolumeDigests(packed, voxels.hexdigest())


def axial_slices(path: Path, count: int) -> list[Image.Image]:
    """Return images of a volume, for models that see no volumes.

    There are ``count``, evenly spread from feet to head; of a volume with fewer slices some come twice. They are grey,
    in RGB, as slices are printed: the front on top, the patient's right on the left. Black and white are the 0.5th and
    the 99.5th percentile of the voxels shown.
    """
    import numpy as np

    with unpacked_volume(path) as plain:
        shown = axial(plain.read(), count)
    dark, bright = np.nanpercentile(shown, (_DARK, _BRIGHT))
    grey = np.nan_to_num(np.clip((shown - dark) / max(float(bright - dark), 1e-6), 0, 1)) * 255
    return [Image.fromarray(image).convert("RGB") for image in grey.round().astype(np.uint8)]


def axial(data: bytes, count: int | None = None) -> Any:
    """Return the values of axial slices (slices, height, width) of a whole unpacked file, see :func:`axial_slices`.

    Without a ``count`` these are all slices.
    """
    import nibabel
    import numpy as np

    header = read_header(data[:HEADER_BYTES])
    _check_length(header, len(data))
    shape = header["dim"].tolist()[1:4]
    stored = np.frombuffer(data, header.get_data_dtype(), math.prod(shape), int(header["vox_offset"]))
    voxels = nibabel.apply_orientation(stored.reshape(shape, order="F"), _orientation(header))
    depth = voxels.shape[2]
    positions = [int((number + 0.5) * depth / (count or depth)) for number in range(count or depth)]
    values = voxels[:, :, positions].astype(np.float32)
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if math.isfinite(slope) and slope != 0:
        values = (values * slope + (intercept if math.isfinite(intercept) else 0)).astype(np.float32)
    return values.transpose(2, 1, 0)[:, ::-1, ::-1]
