"""Volumes (NIfTI, ``.nii.gz``) of a dataset, their slices, and uniform grey replacements of images and volumes.

Volumes are too large to copy: a dataset only points to the files of its source. One that is truncated, damaged or no
NIfTI file with one volume is an :class:`UnreadableImage`.
"""

import contextlib
import gzip
import hashlib
import itertools
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from PIL import Image

from medtasks.data.images.file_kinds import GZIP, describe_file, read_head
from medtasks.data.images.square_pixels import with_square_pixels
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import MOST_MEMORY, check_size
from medtasks.errors import MedTasksError
from medtasks.home import home, written_whole

ENDING = ".nii.gz"
HEADER_BYTES = 540  # of NIfTI-2, the longer version
_PIECE = 1 << 20  # bytes
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
_PLAIN_NUMBERS = (
    2,
    4,
    8,
    16,
    64,
    256,
    512,
    768,
    1024,
    1280,
)  # NIfTI's codes: integers and floats to 64 bits
_DARK, _BRIGHT = 0.5, 99.5  # per cent of the voxels shown
GREY = (128, 128, 128)
FOLDER_NAME = "blank_volumes"
_VOXELS_AT = 352  # bytes


class VolumeDigests(NamedTuple):
    """SHA-256 of a volume's file, and of what is packed in it."""

    file: str
    voxels: str


def is_volume(file: str | Path) -> bool:
    """Return whether a file is a volume, by its name."""
    return str(file).lower().endswith(ENDING)


@contextlib.contextmanager
def unpacked_volume(file: Path | IO[bytes]) -> Iterator[gzip.GzipFile]:
    """Open a volume; errors of Python on a damaged one become :class:`UnreadableImage` within the block."""
    try:
        with gzip.open(file) as plain:
            yield plain
    except _BROKEN as error:
        head = read_head(file)
        kind = "" if head.startswith(GZIP) else describe_file(head)
        raise UnreadableImage(
            f"it is {kind}" if kind else f"it cannot be unpacked: {error}"
        ) from error


def read_header(data: bytes, length: int | None = None) -> Any:
    """Return nibabel's header of one volume from the unpacked file's first ``HEADER_BYTES``, or UnreadableImage.

    With the ``length`` of the unpacked file, too few voxels are an error as well.
    """
    import nibabel

    header = _unchecked_header(data)
    if len(data) < header.sizeof_hdr:
        raise UnreadableImage("its header is cut short")
    axes, *sizes = header["dim"].tolist()
    if axes not in range(3, 8) or min(sizes[:3]) < 1 or any(size > 1 for size in sizes[3:axes]):
        raise UnreadableImage(f"it has the shape {tuple(sizes[:axes])} and is not one volume")
    if header["datatype"] not in _PLAIN_NUMBERS:
        raise UnreadableImage(f"its voxels are of type {header['datatype']} and no plain numbers")
    header["pixdim"][0] = (
        -1 if header["pixdim"][0] < 0 else 1
    )  # as nibabel corrects both in files it loads
    header["pixdim"][1:4] = abs(header["pixdim"][1:4])
    with contextlib.suppress(ValueError):
        # The closest of right, front and head for each axis of a volume, and its direction.
        if all(
            towards in range(3) for towards, _ in nibabel.io_orientation(header.get_best_affine())
        ):
            bytes_needed = bytes_of_volume(header)
            check_size(bytes_needed, MOST_MEMORY)
            if length is not None and length < bytes_needed:
                raise UnreadableImage("it holds fewer voxels than its header says")
            return header
    raise UnreadableImage("its header does not say which way its axes run")


def _unchecked_header(data: bytes) -> Any:
    import nibabel

    for kind, order in itertools.product((nibabel.Nifti1Header, nibabel.Nifti2Header), "<>"):
        header = kind(data[: kind.sizeof_hdr].ljust(kind.sizeof_hdr, b"\0"), order, check=False)
        if header["sizeof_hdr"] == header.sizeof_hdr and header["magic"] == header.single_magic:
            return header
    raise UnreadableImage("it is no NIfTI file")


def bytes_of_volume(header: Any) -> int:
    """Return the length of an unpacked file by its header, to its last voxel."""
    voxels: int = math.prod(header["dim"].tolist()[1:4])
    return int(header["vox_offset"]) + voxels * int(header.get_data_dtype().itemsize)


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
    read_header(beginning, length)
    return VolumeDigests(packed, voxels.hexdigest())


