"""The documents of sanity variants: pure, deterministic changes of a dataset's documents.

Documents of a variant have the column ``variant``. What else changes:

============  =========================================================================================================
variant       columns
============  =========================================================================================================
``blind``     ``image_files`` is empty; paired questions have it in place of ``image_file``
``blank``     none: whoever opens the images greys them (:mod:`medtasks.data.images.volume_files`)
``swapped``   the images' files and digests, see :func:`swapped_images`; ``image_id`` remains the question's
``rotated``   each document comes once per rotation: ``doc_id`` is ``<doc_id>~r<n>``, ``options`` and target are
              rotated, as are options that ``question`` lists, ``option_lines`` with the letters of their new positions
              and a ``gold`` that is a letter; rotation 0 is as published. Documents without options, without a right
              one, or with options that depend on their order (:mod:`.option_texts`) are left out
``told``      those of ``blind``; the prompt says that the image is missing
``degraded``  ``degradation`` and ``severity`` of all its images, see :func:`degraded`
``abstain``   ``options`` and ``option_lines`` end with :data:`CANNOT_TELL`, which is never right
``nota``      :data:`NONE_OF_THEM` replaces the right one of ``options``, its line and a ``gold`` that is its text; in
              ``nota_control`` a wrong one
============  =========================================================================================================

Documents with fewer than two options or without a right one are left out of ``nota``, its control and ``abstain``, as
are those that have such an option already. The number of documents that are left out is logged.

and documents of ``rotated`` have further columns:

================  =====================================================================================================
``rotation_of``   ``doc_id`` of the question
``rotation``      number of positions that the options moved forward: 0 is the published order
``unit_id``       cluster of standard errors; of paired questions all pairs that images connect, which is
                  why ``pair_id`` and ``position`` are gone: rotations of a pair are no pair
================  =====================================================================================================
"""

import hashlib
import itertools
import random
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from medtasks.data.images.degrading import SEVERITIES, STRENGTHS
from medtasks.data.images.volume_files import is_volume
from medtasks.data.option_texts import depends_on_order, is_listed_otherwise, listed_options
from medtasks.data.samples import Document, Documents, Sample, letter
from medtasks.errors import MedTasksError, warn_once
from medtasks.stats.standard_error import connected_components

Changed = list[dict[str, Any]]

BLIND, BLANK, SWAPPED, ROTATED = "blind", "blank", "swapped", "rotated"
TOLD, DEGRADED, ABSTAIN, NOTA, NOTA_CONTROL = "told", "degraded", "abstain", "nota", "nota_control"
OF_IMAGES = (BLIND, BLANK, SWAPPED)
NOT_SHOWN = (BLIND, TOLD)
WITHOUT_IMAGE = (BLIND, BLANK, TOLD)
SANITY = (*OF_IMAGES, ROTATED)
STRESS = (TOLD, DEGRADED, ABSTAIN, NOTA, NOTA_CONTROL)
VARIANTS = (*SANITY, *STRESS)
NOT_OF_ALL = (SWAPPED, ROTATED, ABSTAIN, NOTA, NOTA_CONTROL)
"""Variants that some data have not, which is checked before a run."""
COLUMN = "variant"
"""Column by which prompts know the documents of a variant."""
DEGRADATION, SEVERITY = "degradation", "severity"
NEW_COLUMNS = {COLUMN: "string", "rotation_of": "string", "rotation": "int32", "unit_id": "string"}
NEW_COLUMNS |= {DEGRADATION: "string", SEVERITY: "int32"}
NONE_OF_THEM = "None of the other options"  # arXiv 2606.16583
CANNOT_TELL = "I cannot tell from this image"  # arXiv 2601.12471
_SUCH_OPTIONS = {
    NONE_OF_THEM: re.compile(r"(?i)\s*((none|neither)\b|(both|either)\W*$)"),
    CANNOT_TELL: re.compile(
        r"(?i).*\b((can ?not|can't|unable to|(im|not )possible to) (be )?(\w+ly )?(tell|told|say|said|assess|determine"
        r"|know|decide)|(insufficient|not enough|no) (information|data)\b|(don't|do not) know|not sure)"
    ),
}
_LETTER = re.compile(
    r"(\s*\(?)([A-Z])(\)|\s*:|\.)\s*"
)  # `` A: Green ``, ``A. Green``, ``A.Green``, ``(A) Green``
_SEED = "medtasks swapped images"
_REPLACED_SEED, _DEGRADED_SEED = "medtasks replaced option", "medtasks degraded images"


