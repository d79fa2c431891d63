"""Output of batch APIs: OpenAI's, vLLM's and others' of the same form, and Anthropic's.

A line has ``custom_id``, which the sender chose, and the body of a response. What was asked is in the request file
alone. Failed requests are in the same file or in one of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, filterfalse
from typing import Any

from medtasks.errors import RepliesError
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow, KitReader, records_of
from medtasks.runs.foreign.row_values import (
    CUT_REASONS,
    JsonObject,
    as_mapping,
    last_question,
    message_text,
    thinking_text,
)

_ID = "custom_id"
_REQUESTS = {"body", "params"}  # keys of a request


def recognise(content: FileContent) -> bool:
    """Return whether records are requests, responses or failures of a batch."""
    keys = {"response", "error", "result", *_REQUESTS}
    return _ID in content.keys and not keys.isdisjoint(content.keys)


def read_outputs(contents: Sequence[FileContent]) -> ForeignFile:
    """Return the rows of output files, then those of error files.

    Args:
        contents: Output files, error files and request files of one run.

    Raises:
        RepliesError: There are requests alone, or a line has no id.
    """
    requests = list(filter(_is_request, contents))
    outputs = list(filterfalse(_is_request, contents))
    if not outputs:
        raise RepliesError(
            f"{contents[0].path} holds requests and no replies; give the output of the batch, too"
        )
    questions = {}
    for record in records_of(requests):
        body = as_mapping(record.values.get("body") or record.values.get("params"))
        messages = body.get("messages") or body.get("input") or body.get("prompt")
        prompt, names = last_question(messages)
        questions[record.values.get(_ID)] = {"prompt": prompt, "image_names": names}
    by_file = [list(_rows(content, questions)) for content in outputs]
    by_file.sort(key=lambda rows: not any(map(_has_reply, rows)))
    rows = list(chain(*by_file))
    rows_kept = _without_answered_failures(rows)
    repeated = len(rows) - len(rows_kept)
    notes: tuple[str, ...] = ()
    if repeated:
        notes = (f"{repeated} requests failed and were answered when sent again",)
    return ForeignFile(BATCH.name, tuple(rows_kept), "response.body", notes=notes)


def _without_answered_failures(rows: Sequence[ForeignRow]) -> list[ForeignRow]:
    """Return the rows but for failures of requests that another row answers."""
    answered = {row.identifier for row in filter(_has_reply, rows)}
    return [row for row in rows if _has_reply(row) or row.identifier not in answered]


def _is_request(content: FileContent) -> bool:
    return not _REQUESTS.isdisjoint(content.keys)


def _has_reply(row: ForeignRow) -> bool:
    return row.reply is not None


def _rows(
    content: FileContent,
    questions: Mapping[Any, dict[str, Any]],
) -> Iterator[ForeignRow]:
    """Yield a row for each reply in a file, or one without a reply for a request that failed.

    Args:
        content: Output file or error file.
        questions: Prompt and names of images by id, as far as there are request files.

    Raises:
        RepliesError: A line has no id.
    """
    for record in content.records():
        identifier = record.values.get(_ID)
        if not isinstance(identifier, str):
            raise RepliesError(
                f"{record.place} has no '{_ID}', the text that tells what was asked"
            )
        row = ForeignRow(0, record.place, None, identifier, **questions.get(identifier, {}))
        replies = list(_replies(record.values))
        for repeat, reply in enumerate(replies):
            yield replace(row, repeat=repeat if len(replies) > 1 else None, **reply)
        if not replies:
            yield row


def _replies(values: JsonObject) -> Iterator[dict[str, Any]]:
    """Yield the replies to a request, of which a failed one has none."""
    body = as_mapping(as_mapping(values.get("response")).get("body"))
    if values.get("error") or body.get("error"):
        return
    for choice in map(as_mapping, body.get("choices") or []):
        message = as_mapping(choice.get("message")) or {"content": choice.get("text")}
        yield _reply(message, choice.get("finish_reason"))
    if "output" in body:  # responses API
        parts: list[Any] = []
        for item in map(as_mapping, body["output"]):  # messages, and summaries of thinking
            parts += item.get("content") or item.get("summary") or []
        details = as_mapping(body.get("incomplete_details"))
        yield _reply({"content": parts}, details.get("reason"))
    message = as_mapping(as_mapping(values.get("result")).get("message"))
    if message:  # Anthropic
        yield _reply(message, message.get("stop_reason"))


def _reply(message: JsonObject, reason: Any) -> dict[str, Any]:
    """Return fields of a row: the text of a message or of its refusal, and an empty one where the model wrote none."""
    text = message_text(message.get("content")) or message.get("refusal") or ""
    return {"reply": text, "reasoning": thinking_text(message), "is_cut": reason in CUT_REASONS}


BATCH = KitReader("a batch API", _ID, recognise, read_outputs, select=list)
