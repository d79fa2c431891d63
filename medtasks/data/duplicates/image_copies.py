"""Duplicates among the images of a benchmark, and between them and other images such as a training set.

An image of the test set that a model was trained on, or that a few-shot prompt shows with its solution, makes a score
too good. Copies are the same file, have the same pixels, or look the same
(:mod:`medtasks.data.duplicates.image_hashes`). Several questions on one image under one image id are no finding.

Images of a single grey are equal to each other and say nothing; they are counted and not compared.
"""

import importlib.util
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from PIL import Image

from medtasks.data.dataset_lookup import is_known, prepared_folder
from medtasks.data.document_store import load_documents
from medtasks.data.duplicates.image_hashes import DICOM_ENDINGS, ImageHash, hash_images
from medtasks.data.images.strict_pillow import FORMATS
from medtasks.data.images.volume_files import holds_volume
from medtasks.data.privacy import is_private
from medtasks.data.samples import Document, Documents
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, DEMONSTRATIONS_SPLIT, image_digests
from medtasks.errors import MedTasksError, SourceError

_VOLUMES = (".nii", ".nii.gz")


@dataclass(frozen=True)
class Use:
    """One showing of an image, by a question or a solved example."""

    doc_id: str  # the question; for a solved example without one, its file
    file: Path
    example: bool  # it is a solved example of few-shot prompts and no question
    # By image id and patient. It is equal for uses that say they show the same.
    identity: tuple[str, str | None]
    # Columns of the document. None where it has no such column, and for an example without a document.
    image_id: str | None = None
    patient_id: str | None = None
    pair_id: str | None = None


UsesByFile = dict[Path, list[Use]]


@dataclass(frozen=True)
class DistinctImage:
    """All files with the same pixels."""

    files: tuple[Path, ...]
    known: ImageHash  # hash of the first one
    file_digests: frozenset[str]  # SHA-256 of the files' bytes
    uses: tuple[Use, ...] = ()  # by a dataset; none for images of a folder

    @property
    def asking(self) -> list[Use]:
        """Uses by questions."""
        return [use for use in self.uses if not use.example]

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the questions that show it."""
        return tuple(dict.fromkeys(use.doc_id for use in self.asking))

    @property
    def examples(self) -> tuple[str, ...]:
        """Ids or files of the solved examples that show it."""
        return tuple(dict.fromkeys(use.doc_id for use in self.uses if use.example))


DistinctImages = tuple[DistinctImage, ...]


@dataclass
class FolderImages:
    """Image files of a folder, and numbers of what else is in it."""

    files: list[Path] = field(default_factory=list)  # sorted
    volumes: int = 0  # NIfTI files, which are not compared
    closed: int = 0  # folders that may not be read
    without_decoder: int = 0  # DICOM files that nothing installed reads
    others: int = 0  # files that are no images by their ending

    def add(self, file: Path, readable: Set[str]) -> None:
        """Add a file, or count it, by its ending.

        Args:
            file: In the folder.
            readable: Endings of the formats that are installed, in lower case.
        """
        ending = os.path.splitext(file)[1].lower()
        if file.name.lower().endswith(_VOLUMES):
            self.volumes += 1
        elif ending in readable:
            self.files.append(file)
        elif ending in DICOM_ENDINGS:
            self.without_decoder += 1
        else:
            self.others += 1


def images_below(folder: Path, without: Iterable[Path] = ()) -> FolderImages:
    """Find all images in a folder and its subfolders, following links.

    Args:
        folder: Where to start.
        without: Files and folders to leave out.
    """
    formats = Image.registered_extensions()
    readable = {ending for ending, name in formats.items() if name in FORMATS}
    if importlib.util.find_spec("pydicom"):
        readable.update(DICOM_ENDINGS)
    images = FolderImages()
    closed = list[OSError]()
    visited = set(map(os.path.realpath, without))
    for path, folders, names in os.walk(folder, onerror=closed.append, followlinks=True):
        real = os.path.realpath(path)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        for name in sorted(names):
            if os.path.realpath(os.path.join(path, name)) not in visited:
                images.add(Path(path, name), readable)
    images.closed = len(closed)
    return images


@dataclass(frozen=True)
class DatasetImages:
    """Images of a prepared dataset, or of a task of the user's own."""

    documents: Documents  # questions, in order
    images: DistinctImages  # in the order of the questions, of solved examples last
    folders: tuple[Path, ...]  # below which files are named; none of a task of the user's own
    own: tuple[Path, ...]  # its folders, or its files where others are next to them
    volumes: int  # number of distinct volumes, which are not compared
    private: Sequence[str]  # datasets because of which no image and no name may be shown


@dataclass(frozen=True)
class OtherImages:
    """Images that a dataset is compared with."""

    name: str  # the folder or dataset as the user named it
    # Paths are shown below it. None for a dataset, whose images are called by their questions.
    folder: Path | None
    images: DistinctImages
    files: int  # number of files read
    unreadable: Mapping[Path, str]  # error messages of files that cannot be read
    listed: FolderImages  # what else the folder holds; of a dataset, its volumes
    private: bool = False  # its own images and names may not be shown


def dataset_images(name: str) -> DatasetImages:
    """Hash all images of a prepared dataset.

    Args:
        name: Of the dataset, or of one that holds parts of several.

    Raises:
        SourceError: Documents or images are damaged.
        MedTasksError: The questions show no images.
    """
    documents = load_documents(name)
    examples = load_documents(name, DEMONSTRATIONS_SPLIT)
    uses: UsesByFile = defaultdict(list)
    for is_example, split in ((False, documents), (True, examples)):
        for document in split:
            folder = prepared_folder(str(document["dataset"]))
            for digest in image_digests(document):
                identity = document.get("image_id") or digest
                _add_use(uses, folder / digest, document, identity, example=is_example)
    datasets = {str(document["dataset"]) for document in documents}
    folders = tuple(sorted(map(prepared_folder, datasets)))
    for folder in folders:
        for file in images_below(folder / DEMONSTRATIONS_FOLDER).files:
            uses[file].append(Use(file.name, file, True, (file.name, None)))
    private = sorted(filter(is_private, {name, *datasets}))
    return _hash_shown(name, documents, uses, folders, private)


