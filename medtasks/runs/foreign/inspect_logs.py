"""Logs of inspect_ai: ``.eval``, an archive of samples, and ``.json``.

``output.completion`` is the reply as the solver left it, without thinking that the API keeps apart. Epochs are several
runs. A sample with an error, or without any choice of the model, has no reply.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow, KitReader, records_of
from medtasks.runs.foreign.row_values import (
    CUT_REASONS,
    as_mapping,
    first_entry,
    first_text,
    image_names,
    last_question,
    message_text,
    option_texts,
    text_of,
    thinking_text,
)

_REPLY = "completion"
_ATTACHMENT = "attachment://"
_IMAGES = ("image", "images", "image_path", "file_name")  # in metadata


def recognise(content: FileContent) -> bool:
    """Return whether a file is a log of an evaluation."""
    return content.form == "log" or {"eval", "samples"}.issubset(content.keys)


def read_logs(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of logs."""
    records = list(_samples(contents))
    rows = list(map(_row, records))
    if not any(row.repeat for row in rows):
        rows = [replace(row, repeat=None) for row in rows]
    ids = [record.values.get("id") for record in records]
    # The kit numbered them.
    if all(isinstance(number, int) and 1 <= number <= len(ids) for number in ids):
        rows = [replace(row, identifier=None) for row in rows]
    return ForeignFile(INSPECT.name, tuple(rows), f"output.{_REPLY}")


def _samples(contents: Sequence[FileContent]) -> Iterator[TableRow]:
    """Yield the samples of logs, or raise RepliesError for a JSON log whose ``samples`` are no objects."""
    for record in records_of(contents):
        if "samples" not in record.values:
            yield record
            continue
        samples = record.values["samples"]
        for number, sample in enumerate(samples if isinstance(samples, list) else [samples], 1):
            if not isinstance(sample, dict):
                raise RepliesError(
                    f"{record.place}: 'samples' is no list of objects; take the whole log"
                )
            yield TableRow(f"{record.place}, sample {number}", sample)


def _row(record: TableRow) -> ForeignRow:
    """Return the row of a sample. Its input is the question if the sample lists options, else the whole prompt."""
    values = record.values
    output = as_mapping(values.get("output"))
    choice = first_entry(output.get("choices"))
    message = as_mapping(choice.get("message"))
    reply = text_of(TableRow(record.place, {**output}), _REPLY)
    if reply is None:  # logs of older versions
        reply = message_text(message.get("content")) or ""
    question = values.get("input")
    if isinstance(question, str) and question.startswith(_ATTACHMENT):
        question = as_mapping(values.get("attachments")).get(question.removeprefix(_ATTACHMENT))
    text, names = last_question(question)
    options = option_texts(record, "choices")
    epoch = values.get("epoch")
    return ForeignRow(
        0,
        record.place,
        None if values.get("error") or not choice else reply,
        identifier=text_of(record, "id"),
        question=text if options else None,
        options=options,
        prompt=None if options else text,
        image_names=names or image_names(*map(as_mapping(values.get("metadata")).get, _IMAGES)),
        answer=first_text(record, ("target",)),
        repeat=epoch - 1 if isinstance(epoch, int) else None,
        reasoning=thinking_text(message),
        is_cut=choice.get("stop_reason") in CUT_REASONS,
    )


INSPECT = KitReader("inspect_ai", "id", recognise, read_logs)
