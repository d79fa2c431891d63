"""Tables of one's own (CSV, TSV, xlsx, JSON Lines) whose columns a user names, or that have well-known names."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from string import ascii_lowercase
from typing import Any, Final

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError, listed, near_match
from medtasks.runs.foreign.chat_messages import last_question
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.folder_choice import only_file
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import first_text, image_names, option_texts, text_of

KIT = "a table"
ID_COLUMN = "doc_id"
FIELDS = ("reply", "id", "question", "options", "prompt", "image", "answer")  # that a user can name

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
    "id": ("doc_id", "id", "question_id", "qid"),
    "question": ("question",),
    "options": ("options", "choices"),
    "prompt": ("prompt",),
    "image": ("image", "image_path", "image_file", "image_name", "img_name"),
    "answer": ("answer", "gold", "target", "label"),
}
_MISSING: Final = object()
_LETTER_COLUMNS = ("{}", "option_{}", "option {}")
_ERRORS = ("#NAME?", "#VALUE!", "#REF!", "#DIV/0!", "#N/A", "#NUM!", "#NULL!")  # of workbooks


def recognise(content: FileContent) -> bool:
    """Return whether one column of a table has a name that only replies have."""
    return len(_candidates("reply", content.keys)) == 1


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the table of a folder; RepliesError for several."""
    return only_file(KIT, contents)


def read(contents: Sequence[FileContent], columns: Mapping[str, str] | None = None) -> ForeignFile:
    """Return the rows of tables.

    Args:
        contents: The tables.
        columns: Names in the file by names of ours, see ``FIELDS``; several for options, separated by commas, and
            dotted for keys within others.

    Raises:
        RepliesError: No column, or several, could be the reply; or a named one is missing.
    """
    rows: list[ForeignRow] = []
    notes: list[str] = []
    lost = 0
    for content in contents:
        names = _column_names(content, columns or {})
        for record in content.records():
            row = _row(record, names, len(rows), is_cell=content.form == "table")
            is_lost = content.form == "table" and row.reply in _ERRORS
            lost += is_lost
            rows.append(replace(row, reply=None) if is_lost else row)
        notes += content.notes
    if lost:
        notes.append(f"{lost} replies are errors of the spreadsheet, such as #NAME?, and lost")
    is_id_named = "id" in (columns or {}) or names.get("id") == [ID_COLUMN]
    return ForeignFile(KIT, tuple(rows), names["reply"][0], is_id_named=is_id_named, notes=tuple(notes))


def _column_names(content: FileContent, columns: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns of each field: those that are named, and others by their names."""
    for field in columns:
        if field not in FIELDS:
            raise RepliesError(f"a column can be named for {', '.join(FIELDS)} or sheet, but not '{field}'")
    names: dict[str, list[str]] = {}
    for field, text in columns.items():
        is_column = field != "options" or _has(content, text)
        names[field] = [text] if is_column else [name.strip() for name in text.split(",")]
        for name in names[field]:
            if not _has(content, name):
                hint = near_match(name, content.keys) or f"; it has {', '.join(content.keys)}"
                raise RepliesError(f"{content.path} has no column '{name}'{hint}")
    taken = set(itertools.chain(*names.values()))
    for field in FIELDS:
        candidates = [name for name in _candidates(field, content.keys) if name not in taken]
        if field == "reply" and field not in names and len(candidates) != 1:
            fault = f"{listed(candidates)} may all be replies" if candidates else "nothing has a name that replies have"
            keys = listed([*content.keys])
            raise RepliesError(f"{content.path}: {fault}; name the one that is, of {keys}: --columns reply=NAME")
        if candidates and field not in names:
            names[field] = candidates if field == "options" else candidates[:1]
            taken.update(names[field])
    return names


def _candidates(field: str, keys: Collection[str]) -> list[str]:
    """Return the columns that the names of a field fit, in the order of these names."""
    by_name = {key.strip().casefold().replace(" ", "_"): key for key in keys}
    matches = [by_name[name] for name in _NAMES[field] if name in by_name]
    if field != "options":
        return matches
    for form in _LETTER_COLUMNS:
        lettered = list(itertools.takewhile(by_name.__contains__, (form.format(each) for each in ascii_lowercase)))
        if len(lettered) > 1 and not matches:
            return [by_name[name] for name in lettered]
    return matches[:1]


def _has(content: FileContent, name: str) -> bool:
    return any(_value(record, name) is not _MISSING for record in content.head)


def _value(values: Any, name: str) -> Any:
    """Return the value in a column, or under a dotted name; ``_MISSING`` without it."""
    if isinstance(values, list) and name.partition(".")[0].isdecimal():
        values = {str(index): value for index, value in enumerate(values)}
    if not isinstance(values, Mapping):
        return _MISSING
    if name in values:
        return values[name]
    first, _, rest = name.partition(".")
    return _value(values.get(first), rest) if rest else _MISSING


def _row(record: TableRow, names: Mapping[str, Sequence[str]], number: int, *, is_cell: bool) -> ForeignRow:
    values = {field: _value(record.values, columns[0]) for field, columns in names.items()}
    if values["reply"] is _MISSING:
        raise RepliesError(f"{record.place} has no '{names['reply'][0]}', unlike the first; write null where none came")
    named = TableRow(record.place, {field: None if value is _MISSING else value for field, value in values.items()})
    reply = text_of(named, "reply")
    columns = names.get("options", ())
    options = option_texts(named.values.get("options"))
    if len(columns) > 1:
        cells = [_value(record.values, column) for column in columns]
        options = option_texts([None if cell is _MISSING else cell for cell in cells])
    while options and not options[-1].strip():
        options = options[:-1]
    prompt = named.values.get("prompt")
    return ForeignRow(
        number,
        record.place,
        "" if reply is None and is_cell else reply,
        identifier=text_of(named, "id"),
        question=text_of(named, "question"),
        options=options or None,
        prompt=last_question(prompt)[0],
        image_names=image_names(named.values.get("image")),
        answer=first_text(named, ("answer",)),
    )
