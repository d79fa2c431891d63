"""The questions that recorded replies answer, and whether they are still as they were asked.

A run records a fingerprint of each sample: short digests of the columns that were asked and of the images. It is in the
score of a samples file and next to a saved reply. A samples file of credentialed data has none, because short texts can
be guessed from their digests.
"""

import contextlib
import json
from collections.abc import Mapping
from functools import cache, cached_property
from itertools import filterfalse, zip_longest
from pathlib import Path
from typing import Any

from medtasks.data.named_files import file_sha256
from medtasks.data.privacy import digest, hidden_id
from medtasks.data.samples import Document, Documents
from medtasks.data.variants import DEGRADATION, SEVERITY, ShownImage, images_of
from medtasks.errors import MedTasksError, RepliesError
from medtasks.home import file_state
from medtasks.prompts.images import image_path
from medtasks.tasks.hook_names import families
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_index import Config

ASKED = "fingerprint"  # key of a fingerprint in scores and next to saved replies
GONE = "gone"  # in place of changed parts of a sample that the data have no longer
_IMAGES = "images"  # key of its images
_TEXTS = (
    "question",
    "context",
    "details",
    "indication",
    "hint",
    "option_lines",
    "gold",
    DEGRADATION,
    SEVERITY,
)
# columns that say which sample it is
_NAMES = frozenset(("dataset", "doc_id", "pair_id", "position"))
_COLUMN_DIGITS = 8
_IMAGE_DIGITS = 16
_DOCUMENT = "doc"  # kind of thing whose ids these are
_LONGEST_ROW = 11  # digits
_INEXACT_FROM = 2**53  # from here on, several whole numbers are the same float
_NO_IMAGE = (KeyError, MedTasksError, OSError)  # no image, or one that cannot be found or read


class QuestionIndex:
    """The questions of a task by the names that replies give them.

    A name is the id of a question, compared as text, or else as a number, or the digest of an id. Numbers that are no
    ids count the rows of the data from 0, if that holds for all names together.
    """

    def __init__(self, documents: Documents, names: Mapping[str, str]) -> None:
        """Decide whether names are ids or rows.

        Args:
            documents: All documents of the task, at least one.
            names: Names of all replies, see :func:`name_of`, each with its place for messages.

        Raises:
            RepliesError: A name is neither an id nor a row, or some are ids and others are not.
        """
        self.documents = documents
        unknown = {name: row_of(name) for name in names if self.id_of(name) is None}
        for name, row in unknown.items():
            if not 0 <= row < len(documents):
                raise self.no_document(name, names[name])
        self._counts_rows = bool(unknown)
        if not unknown:
            return
        first = next(iter(unknown))
        known_id = next(filterfalse(unknown.__contains__, names), None)
        if known_id is not None:
            raise RepliesError(
                f"{names[first]}: '{first}' is no id of the questions and could only count their rows, from 0, while "
                f"'{known_id}' is an id; name every question by its id"
            )
        # Where ids are numbers, too, a number that is no id may be a mistake, unless all count from the first row.
        has_numbers = any(map(number_of, self.rows))
        if has_numbers and set(unknown.values()) != set(range(len(unknown))):
            raise self.no_document(first, names[first])

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Row of each document by its id."""
        return {str(document["doc_id"]): row for row, document in enumerate(self.documents)}

    @cached_property
    def _by_number(self) -> Mapping[str, str]:
        """Ids by their number, where only one id has that number."""
        ids: dict[str, list[str]] = {}
        for doc_id in self.rows:
            ids.setdefault(number_of(doc_id), []).append(doc_id)
        return {number: same[0] for number, same in ids.items() if len(same) == 1}

    @cached_property
    def _by_digest(self) -> Mapping[str, str]:
        """Ids by the digest that replaces them where they must not be shown, or are no names for a server."""
        return {hidden_id(_DOCUMENT, doc_id): doc_id for doc_id in self.rows}

    @cached_property
    def _first_lines(self) -> set[str]:
        return {*map(_first_line, self.documents)} - {""}

    def id_of(self, name: str) -> str | None:
        """Return the id that a name is, also as a number or as the digest of an id, or None."""
        if name in self.rows:
            return name
        if name.startswith(f"{_DOCUMENT}-") and name in self._by_digest:
            return self._by_digest[name]
        number = number_of(name)
        return self._by_number.get(number) if number else None

    def find(
        self,
        name: str,
        location: str,
        *,
        may_be_row: bool = True,
    ) -> str:
        """Return the id of the question with a name.

        Args:
            name: Name in a reply, see :func:`name_of`.
            location: File and line, for the message.
            may_be_row: Whether the name may count the rows.

        Raises:
            RepliesError: There is no such question.
        """
        doc_id = self.id_of(name)
        if doc_id is not None:
            return doc_id
        if self._counts_rows and may_be_row:
            return str(self.documents[row_of(name)]["doc_id"])
        raise self.no_document(name, location)

    def no_document(self, name: str, location: str) -> RepliesError:
        """Build the error for a reply that names no document.

        Args:
            name: Name in the reply.
            location: File and line.
        """
        first = self.documents[0]["doc_id"]
        last = self.documents[-1]["doc_id"]
        return RepliesError(
            f"{location}: no document '{name}' in the prepared dataset; its ids run from '{first}' to '{last}'"
        )

    def shows_another(self, doc_id: str, prompt: str) -> bool:
        """Return whether a prompt shows another question of the data instead, for samples without a fingerprint.

        Args:
            doc_id: Id of the question that it should show.
            prompt: The whole prompt.
        """
        own_line = _first_line(self.documents[self.rows[doc_id]])
        lines = {line.strip() for line in prompt.splitlines()}
        return own_line not in prompt and not lines.isdisjoint(self._first_lines)


def name_of(value: object) -> str:
    """Return the name of a question as text.

    Pandas makes whole numbers floats where one is missing.

    Example:
        >>> name_of(7.0), name_of("7.0")
        ('7', '7.0')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _INEXACT_FROM:
        value = int(value)
    return str(value)


