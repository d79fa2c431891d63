"""A user's own tables (CSV, TSV, xlsx, JSON Lines), whose columns a user names, or that have well-known names."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, filterfalse, takewhile
from string import ascii_lowercase
from typing import Any, Final

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError, join_names, near_match
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow, KitReader
from medtasks.runs.foreign.row_values import (
    first_text,
    image_names,
    last_question,
    option_texts,
    text_of,
)

Columns = Mapping[str, str]
"""Columns of a file by our names of them, see ``FIELDS``."""
_ID = "doc_id"  # name of ours
_NAMES: Mapping[str, tuple[str, ...]] = {
    "reply": (
        "reply",
        "prediction",
        "response",
        "output",
        "completion",
        "model_answer",
        "model_output",
        "model_response",
        "generated_text",
    ),
    "id": (_ID, "id", "question_id", "qid"),
    "question": ("question",),
    "options": ("options", "choices"),
    "prompt": ("prompt",),
    "image": ("image", "image_path", "image_file", "image_name", "img_name"),
    "answer": ("answer", "gold", "target", "label"),
}
FIELDS = tuple(_NAMES)  # that a user can name
_MISSING: Final = object()
_LETTER_COLUMNS = ("{}", "option_{}", "option {}")
_ERRORS = ("#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#N/A", "#NUM!", "#NULL!")  # of workbooks


def table_reader(columns: Columns) -> KitReader:
    """Return the reader of a table.

    Args:
        columns: Those that the user names, several for options, separated by commas, and dotted for keys within others.
    """
    return KitReader("a table", _ID, lambda content: True, partial(_read_tables, columns))


def has_reply(content: FileContent) -> bool:
    """Return whether a column of a table has a name that only replies have."""
    return bool(_candidates("reply", content.keys))


def _read_tables(
    columns: Columns,
    contents: Sequence[FileContent],
) -> ForeignFile:
    """Return the rows of tables with the columns that a user named, and others by their names."""
    rows = []
    notes: list[str] = []
    for content in contents:
        names = _named_columns(content, columns)
        _add_columns(content, names)
        is_cell = content.form == "table"
        rows += [_row(record, names, is_cell=is_cell) for record in content.records()]
        notes += content.notes
    lost = sum(row.reply is None for row in rows)
    if lost and all(content.form == "table" for content in contents):
        notes.append(f"{lost} replies are errors of the spreadsheet, such as #NAME?, and lost")
    return ForeignFile(
        "a table",
        tuple(rows),
        names["reply"][0],
        is_id_named=names.get("id") == [_ID],
        notes=tuple(notes),
    )


def _named_columns(
    content: FileContent,
    columns: Columns,
) -> dict[str, list[str]]:
    """Return the columns of the fields that a user named, by field.

    Raises:
        RepliesError: There is no such field, or the file has no such column.
    """
    names = {}
    for field, text in columns.items():
        if field not in FIELDS:
            raise RepliesError(
                f"a column can be named for {', '.join(FIELDS)} or sheet, but not '{field}'"
            )
        is_one = field != "options" or _has(content, text)
        names[field] = [text] if is_one else [name.strip() for name in text.split(",")]
    for name in chain(*names.values()):
        if not _has(content, name):
            hint = near_match(name, content.keys) or f"; it has {content.described_keys}"
            raise RepliesError(f"{content.path} has no column '{name}'{hint}")
    return names


def _add_columns(content: FileContent, names: dict[str, list[str]]) -> None:
    """Add the columns of other fields, by their names, or raise RepliesError unless one could be the reply."""
    for field in FIELDS:
        if field in names:
            continue
        taken = {*chain(*names.values())}
        candidates = list(filterfalse(taken.__contains__, _candidates(field, content.keys)))
        if field == "reply" and len(candidates) != 1:
            fault = "nothing has a name that replies have"
            if candidates:
                fault = f"{join_names(candidates)} may all be replies"
            raise RepliesError(
                f"{content.path}: {fault}; name the one that is, by --columns reply=NAME. It has "
                f"{content.described_keys}"
            )
        if candidates:
            names[field] = candidates if field == "options" else candidates[:1]


def _candidates(field: str, keys: Collection[str]) -> list[str]:
    """Return the columns that the names of a field fit, in the order of these names."""
    by_name = {key.strip().casefold().replace(" ", "_"): key for key in keys}
    matches = [by_name[name] for name in _NAMES[field] if name in by_name]
    if field != "options":
        return matches
    if matches:
        return matches[:1]
    for form in _LETTER_COLUMNS:
        names = map(form.format, ascii_lowercase)
        lettered = list(takewhile(by_name.__contains__, names))
        if len(lettered) > 1:
            return [by_name[name] for name in lettered]
    return []


def _has(content: FileContent, name: str) -> bool:
    return any(_value(record, name) is not _MISSING for record in content.head)


def _value(values: Any, name: str) -> Any:
    """Return the value in a column or under a dotted name, or ``_MISSING``."""
    if isinstance(values, list) and name.partition(".")[0].isdecimal():
        values = {str(index): value for index, value in enumerate(values)}
    if not isinstance(values, Mapping):
        return _MISSING
    if name in values:
        return values[name]
    first, _, remainder = name.partition(".")
    return _value(values.get(first), remainder) if remainder else _MISSING


def _row(
    record: TableRow,
    names: Mapping[str, Sequence[str]],
    *,
    is_cell: bool,
) -> ForeignRow:
    """Return the row of a record.

    Args:
        record: The record.
        names: Its columns by field, at least one of each.
        is_cell: Whether the reply is a cell of a table, in which a blank one is an empty reply and an error is none.

    Raises:
        RepliesError: The record has no column of the reply, or a value that is no text.
    """
    values = {}
    for field, columns in names.items():
        cells = [_value(record.values, column) for column in columns]
        value = cells if len(cells) > 1 else cells[0]
        if value is not _MISSING:
            values[field] = value
    if "reply" not in values:
        raise RepliesError(
            f"{record.place} has no '{names['reply'][0]}', unlike the first; write null where none came"
        )
    named = TableRow(record.place, values)
    reply = text_of(named, "reply")
    if is_cell:
        reply = None if reply in _ERRORS else reply or ""
    return ForeignRow(
        0,
        record.place,
        reply,
        identifier=text_of(named, "id"),
        question=text_of(named, "question"),
        options=option_texts(named, "options"),
        prompt=last_question(named.values.get("prompt"))[0],
        image_names=image_names(named.values.get("image")),
        answer=first_text(named, ("answer",)),
    )
