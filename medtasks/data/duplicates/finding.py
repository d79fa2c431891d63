"""Duplicates among the images of a benchmark, and between them and other images such as a training set.

An image of the test set that a model was trained on, or that a few-shot prompt shows with its solution, makes a score
too good. Copies are found that are the same file, that have the same pixels, or that look the same
(:mod:`medtasks.data.duplicates.perceptual_hash`). That several questions show one image under one image id is no
finding.

Images of a single grey are equal to each other and say nothing; they are counted and not compared.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.duplicates.benchmark_images import DatasetImages, DistinctImage, OtherImages, Use
from medtasks.data.duplicates.near_images import Alike, Looks, near
from medtasks.stats.standard_error import connected_components

_EXACT = Alike(0, 1.0)


class Kind(enum.StrEnum):
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
class Finding:
    """Two images that are one."""

    first: DistinctImage  # an image of the set
    second: DistinctImage  # another one, of the set or not; or the same, used in two ways that contradict each other
    kind: Kind  # how sure it is
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
    within: tuple[Finding, ...]  # findings within the set, the weightiest and surest first
    outside: tuple[Finding, ...]  # findings in ``other``, the surest first
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
            kind = _exactness(first, second) if one == two else Kind.NEAR
            within.append(Finding(first, second, kind, concern, resemblance))
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


def _outside(images: Sequence[DistinctImage], looks: Looks, other: OtherImages, distance: int) -> list[Finding]:
    others = [image for image in other.images if image.known.views]
    by_pixels = {image.known.pixels_sha256: image for image in others}
    findings = []
    for image in images:
        twin = by_pixels.get(image.known.pixels_sha256)
        if twin and image.questions:
            findings.append(Finding(image, twin, _exactness(image, twin), None, _EXACT))
    close = near(looks, Looks([(image.files[0], image.known) for image in others]), distance)
    for (one, two), alike in close.items():
        first, second = images[one], others[two]
        if first.questions and first.known.pixels_sha256 != second.known.pixels_sha256:
            findings.append(Finding(first, second, Kind.NEAR, None, alike))
    return findings


def _exactness(first: DistinctImage, second: DistinctImage) -> Kind:
    """Return whether images of the same pixels, or all files of one, are the same file."""
    if first is second:
        return Kind.FILE if len(first.file_digests) == 1 else Kind.PIXELS
    return Kind.FILE if first.file_digests & second.file_digests else Kind.PIXELS


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


def _weight(finding: Finding) -> tuple[int, int, float, str]:
    concern = list(Concern).index(finding.concern) if finding.concern else 0
    return concern, list(Kind).index(finding.kind), -finding.alike.likeness, str(finding.first.files[0])


def _groups(images: Sequence[DistinctImage], within: Iterable[Finding]) -> tuple[tuple[DistinctImage, ...], ...]:
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
    documents: Sequence[Mapping[str, Any]], within: Iterable[Finding], outside: Iterable[Finding]
) -> tuple[str, ...]:
    known = {question for finding in outside for question in finding.questions}
    neighbours: dict[str, list[Finding]] = defaultdict(list)
    for finding in within:
        if finding.concern is Concern.EXAMPLE:
            known.update(finding.first.questions if finding.second.examples else ())
            known.update(finding.second.questions if finding.first.examples else ())
        elif finding.concern is Concern.PAIR:
            known.update(_of_one_pair(finding))
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


def _of_one_pair(finding: Finding) -> set[str]:
    members: dict[str, set[str]] = defaultdict(set)
    for use in {*_asking(finding.first), *_asking(finding.second)}:
        if use.pair_id is not None:
            members[use.pair_id].add(use.doc_id)
    return {question for questions in members.values() if len(questions) > 1 for question in questions}


def _contradicts(question: str, kept: set[str], findings: Iterable[Finding]) -> bool:
    """Return whether a question shows an image that a kept one shows under another identity."""
    for finding in findings:
        uses = {*_asking(finding.first), *_asking(finding.second)}
        own = {use.identity for use in uses if use.doc_id == question}
        if any(use.doc_id in kept and use.identity not in own for use in uses):
            return True
    return False
