"""Manifest of a prepared dataset: its source, its size, and a fingerprint of its text and pixels."""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from medtasks.data.images.decoding import AS_STORED, LINEAR, NEARLY_FLAT, Decoding, ImageRule
from medtasks.data.images.image_store import ImageFacts
from medtasks.data.images.volume_rule import VolumeRule
from medtasks.errors import SourceError
from medtasks.home import dataset_folder, dataset_holding

FILE_NAME = "manifest.json"
SHOWN_VOLUMES = "shown_volumes"
"""Key of the rules by which a run has shown volumes, in the data of its results."""


class DrawnStratum(BaseModel):
    """Numbers of one stratum of a draw."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # value of the column
    existing: int  # clusters
    drawn: int  # clusters; each had the same chance
    existing_rows: int
    rows: int  # of the drawn clusters


class Draw(BaseModel):
    """Design of a random draw of whole clusters, from which the weight of each follows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    by: str | None  # column of the strata, None for a draw from all clusters alike
    strata: tuple[DrawnStratum, ...]

    def __str__(self) -> str:
        existing = sum(stratum.existing_rows for stratum in self.strata)
        drawn = sum(stratum.rows for stratum in self.strata)
        by = f", by {self.by}" if self.by else ""
        return f"{drawn:,} of {existing:,} questions drawn at random (seed {self.seed}{by})"


class Manifest(BaseModel):
    """Facts recorded when a dataset was prepared, which the harness writes into every result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str  # of the dataset
    source: str  # folder or address the data came from
    revision: str  # of the source; ``"local"`` for a folder whose revision is unknown
    access: str
    sample: bool  # True for synthetic data: scores on it say nothing about a model
    complete: bool  # True when no row of the source was left out
    rows: int
    images: int  # distinct ones
    text_sha256: str  # fingerprint of all columns but the image bytes, independent of row order
    pixels_sha256: str  # fingerprint of the decoded pixels (RGB) of all distinct images
    left_out: tuple[str, ...] = ()  # rows left out and why, one sentence each
    # The dataset that this one is a part of, and where its images stay. None for a whole one.
    selected_from: str | None = None
    # Values by column that the part was chosen by
    selection: Mapping[str, tuple[str, ...]] = {}
    draw: Draw | None = None  # design of a part that was drawn at random, None of any other set
    image_rule: ImageRule = ImageRule.REFERENCE  # see :mod:`medtasks.data.images.decoding`
    # black and white, of images with more than 8 bits; None: as files say
    image_range: tuple[float, float] | None = None
    # how volumes are shown; empty: as a task's settings say
    volume_settings: Mapping[str, Any] = {}
    # number of images by conversion; one image may have several
    image_conversions: Mapping[str, int] = {}

    @property
    def decoding(self) -> Decoding:
        """Decoding of its images."""
        return Decoding(self.image_rule, self.image_range)

    @property
    def volume_rule(self) -> VolumeRule | None:
        """Rule by which its volumes are shown, None if tasks decide."""
        return VolumeRule.of_settings(self.volume_settings)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any text, any pixel or the rule for volumes changes."""
        rule = "" if self.volume_rule is None else str(self.volume_rule)
        facts = f"{self.text_sha256}{self.pixels_sha256}{rule}"
        return hashlib.sha256(facts.encode()).hexdigest()[:12]

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder of a dataset."""
        (folder / FILE_NAME).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a prepared dataset.

        Args:
            folder: Of the dataset.

        Raises:
            FileNotFoundError: There is no manifest.
            SourceError: It is damaged.
        """
        path = folder / FILE_NAME
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValueError as error:  # pydantic's ValidationError is one, too
            raise SourceError(
                f"{path} is damaged; prepare the dataset again: medtasks data prepare {folder.name}"
            ) from error


def measure_documents(
    documents: Collection[Mapping[str, Any]], images: Mapping[str, ImageFacts]
) -> dict[str, Any]:
    """Return the facts of a manifest about documents and their images.

    Args:
        documents: All documents of the dataset.
        images: Facts about each distinct image, by :func:`~medtasks.data.schema.image_key`.
    """
    return {
        "rows": len(documents),
        "images": len(images),
        "text_sha256": text_fingerprint(documents),
        "pixels_sha256": pixels_fingerprint(images),
        "image_conversions": counted_conversions(
            facts.conversions for facts in images.values()
        ),
    }


def text_fingerprint(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of the documents' columns, whatever their order.

    Example:
        >>> documents = [{"doc_id": "1", "answer": "A"}, {"doc_id": "2", "answer": "B"}]
        >>> text_fingerprint(documents) == text_fingerprint(reversed(documents))
        True
    """
    digests = []
    for document in documents:
        # Where a document lists several image files, some are written here, and another build of the compression
        # library writes other bytes for the same pixels.
        left_out = "image_sha256" if "image_files" in document else None
        columns = {column: value for column, value in document.items() if column != left_out}
        digests.append(hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).digest())
    digests.sort()
    return hashlib.sha256(b"".join(digests)).hexdigest()


def git_blob(path: Path) -> str:
    """Return the SHA-1 by which git names a file with these bytes."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: digest).hexdigest()


def pixels_fingerprint(images: Mapping[str, ImageFacts]) -> str:
    """Combine the digests of images, by :func:`~medtasks.data.schema.image_key`, into one."""
    lines = "".join(
        f"{image_id}:{facts.sha256}\n" for image_id, facts in sorted(images.items())
    )
    return hashlib.sha256(lines.encode()).hexdigest()


def counted_conversions(images: Iterable[tuple[str, ...]]) -> dict[str, int]:
    """Return the number of images by conversion, the most frequent first.

    Args:
        images: Conversions of each image. One with none but the note on nearly flat pixels counts as stored.
    """
    counts: Counter[str] = Counter()
    for conversions in images:
        counts.update(conversions)
        counts[AS_STORED] += set(conversions) <= {NEARLY_FLAT}
    return dict(sorted((+counts).items(), key=lambda entry: (-entry[1], entry[0])))


def described_images(data: Mapping[str, Any]) -> str:
    """Describe the images by a manifest, or its copy in a result. Empty if their conversions are unknown.

    Example:
        >>> described_images({"image_rule": "linear", "image_conversions": {"as stored": 3}})
        'linear: as stored (3)'
    """
    counts = data.get("image_conversions")
    if not isinstance(counts, Mapping):
        return ""
    volumes = data.get(SHOWN_VOLUMES) or VolumeRule.of_settings(
        data.get("volume_settings") or {}
    )
    if not counts:
        return ""
    conversions = ", ".join(f"{name} ({count})" for name, count in counts.items())
    text = f"{data.get('image_rule', ImageRule.REFERENCE)}: {conversions}"
    return f"{text}; volumes: {volumes}" if volumes else text


@functools.lru_cache(maxsize=64)
def _manifest_at(folder: Path, _modified: int) -> Manifest:
    return Manifest.read(folder)


def manifest_of(folder: Path) -> Manifest:
    """Return the manifest of a dataset, whose file is read once unless it changes.

    Errors are those of :meth:`Manifest.read`.
    """
    return _manifest_at(folder, (folder / FILE_NAME).stat().st_mtime_ns)


def decoding_of_file(file: Path) -> Decoding:
    """Return the decoding of an image file: that of the prepared dataset in whose folder it lies, else linear."""
    name = dataset_holding(file.absolute())
    try:
        return manifest_of(dataset_folder(name)).decoding if name else LINEAR
    except (OSError, SourceError):
        return LINEAR
