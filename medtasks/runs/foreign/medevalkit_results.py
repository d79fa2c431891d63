r"""MedEvalKit (alibaba-damo-academy/MedEvalKit): ``results.json`` of each set, and the files of MMMU.

``response`` is the reply as it came; in MMMU the kit has cut it to the content of ``<answer>`` or ``\boxed``. Ids are
those that were published; several sets have none and name no image either. Chunks are joined in no order.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import (
    ForeignFile,
    ForeignRow,
    KitReader,
    only_file,
    records_of,
    without_copies,
)
from medtasks.runs.foreign.row_values import first_text, image_names, option_texts, text_of

_REPLY = "response"
_IDS = ("id", "question_id", "uuid", "prompt_id")
_IMAGES = ("image_path", "image", "images", "img_name")
_MMMU_ID = re.compile(r"(?:test|validation|dev)_\w+_\d+")
_CHUNK = re.compile(r"(?:results|response)_\d+")
_ORIGINALS = {"parsed_output": "output_sample", "results": "response"}  # of MMMU
_CUT = "in MMMU, MedEvalKit keeps of a reply with <answer> or \\boxed the content alone"


def recognise(content: FileContent) -> bool:
    """Return whether a file is a list of records with ``response``, or maps ids of MMMU to texts."""
    if content.form == "object":
        return bool(content.keys) and all(map(_MMMU_ID.fullmatch, content.keys))
    return content.form == "list" and _REPLY in content.keys


def select(contents: Sequence[FileContent]) -> Sequence[FileContent]:
    """Return the files of a folder that hold the replies: a set, its chunks, or the subjects of MMMU."""
    reply_files = without_copies(contents, _ORIGINALS)
    folders = {content.path.parent for content in reply_files}
    are_chunks = all(_CHUNK.fullmatch(content.path.stem) for content in reply_files)
    is_one_set = are_chunks and len(folders) == 1
    if is_one_set or all(map(_is_subject_of_mmmu, reply_files)):
        return reply_files
    return only_file(reply_files)


def _is_subject_of_mmmu(content: FileContent) -> bool:
    if content.form != "list":
        return False
    return _MMMU_ID.fullmatch(str(content.head[0].get("id"))) is not None


def read_results(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of files.

    Raises:
        RepliesError: A file holds answers that the kit parsed, or replies to Rad-ReStruct, or an entry has no reply.
    """
    is_mapping = contents[0].form == "object"
    rows = []
    for record in records_of(contents):
        if not is_mapping:
            rows.append(_row(record))
            continue
        _refuse_parsed_answers(record.values.values(), contents[0].path)
        for number, key in enumerate(record.values, start=1):
            location = f"{record.place}, entry {number}"
            rows.append(ForeignRow(0, location, text_of(record, key), key))
    is_cut = is_mapping or "index2ans" in contents[0].keys
    return ForeignFile(MEDEVALKIT.name, tuple(rows), _REPLY, notes=(_CUT,) if is_cut else ())


def _refuse_parsed_answers(values: Collection[Any], path: Path) -> None:
    """Raise RepliesError for a file of MMMU that has lists or, under the name ``results``, mostly letters as values."""
    letters = sum(isinstance(value, str) and len(value) == 1 for value in values)
    are_results = path.stem == "results" and 2 * letters > len(values)
    if are_results or any(isinstance(value, list) for value in values):
        raise RepliesError(
            f"{path} holds the answers that MedEvalKit parsed, partly at random; give response.json, which holds the "
            "replies"
        )


def _row(record: TableRow) -> ForeignRow:
    """Return the row of an entry of a list.

    Raises:
        RepliesError: The entry is of Rad-ReStruct, or has no reply.
    """
    values = record.values
    if "answer_type" in values and "choices" in values:
        raise RepliesError(
            f"{record.place}: MedEvalKit writes the last question of a report in the place of all its questions in "
            "Rad-ReStruct, so its replies cannot be told apart"
        )
    if _REPLY not in values:
        raise RepliesError(f"{record.place} has no '{_REPLY}', unlike the first entry")
    return ForeignRow(
        0,
        record.place,
        text_of(record, _REPLY),
        identifier=first_text(record, _IDS),
        question=first_text(record, ("question", "Question")),
        options=option_texts(record, "choices", "index2ans"),
        prompt=first_text(record, ("prompt",)),
        image_names=image_names(*map(values.get, _IMAGES)),
        answer=first_text(record, ("answer",)),
        reasoning=first_text(record, ("thinking",)) or "",  # of a fork
    )


MEDEVALKIT = KitReader("MedEvalKit", "id", recognise, read_results, select)
