"""VLMEvalKit (open-compass/VLMEvalKit): the table ``MODEL_DATASET`` with the column ``prediction``.

A blank cell of the reply is an empty reply, and one of an option is an option that the model did not see. ``index`` is
a row of the kit's own table. Prompts are not in it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from medtasks.data.samples import letter
from medtasks.data.table_files import TableRow
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.folder_choice import only_file, without_copies
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import image_names, text_of

KIT = "VLMEvalKit"
ID_COLUMN = "index"

_REPLY = "prediction"
_FAILED = "Failed to obtain answer"  # begins the text in place of a reply
_OPTIONS = [letter(index) for index in range(26)]
_JUDGED = ("hit", "log")  # columns of a judge
_REPLACED_OPTION = "Other Answers"  # of a judged open question of MMMU


def recognise(content: FileContent) -> bool:
    """Return whether a table has the columns ``index`` and ``prediction``."""
    return content.form in ("table", "list", "lines") and {ID_COLUMN, _REPLY} <= set(content.keys)


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the table of a folder that has the replies as they came."""
    kept = without_copies(contents)
    unjudged = [content for content in kept if not _is_judged(content)]
    return only_file(KIT, unjudged or kept)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of tables; those whose ``index`` stands for several questions are left out with a note."""
    records: list[TableRow] = []
    notes: list[str] = []
    for content in contents:
        is_judged = _is_judged(content)
        records += (_without_nan(record, is_judged=is_judged) for record in content.records())
        if is_judged:
            notes.append(f"{content.path} was written after judging, which may have changed replies and options")
    questions: dict[str, set[str]] = defaultdict(set)
    for record in records:
        texts = [record.values.get(key) for key in ("question", *_OPTIONS)]
        questions[text_of(record, ID_COLUMN) or ""].add(str(texts))
    shared = {index for index, texts_of_index in questions.items() if index and len(texts_of_index) > 1}
    kept = [record for record in records if text_of(record, ID_COLUMN) not in shared]
    if shared:
        notes.append(
            f"{len(records) - len(kept)} rows are left out, because the kit keeps one reply per index and shows it at "
            f"each of {len(shared)} that several questions have"
        )
    rows = tuple(_row(record, number) for number, record in enumerate(kept))
    return ForeignFile(KIT, rows, _REPLY, notes=tuple(notes))


def _is_judged(content: FileContent) -> bool:
    return any(column in content.keys for column in _JUDGED)


def _without_nan(record: TableRow, *, is_judged: bool) -> TableRow:
    """Return a record whose blank cells are None; the kit writes them as ``NaN`` in JSON, and a judge as its text."""
    values = dict(record.values)
    for key, value in values.items():
        if isinstance(value, float) and math.isnan(value):
            values[key] = None
    if is_judged and values.get(_REPLY) == "nan":
        values[_REPLY] = None
    if is_judged and values.get("B") == _REPLACED_OPTION:
        values |= dict.fromkeys(_OPTIONS)
    return TableRow(record.place, values)


def _row(record: TableRow, number: int) -> ForeignRow:
    options = [text_of(record, name) or "" for name in _OPTIONS if name in record.values]
    while options and not options[-1].strip():
        options.pop()
    reply = text_of(record, _REPLY) or ""
    return ForeignRow(
        number,
        record.place,
        None if reply.startswith(_FAILED) else reply,
        identifier=text_of(record, ID_COLUMN),
        question=text_of(record, "question"),
        options=tuple(options) or None,
        image_names=image_names(record.values.get("image_path")),
        answer=text_of(record, "answer"),
        reasoning=text_of(record, "thinking") or "",
    )