class ShownImage(NamedTuple):
    """An image as documents list it."""

    file: str
    sha256: str  # of that file, or again the file where none is known


Shown = tuple[ShownImage, ...]


def blind(documents: Documents) -> Changed:
    """Return documents without images."""
    none: dict[str, Any] = {"image_files": []} | (
        {"image_sha256": []} if "image_sha256" in documents[0] else {}
    )
    texts = [
        {name: value for name, value in document.items() if name != "image_file"}
        for document in documents
    ]
    return [{**document, **none, COLUMN: BLIND} for document in texts]


def told(documents: Documents) -> Changed:
    """Return documents without images whose prompts say so."""
    return [{**document, COLUMN: TOLD} for document in blind(documents)]


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

    Raises:
        MedTasksError: No document can be asked in another order, see :func:`can_be_rotated`.
    """
    clusters = (
        [Sample(document).cluster_id for document in documents] if clusters is None else clusters
    )
    rows = [row for row in zip(documents, clusters, strict=True) if can_be_rotated(row[0])]
    if not rows:
        raise MedTasksError(
            "no question has a published answer and options that can be shown in another order, so that none can be "
            "rotated"
        )
    _log_left_out(documents, len(rows), "in another order of their options")
    changed: Changed = []
    for document, cluster in rows:
        new = {
            name: value for name, value in document.items() if name not in ("pair_id", "position")
        }
        new |= {COLUMN: ROTATED, "rotation_of": document["doc_id"], "unit_id": cluster}
        changed += [new | _rotation(document, number) for number in range(len(document["options"]))]
    return changed


def can_be_rotated(document: Document) -> bool:
    """Return whether a question has a right option, and options that mean the same in another order."""
    has_target = any(document.get(column) is not None for column in ("label", "answers", "answer"))
    return has_target and bool(document["options"]) and not depends_on_order(document)


def _rotation(document: Document, number: int) -> dict[str, Any]:
    """Return the columns of a rotation that moves the options forward by a number of positions."""
    options = list(document["options"])
    turned = options[number:] + options[:number]
    moved = {
        letter(index): letter((index - number) % len(options)) for index in range(len(options))
    }
    columns = {"doc_id": f"{document['doc_id']}~r{number}", "options": turned, "rotation": number}
    if "label" in document:
        columns["label"] = (document["label"] - number) % len(options)
    elif "answers" in document:
        columns["answers"] = sorted(moved[answer] for answer in document["answers"])
    else:
        columns["answer"] = moved[document["answer"]]
    if document.get("question"):  # may list the options
        columns["question"] = document["question"].replace(
            listed_options(options), listed_options(turned)
        )
    if number and "option_lines" in document:
        lines = document["option_lines"]
        moved_lines = zip(lines[number : len(options)] + lines[:number], turned, strict=True)
        # Those after the last option are of options that are null.
        columns["option_lines"] = [
            "".join(_relettered(line, option, index))
            for index, (line, option) in enumerate(moved_lines)
        ] + lines[len(options) :]
        columns["gold"] = moved.get(document["gold"].strip(), document["gold"])
    return columns


def _relettered(line: str, option: str, index: int) -> tuple[str, str]:
    """Split an option's line into its letter, changed to that of an index, and its text; some lines have no letter."""
    mark = _LETTER.match(line)
    if mark is None or line[mark.end() :].strip() != option.strip():
        return "", line
    return f"{mark[1]}{letter(index)}{line[mark.end(2) : mark.end()]}", line[mark.end() :]


def published_position(position: int, rotation: int, options: int) -> int:
    """Return the published position, from 0, of the option at ``position`` in a rotation."""
    return (position + rotation) % options


def nota(documents: Documents, *, control: bool = False) -> Changed:
    """Return documents of which the right option, or for the control a drawn wrong one, is :data:`NONE_OF_THEM`."""
    changed: Changed = []
    for document in _with_room_for(NONE_OF_THEM, documents):
        options, right = document["options"], Sample(document).target
        wrong = [index for index in range(len(options)) if index != right]
        drawn = random.Random(f"{_REPLACED_SEED} {document['doc_id']}").choice(wrong)
        index = drawn if control or right is None else right
        changed.append(
            {
                **_with_option(document, index, NONE_OF_THEM),
                COLUMN: NOTA_CONTROL if control else NOTA,
            }
        )
        gold = str(document.get("gold")).strip()
        if (
            index == right and gold == options[index].strip() and gold != document.get("answer")
        ):  # a text, no letter
            changed[-1]["gold"] = NONE_OF_THEM
    return changed


