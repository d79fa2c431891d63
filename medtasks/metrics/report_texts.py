"""Report texts in files, for scoring outside a harness.

Formats by the name's ending; all are UTF-8:

- ``.jsonl``: one object per line, ``{"id": "7", "text": "..."}``. The text may be called ``reply`` or ``report``; the
  id may be called ``doc_id`` or ``study_id``, or be left out.
- ``.json``: a list of texts, or of such objects.
- ``.csv``: one row per text under a header with the same names, or any column by name.
- ``.txt``: one text per line; an empty line is an empty text.
"""

import csv
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.errors import RepliesError

_TEXT_NAMES: tuple[str, ...] = ("text", "reply", "report")
_ID_NAMES = ("id", "doc_id", "study_id")
_FORM = '{"id": "7", "text": "..."}'


@dataclass(frozen=True)
class ReportTexts:
    """Texts of one file, in its order, and one id per text, all different.

    ``ids`` is None for a file without ids.
    """

    path: Path
    texts: tuple[str, ...]
    ids: tuple[str, ...] | None


@dataclass(frozen=True)
class ReportPairs:
    """References and hypotheses that belong together, each shape (pairs,), in the order of the references."""

    references: tuple[str, ...]
    hypotheses: tuple[str, ...]
    ids: tuple[str, ...] | None  # None where neither file has them


def pair_texts(
    references: ReportTexts,
    hypotheses: ReportTexts,
) -> ReportPairs:
    """Join two files, by id if both have ids, else by position.

    Args:
        references: Texts of the references, whose order counts.
        hypotheses: Texts of the model.

    Raises:
        RepliesError: A text has no partner.
    """
    if references.ids is None or hypotheses.ids is None:
        if len(references.texts) != len(hypotheses.texts):
            raise RepliesError(
                f"{references.path} holds {len(references.texts)} texts and {hypotheses.path} {len(hypotheses.texts)}; "
                "without ids in both files they must be as many, in the same order"
            )
        return ReportPairs(references.texts, hypotheses.texts, references.ids or hypotheses.ids)
    _check_partners(references, hypotheses)
    _check_partners(hypotheses, references)
    by_id = dict(zip(hypotheses.ids, hypotheses.texts, strict=True))
    partners = tuple(by_id[name] for name in references.ids)
    return ReportPairs(references.texts, partners, references.ids)


def _check_partners(texts: ReportTexts, others: ReportTexts) -> None:
    """Raise a RepliesError if an id of the one file is not in the other."""
    other_ids = set(others.ids or ())
    alone = [name for name in texts.ids or () if name not in other_ids]
    if alone:
        raise RepliesError(
            f"id '{alone[0]}' of {texts.path} is not in {others.path} ({len(alone)} such ids); every report needs both"
        )


def read_report_texts(path: Path, column: str | None = None) -> ReportTexts:
    """Read the texts of one file in one of the formats of this module.

    Args:
        path: File whose ending says its format.
        column: Column or field with the text, of no effect on plain texts. None: the only one of ``text``, ``reply``
            and ``report``.

    Raises:
        RepliesError: The file cannot be read. The message quotes no text of a report.
    """
    if path.suffix.lower() not in (".jsonl", ".json", ".csv", ".txt"):
        raise RepliesError(
            f"{path} must end in one of .jsonl, .json, .csv, .txt, the endings of known formats"
        )
    items = _items(path, _content_of(path))
    if not items:
        raise RepliesError(f"{path} holds no texts")
    ids = []
    texts = []
    for location, item in items:
        if isinstance(item, str):
            texts.append(item)
            continue
        text, name = _text_and_id(f"{path} {location}", item, column)
        texts.append(text)
        if name is not None:
            ids.append(str(name))
    if ids and len(ids) < len(texts):
        raise RepliesError(
            f"{path} has ids for {len(ids)} of its {len(texts)} texts; give all of them one, or none"
        )
    for name, number in Counter(ids).items():
        if number > 1:
            raise RepliesError(f"{path} holds id '{name}' more than once; keep one text per id")
    return ReportTexts(path, tuple(texts), tuple(ids) or None)


