"""Picture files of any kind: found in a folder, and read into 8 bits."""

import hashlib
import importlib.util
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from medtasks.data.decoding import decoded_somehow

_DICOM = (".dcm", ".dicom", ".ima")
_VOLUMES = (".nii", ".nii.gz")
_NO_PICTURES = ("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF")  # Pillow knows their names and little more


@dataclass
class FolderPictures:
    """What a folder holds.

    Attributes:
        files: Pictures, sorted.
        volumes: How many volumes (NIfTI) it holds, which are not compared.
        closed: How many folders in it may not be read.
        without_decoder: How many DICOM files it holds that nothing installed reads.
        others: How many files are no pictures by their ending.
    """

    files: list[Path] = field(default_factory=list)
    volumes: int = 0
    closed: int = 0
    without_decoder: int = 0
    others: int = 0


def pictures_below(folder: Path, without: Iterable[Path] = ()) -> FolderPictures:
    """Find all pictures in a folder and its subfolders, following links; a folder that is reached twice counts once.

    Args:
        folder: Where to look.
        without: Folders to leave out.
    """
    known = _endings()
    found = FolderPictures()
    visited = {_identity(path) for path in without if path.is_dir()}

    def closed(_: OSError) -> None:
        found.closed += 1

    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        identity = _identity(Path(place))
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        folders.sort()
        for name in sorted(names):
            kind = next(
                (ending for ending in _VOLUMES if name.lower().endswith(ending)), os.path.splitext(name)[1].lower()
            )
            if kind in known:
                found.files.append(Path(place, name))
            elif kind in _VOLUMES:
                found.volumes += 1
            elif kind in _DICOM:
                found.without_decoder += 1
            else:
                found.others += 1
    return found


def read_picture(path: Path, data: bytes | None = None) -> tuple[Image.Image, bytes]:
    """Read a picture of any format, the first one of a file with several.

    Args:
        path: The file.
        data: Its bytes, if they were read already.

    Returns:
        The picture as models see it by the rule ``linear``, whatever the rule of its dataset: what is lost by the other
        one would hide a twin. One whose range is not clear goes from its least to its largest value. And the SHA-256 of
        its pixels.

    Raises:
        FileNotFoundError: There is no such file.
        UnreadableImage: It is truncated, damaged or no picture.
    """
    if path.suffix.lower() in _DICOM:
        from medtasks.data.multimedeval.mammography import read_dicom

        picture = read_dicom(path)
        return picture, _digest(picture.convert("RGB").tobytes(), picture.size)
    data = path.read_bytes() if data is None else data
    picture = decoded_somehow(io.BytesIO(data)).pixels
    return picture, _digest(picture.tobytes(), picture.size)


def _digest(pixels: bytes, size: tuple[int, int]) -> bytes:
    return hashlib.sha256(f"{size[0]}x{size[1]}:".encode() + pixels).digest()


def _endings() -> frozenset[str]:
    formats = Image.registered_extensions()
    readable = {ending for ending, name in formats.items() if name in Image.OPEN and name not in _NO_PICTURES}
    return frozenset(readable | set(_DICOM if importlib.util.find_spec("pydicom") else ()))


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino
