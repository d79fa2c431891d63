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
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.kit_reader import KitReader, only_file, without_copies
from medtasks.runs.foreign.row_values import image_names, text_of

_INDEX = "index"
_REPLY = "prediction"
_FAILED = "Failed to obtain answer"  # begins the text in place of a reply
_JUDGED = {"hit", "log"}  # columns of a judge
_REPLACED_OPTION = "Other Answers"  # of a judged open question of MMMU


def recognise(content: FileContent) -> bool:
    """Return whether a table has the columns ``index`` and ``prediction``."""
    return {_INDEX, _REPLY} <= {*content.keys}


def select(contents: Sequence[FileContent]) -> Sequence[FileContent]:
    """Return the table of a folder that has the replies as they came."""
    kept = without_copies(contents)
    return only_file([content for content in kept if not _JUDGED & {*content.keys}] or kept)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of tables; those whose ``index`` stands for several questions are left out with a note."""
    rows: list[ForeignRow] = []
    notes: list[str] = []
    for content in contents:
        is_judged = bool(_JUDGED & {*content.keys})
        rows += [_row(record, is_judged=is_judged) for record in content.records()]
        if is_judged:
            notes.append(f"{content.path} was written after judging, which may have changed replies and options")
    questions: dict[Any, set[Any]] = {}
    for row in rows:
        questions.setdefault(row.identifier, set()).add((row.question, row.options))
    kept = tuple(row for row in rows if row.identifier is None or len(questions[row.identifier]) == 1)
    if len(kept) < len(rows):
        notes.append(
            f"{len(rows) - len(kept)} rows are left out: several questions have their index, for which the kit keeps "
            "one reply that it shows at each"
        )
    return ForeignFile(VLMEVALKIT.name, kept, _REPLY, notes=tuple(notes))


def _row(record: TableRow, *, is_judged: bool) -> ForeignRow:
    # Blank cells are NaN in the kit's JSON.
    is_blank = [isinstance(value, float) and math.isnan(value) for value in record.values.values()]
    keys = [key for key, blank in zip(record.values, is_blank, strict=True) if not blank]
    texts = {key: text_of(record, key) or "" for key in keys}
    reply = texts.get(_REPLY, "")
    options = [texts.get(name, "") for name in ascii_uppercase if name in record.values]
    if is_judged:
        reply = "" if reply == "nan" else reply
        options = [] if options[1:2] == [_REPLACED_OPTION] else options
    while options and not options[-1].strip():
        options.pop()
    return ForeignRow(
        0,
        record.place,
        None if reply.startswith(_FAILED) else reply,
        identifier=texts.get(_INDEX) or None,
        question=texts.get("question") or None,
        options=tuple(options) or None,
        image_names=image_names(texts.get("image_path")),
        answer=texts.get("answer") or None,
        reasoning=texts.get("thinking", ""),
    )


VLMEVALKIT = KitReader("VLMEvalKit", _INDEX, recognise, read, select)
