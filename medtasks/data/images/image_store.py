"""Store of a dataset's images, each file once, under the digest of its bytes."""

import hashlib
import io
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from medtasks.data.images.decoding import REFERENCE, Decoding, decode_image, flat_mark
from medtasks.data.images.file_kinds import is_dicom
from medtasks.data.images.strict_pillow import ImageSource
from medtasks.data.images.volume_files import (
    ARRAY,
    NIFTI,
    SERIES,
    VolumeDigests,
    holds_volume,
    volume_digests,
)
from medtasks.data.named_files import named_file, read_named

FOLDER = "images"
VOLUME = "volume"
"""The conversion of a volume, which models read as a file or as slices."""
_DIGITS = 16  # of a digest in a file's name
_BAND = 1 << 22  # bytes of pixels that are hashed at once
_DISK_BLOCK = 4096  # bytes; compressing what fits into one saves no room


@dataclass(frozen=True)
class StoredImage:
    """One image of the dataset."""

    file: str  # path below the dataset's folder
    sha256: str  # of the file's bytes

    @property
    def image_id(self) -> str:
        """The same for equal files, and for equal pixels where images come as pixels."""
        return PurePosixPath(self.file).name.partition(".")[0]


@dataclass(frozen=True)
class ImageFacts:
    """Facts of an image's pixels."""

    # Of size and RGB pixels, as a model sees them; of a volume, of its unpacked file
    sha256: str
    conversions: tuple[str, ...] = ()  # from the file, see :class:`.decoding.DecodedImage`


class ImageStore:
    """Writes images of a dataset, equal ones once, and records the facts of their pixels, as models will see them.

    Several threads may add images at once. Adding raises UnreadableImage for a file that is truncated, no image or of
    an unclear range, UnusableFile for one that is refused, and another OSError where it may not be read or the disk is
    full.

    Args:
        folder: Folder of the dataset.
        decoding: Rule by which models will see the images.
    """

    def __init__(self, folder: Path, decoding: Decoding = REFERENCE) -> None:
        self.folder = folder
        self.decoding = decoding
        self.facts: dict[str, ImageFacts] = {}  # of each image, by file
        # By file, so that threads decode an image once.
        self._storing: dict[str, threading.Lock] = {}

    def add_bytes(self, data: bytes, name: str | None = None) -> StoredImage:
        """Store an encoded image as it is.

        Args:
            data: Bytes of its file.
            name: Name that no other image has; None names it after its content.
        """
        digest = hashlib.sha256(data).hexdigest()
        name = name or f"{digest[:_DIGITS]}.{ending_of(data)}"
        file = self._store(data, name, lambda: read_facts(io.BytesIO(data), self.decoding))
        return StoredImage(file, digest)

    def add_file(
        self,
        path: Path,
        name: str | None = None,
        root: Path | None = None,
    ) -> StoredImage:
        """Store a copy of an image file, see :meth:`add_bytes`.

        Args:
            path: The file.
            name: Name that no other image has; None names it after its content.
            root: Folder that it has to be in, links followed; None takes its own.
        """
        return self.add_bytes(read_named(path, root), name)

    def add_pixels(self, image: Image.Image, conversion: str | None = None) -> StoredImage:
        """Store an image that comes as pixels, as PNG.

        Args:
            image: An image of mode L or RGB.
            conversion: How its pixels were made, if they were.
        """
        conversions = flat_mark(image)
        if conversion is not None:
            conversions = (conversion, *conversions)
        facts = ImageFacts(pixels_sha256(image.convert("RGB")), conversions)
        buffer = io.BytesIO()
        tiny = image.width * image.height * len(image.getbands()) <= _DISK_BLOCK
        image.save(buffer, "PNG", compress_level=0 if tiny else 1)
        # Named after its pixels: another build of the compression library writes other bytes for the same image.
        data = buffer.getvalue()
        file = self._store(data, f"{facts.sha256[:_DIGITS]}.png", lambda: facts)
        return StoredImage(file, hashlib.sha256(data).hexdigest())

    def add_volume(self, path: Path, root: Path | None = None) -> StoredImage:
        """Link to a volume, which is not copied.

        Args:
            path: The file or folder.
            root: Folder that it has to be in, links followed; None takes its own.
        """
        digests = _whole_volume(named_file(path, root))
        ending = next(filter(path.name.lower().endswith, (*NIFTI, ARRAY)), SERIES)
        file = f"{FOLDER}/{digests.file[:_DIGITS]}{ending}"
        self.facts[file] = ImageFacts(digests.voxels, (VOLUME,))
        link = self.folder / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
        return StoredImage(file, digests.file)

    def _store(self, data: bytes, name: str, facts: Callable[[], ImageFacts]) -> str:
        """Store a file not seen before, asking for its ``facts``, and return its path below the dataset's folder."""
        file = f"{FOLDER}/{name}"
        with self._storing.setdefault(file, threading.Lock()):
            if file not in self.facts:
                self.facts[file] = facts()
                path = self.folder / file
                # A file that an interruption cut short is found here, by its content, and written again.
                if not path.is_file() or path.read_bytes() != data:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(data)
        return file

    def keep_only(self, files: set[str]) -> None:
        """Delete images of an earlier attempt that the documents do not name."""
        for folder, _, names in os.walk(self.folder / FOLDER, topdown=False):
            below = os.path.relpath(folder, self.folder).replace(os.sep, "/")
            for name in names:
                if f"{below}/{name}" not in files:
                    os.unlink(os.path.join(folder, name))
            if not os.listdir(folder):
                os.rmdir(folder)


def read_facts(source: ImageSource, decoding: Decoding) -> ImageFacts:
    """Decode an image or read a volume completely.

    Raises:
        OSError: It is missing, truncated or no image.
    """
    if isinstance(source, Path) and holds_volume(source):
        return ImageFacts(_whole_volume(source).voxels, (VOLUME,))
    seen = decode_image(source, decoding)
    return ImageFacts(pixels_sha256(seen.pixels), seen.conversions)


def _whole_volume(path: Path) -> VolumeDigests:
    """Read a volume to its end."""
    digests = volume_digests(path)
    if not path.name.lower().endswith(NIFTI):  # of which the digests are checked
        from medtasks.data.images.volume_reading import open_volume  # which brings NumPy

        open_volume(path).read(None)
    return digests


def pixels_sha256(pixels: Image.Image) -> str:
    """Return the SHA-256 of an RGB image's size and pixels."""
    digest = hashlib.sha256(f"{pixels.width}x{pixels.height}:".encode())
    rows = max(1, _BAND // max(1, 3 * pixels.width))
    # In bands: all bytes at once would be another copy of the image.
    for top in range(0, pixels.height, rows):
        band = (0, top, pixels.width, min(top + rows, pixels.height))
        digest.update((pixels if rows >= pixels.height else pixels.crop(band)).tobytes())
    return digest.hexdigest()


def ending_of(data: bytes) -> str:
    """Return the ending for the name of a file that holds this encoded image, by its first bytes."""
    if data.startswith(b"\xff\xd8"):
        return "jpg"
    if is_dicom(data):
        return "dcm"
    return "png" if data.startswith(b"\x89PNG") else "img"
