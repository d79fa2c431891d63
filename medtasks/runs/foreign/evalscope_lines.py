"""evalscope (modelscope/evalscope): JSON Lines below ``predictions`` and ``reviews``, a file for each subset.

Options are only in the prompt, in the order shown. ``index`` counts what was asked, with its repeats, and is no id;
``metadata`` may have one. A sample that is asked again is appended, and its last line counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.chat_messages import CUT_REASONS, last_question, message_text, thinking_text
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.folder_choice import only_file
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import as_mapping, first_text, image_names

KIT = "evalscope"
ID_COLUMN = "metadata.id"

_PREDICTION = "model_output"
_REVIEW = "sample_score"
_IDS = ("id", "question_id", "qid")  # in metadata
_MOST_REPEATS = 64
_IMAGES = ("images", "image", "image_path", "figure_path", "img_name", "file_name")


def recognise(content: FileContent) -> bool:
    """Return whether records have an ``index`` and the output of a model, or its score."""
    return "index" in content.keys and bool({_PREDICTION, _REVIEW} & set(content.keys))


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the subsets of one model: predictions if there are any, else reviews."""
    predictions = [content for content in contents if _PREDICTION in content.keys and _row(_first(content)).prompt]
    kept = predictions or [content for content in contents if _REVIEW in content.keys] or list(contents)
    folders = {content.path.parent for content in kept}
    return kept if len(folders) == 1 else only_file(KIT, kept)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of files."""
    rows: list[ForeignRow] = []
    repeated = 0
    for content in contents:
        samples: dict[Any, ForeignRow] = {}
        for record in content.records():
            row = _row(record)
            repeated += record.values.get("index") in samples
            samples[record.values.get("index")] = row
        rows += _with_repeats(samples)
    notes = [f"{repeated} samples were asked again, and their last reply counts"] if repeated else []
    if rows and not any(row.prompt or row.identifier for row in rows):
        raise RepliesError(
            f"{contents[0].path} does not say what was asked; give the file of the same name in the folder 'reviews'"
        )
    numbered = tuple(replace(row, number=number) for number, row in enumerate(rows))
    column = "sample_score.score.prediction" if _REVIEW in contents[0].keys else f"{_PREDICTION}.choices[0].message"
    return ForeignFile(KIT, numbered, column, notes=tuple(notes))


def _row(record: TableRow) -> ForeignRow:
    values = record.values
    review = as_mapping(values.get(_REVIEW))
    output = as_mapping(values.get(_PREDICTION))
    metadata = as_mapping(review.get("sample_metadata") if review else values.get("metadata"))
    messages = values.get("messages") or values.get("input")
    prompt, names = last_question(messages)
    choice = _choice(output)
    message = as_mapping(choice.get("message"))
    if review:
        message = as_mapping(messages[-1] if isinstance(messages, list) and messages else None)
    reply = message_text(message.get("content"))
    if review:
        prediction = as_mapping(review.get("score")).get("prediction")
        reply = prediction if isinstance(prediction, str) else None
    target = values.get("target")
    answer = target[0] if isinstance(target, list) and len(target) == 1 else target
    return ForeignRow(
        0,
        record.place,
        None if output.get("error") else reply,
        identifier=first_text(TableRow(record.place, dict(metadata)), _IDS),
        prompt=prompt,
        image_names=image_names(*map(metadata.get, _IMAGES)) or names,
        answer=answer if isinstance(answer, str) else None,
        repeat=review.get("generation_index") if review else None,
        reasoning=thinking_text(message) if message.get("role") == "assistant" else "",
        is_cut=choice.get("stop_reason") in CUT_REASONS,
    )


def _first(content: FileContent) -> TableRow:
    return TableRow(str(content.path), dict(content.head[0]))


def _choice(output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first choice of an output; empty where the model gave none."""
    choices = output.get("choices")
    return as_mapping(choices[0]) if isinstance(choices, list) and choices else {}


def _with_repeats(samples: Mapping[Any, ForeignRow]) -> list[ForeignRow]:
    """Return rows by ``index`` with the number of their run, if the kit asked each question several times."""
    if any(row.repeat for row in samples.values()):
        return list(samples.values())
    prompts = {index: row.prompt for index, row in samples.items() if isinstance(index, int)}
    count = _repeats(prompts) if None not in prompts.values() else 1
    repeats = [index % count if count > 1 else None for index in samples]
    return [replace(row, repeat=repeat) for row, repeat in zip(samples.values(), repeats, strict=True)]


def _repeats(prompts: Mapping[int, str | None]) -> int:
    """Return how often each question was asked: the kit gives question i of k repeats the indexes k·i to k·i+k-1."""
    most = min(_MOST_REPEATS, max(prompts, default=0) + 1)
    for count in range(most, 1, -1):
        blocks: dict[int, set[str | None]] = {}
        for index, prompt in prompts.items():
            blocks.setdefault(index // count, set()).add(prompt)
        if len(prompts) > len(blocks) and all(len(block) == 1 for block in blocks.values()):
            return count
    return 1
