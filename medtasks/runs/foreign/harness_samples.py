"""Samples files of lm-eval and lmms-eval of tasks that are not ours, with the prompt of each sample.

``doc_id`` is a row of that task's data and no id. lm-eval writes a line for each filter, which are one row here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow, KitReader
from medtasks.runs.foreign.row_values import (
    JsonObject,
    as_mapping,
    first_text,
    image_names,
    last_question,
)
from medtasks.tasks.answer_columns import parsed_list

REPLIES = ("resps", "filtered_resps")
PROMPTS = {"input", "arguments", "doc"}
"""Keys that tell what was asked."""
_ROW = "doc_id"
_QUESTIONS = ("question", "query", "problem", "stem", "input", "sent1")  # keys of datasets


def recognise(content: FileContent) -> bool:
    """Return whether records have the replies and the prompt of a row."""
    keys = {*content.keys}
    return _ROW in keys and bool(keys & {*REPLIES}) and bool(keys & PROMPTS)


def read_samples_files(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of files.

    Raises:
        RepliesError: The replies are likelihoods of options.
    """
    rows = []
    for content in contents:
        replies_by_row: dict[str, list[list[str]]] = {}  # of each run in the file
        lines: Counter[tuple[str, str]] = Counter()  # by row and filter
        for record in content.records():
            replies = _replies(record)
            doc_id = str(record.values.get(_ROW))
            line = (doc_id, str(record.values.get("filter")))
            run = lines[line]
            lines[line] += 1
            earlier = replies_by_row.setdefault(doc_id, [])
            if earlier[run : run + 1] == [replies]:  # another filter of the same reply
                continue
            earlier.append(replies)
            row = ForeignRow(
                0,
                record.place,
                replies[0],
                identifier=_published_id(record.values),
                prompt=_prompt(record),
                image_names=image_names(record.values.get("input_media")),
                answer=first_text(record, ("target",)),
            )
            for repeat, reply in enumerate(replies):
                rows.append(
                    replace(row, reply=reply, repeat=repeat if len(replies) > 1 else None)
                )
    kit = "lm-eval" if "arguments" in contents[0].keys else "lmms-eval"
    keys = {*chain(*contents[0].head)}
    return ForeignFile(kit, tuple(rows), next(key for key in REPLIES if key in keys))


def _replies(record: TableRow) -> list[str]:
    """Return the replies to a sample, several if it was repeated, or raise RepliesError if they are no texts."""
    values = record.values
    recorded = values.get("resps", values.get("filtered_resps"))
    while isinstance(recorded, list) and len(recorded) == 1:
        recorded = recorded[0]
    replies: list[Any] = recorded if isinstance(recorded, list) else [recorded]
    if not replies or not all(isinstance(reply, str) for reply in replies):
        raise RepliesError(
            f"{record.place} has no text under 'resps': likelihoods of options are no replies; run the task with "
            "output_type: generate_until"
        )
    return replies


def _prompt(record: TableRow) -> str | None:
    """Return the prompt, from the question on if the document has it, so that few-shot examples are left out.

    Without a prompt this is the document's question alone, and None without a question.
    """
    questions = []
    for key, text in as_mapping(record.values.get("doc")).items():
        if key.lower() in _QUESTIONS and isinstance(text, str) and text.strip():
            questions.append(text.strip())
    prompt = _shown_prompt(record.values)
    if prompt is None:
        return questions[0] if questions else None
    return prompt[max([0, *map(prompt.rfind, questions)]) :]


def _shown_prompt(values: JsonObject) -> str | None:
    """Return the text that a model got, of chat messages the last of a user, or None without any."""
    prompt = values.get("arguments", values.get("input"))
    for _ in range(2):  # gen_args_0, and arg_0 in it
        if isinstance(prompt, dict):
            prompt = next(iter(prompt.values()), None)
    while isinstance(prompt, list) and prompt and not isinstance(prompt[0], dict):
        prompt = prompt[0]
    messages = parsed_list(prompt)
    is_chat = isinstance(messages, list) and messages and "role" in as_mapping(messages[0])
    return last_question(messages if is_chat else prompt)[0]


def _published_id(values: JsonObject) -> str | None:
    """Return the id that a task's metric saved in lmms-eval, None if there is none but a number."""
    for value in values.values():
        identifier = as_mapping(value).get("id")
        if isinstance(identifier, str) and not identifier.isdecimal():
            return identifier
    return None


HARNESS = KitReader("lm-eval or lmms-eval", _ROW, recognise, read_samples_files)
