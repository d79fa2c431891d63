"""The documents of sanity variants: pure, deterministic changes of a dataset's documents.

Documents of a variant have the column ``variant``. What else changes:

===========  ==========================================================================================================
variant      columns
===========  ==========================================================================================================
``blind``    ``image_files`` is empty; paired questions have it in place of ``image_file``
``blank``    none: whoever opens the images greys them (:mod:`medtasks.data.images.volume_files`)
``swapped``  the images' files and digests, see :func:`swapped_images`; ``image_id`` remains the question's
``rotated``  each document comes once per rotation: ``doc_id`` is ``<doc_id>~r<n>``, ``options`` and target are
             rotated, and ``option_lines`` with the letters of their new positions and a ``gold`` that is a letter;
             rotation 0 is as published. Documents without options, or without a right one, are left out
===========  ==========================================================================================================

and documents of ``rotated`` have further columns:

================  =====================================================================================================
``rotation_of``   ``doc_id`` of the question
``rotation``      number of positions that the options moved forward: 0 is the published order
``unit_id``       cluster of standard errors; of paired questions all pairs that images connect, which is
                  why ``pair_id`` and ``position`` are gone: rotations of a pair are no pair
================  =====================================================================================================
"""

import random
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from medtasks.data.images.volume_files import is_volume
from medtasks.data.samples import Sample, letter
from medtasks.errors import MedTasksError
from medtasks.stats.standard_error import connected_components

Document = Mapping[str, Any]
Documents = Sequence[Document]
Changed = list[dict[str, Any]]

BLIND, BLANK, SWAPPED, ROTATED = "blind", "blank", "swapped", "rotated"
OF_IMAGES = (BLIND, BLANK, SWAPPED)
WITHOUT_IMAGE = (BLIND, BLANK)
VARIANTS = (*OF_IMAGES, ROTATED)
COLUMN = "variant"
"""Column by which prompts know the documents of a variant."""
NEW_COLUMNS = {COLUMN: "string", "rotation_of": "string", "rotation": "int32", "unit_id": "string"}
_LETTER = re.compile(r"(\s*\(?)([A-Z])(\)|\s*:|\.)\s*")  # `` A: Green ``, ``A. Green``, ``A.Green``, ``(A) Green``
_SEED = "medtasks swapped images"


class ShownImage(NamedTuple):
    """An image as documents list it."""

    file: str
    sha256: str  # of that file, or again the file where none is known


Shown = tuple[ShownImage, ...]


def blind(documents: Documents) -> Changed:
    """Return documents without images."""
    none: dict[str, Any] = {"image_files": []} | ({"image_sha256": []} if "image_sha256" in documents[0] else {})
    texts = [{name: value for name, value in document.items() if name != "image_file"} for document in documents]
    return [{**document, **none, COLUMN: BLIND} for document in texts]


def blank(documents: Documents) -> Changed:
    """Return documents of which every image is shown as a grey one."""
    return [{**document, COLUMN: BLANK} for document in documents]


def swapped(documents: Documents) -> Changed:
    """Return documents that show other images, see :func:`swapped_images`."""
    changed = []
    for document, images in zip(documents, swapped_images(documents), strict=True):
        files, digests = [image.file for image in images], [image.sha256 for image in images]
        columns: dict[str, Any] = {"image_files": files, "image_sha256": digests}
        if "image_file" in document:
            columns = {"image_file": files[0], "image_sha256": digests[0]}
        # Documents without digests have the files alone.
        present = {name: value for name, value in columns.items() if name in document}
        changed.append({**document, **present, COLUMN: SWAPPED})
    return changed


def rotated(documents: Documents, clusters: Sequence[str] | None = None) -> Changed:
    """Return each document once per rotation of its options, with the given clusters or its patient, image or itself.

    A MedTasksError says that no document has options and a right one.
    """
    clusters = [Sample(document).cluster_id for document in documents] if clusters is None else clusters
    changed: Changed = []
    for document, cluster in zip(documents, clusters, strict=True):
        if all(document.get(column) is None for column in ("label", "answers", "answer")):
            continue
        options = list(document["options"])
        for number in range(len(options)):
            moved = {letter(index): letter((index - number) % len(options)) for index in range(len(options))}
            if "label" in document:
                target: dict[str, Any] = {"label": (document["label"] - number) % len(options)}
            elif "answers" in document:
                target = {"answers": sorted(moved[answer] for answer in document["answers"])}
            else:
                target = {"answer": moved[document["answer"]]}
            if number and "option_lines" in document:
                lines = list(document["option_lines"])
                for index in range(len(options)):
                    old = published_position(index, number, len(options))
                    line, before = document["option_lines"][old], _LETTER.match(document["option_lines"][old])
                    if before is not None and line[before.end() :].strip() == options[old].strip():
                        line = f"{before[1]}{letter(index)}{line[before.end(2) :]}"  # others begin with no letter
                    lines[index] = line  # those after the last index are of options that are null
                gold = document["gold"]
                target |= {"option_lines": lines, "gold": moved.get(gold.strip(), gold)}
            changed.append(
                {
                    **{name: value for name, value in document.items() if name not in ("pair_id", "position")},
                    "doc_id": f"{document['doc_id']}~r{number}",
                    "options": options[number:] + options[:number],
                    **target,
                    COLUMN: ROTATED,
                    "rotation_of": document["doc_id"],
                    "rotation": number,
                    "unit_id": cluster,
                }
            )
    if not changed:
        raise MedTasksError("no question has options and a published answer, so that none can be rotated")
    return changed


