"""Search for images of a dataset that look like others, and the reason why each pair matters.

``medtasks data duplicates`` calls :func:`find_duplicates` and shows its result. Files are not read again here: all
rests on the hashes of :mod:`medtasks.data.duplicates.image_copies`.
"""

import enum
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from medtasks.data.duplicates.image_copies import (
    DatasetImages,
    DistinctImage,
    DistinctImages,
    OtherImages,
    Use,
)
from medtasks.data.duplicates.image_hashes import ImageViews, Resemblance, near
from medtasks.data.samples import Documents
from medtasks.stats.standard_error import connected_components

_EXACT = Resemblance(0, 1.0)


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
    alike: Resemblance

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the set's questions that show either image."""
        ids = self.first.questions
        if self.concern is not None:
            ids += self.second.questions
        return tuple(dict.fromkeys(ids))


@dataclass(frozen=True)
class Duplicates:
    """Result of a search."""

    shown: DatasetImages
    other: OtherImages | None  # None if the set was compared with itself alone
    # Findings within the set, the weightiest and surest first
    within: tuple[DuplicatePair, ...]
    outside: tuple[DuplicatePair, ...]  # findings in ``other``, the surest first
    groups: tuple[DistinctImages, ...]  # connected by ``within``, the largest first
    uniform: DistinctImages  # images of the set of a single grey, not compared
    uniform_outside: int  # number of distinct ones in ``other``
    # Ids of questions to leave out so that no finding remains: those whose image is in ``other`` or a solved example,
    # and of equal images all questions but those on the first. Pairs go as a whole.
    left_out: tuple[str, ...]


def find_duplicates(
    dataset: DatasetImages, other: OtherImages | None, distance: int
) -> Duplicates:
    """Compare all images of a set with each other, and with those of another set, such as training images.

    Args:
        dataset: The set.
        other: Images that it should not share, or None.
        distance: Most bits of 256 that differ in the hashes of images that look the same.
    """
    images = [image for image in dataset.images if image.known.views]
    views = _views_of(images)
    within = _pairs_within(images, views, distance)
    outside = []
    uniform_outside = 0
    if other:
        others = [image for image in other.images if image.known.views]
        outside = _pairs_outside(images, views, others, distance)
        uniform_outside = len(other.images) - len(others)
    # The images that findings connect, in groups, the largest first.
    pairs = [(id(finding.first), id(finding.second)) for finding in within]
    component_of: dict[int, int] = {}
    for pair, component in zip(pairs, connected_components(pairs), strict=True):
        component_of |= dict.fromkeys(pair, component)
    groups: dict[int, list[DistinctImage]] = defaultdict(list)
    for image in images:
        if id(image) in component_of:
            groups[component_of[id(image)]].append(image)
    return Duplicates(
        shown=dataset,
        other=other,
        within=tuple(sorted(within, key=_weight)),
        outside=tuple(sorted(outside, key=_weight)),
        groups=tuple(sorted(map(tuple, groups.values()), key=len, reverse=True)),
        uniform=tuple(image for image in dataset.images if not image.known.views),
        uniform_outside=uniform_outside,
        left_out=left_out_of(dataset.documents, within, outside),
    )


def _views_of(images: Sequence[DistinctImage]) -> ImageViews:
    return ImageViews([(image.files[0], image.known) for image in images])


def _pairs_within(
    images: Sequence[DistinctImage],
    views: ImageViews,
    distance: int,
) -> list[DuplicatePair]:
    # An image stands for all files with its pixels, so it is paired with itself: its uses may contradict each other.
    """Pair the images of a set that look the same where that matters, see :func:`concern_of`.

    Args:
        images: Of the set, each with at least one view.
        views: Of these images.
        distance: Most bits that differ in their hashes.
    """
    resemblances = {(number, number): _EXACT for number in range(len(images))}
    resemblances |= near(views, views, distance)
    pairs = []
    for (number, twin), resemblance in resemblances.items():
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


