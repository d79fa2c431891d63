"""Logs of inspect_ai: ``.eval``, an archive of samples, and ``.json``.

``output.completion`` is the reply as the solver left it, without thinking that the API keeps apart. Epochs are several
runs. A sample with an error, or without any choice of the model, has no reply.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.chat_messages import CUT_REASONS, last_question, message_text, thinking_text
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.folder_choice import only_file
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import as_mapping, image_names, option_texts, text_of

KIT = "inspect_ai"
ID_COLUMN = "id"

_REPLY = "completion"
_ATTACHMENT = "attachment://"


def recognise(content: FileContent) -> bool:
    """Return whether a file is a log of an evaluation."""
    return content.form == "log" or {"eval", "samples"} <= set(content.keys)


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the log of a folder; RepliesError for several."""
    return only_file(KIT, contents)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of logs."""
    records = [record for content in contents for record in _samples(content)]
    rows = [_row(record, number) for number, record in enumerate(records)]
    if not any(row.repeat for row in rows):
        rows = [replace(row, repeat=None) for row in rows]
    ids = [record.values.get("id") for record in records]
    if all(isinstance(each, int) and 1 <= each <= len(ids) for each in ids):  # the kit numbered them
        rows = [replace(row, identifier=None) for row in rows]
    failed = sum(row.reply is None for row in rows)
    notes = [f"{failed} samples ended in an error"] if failed else []
    return ForeignFile(KIT, tuple(rows), f"output.{_REPLY}", notes=tuple(notes))


def _samples(content: FileContent) -> Iterator[TableRow]:
    for record in content.records():
        if content.form == "log":
            yield record
            continue
        samples = record.values.get("samples")
        if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
            raise RepliesError(f"{record.place}: 'samples' is no list of objects; take the whole log")
        for number, sample in enumerate(samples, start=1):
            yield TableRow(f"{record.place}, sample {number}", sample)


def _row(record: TableRow, number: int) -> ForeignRow:
    values = record.values
    output = as_mapping(values.get("output"))
    choices = output.get("choices")
    choice = as_mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = as_mapping(choice.get("message"))
    reply = text_of(TableRow(record.place, dict(output)), _REPLY)
    if reply is None:  # logs of older versions
        reply = message_text(message.get("content")) or ""
    options = option_texts(values.get("choices"))
    asked, names = last_question(_attached(values.get("input"), values))
    target = values.get("target")
    metadata = as_mapping(values.get("metadata"))
    epoch = values.get("epoch")
    return ForeignRow(
        number,
        record.place,
        None if values.get("error") or not choice else reply,
        identifier=text_of(record, "id"),
        question=asked if options else None,
        options=options,
        prompt=None if options else asked,
        image_names=names or image_names(*map(metadata.get, ("image", "images", "image_path", "file_name"))),
        answer=target if isinstance(target, str) else None,
        repeat=epoch - 1 if isinstance(epoch, int) else None,
        reasoning=thinking_text(message),
        is_cut=choice.get("stop_reason") in CUT_REASONS,
    )


def _attached(asked: Any, values: Any) -> Any:
    """Return a text that the log keeps among its attachments; anything else as it is."""
    if isinstance(asked, str) and asked.startswith(_ATTACHMENT):
        return (values.get("attachments") or {}).get(asked.removeprefix(_ATTACHMENT), asked)
    return asked
