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
import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, product
from pathlib import PurePath
from random import Random
from typing import Any, NamedTuple

from medtasks.data.images.degrading import SEVERITIES, STRENGTHS
from medtasks.data.images.volume_files import is_volume
from medtasks.data.option_texts import depends_on_order, is_listed_otherwise, listed_options
from medtasks.data.samples import Document, Documents, Sample, letter
from medtasks.errors import MedTasksError, warn_once
from medtasks.stats.standard_error import connected_components

Changed = list[dict[str, Any]]

BLIND = "blind"
BLANK = "blank"
SWAPPED = "swapped"
ROTATED = "rotated"
TOLD = "told"
DEGRADED = "degraded"
ABSTAIN = "abstain"
NOTA = "nota"
NOTA_CONTROL = "nota_control"
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
DEGRADATION = "degradation"
SEVERITY = "severity"
NEW_COLUMNS = {
    COLUMN: "string",
    "rotation_of": "string",
    "rotation": "int32",
    "unit_id": "string",
}
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
# `` A: Green ``, ``A. Green``, ``A.Green``, ``(A) Green``
_LETTER = re.compile(r"(\s*\(?)([A-Z])(\)|\s*:|\.)\s*")
_SEED = "medtasks swapped images"
_REPLACED_SEED = "medtasks replaced option"
_DEGRADED_SEED = "medtasks degraded images"


class ShownImage(NamedTuple):
    """An image as documents list it."""

    file: str
    sha256: str  # of that file, or again the file where none is known


Shown = tuple[ShownImage, ...]
Replacements = dict[Shown, Shown]  # images of others, by the images of a question


def blind(documents: Documents) -> Changed:
    """Return documents without images.

    Example:
        >>> blind([{"doc_id": "1", "image_files": ["a.png"]}])
        [{'doc_id': '1', 'image_files': [], 'variant': 'blind'}]
    """
    none: dict[str, Any] = {"image_files": []}
    if "image_sha256" in documents[0]:
        none["image_sha256"] = []
    changed = []
    for document in documents:
        texts = {name: value for name, value in document.items() if name != "image_file"}
        changed.append({**texts, **none, COLUMN: BLIND})
    return changed


def told(documents: Documents) -> Changed:
    """Return documents without images whose prompts say so.

    Example:
        >>> told([{"doc_id": "1", "image_files": ["a.png"]}])[0]["variant"]
        'told'
    """
    return [{**document, COLUMN: TOLD} for document in blind(documents)]


def blank(documents: Documents) -> Changed:
    """Return documents of which every image is shown as a grey one.

    Example:
        >>> blank([{"doc_id": "1", "image_files": ["a.png"]}])
        [{'doc_id': '1', 'image_files': ['a.png'], 'variant': 'blank'}]
    """
    return [{**document, COLUMN: BLANK} for document in documents]


def swapped(documents: Documents) -> Changed:
    """Return documents that show other images, see :func:`swapped_images`.

    Example:
        >>> first, second = ({"patient_id": n, "image_files": [f"{n}.png"]} for n in "ab")
        >>> [document["image_files"] for document in swapped([first, second])]
        [['b.png'], ['a.png']]
    """
    changed = []
    for document, images in zip(documents, swapped_images(documents), strict=True):
        files = [image.file for image in images]
        digests = [image.sha256 for image in images]
        columns: dict[str, Any] = {"image_files": files, "image_sha256": digests}
        if "image_file" in document:
            columns = {"image_file": files[0], "image_sha256": digests[0]}
        # Documents without digests have the files alone.
        present = {name: value for name, value in columns.items() if name in document}
        changed.append({**document, **present, COLUMN: SWAPPED})
    return changed


def rotated(documents: Documents, clusters: Sequence[str] | None = None) -> Changed:
    """Return each document once per rotation of its options.

    Args:
        documents: Of one dataset.
        clusters: Their clusters, by default the patient, the image or the document itself.

    Raises:
        MedTasksError: No document can be asked in another order, see :func:`can_be_rotated`.

    Example:
        >>> question = {"doc_id": "1", "options": ["CT", "MRI"], "answer": "A"}
        >>> [(document["options"], document["answer"]) for document in rotated([question])]
        [(['CT', 'MRI'], 'A'), (['MRI', 'CT'], 'B')]
    """
    if clusters is None:
        clusters = [Sample(document).cluster_id for document in documents]
    rows = [row for row in zip(documents, clusters, strict=True) if can_be_rotated(row[0])]
    if not rows:
        raise MedTasksError(
            "no question has a published answer and options that can be shown in another order, so that none can be "
            "rotated"
        )
    _log_left_out(documents, len(rows), "in another order of their options")
    changed: Changed = []
    for document, cluster in rows:
        new = dict(document)
        new.pop("pair_id", None)
        new.pop("position", None)
        new |= {COLUMN: ROTATED, "rotation_of": document["doc_id"], "unit_id": cluster}
        changed += [
            new | _rotation(document, number) for number in range(len(document["options"]))
        ]
    return changed


