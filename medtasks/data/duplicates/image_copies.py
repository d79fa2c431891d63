"""Duplicates among the images of a benchmark, and between them and other images such as a training set.

An image of the test set that a model was trained on, or that a few-shot prompt shows with its solution, makes a score
too good. Copies are the same file, have the same pixels, or look the same
(:mod:`medtasks.data.duplicates.image_hashes`). Several questions on one image under one image id are no finding.

Images of a single grey are equal to each other and say nothing; they are counted and not compared.
"""

import enum
import importlib.util
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.dataset_lookup import known, prepared_folder
from medtasks.data.document_store import load_documents
from medtasks.data.duplicates.image_hashes import DICOM_ENDINGS, Alike, ImageHash, ImageViews, hash_images, near
from medtasks.data.images.strict_pillow import FORMATS
from medtasks.data.images.volume_files import is_volume
from medtasks.data.privacy import is_private
from medtasks.data.samples import Document
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, DEMONSTRATIONS_SPLIT, image_digests
from medtasks.errors import MedTasksError, SourceError
from medtasks.stats.standard_error import connected_components

_VOLUMES = (".nii", ".nii.gz")


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


@dataclass
class FolderImages:
    """Image files of a folder, and numbers of what else is in it."""

    files: list[Path] = field(default_factory=list)  # sorted
    volumes: int = 0  # NIfTI files, which are not compared
    closed: int = 0  # folders that may not be read
    without_decoder: int = 0  # DICOM files that nothing installed reads
    others: int = 0  # files that are no images by their ending


def images_below(folder: Path, without: Iterable[Path] = ()) -> FolderImages:
    """Find all images in a folder and its subfolders, following links, except files and folders of ``without``."""
    formats = Image.registered_extensions()
    readable = {ending for ending, name in formats.items() if name in FORMATS}
    if importlib.util.find_spec("pydicom"):
        readable.update(DICOM_ENDINGS)
    images, closed = FolderImages(), list[OSError]()
    visited = {os.path.realpath(path) for path in without}
    for path, folders, names in os.walk(folder, onerror=closed.append, followlinks=True):
        if (real := os.path.realpath(path)) in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        for name in sorted(names):
            ending = os.path.splitext(name)[1].lower()
            if os.path.realpath(os.path.join(path, name)) in visited:
                continue
            if name.lower().endswith(_VOLUMES):
                images.volumes += 1
            elif ending in readable:
                images.files.append(Path(path, name))
            elif ending in DICOM_ENDINGS:
                images.without_decoder += 1
            else:
                images.others += 1
    images.closed = len(closed)
    return images


@dataclass(frozen=True)
class DatasetImages:
    """Images of a prepared dataset, or of a task of the user's own."""

    documents: Sequence[Document]  # questions, in order
    images: tuple[DistinctImage, ...]  # in the order of the questions; those of solved examples last
    folders: tuple[Path, ...]  # below which files are named; none of a task of the user's own
    own: tuple[Path, ...]  # its folders, or its files where others are next to them
    volumes: int  # number of distinct volumes, which are not compared
    private: Sequence[str]  # datasets because of which no image and no name may be shown


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
    for example, split in ((False, documents), (True, load_documents(name, DEMONSTRATIONS_SPLIT))):
        for document in split:
            folder = prepared_folder(str(document["dataset"]))
            for digest in image_digests(document):
                _add_use(uses, folder / digest, document, document.get("image_id") or digest, example=example)
    folders = tuple(sorted({prepared_folder(str(document["dataset"])) for document in documents}))
    for folder in folders:
        for file in images_below(folder / DEMONSTRATIONS_FOLDER).files:
            uses[file].append(Use(file.name, file, True, (file.name, None)))
    private = sorted(filter(is_private, {name, *(str(document["dataset"]) for document in documents)}))
    return _hashed(name, documents, uses, folders, private)


