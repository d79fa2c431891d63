"""What a prepared dataset is: where it came from, how large it is, and a fingerprint of its text and pixels."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from medtasks.data.decoding import decoded
from medtasks.data.image_store import pixels_sha256
from medtasks.data.volume_files import is_volume, volume_digests
from medtasks.errors import SourceError

FILE_NAME = "manifest.json"


class Manifest(BaseModel):
    """Facts recorded when a dataset was prepared; the harness writes them into every result.

    Attributes:
        name: Catalogue name.
        source: Folder or address the data came from.
        revision: Revision of the source, or ``"local"``.
        access: Access level of the dataset.
        sample: True for drawn stand-in data: scores on it say nothing about a model.
        complete: True when no row of the source was left out.
        rows: Documents.
        images: Distinct images.
        text_sha256: Fingerprint of all columns but the image bytes, independent of row order.
        pixels_sha256: Fingerprint of the decoded pixels (RGB) of all distinct images.
        left_out: What was left out and why, one sentence each.
        selected_from: Dataset of which this one is a part, None for a whole one. The images stay there.
        selection: Values by column that the part was chosen by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    source: str
    revision: str
    access: str
    sample: bool
    complete: bool
    rows: int
    images: int
    text_sha256: str
    pixels_sha256: str
    left_out: tuple[str, ...] = ()
    selected_from: str | None = None
    selection: Mapping[str, tuple[str, ...]] = {}

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any text or any pixel changes."""
        return hashlib.sha256(f"{self.text_sha256}{self.pixels_sha256}".encode()).hexdigest()[:12]

    def write(self, folder: Path) -> None:
        """Write the manifest into a dataset's folder."""
        (folder / FILE_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a prepared dataset.

        Raises:
            FileNotFoundError: The folder holds no manifest.
            SourceError: The manifest is damaged.
        """
        path = folder / FILE_NAME
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:  # pydantic's ValidationError is one, too
            raise SourceError(
                f"{path} is damaged; prepare the dataset again: medtasks data prepare {folder.name}"
            ) from error


def text_fingerprint(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of the documents' columns, whatever their order.

    Digests of image files do not count where a document lists several: some of these files are written here, and
    another build of the compression library writes other bytes for the same pixels.
    """
    digests = sorted(
        hashlib.sha256(json.dumps(_reproducible(document), sort_keys=True).encode()).digest() for document in documents
    )
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _reproducible(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "image_sha256" or "image_files" not in document}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def pixel_sha256(path: Path) -> str:
    """Decode an image completely and return the SHA-256 of its size and RGB pixels; of a volume, of its unpacked file.

    Raises:
        OSError: The file is missing, truncated or no image.
    """
    return volume_digests(path).voxels if is_volume(path) else pixels_sha256(decoded(path))


def pixels_fingerprint(digests: Mapping[str, str]) -> str:
    """Combine per-image pixel digests, keyed by image id, into one."""
    lines = "".join(f"{image_id}:{digest}\n" for image_id, digest in sorted(digests.items()))
    return hashlib.sha256(lines.encode()).hexdigest()