def published_position(position: int, rotation: int, options: int) -> int:
    """Return the published position, from 0, of the option at ``position`` in a rotation."""
    return (position + rotation) % options


def images_of(document: Document) -> Shown:
    """Return the images of a question."""
    if "image_file" in document:
        return (ShownImage(document["image_file"], document.get("image_sha256", document["image_file"])),)
    return tuple(map(ShownImage, document["image_files"], document.get("image_sha256", document["image_files"])))


def swapped_images(documents: Documents) -> list[Shown]:
    """Return the images that each question is shown instead of its own; MedTasksError if no patient has others.

    Of a pair, each question gets the other one's image. Elsewhere images are exchanged between clusters: all documents
    that are connected by a patient, an image's name or an identical file. Questions on the same images get the same
    other images; as many, and volumes for volumes.
    """
    from_pairs: list[Shown | None] = []
    at = {(row.get("pair_id"), row.get("position")): row for row in documents}
    for row in documents:  # None where a pair lacks one of its two, or both show the same image
        partner = at.get((row["pair_id"], 3 - row["position"])) if "pair_id" in row else None
        images = images_of(partner) if partner else ()
        same = [image.sha256 for image in images] == [image.sha256 for image in images_of(row)]
        from_pairs.append(None if partner is None or same else images)
    if None not in from_pairs:
        return [images for images in from_pairs if images is not None]
    originals = [images_of(document) for document in documents]
    keys: list[list[Hashable]] = [
        [(name, document[name]) for name in ("patient_id", "image_id") if document.get(name) is not None]
        + [image.sha256 for image in images]
        for document, images in zip(documents, originals, strict=True)
    ]
    clusters = connected_components(keys)
    others = _between_clusters(dict(zip(originals, clusters, strict=True)), str(documents[0].get("dataset")))
    return [others[originals[row]] if images is None else images for row, images in enumerate(from_pairs)]


def _between_clusters(clusters: Mapping[Shown, int], dataset: str) -> dict[Shown, Shown]:
    """Return for each list of images another one, of the same number and kinds, from another cluster.

    Each list is used once if no cluster has more than half of those of its number and kinds.
    """
    alike: dict[tuple[bool, ...], dict[int, list[Shown]]] = {}
    for images, cluster in clusters.items():
        kinds = tuple(is_volume(image.file) for image in images)
        alike.setdefault(kinds, {}).setdefault(cluster, []).append(images)
    others: dict[Shown, Shown] = {(): ()}
    for kinds, by_cluster in alike.items():
        order = sorted(sorted(members) for members in by_cluster.values())
        random.Random(_SEED).shuffle(order)
        lists = [images for members in order for images in members]
        largest = max(order, key=len)
        smaller = [images for members in order if members is not largest for images in members]
        if smaller and 2 * len(largest) <= len(lists):  # then a step of that length always leaves the cluster
            others |= {images: lists[(row + len(largest)) % len(lists)] for row, images in enumerate(lists)}
        elif smaller:  # the largest cluster gets lists of the others, some of them more than once, and they get its
            others |= {images: largest[row % len(largest)] for row, images in enumerate(smaller)}
            others |= {images: smaller[row % len(smaller)] for row, images in enumerate(largest)}
        for images in largest if kinds and not smaller else ():
            # No other cluster has a list like this: as many single images of others are put together.
            elsewhere = [members for members, cluster in clusters.items() if cluster != clusters[images]]
            foreign = sorted({image for members in elsewhere for image in members})
            random.Random(f"{_SEED} {images[0].sha256}").shuffle(foreign)
            offered = [[image for image in foreign if is_volume(image.file) == volume] for volume in kinds]
            if not all(offered):
                raise MedTasksError(
                    f"'{dataset}' holds images of one patient or case only, so that none can be swapped; choose the "
                    f"variant _blind or _blank, or a larger part of the data"
                )
            others[images] = tuple(candidates[at % len(candidates)] for at, candidates in enumerate(offered))
    return others