def own_images(
    name: str, documents: Sequence[Document], files: Sequence[Sequence[Path]], private: Sequence[str]
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
    uses: dict[Path, list[Use]] = defaultdict(list)
    for document, paths in zip(documents, files, strict=True):
        for path in paths:  # the id of a question with several images is that of all of them
            image_id = document.get("image_id") if len(paths) == 1 else None
            _add_use(uses, path, document, str(image_id or path))
    return _hashed(name, documents, uses, (), private)


def _add_use(
    uses: Mapping[Path, list[Use]], path: Path, document: Document, identity: str, *, example: bool = False
) -> None:
    image_id, patient_id, pair_id = (document.get(key) for key in ("image_id", "patient_id", "pair_id"))
    uses[path].append(Use(document["doc_id"], path, example, (identity, patient_id), image_id, patient_id, pair_id))


def _hashed(
    name: str,
    documents: Sequence[Document],
    uses: Mapping[Path, Sequence[Use]],
    folders: tuple[Path, ...],
    private: Sequence[str],
) -> DatasetImages:
    files = [file for file in uses if not is_volume(file)]
    volumes = len(uses) - len(files)
    if not files:
        raise MedTasksError(f"the questions of '{name}' show no images{' but volumes' if volumes else ''}")
    hashes, errors = hash_images(files)
    for file, error in errors.items():
        first = "" if private else f" ({file}: {error})"
        fix = f"run 'medtasks data prepare {name}' again" if folders else "'medtasks data verify' names all"
        raise SourceError(f"{len(errors)} of {len(files)} images of '{name}' cannot be read{first}; {fix}")
    return DatasetImages(documents, _distinct(files, hashes, uses), folders, folders or tuple(files), volumes, private)


def other_images(named: str, without: Sequence[Path] = ()) -> OtherImages:
    """Hash the images of a folder, except those ``without``; or, if no folder has this name, of a dataset."""
    folder = Path(named).expanduser()
    if folder.is_dir():
        listed = images_below(folder, without)
        hashes, errors = hash_images(listed.files)
        if hashes:
            files = [file for file in listed.files if file in hashes]
            return OtherImages(named, folder, _distinct(files, hashes, {}), len(files), errors, listed)
        dicom = f", DICOM files (read once pip install 'medtasks[dicom]' was run): {listed.without_decoder}"
        raise MedTasksError(
            f"{named} holds no image that can be read (damaged images: {len(errors)}, volumes: {listed.volumes}, "
            f"other files: {listed.others}, folders that may not be read: {listed.closed}"
            f"{dicom if listed.without_decoder else ''})"
        )
    if folder.exists() or not known(named):
        raise MedTasksError(f"{named} is neither a folder nor a prepared dataset; see 'medtasks data list'")
    dataset = dataset_images(named)
    files_read = sum(len(image.files) for image in dataset.images)
    volumes = FolderImages(volumes=dataset.volumes)
    return OtherImages(named, None, dataset.images, files_read, {}, volumes, bool(dataset.private))


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


class CopyKind(enum.StrEnum):
    """Certainty that two images are copies, the surest first."""

    FILE = "same file"
    PIXELS = "same pixels"
    NEAR = "looks the same"


class Concern(enum.StrEnum):
    """Reason why a duplicate within a set matters, the weightiest first."""

    EXAMPLE = "solved example"
    PAIR = "both of a pair"
    PATIENTS = "different patients"
    TWICE = "different image ids"


@dataclass(frozen=True)
class DuplicatePair:
    """Two images that are copies."""

    first: DistinctImage  # an image of the set
    second: DistinctImage  # another one, of the set or not; or the same, used in two ways that contradict each other
    kind: CopyKind
    concern: Concern | None  # None for an image outside of the set
    alike: Alike

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the set's questions that show either image."""
        ids = self.first.questions if self.concern is None else self.first.questions + self.second.questions
        return tuple(dict.fromkeys(ids))


@dataclass(frozen=True)
class Duplicates:
    """Result of a search."""

    shown: DatasetImages
    other: OtherImages | None  # None if the set was compared with itself alone
    within: tuple[DuplicatePair, ...]  # findings within the set, the weightiest and surest first
    outside: tuple[DuplicatePair, ...]  # findings in ``other``, the surest first
    groups: tuple[tuple[DistinctImage, ...], ...]  # connected by ``within``, the largest first
    uniform: tuple[DistinctImage, ...]  # images of the set of a single grey, which were not compared
    uniform_outside: int  # number of distinct ones in ``other``
    # ids of questions to leave out so that no finding remains: those whose image is in ``other`` or a solved example,
    # and of equal images all questions but those on the first. Pairs go as a whole.
    left_out: tuple[str, ...]


def find_duplicates(dataset: DatasetImages, other: OtherImages | None, distance: int) -> Duplicates:
    """Compare all images of a set with each other, and with others it may share with them, such as training images.

    Hashes of images that look the same differ in at most ``distance`` bits.
    """
    exact = Alike(0, 1.0)
    images = [image for image in dataset.images if image.known.views]
    looks = ImageViews([(image.files[0], image.known) for image in images])
    alike = {(number, number): exact for number in range(len(images))} | near(looks, looks, distance)
    within = []
    for (number, twin), resemblance in alike.items():
        first, second = images[number], images[twin]
        concern = concern_of(first, second)
        if concern is not None:
            exactly = CopyKind.FILE if len(first.file_digests) == 1 else CopyKind.PIXELS
            kind = exactly if number == twin else CopyKind.NEAR
            within.append(DuplicatePair(first, second, kind, concern, resemblance))
    outside = []
    if other:
        others = [image for image in other.images if image.known.views]
        by_pixels = {image.known.pixels_sha256: image for image in others}
        for image in images:
            match = by_pixels.get(image.known.pixels_sha256)
            if match and image.questions:
                kind = CopyKind.FILE if image.file_digests & match.file_digests else CopyKind.PIXELS
                outside.append(DuplicatePair(image, match, kind, None, exact))
        close = near(looks, ImageViews([(image.files[0], image.known) for image in others]), distance)
        for (number, twin), resemblance in close.items():
            first, second = images[number], others[twin]
            if first.questions and first.known.pixels_sha256 != second.known.pixels_sha256:
                outside.append(DuplicatePair(first, second, CopyKind.NEAR, None, resemblance))

    def weight(finding: DuplicatePair) -> tuple[int, int, float, str]:
        concern = list(Concern).index(finding.concern) if finding.concern else 0
        return concern, list(CopyKind).index(finding.kind), -finding.alike.likeness, str(finding.first.files[0])

    components = connected_components([(id(finding.first), id(finding.second)) for finding in within])
    members = {}
    for finding, component in zip(within, components, strict=True):
        members.update({id(finding.first): component, id(finding.second): component})
    groups: dict[int, list[DistinctImage]] = defaultdict(list)
    for image in images:
        if id(image) in members:
            groups[members[id(image)]].append(image)
    return Duplicates(
        shown=dataset,
        other=other,
        within=tuple(sorted(within, key=weight)),
        outside=tuple(sorted(outside, key=weight)),
        groups=tuple(sorted(map(tuple, groups.values()), key=len, reverse=True)),
        uniform=tuple(image for image in dataset.images if not image.known.views),
        uniform_outside=sum(not image.known.views for image in other.images) if other else 0,
        left_out=left_out_of(dataset.documents, within, outside),
    )


def concern_of(first: DistinctImage, second: DistinctImage) -> Concern | None:
    """Return why it matters that two images, or all uses of one, show the same; None if it does not."""
    if (first.examples and second.questions) or (first.questions and second.examples):
        return Concern.EXAMPLE
    uses, twins = first.asking, second.asking
    if first is second:
        pairs = Counter(pair for pair, _ in {(use.pair_id, use.doc_id) for use in uses if use.pair_id is not None})
        in_one_pair = any(count > 1 for count in pairs.values())
    else:
        in_one_pair = bool({use.pair_id for use in uses} & {use.pair_id for use in twins} - {None})
    if in_one_pair:
        return Concern.PAIR

    def differ(ids: set[Any], of_twins: set[Any]) -> bool:
        return bool(ids) and bool(of_twins) and len(ids | of_twins) > 1

    if differ({use.patient_id for use in uses} - {None}, {use.patient_id for use in twins} - {None}):
        return Concern.PATIENTS
    return Concern.TWICE if differ({use.identity for use in uses}, {use.identity for use in twins}) else None


def left_out_of(
    documents: Sequence[Document], within: Iterable[DuplicatePair], outside: Iterable[DuplicatePair]
) -> tuple[str, ...]:
    """Return the questions to leave out so that no finding remains, see :class:`Duplicates`."""
    spoiled = {question for finding in outside for question in finding.questions}
    neighbours: dict[str, list[DuplicatePair]] = defaultdict(list)
    for finding in within:
        if finding.concern is Concern.EXAMPLE:
            spoiled.update(finding.first.questions if finding.second.examples else ())
            spoiled.update(finding.second.questions if finding.first.examples else ())
        elif finding.concern is Concern.PAIR:
            members: dict[str | None, set[str]] = defaultdict(set)
            for use in {*finding.first.asking, *finding.second.asking}:
                members[use.pair_id].add(use.doc_id)
            spoiled.update(*(ids for pair, ids in members.items() if pair is not None and len(ids) > 1))
        for question in finding.questions:
            neighbours[question].append(finding)
    units: dict[Any, list[str]] = defaultdict(list)
    for document in documents:
        units[document.get("pair_id") or (document["doc_id"],)].append(document["doc_id"])
    staying: set[str] = set()
    leaving: set[str] = set()

    def contradicts(question: str) -> bool:
        """Return whether a question shows an image that a staying one shows under another identity."""
        for finding in neighbours[question]:
            uses = {*finding.first.asking, *finding.second.asking}
            identities = {use.identity for use in uses if use.doc_id == question}
            if any(use.doc_id in staying and use.identity not in identities for use in uses):
                return True
        return False

    for unit in units.values():
        contradicted = any(map(contradicts, unit))
        (leaving if contradicted or not spoiled.isdisjoint(unit) else staying).update(unit)
    return tuple(document["doc_id"] for document in documents if document["doc_id"] in leaving)
