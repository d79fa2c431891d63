"""Files of volumes: NIfTI (``.nii``, ``.nii.gz``), NumPy arrays (``.npy``), folders of DICOM slices, multi-frame DICOM.

Volumes are too large to copy: a dataset only points to the files of its source. One that is truncated, damaged or not
one volume is an :class:`UnreadableImage`, as is one with values that are no numbers.

A NumPy array says nothing about the patient. Its shape is (slices, rows, columns), or that with a 1 before it: slices
from feet to head, rows from front to back, columns from the patient's right to left, all equally far apart. NIfTI files
and arrays with values below -500 count as CT, in Hounsfield units; DICOM files say what they are.
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

from medtasks.data.images.file_kinds import GZIP, fault_of_content, is_dicom, read_head
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import MOST_MEMORY, check_size, file_sha256
from medtasks.errors import MedTasksError

ENDING = ".nii.gz"
NIFTI = (ENDING, ".nii")
ARRAY = ".npy"
SERIES = ".series"  # of a dataset's link to DICOM
HEADER_BYTES = 540  # of NIfTI-2, the longer version
GREY = (128, 128, 128)
_FLAT = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif")
_PIECE = 1 << 20  # bytes
_BROKEN = (gzip.BadGzipFile, EOFError, zlib.error)
# NIfTI's codes of integers and floats to 64 bits.
_PLAIN_NUMBERS = (2, 4, 8, 16, 64, 256, 512, 768, 1024, 1280)


class VolumeDigests(NamedTuple):
    """SHA-256 of a volume's file or files, and of what is packed in it."""

    file: str
    voxels: str


def is_volume(file: str | Path) -> bool:
    """Return whether a file is a volume, by its name.

    Example:
        >>> is_volume("scan.nii.gz"), is_volume("scan.png")
        (True, False)
    """
    return str(file).lower().endswith((*NIFTI, ARRAY, SERIES))


def holds_volume(path: Path) -> bool:
    """Return whether a path, which may not exist, is a volume: by its name, a folder, or DICOM with several frames."""
    if is_volume(path) or path.is_dir():
        return True
    try:
        if path.name.lower().endswith(_FLAT) or not is_dicom(read_head(path)):
            return False
        from medtasks.data.images.dicom_images import reading_dicom  # which brings NumPy

        with reading_dicom(path, headers_only=True) as (_, dataset):
            return int(dataset.get("NumberOfFrames") or 1) > 1
    except (OSError, MedTasksError, ValueError):  # as opening it says
        return False


@contextlib.contextmanager
def unpacked_volume(file: Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a NIfTI file, packed or not.

    Raises:
        UnreadableImage: It is damaged, or the block finds that.
    """
    is_plain = isinstance(file, Path) and not file.name.lower().endswith(".gz")
    try:
        if isinstance(file, Path) and is_plain and not read_head(file).startswith(GZIP):
            with file.open("rb") as stored:
                yield stored
        else:
            with gzip.open(file) as plain:
                yield plain  # type: ignore[misc]  # all but a name
    except _BROKEN as error:
        fault = fault_of_content(read_head(file), GZIP, f"it cannot be unpacked: {error}")
        raise UnreadableImage(fault) from error


def read_header(data: bytes, length: float = math.inf) -> Any:
    """Return nibabel's header of one volume.

    Args:
        data: The first ``HEADER_BYTES`` of the unpacked file.
        length: Its length in bytes, which has to hold all voxels.

    Raises:
        UnreadableImage: It is no NIfTI file, or not one volume of plain numbers with known axes.
        UnusableFile: Its voxels would fill the memory.
    """
    import nibabel

    for kind, order in itertools.product((nibabel.Nifti1Header, nibabel.Nifti2Header), "<>"):
        header = kind(data[: kind.sizeof_hdr].ljust(kind.sizeof_hdr, b"\0"), order, check=False)
        if header["sizeof_hdr"] == header.sizeof_hdr and header["magic"] == header.single_magic:
            break
    else:
        raise UnreadableImage("it is no NIfTI file")
    if len(data) < header.sizeof_hdr:
        raise UnreadableImage("its header is cut short")
    axes, *sizes = header["dim"].tolist()
    if axes not in range(3, 8) or min(sizes[:3]) < 1 or max(sizes[3:axes], default=1) > 1:
        raise UnreadableImage(f"it has the shape {tuple(sizes[:axes])} and is not one volume")
    if header["datatype"] not in _PLAIN_NUMBERS:
        raise UnreadableImage(
            f"its voxels are of type {header['datatype']} and no plain numbers"
        )
    # nibabel corrects both in files it loads.
    header["pixdim"][0] = -1 if header["pixdim"][0] < 0 else 1
    header["pixdim"][1:4] = abs(header["pixdim"][1:4])
    with contextlib.suppress(ValueError):
        # The closest of right, front and head for each axis of a volume, and its direction.
        axes_of_body = nibabel.io_orientation(header.get_best_affine())
        if {0, 1, 2}.issuperset(axes_of_body[:, 0]):
            bytes_needed = bytes_of_volume(header)
            check_size(bytes_needed, MOST_MEMORY)
            if length < bytes_needed:
                raise UnreadableImage("it holds fewer voxels than its header says")
            return header
    raise UnreadableImage("its header does not say which way its axes run")


def bytes_of_volume(header: Any) -> int:
    """Return the length of an unpacked file by its header, to its last voxel."""
    voxels: int = math.prod(header["dim"].tolist()[1:4])
    return int(header["vox_offset"]) + voxels * int(header.get_data_dtype().itemsize)


def volume_digests(path: Path) -> VolumeDigests:
    """Return the digests of a volume, and check a NIfTI file on the way.

    Returns:
        First the digest of the file, or of the sorted digests of a folder's slices, so that names do not matter. The
        second is the same, but of a NIfTI file that of the unpacked bytes, which is the same however it is packed.

    Raises:
        UnreadableImage: A NIfTI file is damaged or not one volume.
        UnusableFile: The voxels of a NIfTI file would fill the memory.
    """
    if path.is_dir():
        parts = sorted(map(file_sha256, filter(is_slice, path.iterdir())))
        together = hashlib.sha256("".join(parts).encode()).hexdigest()
        return VolumeDigests(together, together)
    packed = file_sha256(path)
    if not path.name.lower().endswith(NIFTI):
        return VolumeDigests(packed, packed)
    voxels = hashlib.sha256()
    beginning = b""
    length = 0
    with unpacked_volume(path) as plain:
        while piece := plain.read(_PIECE):
            beginning = beginning or piece[:HEADER_BYTES]
            voxels.update(piece)
            length += len(piece)
    read_header(beginning, length)
    return VolumeDigests(packed, voxels.hexdigest())


def is_slice(file: Path) -> bool:
    """Return whether a file in the folder of a series is one of its slices, by its name."""
    return not file.name.startswith(".") and file.name.upper() != "DICOMDIR"
