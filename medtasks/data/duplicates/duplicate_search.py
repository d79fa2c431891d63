"""Search for images of a dataset that look like others, and what each pair is worth."""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.duplicates.image_copies import DatasetImages, DistinctImage, OtherImages
from medtasks.data.duplicates.image_hashes import Alike, ImageViews, near
from medtasks.data.samples import Documents
from medtasks.stats.standard_error import connected_components

_EXACT = Alike(0, 1.0)


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
        ids = (
            self.first.questions
            if self.concern is None
            else self.first.questions + self.second.questions
        )
        return tuple(dict.fromkeys(ids))


@dataclass(frozen=True)
class Duplicates:
    """Result of a search."""

    shown: DatasetImages
    other: OtherImages | None  # None if the set was compared with itself alone
    within: tuple[DuplicatePair, ...]  # findings within the set, the weightiest and surest first
    outside: tuple[DuplicatePair, ...]  # findings in ``other``, the surest first
    groups: tuple[tuple[DistinctImage, ...], ...]  # connected by ``within``, the largest first
    uniform: tuple[
        DistinctImage, ...
    ]  # images of the set of a single grey, which were not compared
    uniform_outside: int  # number of distinct ones in ``other``
    # ids of questions to leave out so that no finding remains: those whose image is in ``other`` or a solved example,
    # and of equal images all questions but those on the first. Pairs go as a whole.
    left_out: tuple[str, ...]


def find_duplicates(dataset: DatasetImages, other: OtherImages | None, distance: int) -> Duplicates:
    """Compare all images of a set with each other, and with others it may share with them, such as training images.

    Hashes of images that look the same differ in at most ``distance`` bits.
    """
    images = [image for image in dataset.images if image.known.views]
    looks = ImageViews([(image.files[0], image.known) for image in images])
    within = _pairs_within(images, looks, distance)
    outside: list[DuplicatePair] = []
    uniform_outside = 0
    if other:
        others = [image for image in other.images if image.known.views]
        outside = _equal_outside(images, others) + _similar_outside(images, looks, others, distance)
        uniform_outside = len(other.images) - len(others)
    return Duplicates(
        shown=dataset,
        other=other,
        within=tuple(sorted(within, key=_weight)),
        outside=tuple(sorted(outside, key=_weight)),
        groups=_connected_images(images, within),
        uniform=tuple(image for image in dataset.images if not image.known.views),
        uniform_outside=uniform_outside,
        left_out=left_out_of(dataset.documents, within, outside),
    )


def _pairs_within(
    images: Sequence[DistinctImage], looks: ImageViews, distance: int
) -> list[DuplicatePair]:
    alike = {(number, number): _EXACT for number in range(len(images))} | near(
        looks, looks, distance
    )
    pairs = []
    for (number, twin), resemblance in alike.items():
        first = images[number]
        second = images[twin]
        concern = concern_of(first, second)
        if concern is None:
            continue
        kind = CopyKind.NEAR
        if number == twin:
            kind = CopyKind.FILE if len(first.file_digests) == 1 else CopyKind.PIXELS
        pairs.append(DuplicatePair(first, second, kind, concern, resemblance))
    return pairs


def _equal_outside(
    images: Sequence[DistinctImage], others: Sequence[DistinctImage]
) -> list[DuplicatePair]:
    by_pixels = {image.known.pixels_sha256: image for image in others}
    pairs = []
    for image in images:
        match = by_pixels.get(image.known.pixels_sha256)
        if match and image.questions:
            kind = CopyKind.FILE if image.file_digests & match.file_digests else CopyKind.PIXELS
            pairs.append(DuplicatePair(image, match, kind, None, _EXACT))
    return pairs


def _similar_outside(
    images: Sequence[DistinctImage],
    looks: ImageViews,
    others: Sequence[DistinctImage],
    distance: int,
) -> list[DuplicatePair]:
    close = near(looks, ImageViews([(image.files[0], image.known) for image in others]), distance)
    pairs = []
    for (number, twin), resemblance in close.items():
        first = images[number]
        second = others[twin]
        if first.questions and first.known.pixels_sha256 != second.known.pixels_sha256:
            pairs.append(DuplicatePair(first, second, CopyKind.NEAR, None, resemblance))
    return pairs


