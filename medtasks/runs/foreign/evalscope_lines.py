"""evalscope (modelscope/evalscope): JSON Lines below ``predictions`` and ``reviews``, a file for each subset.

Options are only in the prompt, in the order shown. ``index`` counts what was asked, with its repeats, and is no id;
``metadata`` may have one. A sample that is asked again is appended, and its last line counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow, KitReader, only_file
from medtasks.runs.foreign.row_values import (
    CUT_REASONS,
    as_mapping,
    first_entry,
    first_text,
    image_names,
    last_question,
    message_text,
    thinking_text,
)

_PREDICTION = "model_output"
_REVIEW = "sample_score"
_IDS = ("id", "question_id", "qid")  # in metadata
_IMAGES = ("images", "image", "image_path", "figure_path", "img_name", "file_name")
_MOST_REPEATS = 64


def recognise(content: FileContent) -> bool:
    """Return whether records have an ``index`` and the output of a model, or its score."""
    return "index" in content.keys and not {_PREDICTION, _REVIEW}.isdisjoint(content.keys)


def select(contents: Sequence[FileContent]) -> Sequence[FileContent]:
    """Return the subsets of one model: predictions if they say what was asked, else reviews."""
    reviews = [content for content in contents if _REVIEW in content.keys]
    subsets = [content for content in contents if _REVIEW not in content.keys]
    prompts = (_row(TableRow("", {**content.head[0]})).prompt for content in subsets)
    if reviews and not any(prompts):
        subsets = reviews
    is_of_one_model = len({content.path.parent for content in subsets}) == 1
    return subsets if is_of_one_model else only_file(subsets)


def read_subsets(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of files.

    Raises:
        RepliesError: The files are predictions that do not say what was asked.
    """
    rows = []
    lines = 0
    for content in contents:
        samples = {}
        for record in content.records():
            lines += 1
            samples[record.values.get("index")] = _row(record)
        rows += _with_repeats(samples)
    if not any(row.prompt or row.identifier for row in rows):
        raise RepliesError(
            f"{contents[0].path} does not say what was asked; give the file of the same name in the folder 'reviews'"
        )
    notes: tuple[str, ...] = ()
    if lines > len(rows):
        notes = (f"{lines - len(rows)} samples were asked again, and their last reply counts",)
    column = f"{_PREDICTION}.choices[0].message"
    if _REVIEW in contents[0].keys:
        column = f"{_REVIEW}.score.prediction"
    return ForeignFile(EVALSCOPE.name, tuple(rows), column, notes=notes)


def _row(record: TableRow) -> ForeignRow:
    """Return the row of a prediction, or of a review. A prediction with an error has no reply."""
    values = record.values
    output = as_mapping(values.get(_PREDICTION))
    choice = first_entry(output.get("choices"))
    message = as_mapping(choice.get("message"))
    review = as_mapping(values.get(_REVIEW))
    metadata = as_mapping(review.get("sample_metadata") or values.get("metadata"))
    messages = values.get("messages") or values.get("input")  # of older reviews
    prompt, names = last_question(messages)
    reply = message_text(message.get("content"))
    if review:
        reply = message_text(as_mapping(review.get("score")).get("prediction"))
        message = first_entry(messages[::-1]) if isinstance(messages, list) else {}
    return ForeignRow(
        0,
        record.place,
        None if output.get("error") else reply,
        identifier=first_text(TableRow(record.place, {**metadata}), _IDS),
        prompt=prompt,
        image_names=image_names(*map(metadata.get, _IMAGES)) or names,
        answer=first_text(record, ("target",)),
        repeat=review.get("generation_index"),
        reasoning=thinking_text(message),
        is_cut=choice.get("stop_reason") in CUT_REASONS,
    )


def _with_repeats(samples: Mapping[Any, ForeignRow]) -> list[ForeignRow]:
    """Return rows by ``index`` with the number of their run, if the kit asked each question several times."""
    rows = list(samples.values())
    are_numbered = all(isinstance(index, int) for index in samples)
    if any(row.repeat for row in rows) or not are_numbered:
        return rows
    count = _repeats(samples)
    if count == 1:
        return [replace(row, repeat=None) for row in rows]
    return [replace(row, repeat=index % count) for index, row in samples.items()]


def _repeats(samples: Mapping[int, ForeignRow]) -> int:
    """Return the number of repeats, 1 if each question was asked once.

    Of k repeats, the kit gives question i the indexes k·i to k·i+k-1, so that each block of k rows has one prompt.
    """
    prompts = {index: row.prompt for index, row in samples.items() if row.prompt}
    most = min(_MOST_REPEATS, max(prompts, default=0) + 1)
    for count in range(most, 1, -1):
        blocks: dict[int, set[str]] = {}
        for index, prompt in prompts.items():
            blocks.setdefault(index // count, set()).add(prompt)
        are_repeats = all(len(block) == 1 for block in blocks.values())
        if are_repeats and len(prompts) > len(blocks):
            return count
    return 1


EVALSCOPE = KitReader("evalscope", "metadata.id", recognise, read_subsets, select)
