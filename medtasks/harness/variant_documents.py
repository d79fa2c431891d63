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
``unit_id``       what standard errors are clustered by; of paired questions all pairs that pictures connect, which is
                  why ``pair_id`` and ``position`` are gone: rotations of a pair are no pair
================  =====================================================================================================
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.samples import letter
from medtasks.data.schema import SPLIT
from medtasks.data.store import load_documents, open_documents
from medtasks.data.swapping import Picture, swapped_pictures
from medtasks.errors import MedTasksError
from medtasks.harness.eligibility import BLANK, BLIND, COLUMN, ROTATED, SWAPPED
from medtasks.harness.own_documents import is_looked_at, own_documents
from medtasks.harness.task_files import TaskFile, task_config
from medtasks.stats.connected_components import connected_components

Documents = Sequence[Mapping[str, Any]]
Changed = list[dict[str, Any]]

_OF_IMAGES = ("dataset", "patient_id", "pair_id", "position", "image_id", "image_file", "image_files", "image_sha256")
_LISTS = ("image_files", "image_sha256")
_NEW = {COLUMN: "string", "rotation_of": "string", "rotation": "int32", "unit_id": "string"}


def task_documents(task: TaskFile) -> list[dict[str, Any]]:
    """Return the documents that a task or a sanity variant asks, in order; each has a ``doc_id``.

    Raises:
        DatasetNotPrepared: The dataset is not under ``MEDTASKS_HOME``.
        SourceError: Its files are damaged.
        MedTasksError: The task is a group, its own documents cannot be used, or its images cannot be swapped.
    """
    documents = _base_documents(task)
    return documents if task.variant is None else _CHANGES[task.variant](documents)


def check_possible(task: TaskFile) -> None:
    """Check before a run that the documents of a task or a variant can be had.

    Raises:
        DatasetNotPrepared: The dataset is not under ``MEDTASKS_HOME``.
        SourceError: Its files are damaged.
        MedTasksError: Its own documents cannot be used, or its images cannot be swapped.
    """
    if task.dataset is None:
        if task.variant == SWAPPED:
            swapped_pictures(_base_documents(task))
        elif is_looked_at(task_config(task.base or task.name)):
            _base_documents(task)
        return
    table = open_documents(task.dataset)[SPLIT]
    if task.variant == SWAPPED:
        swapped_pictures(table.select_columns([name for name in _OF_IMAGES if name in table.column_names]).to_list())


def _base_documents(task: TaskFile) -> list[dict[str, Any]]:
    """Return the documents of a task, or of that of which it is a variant."""
    if task.kind == "group":
        raise MedTasksError(f"'{task.name}' is a group; take its member tasks one by one")
    if task.dataset is not None:
        return load_documents(task.dataset)
    base = task.base or task.name
    return own_documents(base, task_config(base))


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
    """Return documents that show other images.

    Args:
        documents: All documents of a dataset.

    Raises:
        MedTasksError: There are no images of another patient or case to take.
    """
    return [
        {**document, **_shown(document, shown), COLUMN: SWAPPED}
        for document, shown in zip(documents, swapped_pictures(documents), strict=True)
    ]


def rotated(documents: Documents) -> Changed:
    """Return each document once per rotation of its options.

    Args:
        documents: All documents of a dataset, with ``options`` and ``answer``, ``answers`` or ``label``.
    """
    return [
        {**_rotation(document, number), "unit_id": unit}
        for document, unit in zip(documents, _units(documents), strict=True)
        for number in range(len(document["options"]))
    ]


def published_position(position: int, rotation: int, options: int) -> int:
    """Return where an option stands in the published order.

    Args:
        position: Where it stands in a rotation, from 0.
        rotation: The rotation.
        options: How many options there are.

    Example:
        >>> [published_position(place, 1, 3) for place in range(3)]
        [1, 2, 0]
    """
    return (position + rotation) % options


def blind_table(table: Any) -> Any:
    """Return a table of the ``datasets`` library as :func:`blind` changes its rows, for ``process_docs``."""
    return _as_table(table, blind)


def blank_table(table: Any) -> Any:
    """Return a table of the ``datasets`` library as :func:`blank` changes its rows, for ``process_docs``."""
    return _as_table(table, blank)


def swapped_table(table: Any) -> Any:
    """Return a table of the ``datasets`` library as :func:`swapped` changes its rows, for ``process_docs``."""
    return _as_table(table, swapped)


def rotated_table(table: Any) -> Any:
    """Return a table of the ``datasets`` library as :func:`rotated` changes its rows, for ``process_docs``."""
    return _as_table(table, rotated)


_CHANGES: Mapping[str, Callable[[Documents], Changed]] = {
    BLIND: blind,
    BLANK: blank,
    SWAPPED: swapped,
    ROTATED: rotated,
}


def _as_table(table: Any, change: Callable[[Documents], Changed]) -> Any:
    import datasets

    rows = change(table.to_list())
    lists = datasets.List(datasets.Value("string"))
    features = {
        name: lists
        if name in _LISTS and isinstance(value, list)
        else table.features[name]
        if name in table.features
        else datasets.Value(_NEW[name])
        for name, value in rows[0].items()
    }
    return datasets.Dataset.from_list(rows, features=datasets.Features(features))


def _shown(document: Mapping[str, Any], images: Sequence[Picture]) -> dict[str, Any]:
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


def _units(documents: Documents) -> list[str]:
    if "pair_id" in documents[0]:
        connected = connected_components([[("pair", one["pair_id"]), ("image", one["image_id"])] for one in documents])
        return [f"pair {documents[first]['pair_id']}" for first in connected]
    return [_unit(document) for document in documents]


def _unit(document: Mapping[str, Any]) -> str:
    kinds = ("patient", "image", "doc")
    return next(f"{kind} {document[f'{kind}_id']}" for kind in kinds if document.get(f"{kind}_id") is not None)
