"""Samples files of lm-eval and lmms-eval of tasks that are not ours, with the prompt of each sample.

``doc_id`` is a row of that task's data and no id. lm-eval writes a line for each filter, which are one row here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.chat_messages import last_question
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.folder_choice import only_file
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import image_names, text_of
from medtasks.tasks.answer_columns import parsed_list

KIT = "lm-eval or lmms-eval"
ID_COLUMN = "doc_id"

REPLIES = ("resps", "filtered_resps")
PROMPTS = {"input", "arguments", "doc"}
"""Keys that tell what was asked."""
_QUESTIONS = ("question", "query", "problem", "stem", "input", "sent1")  # keys of datasets


def recognise(content: FileContent) -> bool:
    """Return whether records have the replies and the prompt of a row."""
    keys = set(content.keys)
    return ID_COLUMN in keys and bool(keys & {*REPLIES}) and bool(keys & PROMPTS)


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the file of a folder; RepliesError for several tasks or runs."""
    return only_file(KIT, contents)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of files; RepliesError for likelihoods of options."""
    rows: list[ForeignRow] = []
    for content in contents:
        written: dict[str, list[list[str]]] = {}  # replies of the runs in the file by row
        runs: dict[tuple[str, str], int] = {}  # number of lines by row and filter
        for record in content.records():
            replies = _replies(record)
            row = str(record.values.get(ID_COLUMN))
            line = (row, str(record.values.get("filter")))
            run = runs[line] = runs.get(line, -1) + 1
            earlier = written.setdefault(row, [])
            if len(earlier) > run and earlier[run] == replies:
                continue  # another filter of the same reply
            earlier.append(replies)
            rows += _rows(record, replies, len(rows))
    kit = "lm-eval" if "arguments" in contents[0].keys else "lmms-eval"
    return ForeignFile(kit, tuple(rows), REPLIES[0])


def _replies(record: TableRow) -> list[str]:
    """Return the replies to a sample, several if it was repeated."""
    recorded = next((record.values[key] for key in REPLIES if key in record.values), None)
    while isinstance(recorded, list) and len(recorded) == 1 and not isinstance(recorded[0], str):
        recorded = recorded[0]
    listed_replies = recorded if isinstance(recorded, list) else [recorded]
    replies = [reply for reply in listed_replies if isinstance(reply, str)]
    if not replies or len(replies) < len(listed_replies):
        raise RepliesError(
            f"{record.place} has no text under 'resps': likelihoods of options are no replies; run the task with "
            "output_type: generate_until"
        )
    return replies


def _rows(record: TableRow, replies: Sequence[str], first: int) -> Iterator[ForeignRow]:
    prompt = _prompt(record)
    for repeat, reply in enumerate(replies):
        yield ForeignRow(
            first + repeat,
            record.place,
            reply,
            identifier=_published_id(record.values),
            prompt=prompt,
            image_names=image_names(record.values.get("input_media")),
            answer=text_of(record, "target") if isinstance(record.values.get("target"), str) else None,
            repeat=repeat if len(replies) > 1 else None,
        )


def _prompt(record: TableRow) -> str | None:
    """Return the prompt; without few-shot examples in front of the question where the file has that, too."""
    doc = record.values.get("doc")
    prompt = _asked(record.values)
    questions: list[str] = []
    for key, text in doc.items() if isinstance(doc, dict) else ():
        if key.lower() in _QUESTIONS and isinstance(text, str) and text.strip():
            questions.append(text.strip())
    if prompt is None:
        return questions[0] if questions else None
    return prompt[max([0, *map(prompt.rfind, questions)]) :]


def _asked(values: Mapping[str, Any]) -> str | None:
    """Return the text that a model got, of chat messages the last of a user; None without any."""
    prompt = values.get("arguments", values.get("input"))
    if isinstance(prompt, dict):
        prompt = next(iter(prompt.values()), None)
    if isinstance(prompt, dict):
        prompt = prompt.get("arg_0")
    while isinstance(prompt, list) and prompt and not isinstance(prompt[0], dict):
        prompt = prompt[0]
    messages = parsed_list(prompt)
    is_chat = isinstance(messages, list) and messages and isinstance(messages[0], dict) and "role" in messages[0]
    return last_question(messages if is_chat else prompt)[0]


def _published_id(values: Mapping[str, Any]) -> str | None:
    """Return the id that a task's metric saved in lmms-eval, unless it is a number."""
    for value in values.values():
        identifier = value.get("id") if isinstance(value, dict) else None
        if isinstance(identifier, str) and not identifier.isdecimal():
            return identifier
    return None