def can_be_rotated(document: Document) -> bool:
    """Return whether a question has a right option, and options that mean the same in another order.

    Example:
        >>> can_be_rotated({"options": ["CT", "MRI", "Both of the above"], "answer": "A"})
        False
    """
    has_target = any(
        document.get(column) is not None for column in ("label", "answers", "answer")
    )
    return has_target and bool(document["options"]) and not depends_on_order(document)


def _rotation(document: Document, number: int) -> dict[str, Any]:
    """Return the columns of a rotation that moves the options forward by a number of positions."""
    options = list(document["options"])
    count = len(options)
    turned = options[number:] + options[:number]
    moved = {letter(index): letter((index - number) % count) for index in range(count)}
    columns = {
        "doc_id": f"{document['doc_id']}~r{number}",
        "options": turned,
        "rotation": number,
    }
    if "label" in document:
        columns["label"] = (document["label"] - number) % count
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
        turned_lines = [*lines[number:count], *lines[:number]]
        relettered = []
        for index, (line, option) in enumerate(zip(turned_lines, turned, strict=True)):
            relettered.append("".join(_split_line(line, option, index)))
        # Lines after the last option are of options that are null.
        columns["option_lines"] = [*relettered, *lines[count:]]
        columns["gold"] = moved.get(document["gold"].strip(), document["gold"])
    return columns


def _split_line(line: str, option: str, index: int) -> tuple[str, str]:
    """Split an option's line into its letter, changed to that of an index, and its text.

    The first part is empty for a line without a letter.
    """
    mark = _LETTER.match(line)
    if mark is None or line[mark.end() :].strip() != option.strip():
        return "", line
    return f"{mark[1]}{letter(index)}{line[mark.end(2) : mark.end()]}", line[mark.end() :]


def published_position(position: int, rotation: int, options: int) -> int:
    """Return the published position of an option that a rotation shows.

    Args:
        position: In the rotation, from 0.
        rotation: Number of positions that the options moved forward.
        options: Their number.

    Example:
        >>> published_position(0, 1, 4), published_position(3, 1, 4)
        (1, 0)
    """
    return (position + rotation) % options


def nota(documents: Documents, *, control: bool = False) -> Changed:
    """Return documents of which the right option is :data:`NONE_OF_THEM`.

    Args:
        documents: Of one dataset.
        control: Whether a wrong option, which is drawn, is replaced instead.

    Example:
        >>> nota([{"doc_id": "1", "options": ["CT", "MRI"], "answer": "B"}])[0]["options"]
        ['CT', 'None of the other options']
    """
    changed = []
    for document in _with_room_for(NONE_OF_THEM, documents):
        options = document["options"]
        right = Sample(document).target
        wrong = sorted({*range(len(options))} - {right})
        drawn = Random(f"{_REPLACED_SEED} {document['doc_id']}").choice(wrong)
        index = drawn if control or right is None else right
        new = _with_option(document, index, NONE_OF_THEM)
        new[COLUMN] = NOTA_CONTROL if control else NOTA
        gold = str(document.get("gold")).strip()
        is_text = gold == options[index].strip() and gold != document.get("answer")
        if index == right and is_text:
            new["gold"] = NONE_OF_THEM
        changed.append(new)
    return changed


def abstain(documents: Documents) -> Changed:
    """Return documents with :data:`CANNOT_TELL` as their last option.

    Example:
        >>> abstain([{"doc_id": "1", "options": ["CT", "MRI"], "answer": "B"}])[0]["options"]
        ['CT', 'MRI', 'I cannot tell from this image']
    """
    changed = []
    for document in _with_room_for(CANNOT_TELL, documents):
        new = _with_option(document, len(document["options"]), CANNOT_TELL)
        changed.append({**new, COLUMN: ABSTAIN})
    return changed