def abstain(documents: Documents) -> Changed:
    """Return documents with :data:`CANNOT_TELL` as their last option."""
    return [
        {**_with_option(document, len(document["options"]), CANNOT_TELL), COLUMN: ABSTAIN}
        for document in _with_room_for(CANNOT_TELL, documents)
    ]


def _with_room_for(option: str, documents: Documents) -> list[Document]:
    """Return the documents with at least two options, one of them right, and none that is like the given one.

    The number of others is logged. They include questions with the right text twice, and those that list their options
    in a form of their own. MedTasksError if no document remains.
    """
    usable: list[Document] = []
    for document in documents:
        options = document.get("options") or ()
        target = Sample(document).target
        if len(options) < 2 or target is None or any(map(_SUCH_OPTIONS[option].match, options)):
            continue
        texts = [text.strip().casefold() for text in options]
        is_fixed = (
            depends_on_order(document) if option == NONE_OF_THEM else is_listed_otherwise(document)
        )
        if texts.count(texts[target]) == 1 and not is_fixed:
            usable.append(document)
    if not usable:
        raise MedTasksError(f"no question has options, one right answer, and none like '{option}'")
    _log_left_out(documents, len(usable), f"with the option '{option}'")
    return usable


def _log_left_out(documents: Documents, remaining: int, form: str) -> None:
    """Log the number of questions that cannot be asked in the form of a variant, if there are any."""
    if remaining < len(documents):
        numbers = f"{len(documents) - remaining:,} of {len(documents):,} questions"
        of = documents[0].get("dataset", "this task")
        warn_once(f"{numbers} of {of} cannot be asked {form}, and are left out", "INFO")


def _with_option(document: Document, index: int, text: str) -> dict[str, Any]:
    """Return a document whose option at ``index``, or a new last one, is a text; its line and question follow."""
    options = list(document["options"])
    changed = {**document, "options": [*options[:index], text, *options[index + 1 :]]}
    if document.get("question"):  # may list the options
        changed["question"] = document["question"].replace(
            listed_options(options), listed_options(changed["options"])
        )
    if "option_lines" in document:
        lines = document["option_lines"]
        model = min(index, len(options) - 1)  # whose form the line takes
        mark, _ = _relettered(lines[model], options[model], index)
        after = lines[index + 1 :] if index < len(options) else []
        # Lines after the last option are of options that are null: a new option takes the letter of the first of them.
        changed["option_lines"] = [*lines[:index], f"{mark}{text}", *after]
    return changed


def degraded(documents: Documents) -> Changed:
    """Return documents with the kind and severity at which their images are degraded.

    All questions that are connected by an image or a pair have the same, so that a file always looks the same. The
    combinations are drawn in blocks of all of them, so that each is as frequent among clusters as any other.
    """
    keys: list[list[Hashable]] = [
        [image.sha256 for image in images_of(document)] for document in documents
    ]
    for document, of_document in zip(documents, keys, strict=True):
        of_document += [("pair", document["pair_id"])] if "pair_id" in document else []
    clusters, names = connected_components(keys), dict[int, str]()
    for document, cluster, key in zip(documents, clusters, keys, strict=True):
        if key:
            names[cluster] = min(
                str(document["doc_id"]), names.get(cluster, str(document["doc_id"]))
            )
    order = sorted(
        names,
        key=lambda cluster: hashlib.sha256(f"{_DEGRADED_SEED} {names[cluster]}".encode()).digest(),
    )
    combinations = list(itertools.product(STRENGTHS, SEVERITIES))
    drawn: dict[int, tuple[str, int]] = {}
    for start in range(0, len(order), len(combinations)):
        block = random.Random(f"{_DEGRADED_SEED} {start}").sample(combinations, len(combinations))
        drawn |= zip(order[start : start + len(block)], block, strict=False)
    none = (None, None)  # for a question without images
    shown = [
        dict(zip((DEGRADATION, SEVERITY), drawn.get(cluster, none), strict=True))
        for cluster in clusters
    ]
    return [
        {**document, **columns, COLUMN: DEGRADED}
        for document, columns in zip(documents, shown, strict=True)
    ]


def images_of(document: Document) -> Shown:
    """Return the images of a question."""
    if "image_files" in document:
        return tuple(
            map(
                ShownImage,
                document["image_files"],
                document.get("image_sha256", document["image_files"]),
            )
        )
    return (
        ShownImage(document["image_file"], document.get("image_sha256", document["image_file"])),
    )


