"""The documents of sanity variants: pure, deterministic changes of a dataset's documents.

Documents of a variant have the column ``variant``. What else changes:

===========  ==========================================================================================================
variant      columns
===========  ==========================================================================================================
``blind``    ``image_files`` is empty; paired questions have it in place of ``image_file``
``blank``    none: whoever opens the images greys them (:mod:`medtasks.data.blanks`)
``swapped``  the images' files and digests, see :mod:`medtasks.data.swapping`; ``image_id`` remains the question's
``rotated``  each document comes once per rotation: ``doc_id`` is ``<doc_id>~r<n>``, ``options`` and key are rotated
===========  ==========================================================================================================

and documents of ``rotated`` have further columns:

================  =====================================================================================================
``rotation_of``   ``doc_id`` of the question
``rotation``      by how many places the options moved forward, from 0: rotation 0 is the published order
``unit_id``       what standard errors are clustered by; of paired questions all pairs that images connect, which is
                  why ``pair_id`` and ``position`` are gone: rotations of a pair are no pair
================  =====================================================================================================
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.samples import letter
from medtasks.data.swapping import ShownImage, swapped_images

Documents = Sequence[Mapping[str, Any]]
Changed = list[dict[str, Any]]

BLIND, BLANK, SWAPPED, ROTATED = "blind", "blank", "swapped", "rotated"
OF_IMAGES = (BLIND, BLANK, SWAPPED)
VARIANTS = (*OF_IMAGES, ROTATED)
COLUMN = "variant"
"""Column by which prompts know the documents of a variant."""
NEW_COLUMNS = {COLUMN: "string", "rotation_of": "string", "rotation": "int32", "unit_id": "string"}


def blind(documents: Documents) -> Changed:
    """Return documents without images."""
    none: dict[str, Any] = {"image_files": [], "image_sha256": []}
    kept = [{name: value for name, value in document.items() if name != "image_file"} for document in documents]
    known = {name: value for name, value in none.items() if name == "image_files" or name in documents[0]}
    return [{**document, **known, COLUMN: BLIND} for document in kept]


def blank(documents: Documents) -> Changed:
    """Return documents of which every image is shown as a grey one."""
    return [{**document, COLUMN: BLANK} for document in documents]


def swapped(documents: Documents) -> Changed:
    """Return documents that show other images, see :func:`~medtasks.data.swapping.swapped_images`."""
    return [
        {**document, **_shown(document, shown), COLUMN: SWAPPED}
        for document, shown in zip(documents, swapped_images(documents), strict=True)
    ]


def rotated(documents: Documents, clusters: Sequence[str] | None = None) -> Changed:
    """Return each document once per rotation of its options, clustered as said or by its patient, image or itself."""
    return [
        {**_rotation(document, number), "unit_id": unit}
        for document, unit in zip(documents, clusters or map(_cluster, documents), strict=True)
        for number in range(len(document["options"]))
    ]


def published_position(position: int, rotation: int, options: int) -> int:
    """Return where an option stands in the published order, from 0, that stands at ``position`` in a rotation.

    Example:
        >>> [published_position(place, 1, 3) for place in range(3)]
        [1, 2, 0]
    """
    return (position + rotation) % options


def _shown(document: Mapping[str, Any], images: Sequence[ShownImage]) -> dict[str, Any]:
    """Return the columns of a document that shows other images; of one without digests the files alone."""
    files, digests = [image.file for image in images], [image.sha256 for image in images]
    if "image_file" in document:
        columns: dict[str, Any] = {"image_file": files[0], "image_sha256": digests[0]}
    else:
        columns = {"image_files": files, "image_sha256": digests}
    return {name: value for name, value in columns.items() if name in document}


def _rotation(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    options = list(document["options"])
    kept = {name: value for name, value in document.items() if name not in ("pair_id", "position")}
    return {
        **kept,
        "doc_id": f"{document['doc_id']}~r{number}",
        "options": options[number:] + options[:number],
        **_rotated_key(document, number, len(options)),
        COLUMN: ROTATED,
        "rotation_of": document["doc_id"],
        "rotation": number,
    }


def _rotated_key(document: Mapping[str, Any], number: int, options: int) -> dict[str, Any]:
    if "label" in document:
        return {"label": (document["label"] - number) % options}
    moved = {letter(place): letter((place - number) % options) for place in range(options)}
    if "answers" in document:
        return {"answers": sorted(moved[one] for one in document["answers"])}
    return {"answer": moved[document["answer"]]}


def _cluster(document: Mapping[str, Any]) -> str:
    kinds = ("patient", "image", "doc")
    return next(f"{kind} {document[f'{kind}_id']}" for kind in kinds if document.get(f"{kind}_id") is not None)