def _with_room_for(option: str, documents: Documents) -> list[Document]:
    """Return the documents with at least two options, one of them right, and none that is like the given one.

    The number of others is logged. They include questions with the right text twice, and those that list their options
    in a form of their own. MedTasksError if no document remains.
    """
    usable = [document for document in documents if _has_room_for(option, document)]
    if not usable:
        raise MedTasksError(
            f"no question has options, one right answer, and none like '{option}'"
        )
    _log_left_out(documents, len(usable), f"with the option '{option}'")
    return usable


def _has_room_for(option: str, document: Document) -> bool:
    """Return whether a document has two options, one of them right, and can get one more that is like no other."""
    options = document.get("options") or ()
    target = Sample(document).target
    if len(options) < 2 or target is None or any(map(_SUCH_OPTIONS[option].match, options)):
        return False
    texts = [text.strip().casefold() for text in options]
    is_fixed = depends_on_order if option == NONE_OF_THEM else is_listed_otherwise
    return texts.count(texts[target]) == 1 and not is_fixed(document)


def _log_left_out(documents: Documents, remaining: int, form: str) -> None:
    """Log the number of questions that cannot be asked in the form of a variant, if there are any."""
    if remaining < len(documents):
        warn_once(
            f"{len(documents) - remaining:,} of {len(documents):,} questions of "
            f"{documents[0].get('dataset', 'this task')} cannot be asked {form}, and are left out",
            "INFO",
        )


def _with_option(document: Document, index: int, text: str) -> dict[str, Any]:
    """Return a document whose option at ``index``, or a new last one, is a text. Its line and question follow."""
    options = list(document["options"])
    changed = {**document, "options": [*options[:index], text, *options[index + 1 :]]}
    if document.get("question"):  # may list the options
        changed["question"] = document["question"].replace(
            listed_options(options), listed_options(changed["options"])
        )
    if "option_lines" in document:
        lines = document["option_lines"]
        model = min(index, len(options) - 1)  # whose form the line takes
        mark, _ = _split_line(lines[model], options[model], index)
        after = lines[index + 1 :] if index < len(options) else []
        # Lines after the last option are of options that are null: a new option takes the letter of the first of them.
        changed["option_lines"] = [*lines[:index], f"{mark}{text}", *after]
    return changed


def degraded(documents: Documents) -> Changed:
    """Return documents with the kind and severity at which their images are degraded.

    All questions that are connected by an image or a pair have the same, so that a file always looks the same. The
    combinations are drawn in blocks of all of them, so that each is as frequent among clusters as any other.

    Example:
        >>> degraded([{"doc_id": "1", "image_files": []}])[0]["severity"] is None
        True
    """
    keys = []
    for document in documents:
        of_document: list[Hashable] = [image.sha256 for image in images_of(document)]
        if "pair_id" in document:
            of_document.append(("pair", document["pair_id"]))
        keys.append(of_document)
    clusters = connected_components(keys)
    names: dict[int, str] = {}  # the first id of each cluster that has images
    for document, cluster, of_document in zip(documents, clusters, keys, strict=True):
        if of_document:
            name = str(document["doc_id"])
            names[cluster] = min(name, names.get(cluster, name))
    # Kind and severity of each cluster, by its name alone.
    order = sorted(
        names,
        key=lambda cluster: hashlib.sha256(
            f"{_DEGRADED_SEED} {names[cluster]}".encode()
        ).digest(),
    )
    combinations = list(product(STRENGTHS, SEVERITIES))
    drawn: dict[int, tuple[str, int]] = {}
    for start in range(0, len(order), len(combinations)):
        block = Random(f"{_DEGRADED_SEED} {start}").sample(combinations, len(combinations))
        drawn |= zip(order[start : start + len(block)], block, strict=False)
    changed = []
    for document, cluster in zip(documents, clusters, strict=True):
        kind, severity = drawn.get(cluster, (None, None))
        changed.append({**document, DEGRADATION: kind, SEVERITY: severity, COLUMN: DEGRADED})
    return changed


def images_of(document: Document) -> Shown:
    """Return the images of a question.

    Example:
        >>> images_of({"image_file": "a.png", "image_sha256": "ab12"})
        (ShownImage(file='a.png', sha256='ab12'),)
    """
    if "image_files" in document:
        files = document["image_files"]
        return tuple(map(ShownImage, files, document.get("image_sha256", files)))
    file = document["image_file"]
    return (ShownImage(file, document.get("image_sha256", file)),)


