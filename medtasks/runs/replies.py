"""Recorded replies: one JSON object per line, our own short form or a samples file of the harness."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.data.home import home
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import RepliesError, WithheldReply, warn_once
from medtasks.extract.reply_text import json_field, without_thoughts
from medtasks.families.family import Reply
from medtasks.runs.logged_samples import answers_another, is_withheld
from medtasks.runs.reply_envelope import is_envelope, opened, parse_loglikelihood
from medtasks.runs.saved_replies import FOLDER_NAME

_LONGEST_ROW_NUMBER = 12
_FORM = '{"doc_id": "10001/1", "reply": "A"}'


def read_replies(paths: Path | Sequence[Path], documents: Sequence[Mapping[str, Any]]) -> dict[str, Reply]:
    """Return recorded replies by document id, in file order, from a file or the files of one run.

    A folder stands for the ``.jsonl`` files in it. Lines are ``{"doc_id", "reply"}``, or those of a samples file
    written by lmms-eval or lm-eval. A ``doc_id`` is the document's own id, or its row number in the dataset counted
    from 0; an ``id`` in its place is always the document's own, and occurs once. A samples file holds each reply once
    per filter; they must agree. Raises RepliesError for a line that is malformed, names an unknown document, or
    contradicts an earlier one.
    """
    known = {document["doc_id"] for document in documents}
    given = [paths] if isinstance(paths, Path) else paths
    replies: dict[str, Reply] = {}
    for path in _files(given):
        try:
            lines = path.read_text(encoding="utf-8-sig").split("\n")  # replies may hold other line separators
        except (OSError, UnicodeDecodeError) as error:
            raise RepliesError(f"cannot read replies from {path}: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"{path} line {number}"
            item = _object(line, place)
            doc_id = document_id(item, documents, known, place)
            reply = _reply(item, place)
            if doc_id in replies and "doc_id" not in item:
                raise RepliesError(f"{place}: there is an earlier reply with the id '{doc_id}'; give one per question")
            if replies.setdefault(doc_id, reply) != reply:
                raise RepliesError(
                    f"{place}: document {doc_id} has two different replies; name the files of one run only, or "
                    f"the run's folder, of which the newest replies count"
                )
    if not replies:
        raise RepliesError(f"{', '.join(map(str, given))} holds no replies; expected lines like {_FORM}")
    return replies


def _files(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise RepliesError(f"cannot read replies from {path}: the folder holds no replies (no .jsonl file)")
        files += inside
    return files


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        item = parse_json(line)
    except ValueError as error:
        raise RepliesError(f"{place} is not valid JSON ({error}); expected lines like {_FORM}") from error
    if not isinstance(item, dict) or not item.keys() & {"doc_id", "id"}:
        form = f"{_FORM}, or with the published 'id' in place of 'doc_id'"
        raise RepliesError(f"{place} has no 'doc_id'; expected lines like {form}")
    return item


def document_id(item: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], known: set[str], place: str) -> str:
    """Return the id of the document that a record answers; RepliesError names ``place`` if there is none."""
    given = item["doc_id"] if "doc_id" in item else str(item["id"])
    if isinstance(given, str) and given in known:
        return given
    number = str(given) if "doc_id" in item else ""
    row = int(number) if number.isascii() and number.isdecimal() and len(number) < _LONGEST_ROW_NUMBER else -1
    if not 0 <= row < len(documents):
        raise RepliesError(
            f"{place}: no document '{given}' in the prepared dataset; its ids run from '{documents[0]['doc_id']}' to "
            f"'{documents[-1]['doc_id']}'"
        )
    doc_id = str(documents[row]["doc_id"])
    asked = answers_another(item, doc_id)
    if asked is not None:
        raise RepliesError(
            f"{place} answers document '{asked}', but row {row} of the prepared dataset is '{doc_id}'; use "
            f"the data of that run: point MEDTASKS_HOME to them, or name their files in the task's own file"
        )
    return doc_id


def _reply(item: Mapping[str, Any], place: str) -> Reply:
    if "reply" in item:
        if not (item["reply"] is None or isinstance(item["reply"], str)):
            raise RepliesError(f"{place}: 'reply' must be text or null")
        return Reply.of_text(item["reply"])
    try:
        found = recorded_reply(item)
    except (KeyError, TypeError) as error:
        raise RepliesError(f"{place} has neither 'reply' nor 'resps'; expected lines like {_FORM}") from error
    if found is None:
        raise WithheldReply(
            f"{place} holds no reply, because its dataset is credentialed; name the files of the run in "
            f"{home() / FOLDER_NAME} instead"
        )
    return found


def recorded_reply(sample: Mapping[str, Any], *, likelihoods: bool | None = None) -> Reply | None:
    """Return what the model gave, from a line of a samples file; None where the file withholds it.

    There is one list around a reply in lmms-eval's files, two in lm-eval's. Several lists are one per option: with
    ``likelihoods``; without them the first of repeated texts counts, and None tells by the looks. Raises KeyError or
    TypeError where the line holds no reply, or something else in its place.
    """
    recorded = sample["resps"] if "resps" in sample else sample["filtered_resps"]
    while (
        not likelihoods and isinstance(recorded, list) and (len(recorded) == 1 or (recorded and likelihoods is False))
    ):
        recorded = recorded[0]
    if isinstance(recorded, list) and recorded:
        options = [option[0] if isinstance(option, list) and len(option) == 1 else option for option in recorded]
        if any(isinstance(option, str) and is_withheld(option) for option in options):
            return None
        losses, greedy = zip(*map(parse_loglikelihood, options), strict=True)
        return Reply(losses=losses, greedy=greedy)
    if isinstance(recorded, str):
        is_ours = is_envelope(recorded, sample.get("filtered_resps"))
        reply = opened(recorded)[0] if is_ours else Reply.of_text(recorded)
        return None if is_withheld(recorded) or is_withheld(reply.text or "") else Reply.of_text(reply.recorded)
    if recorded is None and "resps" in sample:
        return Reply.of_text(None)
    raise TypeError


def take_answer_field(replies: Mapping[str, Reply], name: str) -> dict[str, Reply]:
    """Return replies with only the value of a field of the JSON object in each, and no text where it has none.

    Failed samples and likelihoods stay as they are. Raises RepliesError if no reply has the field.
    """
    texts = {doc_id: reply.text for doc_id, reply in replies.items() if reply.text is not None and not reply.failed}
    values = {doc_id: json_field(without_thoughts(text) or "", re.escape(name)) for doc_id, text in texts.items()}
    missing = sum(not value for value in values.values())
    if values and missing == len(values):
        raise RepliesError(
            f"none of the {missing} replies has a JSON field '{name}'; give the answer field as the prompt asked for it"
        )
    if missing:
        warn_once(f"{missing} of {len(values)} replies have no JSON field '{name}'; they are scored as empty replies.")
    return {**replies, **{doc_id: replace(replies[doc_id], text=value or "") for doc_id, value in values.items()}}
