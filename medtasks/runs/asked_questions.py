"""The question that a recorded reply answers: which one of the data it is, and whether it is still as it was asked.

A run records a fingerprint of each sample: short digests of the columns that were asked and of the images. It is in the
score of a samples file and next to a saved reply. A samples file of credentialed data has none, because short texts can
be guessed from their digests.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.privacy import digest, hidden_id, is_private
from medtasks.data.variants import DEGRADATION, SEVERITY, ShownImage, images_of
from medtasks.errors import MedTasksError, RepliesError
from medtasks.families.family_registry import families
from medtasks.prompts.images import image_path
from medtasks.tasks.task_file import names_in_templates

Document = Mapping[str, Any]

ASKED = "asked"  # key of a fingerprint
_IMAGES = "images"  # key of its images
_TEXTS = ("question", "context", "details", "indication", "hint", "option_lines", "gold", DEGRADATION, SEVERITY)
_OTHERS = frozenset(("dataset", "doc_id", "pair_id", "position"))  # columns that say which sample it is
_COLUMN_DIGITS, _IMAGE_DIGITS = 8, 16
_LONGEST_ROW = 11  # digits


class QuestionIndex:
    """The questions of a task by the names that replies give them.

    A name is the id of a question, compared as text, or else as a number. Numbers that are no ids count the rows of the
    data from 0, if that holds for all names together.
    """

    def __init__(self, documents: Sequence[Document], names: Mapping[str, str] | None = None) -> None:
        """Decide whether names are ids or rows.

        Args:
            documents: All documents of the task, at least one.
            names: Names of all replies, see :func:`name_of`, each with its place for messages.

        Raises:
            RepliesError: A name is neither an id nor a row, or some are ids and others are not.
        """
        self.documents = documents
        self._counts_rows = False
        unknown = [name for name in names or {} if self.id_of(name) is None]
        if names is None or not unknown:
            return
        rows = [row_of(name) for name in unknown]
        for name, row in zip(unknown, rows, strict=True):
            if not 0 <= row < len(documents):
                raise self.no_document(name, names[name])
        if (known := next((name for name in names if self.id_of(name) is not None), None)) is not None:
            raise RepliesError(
                f"{names[unknown[0]]}: '{unknown[0]}' is no id of the questions and could only count their rows, from "
                f"0, while '{known}' is an id; name every question by its id"
            )
        # Where ids are numbers, too, a number that is no id may be a mistake, unless all count from the first row.
        has_numbers = any(row_of(doc_id) >= 0 for doc_id in self.rows)
        if has_numbers and {*rows} != {*range(len(rows))}:
            raise self.no_document(unknown[0], names[unknown[0]])
        self._counts_rows = True

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Row of each document by its id."""
        return {str(document["doc_id"]): row for row, document in enumerate(self.documents)}

    @cached_property
    def is_private(self) -> bool:
        """Whether ids must not be shown."""
        datasets = {document.get("dataset") for document in self.documents} - {None}
        return any(is_private(str(dataset)) for dataset in datasets)

    @cached_property
    def _by_digest(self) -> Mapping[str, str]:
        return {hidden_id("doc", doc_id): doc_id for doc_id in self.rows}

    @cached_property
    def _by_number(self) -> Mapping[str, str]:
        """Ids by their number without zeros before it, where only one id has that number."""
        alike: dict[str, list[str]] = {}
        for doc_id in self.rows:
            alike.setdefault(_without_zeros(doc_id), []).append(doc_id)
        return {number: ids[0] for number, ids in alike.items() if len(ids) == 1}

    def id_of(self, name: str) -> str | None:
        """Return the id that a name is, also as a number; None if it is none."""
        return name if name in self.rows else self._by_number.get(_without_zeros(name))

    def find(self, name: str, place: str) -> str:
        """Return the id of the question with a name; RepliesError if there is none."""
        doc_id = self.id_of(name)
        if doc_id is not None:
            return doc_id
        if not self._counts_rows:
            raise self.no_document(name, place)
        return str(self.documents[row_of(name)]["doc_id"])

    def recorded(self, sample: str) -> str | None:
        """Return the id that a run recorded, in clear or as its digest; None if the data have it no longer."""
        return sample if sample in self.rows else self._by_digest.get(sample)

    def no_document(self, name: str, place: str) -> RepliesError:
        """Build the error for a reply that names no document."""
        first, last = (self.documents[row]["doc_id"] for row in (0, -1))
        return RepliesError(
            f"{place}: no document '{name}' in the prepared dataset; its ids run from '{first}' to '{last}'"
        )

    def shows_another(self, doc_id: str, prompt: str) -> bool:
        """Return whether a prompt shows another question of the data instead, for samples without a fingerprint."""
        question = str(self.documents[self.rows[doc_id]].get("question") or "")
        if not question or " ".join(question.split()) in " ".join(prompt.split()):
            return False
        others = self._first_lines - {_first_line(question)}
        return any(line.strip() in others for line in prompt.splitlines())

    @cached_property
    def _first_lines(self) -> set[str]:
        return {_first_line(str(document.get("question") or "")) for document in self.documents} - {""}