def _pairs_outside(
    images: Sequence[DistinctImage],
    views: ImageViews,
    others: Sequence[DistinctImage],
    distance: int,
) -> list[DuplicatePair]:
    """Pair the images that questions show with equal images of another set, and with similar ones."""
    by_pixels = {image.known.pixels_sha256: image for image in others}
    pairs = []
    for image in images:
        match = by_pixels.get(image.known.pixels_sha256)
        if match and image.questions:
            kind = CopyKind.FILE if image.file_digests & match.file_digests else CopyKind.PIXELS
            pairs.append(DuplicatePair(image, match, kind, None, _EXACT))
    for (number, twin), resemblance in near(views, _views_of(others), distance).items():
        first = images[number]
        second = others[twin]
        if first.questions and first.known.pixels_sha256 != second.known.pixels_sha256:
            pairs.append(DuplicatePair(first, second, CopyKind.NEAR, None, resemblance))
    return pairs


def _weight(finding: DuplicatePair) -> tuple[int, int, float, str]:
    """Return a key that sorts findings, the weightiest and surest first."""
    return (
        list(Concern).index(finding.concern) if finding.concern else 0,
        list(CopyKind).index(finding.kind),
        -finding.alike.likeness,
        str(finding.first.files[0]),
    )


def concern_of(first: DistinctImage, second: DistinctImage) -> Concern | None:
    """Return why it matters that two images, or all uses of one, show the same.

    Args:
        first: An image of the set.
        second: Another one that looks the same, or the same one.

    Returns:
        The weightiest concern, or None without one.
    """
    if (first.examples and second.questions) or (first.questions and second.examples):
        return Concern.EXAMPLE
    if _in_one_pair(first, second):
        return Concern.PAIR
    if _differ(first, second, attrgetter("patient_id")):
        return Concern.PATIENTS
    if _differ(first, second, attrgetter("identity")):
        return Concern.TWICE
    return None


def _in_one_pair(first: DistinctImage, second: DistinctImage) -> bool:
    if first is not second:
        pairs = {use.pair_id for use in first.asking} - {None}
        return not pairs.isdisjoint(use.pair_id for use in second.asking)
    questions = {(use.pair_id, use.doc_id) for use in first.asking if use.pair_id is not None}
    return len({pair for pair, _ in questions}) < len(questions)


def _differ(first: DistinctImage, second: DistinctImage, id_of: Callable[[Use], Any]) -> bool:
    ids = set(map(id_of, first.asking)) - {None}
    ids_of_twin = set(map(id_of, second.asking)) - {None}
    return bool(ids) and bool(ids_of_twin) and len(ids | ids_of_twin) > 1


def left_out_of(
    documents: Documents,
    within: Iterable[DuplicatePair],
    outside: Iterable[DuplicatePair],
) -> tuple[str, ...]:
    """Return the ids of questions to leave out so that no finding remains, in order, see :class:`Duplicates`.

    Args:
        documents: All questions of the set. Of equal images the first question stays.
        within: Findings within the set.
        outside: Findings in other images.
    """
    spoiled: set[str] = set()
    for finding in outside:
        spoiled.update(finding.questions)
    neighbours: dict[str, list[DuplicatePair]] = defaultdict(list)
    for finding in within:
        spoiled |= _spoiled_questions(finding)
        for question in finding.questions:
            neighbours[question].append(finding)
    # A pair of questions stays or leaves as a whole.
    units: dict[Any, list[str]] = defaultdict(list)
    for document in documents:
        units[document.get("pair_id") or (document["doc_id"],)].append(document["doc_id"])
    staying: set[str] = set()
    for unit in units.values():
        if spoiled.isdisjoint(unit) and not any(
            _is_ruled_out(question, neighbours[question], staying) for question in unit
        ):
            staying.update(unit)
    return tuple(
        document["doc_id"] for document in documents if document["doc_id"] not in staying
    )


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


def _is_ruled_out(question: str, findings: Iterable[DuplicatePair], staying: set[str]) -> bool:
    """Return whether a question shows an image that a staying one shows under another identity."""
    for finding in findings:
        uses = {*finding.first.asking, *finding.second.asking}
        identities = {use.identity for use in uses if use.doc_id == question}
        if any(use.doc_id in staying and use.identity not in identities for use in uses):
            return True
    return False
