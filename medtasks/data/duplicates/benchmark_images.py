"""The images of a prepared dataset and the questions that show them, and the images to compare them with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.duplicates.image_files import FolderImages, ImageHash, hash_images, images_below
from medtasks.data.mediconfusion import DEMONSTRATIONS
from medtasks.data.prepared import known, prepared_folder
from medtasks.data.privacy import is_private
from medtasks.data.schema import DEMONSTRATIONS_SPLIT, image_digests
from medtasks.data.store import load_documents
from medtasks.data.volume_files import is_volume
from medtasks.errors import MedTasksError, SourceError


@dataclass(frozen=True)
class Use:
    """Where an image is shown."""

    doc_id: str  # the question; for a solved example without one, its file
    file: Path
    example: bool  # it is a solved example of few-shot prompts and no question
    identity: tuple[str, str | None]  # by image id and patient; equal for uses that say they show the same
    image_id: str | None = None
    patient_id: str | None = None
    pair_id: str | None = None


@dataclass(frozen=True)
class DistinctImage:
    """All files with the same pixels."""

    files: tuple[Path, ...]
    known: ImageHash  # hash of the first one
    file_digests: frozenset[bytes]  # SHA-256 of the files' bytes
    uses: tuple[Use, ...] = ()  # where a dataset shows it; none for images of a folder

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the questions that show it."""
        return tuple(dict.fromkeys(use.doc_id for use in self.uses if not use.example))

    @property
    def examples(self) -> tuple[str, ...]:
        """Ids or files of the solved examples that show it."""
        return tuple(dict.fromkeys(use.doc_id for use in self.uses if use.example))


@dataclass(frozen=True)
class DatasetImages:
    """What a dataset shows."""

    documents: Sequence[Mapping[str, Any]]  # questions, in order
    images: tuple[DistinctImage, ...]  # distinct ones, in the order of the questions; those of solved examples last
    folders: tuple[Path, ...]  # where the files lie
    volumes: int  # how many distinct volumes it shows, which are not compared


@dataclass(frozen=True)
class OtherImages:
    """What a dataset is compared with."""

    name: str  # the folder or dataset as the user named it
    folder: Path | None  # what paths are shown below; None for a dataset, whose images are called by their questions
    images: tuple[DistinctImage, ...]
    files: int  # how many files were read
    unreadable: Mapping[Path, str]  # why a file could not be read
    listed: FolderImages  # what else the folder holds; of a dataset, its volumes
    private: bool = False  # its own images and names may not be shown


def dataset_images(name: str) -> DatasetImages:
    """Hash all images of a prepared dataset; SourceError for damaged documents and images, MedTasksError for none."""
    documents = load_documents(name)
    uses: dict[Path, list[Use]] = defaultdict(list)
    for document in documents:
        _note(document, uses, example=False)
    for document in load_documents(name, DEMONSTRATIONS_SPLIT):
        _note(document, uses, example=True)
    folders = sorted({prepared_folder(str(document["dataset"])) for document in documents})
    for file in (file for folder in folders for file in images_below(folder / DEMONSTRATIONS).files):
        uses[file].append(Use(file.name, file, True, (file.name, None)))
    volumes = [file for file in uses if is_volume(file)]
    files = [file for file in uses if not is_volume(file)]
    if not files:
        raise MedTasksError(f"the questions of '{name}' show no pictures{' but volumes' if volumes else ''}")
    hashes, causes = hash_images(files)
    for file, cause in causes.items():
        place = "" if is_private(name) else f" ({file}: {cause})"
        raise SourceError(
            f"{len(causes)} of {len(files)} pictures of '{name}' cannot be read{place}; run 'medtasks data prepare "
            f"{name}' again"
        )
    return DatasetImages(documents, _grouped(files, hashes, uses), tuple(folders), len(volumes))


def other_images(named: str, without: Sequence[Path] = ()) -> OtherImages:
    """Hash the images of a folder, except in those ``without``; or, if there is none of this name, of a dataset."""
    folder = Path(named).expanduser()
    if not folder.is_dir():
        if not folder.exists() and known(named):
            found = dataset_images(named)
            files = sum(len(image.files) for image in found.images)
            listed = FolderImages(volumes=found.volumes)
            return OtherImages(named, None, found.images, files, {}, listed, is_private(named))
        raise MedTasksError(f"{named} is neither a folder nor a prepared dataset; see 'medtasks data list'")
    listed = images_below(folder, without)
    hashes, causes = hash_images(listed.files)
    if not hashes:
        raise MedTasksError(f"{named} holds no picture that can be read ({_instead(listed, len(causes))})")
    images = _grouped([file for file in listed.files if file in hashes], hashes, {})
    return OtherImages(named, folder, images, len(hashes), causes, listed)


def _instead(listed: FolderImages, unreadable: int) -> str:
    dicom = f", DICOM files (read once pip install 'medtasks[dicom]' was run): {listed.without_decoder}"
    return (
        f"damaged pictures: {unreadable}, volumes: {listed.volumes}, other files: {listed.others}, folders that may "
        f"not be read: {listed.closed}{dicom if listed.without_decoder else ''}"
    )


def _note(document: Mapping[str, Any], uses: dict[Path, list[Use]], *, example: bool) -> None:
    folder = prepared_folder(str(document["dataset"]))
    image_id, patient_id = document.get("image_id"), document.get("patient_id")
    for file in image_digests(document):
        identity = (image_id or file, patient_id)
        path = folder / file
        uses[path].append(
            Use(document["doc_id"], path, example, identity, image_id, patient_id, document.get("pair_id"))
        )


def _grouped(
    files: Sequence[Path], hashes: Mapping[Path, ImageHash], uses: Mapping[Path, Sequence[Use]]
) -> tuple[DistinctImage, ...]:
    groups: dict[bytes, list[Path]] = defaultdict(list)
    for file in files:
        groups[hashes[file].pixels_sha256].append(file)
    return tuple(
        DistinctImage(
            files=tuple(group),
            known=hashes[group[0]],
            file_digests=frozenset(hashes[file].file_sha256 for file in group),
            uses=tuple(use for file in group for use in uses.get(file, ())),
        )
        for group in groups.values()
    )
