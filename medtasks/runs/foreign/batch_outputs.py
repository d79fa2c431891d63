"""Output of batch APIs: OpenAI's, vLLM's and others' of the same form, and Anthropic's.

A line has ``custom_id``, which the sender chose, and the body of a response. What was asked is in the request file
alone. Failed requests are in the same file or in one of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.foreign.chat_messages import CUT_REASONS, last_question, message_text, thinking_text
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.runs.foreign.kit_reader import KitReader, records_of
from medtasks.runs.foreign.row_values import as_mapping

_ID = "custom_id"
_REQUESTS = {"body", "params"}  # keys of a request
_FIRST_ERROR = 400  # status codes


def recognise(content: FileContent) -> bool:
    """Return whether records are requests, responses or failures of a batch."""
    return _ID in content.keys and bool({"response", "error", "result", *_REQUESTS} & {*content.keys})


def read(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of output files, then those of error files; RepliesError for requests alone."""
    requests = [content for content in contents if _REQUESTS & {*content.keys}]
    outputs = [content for content in contents if content not in requests]
    if not outputs:
        raise RepliesError(f"{contents[0].path} holds requests and no replies; give the output of the batch, too")
    questions = {record.values.get(_ID): _question(record) for record in records_of(requests)}
    by_file = [list(_rows(content, questions)) for content in outputs]
    by_file.sort(key=lambda rows: all(row.reply is None for row in rows))
    rows = list(chain(*by_file))
    replied = {row.identifier for row in rows if row.reply is not None}
    kept = tuple(row for row in rows if row.reply is not None or row.identifier not in replied)
    again = len(rows) - len(kept)
    notes = (f"{again} requests failed and were answered when sent again",) if again else ()
    return ForeignFile(BATCH.name, kept, "response.body", notes=notes)


def _question(record: TableRow) -> dict[str, Any]:
    body = as_mapping(record.values.get("body") or record.values.get("params"))
    prompt, names = last_question(body.get("messages") or body.get("input") or body.get("prompt"))
    return {"prompt": prompt, "image_names": names}


def _rows(content: FileContent, questions: Mapping[Any, dict[str, Any]]) -> Iterator[ForeignRow]:
    for record in content.records():
        identifier = record.values.get(_ID)
        if not isinstance(identifier, str):
            raise RepliesError(f"{record.place} has no '{_ID}', the text that tells what was asked")
        row = ForeignRow(0, record.place, None, identifier, **questions.get(identifier, {}))
        replies = list(_replies(record.values))
        for repeat, reply in enumerate(replies):
            yield replace(row, repeat=repeat if len(replies) > 1 else None, **reply)
        if not replies:
            yield row


def _replies(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the replies to a request, of which a failed one has none."""
    response = as_mapping(values.get("response"))
    body = as_mapping(response.get("body"))
    status = response.get("status_code")
    if values.get("error") or body.get("error") or (isinstance(status, int) and status >= _FIRST_ERROR):
        return
    message = as_mapping(as_mapping(values.get("result")).get("message"))
    if message:  # Anthropic
        yield _reply(message, message.get("stop_reason"))
    for choice in map(as_mapping, body.get("choices") or []):
        yield _reply(as_mapping(choice.get("message")) or {"content": choice.get("text")}, choice.get("finish_reason"))
    if "output" in body:  # responses API
        parts: list[Any] = []
        for item in map(as_mapping, body["output"] or []):
            parts += item.get("content") or item.get("summary") or []
        yield _reply({"content": parts}, as_mapping(body.get("incomplete_details")).get("reason"))


def _reply(message: Mapping[str, Any], reason: Any) -> dict[str, Any]:
    """Return fields of a row: the text of a message or of its refusal, and an empty one where the model wrote none."""
    text = message_text(message.get("content")) or message.get("refusal") or ""
    return {"reply": text, "reasoning": thinking_text(message), "is_cut": reason in CUT_REASONS}


BATCH = KitReader("a batch API", _ID, recognise, read, select=list)