def _weight(finding: DuplicatePair) -> tuple[int, int, float, str]:
    concern = list(Concern).index(finding.concern) if finding.concern else 0
    return (
        concern,
        list(CopyKind).index(finding.kind),
        -finding.alike.likeness,
        str(finding.first.files[0]),
    )


def _connected_images(
    images: Iterable[DistinctImage], findings: Sequence[DuplicatePair]
) -> tuple[tuple[DistinctImage, ...], ...]:
    """Return the images that findings connect, in groups, the largest first."""
    components = connected_components(
        [(id(finding.first), id(finding.second)) for finding in findings]
    )
    members = {}
    for finding, component in zip(findings, components, strict=True):
        members.update({id(finding.first): component, id(finding.second): component})
    groups: dict[int, list[DistinctImage]] = defaultdict(list)
    for image in images:
        if id(image) in members:
            groups[members[id(image)]].append(image)
    return tuple(sorted(map(tuple, groups.values()), key=len, reverse=True))


def concern_of(first: DistinctImage, second: DistinctImage) -> Concern | None:
    """Return why it matters that two images, or all uses of one, show the same; None if it does not."""
    if (first.examples and second.questions) or (first.questions and second.examples):
        return Concern.EXAMPLE
    if _in_one_pair(first, second):
        return Concern.PAIR
    uses = first.asking
    twins = second.asking
    if _differ(
        {use.patient_id for use in uses} - {None}, {use.patient_id for use in twins} - {None}
    ):
        return Concern.PATIENTS
    return (
        Concern.TWICE
        if _differ({use.identity for use in uses}, {use.identity for use in twins})
        else None
    )


def _in_one_pair(first: DistinctImage, second: DistinctImage) -> bool:
    if first is not second:
        return bool(
            {use.pair_id for use in first.asking} & {use.pair_id for use in second.asking} - {None}
        )
    pairs = Counter(
        pair for pair, _ in {(use.pair_id, use.doc_id) for use in first.asking} if pair is not None
    )
    return any(questions > 1 for questions in pairs.values())


def _differ(ids: set[Any], of_twins: set[Any]) -> bool:
    return bool(ids) and bool(of_twins) and len(ids | of_twins) > 1


def left_out_of(
    documents: Documents, within: Iterable[DuplicatePair], outside: Iterable[DuplicatePair]
) -> tuple[str, ...]:
    """Return the questions to leave out so that no finding remains, see :class:`Duplicates`."""
    spoiled: set[str] = set()
    for finding in outside:
        spoiled.update(finding.questions)
    neighbours: dict[str, list[DuplicatePair]] = defaultdict(list)
    for finding in within:
        spoiled |= _spoiled_questions(finding)
        for question in finding.questions:
            neighbours[question].append(finding)
    units: dict[Any, list[str]] = defaultdict(list)
    for document in documents:
        units[document.get("pair_id") or (document["doc_id"],)].append(document["doc_id"])
    staying: set[str] = set()
    leaving: set[str] = set()
    for unit in units.values():
        contradicted = any(
            _is_contradicted(question, neighbours[question], staying) for question in unit
        )
        (leaving if contradicted or not spoiled.isdisjoint(unit) else staying).update(unit)
    return tuple(document["doc_id"] for document in documents if document["doc_id"] in leaving)


def _spoiled_questions(finding: DuplicatePair) -> set[str]:
    """Return the questions that cannot stay because of a solved example, or of their own pair."""
    questions: set[str] = set()
    if finding.concern is Concern.EXAMPLE:
        if finding.second.examples:
            questions.update(finding.first.questions)
        if finding.first.examples:
            questions.update(finding.second.questions)
    elif finding.concern is Concern.PAIR:
        members: dict[str, set[str]] = defaultdict(set)
        for use in (*finding.first.asking, *finding.second.asking):
            if use.pair_id is not None:
                members[use.pair_id].add(use.doc_id)
        questions.update(*(ids for ids in members.values() if len(ids) > 1))
    return questions


def _is_contradicted(question: str, findings: Iterable[DuplicatePair], staying: set[str]) -> bool:
    """Return whether a question shows an image that a staying one shows under another identity."""
    for finding in findings:
        uses = {*finding.first.asking, *finding.second.asking}
        identities = {use.identity for use in uses if use.doc_id == question}
        if any(use.doc_id in staying and use.identity not in identities for use in uses):
            return True
    return False