def _content_of(path: Path) -> str:
    """Return the text of a file.

    Raises:
        RepliesError: The file cannot be read, or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RepliesError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RepliesError(
            f"{path} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8"
        ) from error


def _text_and_id(
    location: str,
    item: Any,
    column: str | None,
) -> tuple[str, str | int | None]:
    """Return the text and the id of an entry.

    Args:
        location: File and place in it, for messages.
        item: The entry, as parsed.
        column: Name of the text. If None, exactly one of ``text``, ``reply`` and ``report``.

    Returns:
        The id is None if the entry has none.

    Raises:
        RepliesError: The entry is no object, has no text of that name or several, or an id of another type.
    """
    if not isinstance(item, dict):
        raise RepliesError(f"{location} is neither a text nor an object like {_FORM}")
    candidates = _TEXT_NAMES
    missing = f"none of {', '.join(_TEXT_NAMES)}"
    if column:
        candidates = (column,)
        missing = f"no '{column}'"
    names = [name for name in candidates if name in item]
    if len(names) > 1:
        raise RepliesError(
            f"{location} has {' and '.join(names)}; choose one of them with --column"
        )
    if not names:
        raise RepliesError(
            f"{location} has {missing}; name the column or field of the text with --column"
        )
    text = item[names[0]]
    if not isinstance(text, str):
        raise RepliesError(f'{location}: the text is no text; an empty report is ""')
    return text, _id_of(location, item)


def _id_of(location: str, entry: dict[str, Any]) -> str | int | None:
    """Return the id of an entry, by the first of ``_ID_NAMES`` that it has, or None if it has none.

    Raises:
        RepliesError: The id is neither a text nor a whole number.
    """
    identifier = next((entry[name] for name in _ID_NAMES if name in entry), None)
    if identifier is None or isinstance(identifier, str | int):
        return identifier
    raise RepliesError(f"{location}: the id is neither a text nor a whole number")


def _items(path: Path, content: str) -> list[tuple[str, Any]]:
    """Return the entries of a file, each with its location in the file.

    Args:
        path: The file, whose ending says its format.
        content: Its text, which may be empty.

    Raises:
        RepliesError: The content has another format.
    """
    ending = path.suffix.lower()
    if ending == ".csv":
        return _csv_items(path, content)
    if ending == ".json":
        entries = _parse_entry(str(path), content)
        if not isinstance(entries, list):
            raise RepliesError(f"{path} must hold a list of texts, or of objects like {_FORM}")
        return [(f"entry {number}", entry) for number, entry in enumerate(entries, start=1)]
    # str.splitlines would also split at other characters within texts.
    lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    items = []
    for number, line in enumerate(lines, start=1):
        location = f"line {number}"
        if ending == ".txt":
            items.append((location, line))
        elif line.strip():
            items.append((location, _parse_entry(f"{path} {location}", line)))
    return items


def _csv_items(path: Path, content: str) -> list[tuple[str, Any]]:
    """Return the rows of a table as dictionaries, each with its location. Empty rows are passed over.

    Raises:
        RepliesError: The content is no table, or a row has more or fewer columns than the header.
    """
    try:
        lines = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    except csv.Error as error:
        raise RepliesError(
            f"{path} is not a table of comma-separated values: {error}"
        ) from error
    header = lines[0] if lines else []
    items = []
    for number, row in enumerate(lines[1:], start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise RepliesError(
                f"{path} row {number} has {len(row)} columns, the header {len(header)}"
            )
        items.append((f"row {number}", dict(zip(header, row, strict=True))))
    return items


def _parse_entry(location: str, text: str) -> Any:
    """Parse JSON.

    Raises:
        RepliesError: The text is not JSON.
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise RepliesError(f"{location} is not JSON: {getattr(error, 'msg', error)}") from error
