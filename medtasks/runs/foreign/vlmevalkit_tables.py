"""VLMEvalKit (open-compass/VLMEvalKit): the table ``MODEL_DATASET`` with the column ``prediction``.

A blank cell of the reply is an empty reply, and one of an option is an option that the model did not see. ``index`` is
a row of the kit's own table. Prompts are not in it.
"""

import math
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import (
    ForeignFile,
    ForeignRow,
    KitReader,
    only_file,
    without_copies,
)
from medtasks.runs.foreign.row_values import image_names, text_of, without_blank_end

_INDEX = "index"
_REPLY = "prediction"
_FAILED = "Failed to obtain answer"  # begins the text in place of a reply
_JUDGED = {"hit", "log"}  # columns of a judge
_REPLACED_OPTION = "Other Answers"  # of a judged open question of MMMU


def recognise(content: FileContent) -> bool:
    """Return whether a table has the columns ``index`` and ``prediction``."""
    return {_INDEX, _REPLY}.issubset(content.keys)


def select(contents: Sequence[FileContent]) -> Sequence[FileContent]:
    """Return the table of a folder that has the replies as they came."""
    tables = without_copies(contents)
    return only_file([each for each in tables if _JUDGED.isdisjoint(each.keys)] or tables)


def read_tables(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of tables, without those whose ``index`` belongs to several questions."""
    rows = []
    notes = []
    for content in contents:
        is_judged = not _JUDGED.isdisjoint(content.keys)
        rows += [_row(record, is_judged=is_judged) for record in content.records()]
        if is_judged:
            notes.append(
                f"{content.path} was written after judging, which may have changed replies and options"
            )
    single_rows = _with_own_index(rows)
    if len(single_rows) < len(rows):
        notes.append(
            f"{len(rows) - len(single_rows)} rows are left out: several questions have their index, for which the kit "
            "keeps one reply that it shows at each"
        )
    return ForeignFile(VLMEVALKIT.name, tuple(single_rows), _REPLY, notes=tuple(notes))


def _with_own_index(rows: Sequence[ForeignRow]) -> list[ForeignRow]:
    """Return the rows whose ``index`` belongs to one question, and those without any."""
    questions: dict[Any, set[Any]] = {}
    for row in rows:
        questions.setdefault(row.identifier, set()).add((row.question, row.options))
    single_rows = []
    for row in rows:
        if row.identifier is None or len(questions[row.identifier]) == 1:
            single_rows.append(row)
    return single_rows


def _row(record: TableRow, *, is_judged: bool) -> ForeignRow:
    """Return the row of a record, without its number.

    In a table written after judging, a blank reply is the text ``nan``, and MMMU's open questions have other options.
    """
    texts = {}
    for key, value in record.values.items():
        is_blank = isinstance(value, float) and math.isnan(value)  # as the kit's JSON has it
        if not is_blank and (text := text_of(record, key)):
            texts[key] = text
    reply = texts.get(_REPLY, "")
    options = [texts.get(name, "") for name in ascii_uppercase]
    if is_judged and reply == "nan":
        reply = ""
    if is_judged and _REPLACED_OPTION in options:
        options = []
    return ForeignRow(
        0,  # whoever reads the files numbers all rows
        record.place,
        None if reply.startswith(_FAILED) else reply,
        identifier=texts.get(_INDEX),
        question=texts.get("question"),
        options=without_blank_end(options),
        image_names=image_names(texts.get("image_path")),
        answer=texts.get("answer"),
        reasoning=texts.get("thinking", ""),
    )


VLMEVALKIT = KitReader("VLMEvalKit", _INDEX, recognise, read_tables, select)