def row_of(name: str) -> int:
    """Return the row that a name counts, from 0, or -1 if it is no number.

    Example:
        >>> row_of("12"), row_of("case 12")
        (12, -1)
    """
    is_number = name.isascii() and name.isdecimal() and len(name) <= _LONGEST_ROW
    return int(name) if is_number else -1


def number_of(name: str) -> str:
    """Return a number without the zeros before it and after its point, empty for another text.

    Example:
        >>> number_of("007.50"), number_of("7 cm")
        ('7.5', '')
    """
    whole, _, decimals = name.partition(".")
    is_number = name.isascii() and (whole + decimals).isdecimal()
    return f"{whole.lstrip('0')}.{decimals.rstrip('0')}" if is_number else ""


def _first_line(document: Document) -> str:
    return str(document.get("question") or "").strip().partition("\n")[0].strip()


# ---- fingerprints of samples ----


def fingerprint(
    document: Document,
    settings: Config,
) -> dict[str, Any]:
    """Return short digests of the columns of a document that are asked, by name, and of its images.

    Images that cannot be read are left out.

    Args:
        document: Sample as it is asked.
        settings: Settings of the task's prompt and images.
    """
    columns = _asked_columns() | names_in_templates(settings)
    digests: dict[str, Any] = {
        name: _digest_of(document[name]) for name in sorted(columns & document.keys())
    }
    with contextlib.suppress(*_NO_IMAGE):
        digests[_IMAGES] = [
            _image_key(image, document, settings) for image in images_of(document)
        ]
    return digests


def changed_parts(
    recorded: Mapping[str, Any],
    document: Document,
    settings: Config,
) -> list[str]:
    """Return the parts of a document that are not as a recorded fingerprint says.

    Args:
        recorded: Result of :func:`fingerprint` when the sample was asked.
        document: The sample as it is now.
        settings: Settings of the task's prompt and images.

    Returns:
        Names of columns, and ``images``.
    """
    columns = document.keys() & recorded.keys() - {_IMAGES}
    parts = [name for name in sorted(columns) if recorded[name] != _digest_of(document[name])]
    keys = recorded.get(_IMAGES)
    if isinstance(keys, list):
        with contextlib.suppress(*_NO_IMAGE):
            are_same = []
            for image, key in zip_longest(images_of(document), keys):
                now = _image_key(image, document, settings, str(key)) if image else GONE
                are_same.append(now.rpartition(":")[2] == str(key).rpartition(":")[2])
            if not all(are_same):
                parts.append(_IMAGES)
    return parts


@cache
def _asked_columns() -> frozenset[str]:
    columns = {*_TEXTS}
    for family in families().values():
        columns.update(family.columns, family.short or ())
    return frozenset(columns) - _NAMES


def _digest_of(value: Any) -> str:
    return digest(json.dumps(value, sort_keys=True, default=str))[:_COLUMN_DIGITS]


def _image_key(
    image: ShownImage,
    document: Document,
    settings: Config,
    recorded: str = "",
) -> str:
    """Return the beginning of a file's SHA-256, after its state where it had to be read.

    A file of the ``recorded`` state is not read again.
    """
    if image.sha256 != image.file:  # a column of the data
        return image.sha256[:_IMAGE_DIGITS]
    path = image_path(image.file, document, settings)
    state = "".join(f"{number}:" for number in file_state(path))
    return recorded if recorded.startswith(state) else f"{state}{_file_digest(path, state)}"


@cache
def _file_digest(path: Path, state: str) -> str:
    return file_sha256(path)[:_IMAGE_DIGITS]
