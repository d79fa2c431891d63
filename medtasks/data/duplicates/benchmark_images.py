"""Images of a prepared dataset with the questions that show them, and the images to compare them with."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.duplicates.image_files import FolderImages, ImageHash, hash_images, images_below
from medtasks.data.images.volume_files import is_volume
from medtasks.data.prepared import known, prepared_folder
from medtasks.data.privacy import is_private
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, DEMONSTRATIONS_SPLIT, image_digests
from medtasks.data.store import load_documents
from medtasks.errors import MedTasksError, SourceError


@dataclass(frozen=True)
class Use:
    """One showing of an image, by a question or a solved example."""

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
    file_digests: frozenset[str]  # SHA-256 of the files' bytes
    uses: tuple[Use, ...] = ()  # by a dataset; none for images of a folder

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
    """Images of a prepared dataset."""

    documents: Sequence[Mapping[str, Any]]  # questions, in order
    images: tuple[DistinctImage, ...]  # distinct ones, in the order of the questions; those of solved examples last
    folders: tuple[Path, ...]  # where the files lie
    volumes: int  # number of distinct volumes, which are not compared


@dataclass(frozen=True)
class OtherImages:
    """Images that a dataset is compared with."""

    name: str  # the folder or dataset as the user named it
    folder: Path | None  # paths are shown below it; None for a dataset, whose images are called by their questions
    images: tuple[DistinctImage, ...]
    files: int  # number of files read
    unreadable: Mapping[Path, str]  # error messages of files that cannot be read
    listed: FolderImages  # what else the folder holds; of a dataset, its volumes
    private: bool = False  # its own images and names may not be shown


def dataset_images(name: str) -> DatasetImages:
    """Hash all images of a prepared dataset; SourceError for damaged documents and images, MedTasksError for none."""
    documents = load_documents(name)
    uses: dict[Path, list[Use]] = defaultdict(list)
    for example, shown_by in ((False, documents), (True, load_documents(name, DEMONSTRATIONS_SPLIT))):
        for document in shown_by:
            folder = prepared_folder(str(document["dataset"]))
            image_id, patient_id, pair_id = (document.get(key) for key in ("image_id", "patient_id", "pair_id"))
            for digest in image_digests(document):
                path, identity = folder / digest, (image_id or digest, patient_id)
                uses[path].append(Use(document["doc_id"], path, example, identity, image_id, patient_id, pair_id))
    folders = sorted({prepared_folder(str(document["dataset"])) for document in documents})
    for file in (file for folder in folders for file in images_below(folder / DEMONSTRATIONS_FOLDER).files):
        uses[file].append(Use(file.name, file, True, (file.name, None)))
    files = [file for file in uses if not is_volume(file)]
    volumes = len(uses) - len(files)
    if not files:
        raise MedTasksError(f"the questions of '{name}' show no pictures{' but volumes' if volumes else ''}")
    hashes, errors = hash_images(files)
    for file, error in errors.items():
        first = "" if is_private(name) else f" ({file}: {error})"
        raise SourceError(
            f"{len(errors)} of {len(files)} pictures of '{name}' cannot be read{first}; run 'medtasks data prepare "
            f"{name}' again"
        )
    return DatasetImages(documents, _distinct(files, hashes, uses), tuple(folders), volumes)


def other_images(named: str, without: Sequence[Path] = ()) -> OtherImages:
    """Hash the images of a folder, except in those ``without``; or, if there is none of this name, of a dataset."""
    folder = Path(named).expanduser()
    if folder.is_dir():
        listed = images_below(folder, without)
        hashes, errors = hash_images(listed.files)
        if hashes:
            files = [file for file in listed.files if file in hashes]
            return OtherImages(named, folder, _distinct(files, hashes, {}), len(files), errors, listed)
        dicom = f", DICOM files (read once pip install 'medtasks[dicom]' was run): {listed.without_decoder}"
        raise MedTasksError(
            f"{named} holds no picture that can be read (damaged pictures: {len(errors)}, volumes: {listed.volumes}, "
            f"other files: {listed.others}, folders that may not be read: {listed.closed}"
            f"{dicom if listed.without_decoder else ''})"
        )
    if folder.exists() or not known(named):
        raise MedTasksError(f"{named} is neither a folder nor a prepared dataset; see 'medtasks data list'")
    shown = dataset_images(named)
    number = sum(len(image.files) for image in shown.images)
    return OtherImages(named, None, shown.images, number, {}, FolderImages(volumes=shown.volumes), is_private(named))


def _distinct(
    files: Sequence[Path], hashes: Mapping[Path, ImageHash], uses: Mapping[Path, Sequence[Use]]
) -> tuple[DistinctImage, ...]:
    groups: dict[str, list[Path]] = defaultdict(list)
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