def swapped_images(documents: Documents) -> list[Shown]:
    """Return the images that each question is shown instead of its own; MedTasksError if no patient has others.

    Of a pair, each question gets the other one's image. Elsewhere images are exchanged between clusters: all documents
    that are connected by a patient, an image's name or an identical file. Questions on the same images get the same
    other images; as many, and volumes for volumes.
    """
    from_pairs = _partner_images(documents)
    if None not in from_pairs:
        return [images for images in from_pairs if images is not None]
    originals = [images_of(document) for document in documents]
    keys: list[list[Hashable]] = []
    for document, images in zip(documents, originals, strict=True):
        names = [
            (name, document[name])
            for name in ("patient_id", "image_id")
            if document.get(name) is not None
        ]
        keys.append([*names, *(image.sha256 for image in images)])
    clusters = connected_components(keys)
    others = _between_clusters(
        dict(zip(originals, clusters, strict=True)), str(documents[0].get("dataset"))
    )
    return [
        others[originals[row]] if images is None else images
        for row, images in enumerate(from_pairs)
    ]


def _partner_images(documents: Documents) -> list[Shown | None]:
    """Return the images of the other question of each pair; None if there is none, or if it has the same images."""
    at = {(row.get("pair_id"), row.get("position")): row for row in documents}
    partner_images: list[Shown | None] = []
    for row in documents:
        partner = at.get((row["pair_id"], 3 - row["position"])) if "pair_id" in row else None
        images = images_of(partner) if partner else ()
        same = [image.sha256 for image in images] == [image.sha256 for image in images_of(row)]
        partner_images.append(None if partner is None or same else images)
    return partner_images


def _between_clusters(clusters: Mapping[Shown, int], dataset: str) -> dict[Shown, Shown]:
    """Return for each list of images another one, of the same number and kinds, from another cluster.

    Each list is used once if no cluster has more than half of those of its number and kinds.
    """
    alike: dict[tuple[bool, ...], dict[int, list[Shown]]] = {}
    for images, cluster in clusters.items():
        kinds = tuple(_is_volume(image) for image in images)
        alike.setdefault(kinds, {}).setdefault(cluster, []).append(images)
    others: dict[Shown, Shown] = {(): ()}
    for kinds, by_cluster in alike.items():
        order = sorted(sorted(members) for members in by_cluster.values())
        random.Random(_SEED).shuffle(order)
        if len(order) > 1:
            others |= _exchanged_lists(order)
        elif kinds:
            others |= {images: _joined_images(images, clusters, dataset) for images in order[0]}
    return others


def _exchanged_lists(members: Sequence[Sequence[Shown]]) -> dict[Shown, Shown]:
    """Return for each list of images another one; ``members`` are the lists of each of several clusters."""
    lists = list(itertools.chain.from_iterable(members))
    largest = max(members, key=len)
    if 2 * len(largest) <= len(lists):  # then a step of that length always leaves the cluster
        return {
            images: lists[(row + len(largest)) % len(lists)] for row, images in enumerate(lists)
        }
    # The largest cluster gets lists of the others, some of them more than once, and they get its.
    smaller = list(
        itertools.chain.from_iterable(
            of_cluster for of_cluster in members if of_cluster is not largest
        )
    )
    others = {images: largest[row % len(largest)] for row, images in enumerate(smaller)}
    return others | {images: smaller[row % len(smaller)] for row, images in enumerate(largest)}


def _is_volume(image: ShownImage) -> bool:
    """Return whether an image is a volume, by its name: a folder of slices mostly has no ending."""
    return is_volume(image.file) or not PurePath(image.file).suffix


def _joined_images(images: Shown, clusters: Mapping[Shown, int], dataset: str) -> Shown:
    """Return as many single images of other clusters; no other cluster has a list like ``images``."""
    elsewhere = [members for members, cluster in clusters.items() if cluster != clusters[images]]
    foreign = sorted(set(itertools.chain.from_iterable(elsewhere)))
    random.Random(f"{_SEED} {images[0].sha256}").shuffle(foreign)
    joined = []
    for position, image in enumerate(images):
        candidates = [other for other in foreign if _is_volume(other) == _is_volume(image)]
        if not candidates:
            raise MedTasksError(
                f"'{dataset}' holds images of one patient or case only, so that none can be swapped; choose the "
                f"variant _blind or _blank, or a larger part of the data"
            )
        joined.append(candidates[position % len(candidates)])
    return tuple(joined)