def swapped_images(documents: Documents) -> list[Shown]:
    """Return the images that each question is shown instead of its own.

    Of a pair, each question gets the other one's image. Elsewhere images are exchanged between clusters: all documents
    that are connected by a patient, an image's name or an identical file. Questions on the same images get the same
    other images; as many, and volumes for volumes.

    Args:
        documents: Of one dataset.

    Raises:
        MedTasksError: No patient has others.
    """
    originals = list(map(images_of, documents))
    at = {(row.get("pair_id"), row.get("position")): row for row in documents}
    # Images of the other question of each pair, None without one or if its images are the same.
    from_pairs: list[Shown | None] = []
    for row, original in zip(documents, originals, strict=True):
        partner = at.get((row["pair_id"], 3 - row["position"])) if "pair_id" in row else None
        images = images_of(partner) if partner else ()
        same = [image.sha256 for image in images] == [image.sha256 for image in original]
        from_pairs.append(None if partner is None or same else images)
    others = _images_of_others(documents, originals) if None in from_pairs else {}
    swaps = []
    for original, of_partner in zip(originals, from_pairs, strict=True):
        swaps.append(others[original] if of_partner is None else of_partner)
    return swaps


def _keys_of_patient(document: Document, images: Shown) -> list[Hashable]:
    """Return all by which a document is known to be of the same patient as others: ids, and digests of its images."""
    keys: list[Hashable] = [image.sha256 for image in images]
    for name in ("patient_id", "image_id"):
        if document.get(name) is not None:
            keys.append((name, document[name]))
    return keys


def _images_of_others(documents: Documents, originals: Sequence[Shown]) -> Replacements:
    """Return for each list of images another one, of the same number and kinds, from another cluster.

    Each list is used once if no cluster has more than half of those of its number and kinds.

    Args:
        documents: Of one dataset.
        originals: The images of each document, shape (documents,).

    Raises:
        MedTasksError: One cluster has all images of a kind.
    """
    keys = list(map(_keys_of_patient, documents, originals))
    clusters = dict(zip(originals, connected_components(keys), strict=True))
    by_kinds: dict[tuple[bool, ...], dict[int, list[Shown]]] = {}
    for images, cluster in clusters.items():
        kinds = tuple(_is_volume(image) for image in images)
        by_kinds.setdefault(kinds, {}).setdefault(cluster, []).append(images)
    others: Replacements = {(): ()}
    for kinds, by_cluster in by_kinds.items():
        order = sorted(sorted(members) for members in by_cluster.values())
        Random(_SEED).shuffle(order)
        if len(order) > 1:
            others |= _exchange_lists(order)
        elif kinds:
            dataset = str(documents[0].get("dataset"))
            others |= {images: _join_images(images, clusters, dataset) for images in order[0]}
    return others


def _exchange_lists(members: Sequence[Sequence[Shown]]) -> Replacements:
    """Return for each list of images another one. ``members`` are the lists of each of several clusters."""
    lists = list(chain.from_iterable(members))
    largest = max(members, key=len)
    step = len(largest)
    if 2 * step <= len(lists):  # then a step of that length always leaves the cluster
        turned = lists[step:] + lists[:step]
        return dict(zip(lists, turned, strict=True))
    # The largest cluster gets lists of the others, some of them more than once, and they get its.
    smaller_clusters = [of_cluster for of_cluster in members if of_cluster is not largest]
    smaller = list(chain.from_iterable(smaller_clusters))
    others = {images: largest[row % step] for row, images in enumerate(smaller)}
    return others | {images: smaller[row % len(smaller)] for row, images in enumerate(largest)}


def _is_volume(image: ShownImage) -> bool:
    """Return whether an image is a volume, by its name: a folder of slices mostly has no ending."""
    return is_volume(image.file) or not PurePath(image.file).suffix


def _join_images(images: Shown, clusters: Mapping[Shown, int], dataset: str) -> Shown:
    """Return as many single images of other clusters, of which none has a list like ``images``.

    Raises:
        MedTasksError: No other cluster has an image of the same kind; ``dataset`` is its name in the message.
    """
    elsewhere = [
        members for members, cluster in clusters.items() if cluster != clusters[images]
    ]
    foreign = sorted(set(chain.from_iterable(elsewhere)))
    Random(f"{_SEED} {images[0].sha256}").shuffle(foreign)
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
