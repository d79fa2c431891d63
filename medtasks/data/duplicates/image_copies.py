"""Duplicates among the images of a benchmark, and between them and other images such as a training set.

An image of the test set that a model was trained on, or that a few-shot prompt shows with its solution, makes a score
too good. Copies are found that are the same file, that have the same pixels, or that look the same
(:mod:`medtasks.data.duplicates.image_hashes`). That several questions show one image under one image id is no
finding.

Images of a single grey are equal to each other and say nothing; they are counted and not compared.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.dataset_lookup import known, prepared_folder
from medtasks.data.document_store import load_documents
from medtasks.data.duplicates.image_hashes import FolderImages, ImageHash, hash_images, images_below
from medtasks.data.duplicates.near_images import Alike, Looks, near
from medtasks.data.images.volume_files import is_volume
from medtasks.data.privacy import is_private
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, DEMONSTRATIONS_SPLIT, image_digests
from medtasks.errors import MedTasksError, SourceError
from medtasks.stats.standard_error import connected_components


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


_EXACT = Alike(0, 1.0)


class CopyKind(enum.StrEnum):
    """How sure it is that two images are one, the surest first."""

    FILE = "same file"
    PIXELS = "same pixels"
    NEAR = "looks the same"


class Concern(enum.StrEnum):
    """Why a duplicate within a set matters, the weightiest first."""

    EXAMPLE = "solved example"
    PAIR = "both of a pair"
    PATIENTS = "different patients"
    TWICE = "different image ids"


@dataclass(frozen=True)
class DuplicatePair:
    """Two images that are one."""

    first: DistinctImage  # an image of the set
    second: DistinctImage  # another one, of the set or not; or the same, used in two ways that contradict each other
    kind: CopyKind  # how sure it is
    concern: Concern | None  # why it matters within the set; None for an image outside of it
    alike: Alike

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the set's questions that show one of them."""
        own = self.first.questions if self.concern is None else self.first.questions + self.second.questions
        return tuple(dict.fromkeys(own))


@dataclass(frozen=True)
class Duplicates:
    """Result of a search."""

    shown: DatasetImages
    other: OtherImages | None  # what it was compared with; None if with itself alone
    within: tuple[DuplicatePair, ...]  # findings within the set, the weightiest and surest first
    outside: tuple[DuplicatePair, ...]  # findings in ``other``, the surest first
    groups: tuple[tuple[DistinctImage, ...], ...]  # connected by ``within``, the largest first
    uniform: tuple[DistinctImage, ...]  # images of the set of a single grey, which were not compared
    uniform_outside: int  # number of distinct ones in ``other``
    # ids of questions to leave out so that no finding remains: those whose image is in ``other`` or a solved example,
    # and of equal images all questions but those on the first. Pairs go as a whole.
    left_out: tuple[str, ...]

    @property
    def questions(self) -> int:
        """Number of questions in the set."""
        return len(self.shown.documents)


def find_duplicates(shown: DatasetImages, other: OtherImages | None, distance: int, *, turned: bool) -> Duplicates:
    """Compare all images of a set with each other, and with others it may share with them, such as training images.

    Hashes of images that look the same differ in at most ``distance`` bits. With ``turned``, also those are found
    that are mirrored or rotated by 90, 180 or 270 degrees, which takes eight times as many comparisons.
    """
    images = [image for image in shown.images if image.known.views]
    looks = Looks([(image.files[0], image.known) for image in images], any_turn=turned)
    alike = {(number, number): _EXACT for number in range(len(images))} | near(looks, looks, distance)
    within = []
    for (one, two), resemblance in alike.items():
        first, second = images[one], images[two]
        concern = _concern(first, second)
        if concern is not None:
            kind = _exactness(first, second) if one == two else CopyKind.NEAR
            within.append(DuplicatePair(first, second, kind, concern, resemblance))
    outside = _outside(images, looks, other, distance) if other else []
    return Duplicates(
        shown=shown,
        other=other,
        within=tuple(sorted(within, key=_weight)),
        outside=tuple(sorted(outside, key=_weight)),
        groups=_groups(images, within),
        uniform=tuple(image for image in shown.images if not image.known.views),
        uniform_outside=sum(not image.known.views for image in other.images) if other else 0,
        left_out=_left_out(shown.documents, within, outside),
    )


