"""Image files of any kind: found in a folder, read into 8 bits, and hashed.

Hashes are made on all processors and kept: what is unchanged is not decoded again.
"""

import hashlib
import importlib.util
import io
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from pydantic import BaseModel, ValidationError
from tqdm import tqdm

from medtasks.data.duplicates.perceptual_hash import perceptual_hash, sketches
from medtasks.data.images.decoding import decoded_somehow
from medtasks.data.images.image_store import pixels_sha256
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.home import home
from medtasks.net.disk_cache import SqliteCache

CACHE_NAME = "picture_hashes.sqlite"
_VERSION = 3  # of the hashes; hashes of another version are not used
_CHUNK = 1000  # files between two writes to the cache
_CANNOT_KEEP = (
    "Hashes of pictures cannot be kept in {path} ({error}); the search goes on, and the next one hashes them again."
)
# Decoders of rare formats raise any of these on damaged files; one such file must not end the search.
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
    """Find all images in a folder and its subfolders, following links, except in the folders ``without``."""
    formats = Image.registered_extensions()
    readable = {ending for ending, name in formats.items() if name in Image.OPEN and name not in _NO_IMAGES}
    if importlib.util.find_spec("pydicom"):
        readable.update(_DICOM)
    images = FolderImages()
    visited = {_identity(path) for path in without if path.is_dir()}

    def closed(_: OSError) -> None:
        images.closed += 1

    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        identity = _identity(Path(place))
        if identity in visited:
            folders.clear()
            continue
        visited.add(identity)
        folders.sort()
        for name in sorted(names):
            ending = os.path.splitext(name)[1].lower()
            if name.lower().endswith(_VOLUMES):
                images.volumes += 1
            elif ending in readable:
                images.files.append(Path(place, name))
            elif ending in _DICOM:
                images.without_decoder += 1
            else:
                images.others += 1
    return images


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def read_image(path: Path, data: bytes | None = None) -> tuple[Image.Image, str]:
    """Read an image of any format, the first one of a file with several; and the SHA-256 of its pixels.

    ``data`` are its bytes, if already read. It is decoded by the rule ``linear``, whatever the rule of its dataset,
    because the other rule loses detail that tells twins. One whose range is not clear goes from its least to its
    largest value. Errors are those of :func:`~medtasks.data.images.decoding.decoded`.
    """
    if path.suffix.lower() in _DICOM:
        from medtasks.data.sources.multimedeval.mammography import read_dicom

        image = read_dicom(path)
    else:
        image = decoded_somehow(io.BytesIO(path.read_bytes() if data is None else data)).pixels
    return image, pixels_sha256(image.convert("RGB"))


class ImageHash(BaseModel, frozen=True):
    """Hashes of one image, in hexadecimal digits."""

    file_sha256: str  # of the file's bytes
    pixels_sha256: str  # of size and RGB pixels
    size: tuple[int, int]  # width and height in pixels
    views: tuple[str, ...]  # perceptual hash of each of its sketches; none for an image of a single grey


def hash_images(files: Sequence[Path]) -> tuple[dict[Path, ImageHash], dict[Path, str]]:
    """Hash images, on all processors; those hashed before come from a cache below ``MEDTASKS_HOME``.

    Each is read completely unless path, size and time of change are those of before. Returns the hashes by file, and
    the error message of each file that cannot be read.
    """
    cache = SqliteCache(home() / CACHE_NAME, ("pictures", "hash"), _CANNOT_KEEP, disposable=True)
    hashes: dict[Path, ImageHash] = {}
    errors: dict[Path, str] = {}
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor() as workers,
        tqdm(desc="Hashing images", total=len(files), unit="image", leave=False, disable=None) as bar,
    ):
        warnings.simplefilter("ignore")  # of decoders about metadata, which may name a file or a patient
        for start in range(0, len(files), _CHUNK):
            part = files[start : start + _CHUNK]
            keys = {path: key for path in part if (key := _key(path))}
            kept = cache.get(keys.values())
            for path, key in keys.items():
                try:
                    hashes[path] = ImageHash.model_validate_json(kept[key])
                except (KeyError, ValidationError):  # not hashed before, or damaged
                    continue
            missing = [path for path in part if path not in hashes]
            for path, result in zip(missing, workers.map(_hashed, missing), strict=True):
                if isinstance(result, str):
                    errors[path] = result
                else:
                    hashes[path] = result
            made = [path for path in missing if path in hashes and path in keys]
            cache.put({keys[path]: hashes[path].model_dump_json().encode() for path in made})
            bar.update(len(part))
    return hashes, errors


def _hashed(path: Path) -> ImageHash | str:
    """Return the hash of an image, or why it cannot be read."""
    try:
        data = path.read_bytes()
        image, pixels = read_image(path, data)
        views = tuple(perceptual_hash(sketch) for sketch in sketches(image))
        digest = hashlib.sha256(data).hexdigest()
        return ImageHash(file_sha256=digest, pixels_sha256=pixels, size=image.size, views=views)
    except UnreadableImage as error:
        return str(error)
    except _FAILURES as error:
        return (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"


def _key(path: Path) -> bytes | None:
    """Return a key that changes when a file does and does not show its path; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    key = f"{_VERSION}\0{path.absolute()}\0{status.st_size}\0{status.st_mtime_ns}"
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
