"""Recorded replies to one task, from a run's samples files or from files of one's own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.errors import RepliesError, WithheldReply, warn_once
from medtasks.extract.reading.reply_text import json_field, without_thoughts
from medtasks.families.family import Reply
from medtasks.home import home
from medtasks.runs.result_files import task_of
from medtasks.runs.sample_lines import FORM, read_samples, two_replies
from medtasks.runs.saved_replies import FOLDER_NAME


def read_replies(paths: Path | Sequence[Path], documents: Sequence[Mapping[str, Any]]) -> dict[str, Reply]:
    """Return recorded replies by document id, in file order, from a file or the files of one run.

    A folder stands for the ``.jsonl`` files in it. Lines are ``{"doc_id", "reply"}``, or those of a samples file
    written by lmms-eval or lm-eval. A ``doc_id`` is the document's own id, or its row number in the dataset counted
    from 0; an ``id`` in its place is always the document's own, and occurs once. A samples file holds each reply once
    per filter; they must agree. Damaged lines of a run's samples file are left out with a warning.

    Raises:
        RepliesError: A line of another file is malformed, or any line names an unknown document or contradicts an
            earlier file.
        WithheldReply: The file holds no replies, because its dataset is credentialed.
    """
    given = [paths] if isinstance(paths, Path) else paths
    replies: dict[str, Reply] = {}
    for path in _files(given):
        samples = read_samples(path, documents, strict=not task_of(path))
        if samples.withheld:
            raise WithheldReply(
                f"{samples.withheld} holds no reply, because its dataset is credentialed; name the files of the run in "
                f"{home() / FOLDER_NAME} instead"
            )
        for doc_id, reply in samples.replies.items():
            if replies.setdefault(doc_id, reply) != reply:
                raise two_replies(samples.answered[doc_id], doc_id)
    if not replies:
        raise RepliesError(f"{', '.join(map(str, given))} holds no replies; expected lines like {FORM}")
    return replies


def _files(paths: Sequence[Path]) -> list[Path]:
    files = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise RepliesError(f"cannot read replies from {path}: the folder holds no replies (no .jsonl file)")
        files += inside
    return files


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
