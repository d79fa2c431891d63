"""Output of batch APIs: OpenAI's, vLLM's and others' of the same form, and Anthropic's.

A line has ``custom_id``, which the sender chose, and the body of a response. What was asked is in the request file
alone. Failed requests are in the same file or in one of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.chat_messages import CUT_REASONS, last_question, message_text, thinking_text
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.row_values import as_mapping

KIT = "a batch API"
ID_COLUMN = "custom_id"

_REQUESTS = ("body", "params")  # keys of a request
_FIRST_ERROR = 400  # status codes

_Question = tuple[str | None, tuple[str, ...]]  # prompt and names of images
_Reply = tuple[str | None, str, bool]  # text, thinking, and whether it was cut at a limit


def recognise(content: FileContent) -> bool:
    """Return whether records are requests, responses or failures of a batch."""
    keys = set(content.keys)
    return ID_COLUMN in keys and bool(keys & {"response", "error", "result", *_REQUESTS})


def select(contents: Sequence[FileContent]) -> list[FileContent]:
    """Return all files of a folder."""
    return list(contents)


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of output files, then those of error files; RepliesError for requests alone."""
    requests = [content for content in contents if _is_request(content)]
    questions = {record.values[ID_COLUMN]: _question(record) for content in requests for record in content.records()}
    files: list[list[ForeignRow]] = []
    for content in contents:
        if not _is_request(content):
            files.append(_rows(content, questions))
    if not files:
        raise RepliesError(f"{contents[0].path} holds requests and no replies; give the output of the batch, too")
    files.sort(key=lambda rows: all(row.reply is None for row in rows))
    replied = {row.identifier for rows in files for row in rows if row.reply is not None}
    kept = [row for rows in files for row in rows if row.reply is not None or row.identifier not in replied]
    again = sum(map(len, files)) - len(kept)
    notes = (f"{again} requests failed and were answered when sent again",) if again else ()
    numbered = tuple(replace(row, number=number) for number, row in enumerate(kept))
    return ForeignFile(KIT, numbered, "response.body", notes=notes)


def _is_request(content: FileContent) -> bool:
    return any(key in content.keys for key in _REQUESTS)


def _question(record: TableRow) -> _Question:
    body = as_mapping(record.values.get("body") or record.values.get("params"))
    return last_question(body.get("messages") or body.get("input") or body.get("prompt"))


def _rows(content: FileContent, questions: Mapping[Any, _Question]) -> list[ForeignRow]:
    rows: list[ForeignRow] = []
    for record in content.records():
        identifier = record.values.get(ID_COLUMN)
        if not isinstance(identifier, str):
            raise RepliesError(f"{record.place} has no '{ID_COLUMN}', the text that tells what was asked")
        prompt, names = questions.get(identifier, (None, ()))
        replies = list(_replies(record.values)) or [(None, "", False)]
        for repeat, (text, thinking, is_cut) in enumerate(replies):
            number = repeat if len(replies) > 1 else None
            row = ForeignRow(
                len(rows),
                record.place,
                text,
                identifier,
                prompt=prompt,
                image_names=names,
                repeat=number,
                reasoning=thinking,
                is_cut=is_cut,
            )
            rows.append(row)
    return rows


def _replies(values: Mapping[str, Any]) -> Iterator[_Reply]:
    """Yield the replies to a request, of which a failed one has none."""
    response = as_mapping(values.get("response"))
    body = as_mapping(response.get("body"))
    status = response.get("status_code")
    if values.get("error") or body.get("error") or (isinstance(status, int) and status >= _FIRST_ERROR):
        return
    message = as_mapping(as_mapping(values.get("result")).get("message"))
    if message:  # Anthropic
        yield _reply(message, message.get("stop_reason"))
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else []:
        message = as_mapping(choice.get("message")) or {"content": choice.get("text")}
        yield _reply(message, choice.get("finish_reason"))
    output = body.get("output")
    if isinstance(output, list):  # responses API
        yield _joined(output, as_mapping(body.get("incomplete_details")).get("reason"))


def _reply(message: Mapping[str, Any], reason: Any) -> _Reply:
    """Return the text of a message; of a refusal its text, and an empty one where the model wrote none."""
    text = message_text(message.get("content")) or message.get("refusal") or ""
    return text, thinking_text(message), reason in CUT_REASONS


def _joined(items: Sequence[Any], reason: Any) -> _Reply:
    """Return the text of all messages among the items of an output."""
    texts: list[str] = []
    thoughts: list[str] = []
    for item in filter(None, map(as_mapping, items)):
        if item.get("type") == "reasoning":
            thoughts.append(thinking_text({"content": item.get("summary")}))
        elif item.get("type") == "message":
            texts.append(message_text(item.get("content")) or "")
    return "\n".join(texts), "\n".join(filter(None, thoughts)), reason in CUT_REASONS
