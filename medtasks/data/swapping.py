"""Which other images a question is shown in the ``_swapped`` variant.

Of a pair, each question gets the other one's image. Elsewhere images are exchanged between units: all documents that
are connected by a patient, an image's name or an identical file. Questions on the same images get the same other
images; as many, and volumes for volumes.
"""

import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from medtasks.data.volume_files import is_volume
from medtasks.errors import MedTasksError
from medtasks.stats.connected_components import connected_components

_SEED = "medtasks swapped images"


class ShownImage(NamedTuple):
    """An image as documents list it: its file, and that file's digest, or again the file where none is known."""

    file: str
    sha256: str


Shown = tuple[ShownImage, ...]
Document = Mapping[str, Any]


def images_of(document: Document) -> Shown:
    """Return the images of a question."""
    if "image_file" in document:
        return (ShownImage(document["image_file"], document.get("image_sha256", document["image_file"])),)
    return tuple(map(ShownImage, document["image_files"], document.get("image_sha256", document["image_files"])))


def swapped_images(documents: Sequence[Document]) -> list[Shown]:
    """Return the images that each question is shown instead of its own, if it has any; the same for the same documents.

    A MedTasksError says that there are no images of another patient or case to take.
    """
    given: list[Shown | None] = _within_pairs(documents) if "pair_id" in documents[0] else [None] * len(documents)
    if None not in given:
        return [images for images in given if images is not None]
    units = connected_components([list(_unit_keys(document)) for document in documents])
    own = [images_of(document) for document in documents]
    others = _between_units(dict(zip(own, units, strict=True)), str(documents[0].get("dataset")))
    return [others[own[place]] if one is None else one for place, one in enumerate(given)]


def _within_pairs(documents: Sequence[Document]) -> list[Shown | None]:
    """Return the partner's image; None where a pair lacks one of its two, or both show the same image."""
    at = {(document["pair_id"], document["position"]): document for document in documents}
    partners = [at.get((document["pair_id"], 3 - document["position"])) for document in documents]
    return [
        None if partner is None or _same(partner, document) else images_of(partner)
        for document, partner in zip(documents, partners, strict=True)
    ]


def _same(one: Document, other: Document) -> bool:
    return [image.sha256 for image in images_of(one)] == [image.sha256 for image in images_of(other)]


def _unit_keys(document: Document) -> Iterator[Hashable]:
    for name in ("patient_id", "image_id"):
        if document.get(name) is not None:
            yield name, document[name]
    yield from (image.sha256 for image in images_of(document))


def _between_units(units: Mapping[Shown, int], dataset: str) -> dict[Shown, Shown]:
    """Return for each list of images another one, of the same number and kinds, from another unit."""
    alike: dict[tuple[bool, ...], dict[int, list[Shown]]] = {}
    for own, unit in units.items():
        alike.setdefault(_kinds(own), {}).setdefault(unit, []).append(own)
    others: dict[Shown, Shown] = {(): ()}
    for kinds, by_unit in alike.items():
        if len(by_unit) > 1:
            others |= _exchanged(by_unit)
        elif kinds:
            others |= {own: _put_together(own, units, dataset) for own in units if _kinds(own) == kinds}
    return others


def _exchanged(by_unit: Mapping[int, list[Shown]]) -> dict[Shown, Shown]:
    """Exchange lists of images of at least two units, each used once if no unit has more than half of them."""
    order = sorted(sorted(members) for members in by_unit.values())
    random.Random(_SEED).shuffle(order)
    lists = [own for members in order for own in members]
    largest = max(order, key=len)
    if 2 * len(largest) <= len(lists):  # then nobody's place moves to a place of the same unit
        return {own: lists[(place + len(largest)) % len(lists)] for place, own in enumerate(lists)}
    rest = [own for own in lists if own not in set(largest)]
    back = {own: largest[place % len(largest)] for place, own in enumerate(rest)}
    return back | {own: rest[place % len(rest)] for place, own in enumerate(largest)}


def _put_together(own: Shown, units: Mapping[Shown, int], dataset: str) -> Shown:
    """Take as many images of other units one by one, where no other unit shows so many."""
    foreign = sorted({image for shown, unit in units.items() if unit != units[own] for image in shown})
    random.Random(f"{_SEED} {own[0].sha256}").shuffle(foreign)
    of_kind = {volume: [one for one in foreign if is_volume(one.file) == volume] for volume in (False, True)}
    offered = [of_kind[volume] for volume in _kinds(own)]
    if not all(offered):
        raise MedTasksError(
            f"'{dataset}' holds images of one patient or case only, so that none can be swapped; choose the variant "
            f"_blind or _blank, or a larger part of the data"
        )
    return tuple(images[place % len(images)] for place, images in enumerate(offered))


def _kinds(shown: Shown) -> tuple[bool, ...]:
    """Return which of the images are volumes."""
    return tuple(is_volume(image.file) for image in shown)