def _outside(images: Sequence[DistinctImage], looks: Looks, other: OtherImages, distance: int) -> list[DuplicatePair]:
    others = [image for image in other.images if image.known.views]
    by_pixels = {image.known.pixels_sha256: image for image in others}
    findings = []
    for image in images:
        twin = by_pixels.get(image.known.pixels_sha256)
        if twin and image.questions:
            findings.append(DuplicatePair(image, twin, _exactness(image, twin), None, _EXACT))
    close = near(looks, Looks([(image.files[0], image.known) for image in others]), distance)
    for (one, two), alike in close.items():
        first, second = images[one], others[two]
        if first.questions and first.known.pixels_sha256 != second.known.pixels_sha256:
            findings.append(DuplicatePair(first, second, CopyKind.NEAR, None, alike))
    return findings


def _exactness(first: DistinctImage, second: DistinctImage) -> CopyKind:
    """Return whether images of the same pixels, or all files of one, are the same file."""
    if first is second:
        return CopyKind.FILE if len(first.file_digests) == 1 else CopyKind.PIXELS
    return CopyKind.FILE if first.file_digests & second.file_digests else CopyKind.PIXELS


def _concern(first: DistinctImage, second: DistinctImage) -> Concern | None:
    """Return why it matters that two images, or all uses of one, show the same; None if it does not."""
    if (first.examples and second.questions) or (first.questions and second.examples):
        return Concern.EXAMPLE
    one, two = _asking(first), _asking(second)
    if first is second:
        pairs = Counter(pair for pair, _ in {(use.pair_id, use.doc_id) for use in one if use.pair_id is not None})
        in_one_pair = any(count > 1 for count in pairs.values())
    else:
        in_one_pair = bool({use.pair_id for use in one} & {use.pair_id for use in two} - {None})
    if in_one_pair:
        return Concern.PAIR
    if _differ({use.patient_id for use in one} - {None}, {use.patient_id for use in two} - {None}):
        return Concern.PATIENTS
    if _differ({use.identity for use in one}, {use.identity for use in two}):
        return Concern.TWICE
    return None


def _asking(image: DistinctImage) -> list[Use]:
    return [use for use in image.uses if not use.example]


def _differ(first: set[Any], second: set[Any]) -> bool:
    return bool(first) and bool(second) and len(first | second) > 1


def _weight(finding: DuplicatePair) -> tuple[int, int, float, str]:
    concern = list(Concern).index(finding.concern) if finding.concern else 0
    return concern, list(CopyKind).index(finding.kind), -finding.alike.likeness, str(finding.first.files[0])


def _groups(images: Sequence[DistinctImage], within: Iterable[DuplicatePair]) -> tuple[tuple[DistinctImage, ...], ...]:
    findings_of: dict[int, list[int]] = defaultdict(list)
    for index, finding in enumerate(within):
        findings_of[id(finding.first)].append(index)
        findings_of[id(finding.second)].append(index)
    connected = [image for image in images if id(image) in findings_of]
    groups: dict[int, list[DistinctImage]] = defaultdict(list)
    for image, group in zip(connected, connected_components([findings_of[id(one)] for one in connected]), strict=True):
        groups[group].append(image)
    return tuple(sorted(map(tuple, groups.values()), key=len, reverse=True))


def _left_out(
    documents: Sequence[Mapping[str, Any]], within: Iterable[DuplicatePair], outside: Iterable[DuplicatePair]
) -> tuple[str, ...]:
    known = {question for finding in outside for question in finding.questions}
    neighbours: dict[str, list[DuplicatePair]] = defaultdict(list)
    for finding in within:
        if finding.concern is Concern.EXAMPLE:
            known.update(finding.first.questions if finding.second.examples else ())
            known.update(finding.second.questions if finding.first.examples else ())
        elif finding.concern is Concern.PAIR:
            members: dict[str | None, set[str]] = defaultdict(set)
            for use in {*_asking(finding.first), *_asking(finding.second)}:
                members[use.pair_id].add(use.doc_id)
            known.update(*(ids for pair, ids in members.items() if pair is not None and len(ids) > 1))
        for question in finding.questions:
            neighbours[question].append(finding)
    units: dict[Any, list[str]] = defaultdict(list)
    for document in documents:
        units[document.get("pair_id") or (document["doc_id"],)].append(document["doc_id"])
    kept: set[str] = set()
    dropped: set[str] = set()
    for unit in units.values():
        contradicted = any(_contradicts(question, kept, neighbours[question]) for question in unit)
        (dropped if contradicted or not known.isdisjoint(unit) else kept).update(unit)
    return tuple(document["doc_id"] for document in documents if document["doc_id"] in dropped)


def _contradicts(question: str, kept: set[str], findings: Iterable[DuplicatePair]) -> bool:
    """Return whether a question shows an image that a kept one shows under another identity."""
    for finding in findings:
        uses = {*_asking(finding.first), *_asking(finding.second)}
        own = {use.identity for use in uses if use.doc_id == question}
        if any(use.doc_id in kept and use.identity not in own for use in uses):
            return True
    return False