def axial_slices(path: Path, count: int) -> list[Image.Image]:
    """Return ``count`` axial slices of a volume, evenly spread from feet to head, for models that see no volumes.

    They are grey, in RGB, with square pixels, in the usual orientation: the front on top, the patient's right on the
    left. Black and white are the 0.5th and the 99.5th percentile of their voxels.
    """
    import nibabel
    import numpy as np

    with unpacked_volume(path) as plain:
        header = read_header(plain.read(HEADER_BYTES))
        plain.seek(0)
        data = plain.read(bytes_of_volume(header) + 1)  # its end has a check sum
    slices = axial(data, count)
    affine = header.get_best_affine()
    sizes = dict(
        zip(
            nibabel.io_orientation(affine)[:, 0],
            np.linalg.norm(affine[:3, :3], axis=0),
            strict=True,
        )
    )
    dark, bright = np.nanpercentile(slices, (_DARK, _BRIGHT))
    grey = np.nan_to_num(np.clip((slices - dark) / max(float(bright - dark), 1e-6), 0, 1)) * 255
    images = (Image.fromarray(image).convert("RGB") for image in grey.round().astype(np.uint8))
    return [with_square_pixels(image, sizes[1], sizes[0]) for image in images]


def axial(data: bytes, count: int | None = None) -> Any:
    """Return values of all or ``count`` axial slices of an unpacked file, shape (slices, height, width)."""
    import nibabel
    import numpy as np

    header = read_header(data[:HEADER_BYTES], len(data))
    shape = header["dim"].tolist()[1:4]
    stored = np.frombuffer(
        data, header.get_data_dtype(), math.prod(shape), int(header["vox_offset"])
    )
    orientation = nibabel.io_orientation(header.get_best_affine())
    voxels = nibabel.apply_orientation(stored.reshape(shape, order="F"), orientation)
    depth = voxels.shape[2]
    positions = [int((number + 0.5) * depth / (count or depth)) for number in range(count or depth)]
    values = voxels[:, :, positions].astype(np.float32)
    slope, intercept = float(header["scl_slope"]), float(header["scl_inter"])
    if math.isfinite(slope) and slope != 0:
        values = (values * slope + (intercept if math.isfinite(intercept) else 0)).astype(
            np.float32
        )
    return values.transpose(2, 1, 0)[:, ::-1, ::-1]


def blank_volume(path: Path) -> Path:
    """Return a grey volume of the same size and orientation, written once below ``MEDTASKS_HOME``.

    Its voxels are 0.5, which models that scale volumes to 0 and 1 leave as it is. Nothing else of the original is in
    it. An OSError is about the original, a MedTasksError about the new one.
    """
    with unpacked_volume(path) as plain:
        header = read_header(plain.read(HEADER_BYTES))
    import nibabel
    import numpy as np

    affine = header.get_best_affine()
    affine[:3, 3] = 0
    made = nibabel.Nifti1Header()  # of bytes that are 1 and mean 0.5
    made.set_data_dtype(np.uint8)
    made.set_data_shape(header["dim"][1:4])
    made["pixdim"] = [1, *np.linalg.norm(affine[:3, :3], axis=0), 0, 0, 0, 0]
    made["vox_offset"], made["scl_slope"] = _VOXELS_AT, 0.5
    made.set_sform(affine, code=1)
    beginning = bytes(made.binaryblock).ljust(_VOXELS_AT, b"\0")
    blank = home() / FOLDER_NAME / f"{hashlib.sha256(beginning).hexdigest()[:16]}.nii.gz"
    if not blank.is_file():
        try:
            with (
                written_whole(blank) as partial,
                partial.open("wb") as stream,
                gzip.GzipFile("", "wb", mtime=0, fileobj=stream) as packed,
            ):
                packed.write(beginning)
                voxels = math.prod(header["dim"].tolist()[1:4])
                for start in range(0, voxels, _PIECE):
                    packed.write(b"\1" * min(_PIECE, voxels - start))
        except OSError as error:
            raise MedTasksError(
                f"cannot write a grey volume in {blank.parent} ({error.strerror or error}); make room there, or set "
                f"MEDTASKS_HOME to another folder"
            ) from error
    return blank