def own_images(
    name: str,
    documents: Documents,
    files: Sequence[Sequence[Path]],
    private: Sequence[str],
) -> DatasetImages:
    """Hash all images of a task of the user's own.

    Args:
        name: Task.
        documents: Its questions.
        files: Paths of the images of each question.
        private: Datasets because of which no image and no name may be shown.

    Raises:
        SourceError: Images cannot be read.
        MedTasksError: The questions show none.
    """
    uses: UsesByFile = defaultdict(list)
    for document, paths in zip(documents, files, strict=True):
        for path in paths:  # the id of a question with several images is that of all of them
            image_id = document.get("image_id") if len(paths) == 1 else None
            _add_use(uses, path, document, str(image_id or path))
    return _hash_shown(name, documents, uses, (), private)


def _add_use(
    uses: UsesByFile,
    path: Path,
    document: Document,
    identity: str,
    *,
    example: bool = False,
) -> None:
    """Add the showing of an image by a document to the uses of its file.

    Args:
        uses: By file.
        path: The file.
        document: The question or the solved example.
        identity: Image id, or a replacement where the document names none.
        example: Whether it is a solved example.
    """
    patient_id = document.get("patient_id")
    use = Use(
        doc_id=document["doc_id"],
        file=path,
        example=example,
        identity=(identity, patient_id),
        image_id=document.get("image_id"),
        patient_id=patient_id,
        pair_id=document.get("pair_id"),
    )
    uses[path].append(use)


def _hash_shown(
    name: str,
    documents: Documents,
    uses: UsesByFile,
    folders: tuple[Path, ...],
    private: Sequence[str],
) -> DatasetImages:
    """Hash the images that documents show.

    Args:
        name: Of the dataset or task, for messages.
        documents: Its questions.
        uses: Of each file.
        folders: Of the datasets that hold the images, none for a task of the user's own.
        private: Datasets because of which no message may name a file; may be empty.

    Raises:
        MedTasksError: There is no image, or nothing but volumes.
        SourceError: An image cannot be read.
    """
    files = [file for file in uses if not holds_volume(file)]
    volumes = len(uses) - len(files)
    if not files:
        raise MedTasksError(
            f"the questions of '{name}' show no images{' but volumes' if volumes else ''}"
        )
    hashes, errors = hash_images(files)
    if errors:
        file, error = next(iter(errors.items()))
        first = "" if private else f" ({file}: {error})"
        fix = "'medtasks data verify' names all"
        if folders:
            fix = f"run 'medtasks data prepare {name}' again"
        raise SourceError(
            f"{len(errors)} of {len(files)} images of '{name}' cannot be read{first}; {fix}"
        )
    images = _group_by_pixels(files, hashes, uses)
    return DatasetImages(documents, images, folders, folders or tuple(files), volumes, private)


def other_images(named: str, without: Sequence[Path] = ()) -> OtherImages:
    """Hash the images of a folder or of a prepared dataset.

    Args:
        named: A folder or, without one of this name, a dataset.
        without: Files and folders to leave out of the folder.

    Raises:
        MedTasksError: There is neither, or it holds no image that can be read.
    """
    folder = Path(named).expanduser()
    if not folder.is_dir():
        if folder.exists() or not is_known(named):
            raise MedTasksError(
                f"{named} is neither a folder nor a prepared dataset; see 'medtasks data list'"
            )
        return _images_of_other_dataset(named)
    listed = images_below(folder, without)
    hashes, errors = hash_images(listed.files)
    if hashes:
        files = [file for file in listed.files if file in hashes]
        images = _group_by_pixels(files, hashes, {})
        return OtherImages(named, folder, images, len(files), errors, listed)
    dicom = ""
    if listed.without_decoder:
        dicom = f", DICOM files (read once pip install 'medtasks[dicom]' was run): {listed.without_decoder}"
    raise MedTasksError(
        f"{named} holds no image that can be read (damaged images: {len(errors)}, volumes: {listed.volumes}, "
        f"other files: {listed.others}, folders that may not be read: {listed.closed}{dicom})"
    )


def _images_of_other_dataset(name: str) -> OtherImages:
    """Return the images of a prepared dataset as those of another set. Errors are those of :func:`dataset_images`."""
    dataset = dataset_images(name)
    files_read = sum(len(image.files) for image in dataset.images)
    volumes = FolderImages(volumes=dataset.volumes)
    return OtherImages(
        name, None, dataset.images, files_read, {}, volumes, bool(dataset.private)
    )


def _group_by_pixels(
    files: Sequence[Path],
    hashes: Mapping[Path, ImageHash],
    uses: UsesByFile,
) -> DistinctImages:
    """Group files with the same pixels, in the order of the first file of each group.

    Args:
        files: Readable ones.
        hashes: Of each of them.
        uses: Of files by a dataset; a file without any has no entry.
    """
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        groups[hashes[file].pixels_sha256].append(file)
    images = []
    for group in groups.values():
        uses_of_group = chain.from_iterable(uses.get(file, ()) for file in group)
        images.append(
            DistinctImage(
                files=tuple(group),
                known=hashes[group[0]],
                file_digests=frozenset(hashes[file].file_sha256 for file in group),
                uses=tuple(uses_of_group),
            )
        )
    return tuple(images)
