"""Search for images of a dataset that look like others, and what each pair is worth."""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from medtasks.data.duplicates.image_copies import DatasetImages, DistinctImage, OtherImages
from medtasks.data.duplicates.image_hashes import Alike, ImageViews, near
from medtasks.data.samples import Documents
from medtasks.stats.standard_error import connected_components


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
    documents: Documents, within: Iterable[DuplicatePair], outside: Iterable[DuplicatePair]
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
