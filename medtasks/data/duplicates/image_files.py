"""Image files of any kind: found in a folder, read into 8 bits, and hashed.

Hashes are made on all processors and kept: what is unchanged is not decoded again.
"""

import contextlib
import hashlib
import importlib.util
import io
import os
import struct
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from tqdm import tqdm

from medtasks.data.decoding import decoded_somehow
from medtasks.data.duplicates.perceptual_hash import perceptual_hash, sketches
from medtasks.data.home import home
from medtasks.data.image_store import pixels_sha256
from medtasks.data.sqlite_cache import SqliteCache
from medtasks.data.strict_pillow import UnreadableImage

CACHE_NAME = "picture_hashes.sqlite"
_VERSION = 2  # of the hashes; another one leaves the old ones unused
_CHUNK = 1000  # files between two writes to the cache
_CANNOT_KEEP = (
    "Hashes of pictures cannot be kept in {path} ({error}); the search goes on, and the next one hashes them again."
)
_HASH_BYTES = 32
_HEAD = struct.Struct("<32s32sII")
# Decoders of rare formats raise whatever their bugs make of a damaged file; one such file must not end the search.
_FAILURES = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
_DICOM = (".dcm", ".dicom", ".ima")
_VOLUMES = (".nii", ".nii.gz")
_NO_IMAGES = ("BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF")  # Pillow knows their names and little more


@dataclass
class FolderImages:
    """What a folder holds."""

    files: list[Path] = field(default_factory=list)  # images, sorted
    volumes: int = 0  # how many volumes (NIfTI) it holds, which are not compared
    closed: int = 0  # how many folders in it may not be read
    without_decoder: int = 0  # how many DICOM files it holds that nothing installed reads
    others: int = 0  # how many files are no images by their ending


def images_below(folder: Path, without: Iterable[Path] = ()) -> FolderImages:
    """Find all images in a folder and its subfolders, following links, but for those in the folders ``without``."""
    known = _endings()
    found = FolderImages()
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


def read_image(path: Path, data: bytes | None = None) -> tuple[Image.Image, bytes]:
    """Read an image of any format, the first one of a file with several; and the SHA-256 of its pixels.

    ``data`` are its bytes, if already read. It is as models see it by the rule ``linear``, whatever the rule of its
    dataset: what is lost by the other one would hide a twin. One whose range is not clear goes from its least to its
    largest value. Errors are those of :func:`~medtasks.data.decoding.decoded`.
    """
    if path.suffix.lower() in _DICOM:
        from medtasks.data.multimedeval.mammography import read_dicom

        image = read_dicom(path)
    else:
        image = decoded_somehow(io.BytesIO(path.read_bytes() if data is None else data)).pixels
    return image, bytes.fromhex(pixels_sha256(image.convert("RGB")))


def _endings() -> frozenset[str]:
    formats = Image.registered_extensions()
    readable = {ending for ending, name in formats.items() if name in Image.OPEN and name not in _NO_IMAGES}
    return frozenset(readable | set(_DICOM if importlib.util.find_spec("pydicom") else ()))


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


@dataclass(frozen=True)
class ImageHash:
    """What is known of one image."""

    file_sha256: bytes  # of the file's bytes, 32 bytes
    pixels_sha256: bytes  # of size and RGB pixels, 32 bytes
    size: tuple[int, int]  # width and height in pixels
    views: tuple[bytes, ...]  # perceptual hash of each of its sketches; none for an image of a single grey

    def packed(self) -> bytes:
        """Return it as bytes."""
        return _HEAD.pack(self.file_sha256, self.pixels_sha256, *self.size) + b"".join(self.views)

    @classmethod
    def unpacked(cls, data: bytes) -> "ImageHash":
        """Return what :meth:`packed` gave; struct.error for anything else."""
        file_sha256, pixels_sha256, width, height = _HEAD.unpack_from(data)
        views = data[_HEAD.size :]
        if len(views) % _HASH_BYTES:
            raise struct.error("half a hash")
        each = tuple(views[at : at + _HASH_BYTES] for at in range(0, len(views), _HASH_BYTES))
        return cls(file_sha256, pixels_sha256, (width, height), each)


def hash_images(files: Sequence[Path]) -> tuple[dict[Path, ImageHash], dict[Path, str]]:
    """Hash images, on all processors; those hashed before come from a cache below ``MEDTASKS_HOME``.

    Each is read completely unless path, size and time of change are those of before. Returns the hashes by file, and
    for each file that cannot be read the cause.
    """
    cache = SqliteCache(home() / CACHE_NAME, ("pictures", "hash"), _CANNOT_KEEP, disposable=True)
    found: dict[Path, ImageHash] = {}
    causes: dict[Path, str] = {}
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor() as workers,
        tqdm(desc="Hashing pictures", total=len(files), unit="picture", leave=False, disable=None) as bar,
    ):
        warnings.simplefilter("ignore")  # of decoders about metadata, which may name a file or a patient
        for start in range(0, len(files), _CHUNK):
            part = files[start : start + _CHUNK]
            keys = {path: key for path in part if (key := _key(path))}
            known = cache.get(keys.values())
            with contextlib.suppress(struct.error, TypeError):  # a damaged hash is made again, with those behind it
                found.update((path, ImageHash.unpacked(known[key])) for path, key in keys.items() if key in known)
            missing = [path for path in part if path not in found]
            for path, result in zip(missing, workers.map(_hashed, missing), strict=True):
                if isinstance(result, str):
                    causes[path] = result
                else:
                    found[path] = result
            cache.put({keys[path]: found[path].packed() for path in missing if path in found and path in keys})
            bar.update(len(part))
    return found, causes


def _hashed(path: Path) -> ImageHash | str:
    try:
        data = path.read_bytes()
        image, pixels = read_image(path, data)
        views = tuple(perceptual_hash(sketch) for sketch in sketches(image))
        return ImageHash(hashlib.sha256(data).digest(), pixels, image.size, views)
    except UnreadableImage as error:
        return str(error)
    except _FAILURES as error:
        return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"


def _key(path: Path) -> bytes | None:
    """Return what changes when a file does, without its path in clear; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    place = f"{_VERSION}\0{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(place.encode("utf-8", "surrogateescape")).digest()