def name_of(value: object) -> str:
    """Return the name of a question as text; pandas makes whole numbers floats where one is missing."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def row_of(name: str) -> int:
    """Return the row that a name counts, from 0; -1 if it is no number."""
    is_number = name.isascii() and name.isdecimal() and len(name) <= _LONGEST_ROW
    return int(name) if is_number else -1


def _without_zeros(name: str) -> str:
    return name.lstrip("0") or "0" if name.isascii() and name.isdecimal() else name


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()


# ---- fingerprints of samples ----


def fingerprint(document: Document, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return short digests of the columns of a document that are asked, by name, and of its images.

    ``settings`` are those of the task's prompt. What cannot be read or has no JSON form is left out.
    """
    columns = _asked_columns() | names_in_templates(settings)
    asked: dict[str, Any] = {}
    for name in sorted(columns & document.keys()):
        if (short := _digest_of(document[name])) is not None:
            asked[name] = short
    if document.keys() & {"image_file", "image_files"}:
        with contextlib.suppress(MedTasksError, OSError):
            asked[_IMAGES] = [_image_key(image, document, settings) for image in images_of(document)]
    return asked


def changed_parts(asked: Mapping[str, Any], document: Document, settings: Mapping[str, Any]) -> list[str]:
    """Return the columns of a document that are not as a recorded fingerprint says, and ``images`` if these are not."""
    parts = [
        name
        for name, recorded in asked.items()
        if name != _IMAGES and name in document and recorded != _digest_of(document[name])
    ]
    keys = asked.get(_IMAGES)
    if not isinstance(keys, list) or not document.keys() & {"image_file", "image_files"}:
        return parts
    images = images_of(document)
    pairs = zip(keys, images, strict=False)
    if len(keys) != len(images) or not all(_is_same(str(key), image, document, settings) for key, image in pairs):
        parts.append(_IMAGES)
    return parts


@cache
def _asked_columns() -> frozenset[str]:
    of_families = {name for family in families().values() for name in (*family.columns, *(family.short or ()))}
    return frozenset({*_TEXTS, *of_families}) - _OTHERS


def _digest_of(value: Any) -> str | None:
    try:
        return digest(json.dumps(value, sort_keys=True))[:_COLUMN_DIGITS]
    except (TypeError, ValueError):
        return None


def _image_key(image: ShownImage, document: Document, settings: Mapping[str, Any]) -> str:
    """Return the beginning of a file's SHA-256, after its size and time where no column has it."""
    if image.sha256 != image.file:
        return image.sha256[:_IMAGE_DIGITS]
    path = image_path(image.file, document, settings)
    state = _state(path)
    return f"{state}{_file_digest(path, state)}"


def _is_same(key: str, image: ShownImage, document: Document, settings: Mapping[str, Any]) -> bool:
    """Return whether an image has the recorded content; a file of the same size and time is not read again."""
    recorded = key.rpartition(":")[2]
    if image.sha256 != image.file:
        return image.sha256.startswith(recorded)
    try:
        path = image_path(image.file, document, settings)
        state = _state(path)
        return key.startswith(state) or _file_digest(path, state) == recorded
    except (MedTasksError, OSError):  # it is not here
        return True


def _state(path: Path) -> str:
    facts = path.stat()
    return f"{facts.st_size}:{facts.st_mtime_ns}:"


@cache
def _file_digest(path: Path, state: str) -> str:
    return file_sha256(path)[:_IMAGE_DIGITS]
