"""Replies on disk before anything is computed from them, so that a failing metric loses nothing.

Each process of a run appends to a file of its own, ``$MEDTASKS_HOME/replies/<task>/<time>-<process>.jsonl``, in the
form that ``medtasks score`` reads. Replies may quote a patient's record: files are readable by their owner only.
"""

import datetime
import json
import os
import re
import shlex
import threading
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from medtasks.errors import warn_once
from medtasks.home import append_whole, home
from medtasks.runs.reply_envelope import opened
from medtasks.tasks.task_files import included_option

FOLDER_NAME = "replies"
SCORED_TASK: ContextVar[str] = ContextVar("SCORED_TASK", default="")
"""Name of the task whose replies are scored in this thread."""


def replies_folder(task: str) -> Path:
    """Return the folder of a task's saved replies, whether or not it exists."""
    return home() / FOLDER_NAME / re.sub(r"[^\w-]", "_", task)


def save_reply(doc: Mapping[str, Any], result: Any) -> str | None:
    """Append one reply to this process's file of the task that the harness is scoring, and return ``<task>/<file>``.

    A reply that was read with the same rule before belongs to another run, which gets a file of its own; under another
    rule of the same run it is not written again. A disk that is full or read-only costs the file, not the run. A
    document without ``doc_id`` cannot be found again, so that nothing is saved.
    """
    if doc.get("doc_id") is None:
        return None
    reply, row = opened(result)
    task = SCORED_TASK.get() or str(doc.get("dataset") or "unknown")
    with _lock:
        place = (replies_folder(task), os.getpid())
        run = _runs.get(place)
        if run is None or (doc["doc_id"], row.extractor) in run.read:
            run = _runs[place] = _Run(place[0])
        run.add(doc["doc_id"], row.extractor, reply.recorded)
        return f"{run.path.parent.name}/{run.path.name}"


def score_command(saved: Iterable[str | None]) -> str:
    """Return the sentence that says how to score what :func:`save_reply` saved, on all ranks, again."""
    files = [home() / FOLDER_NAME / name for name in sorted({name for name in saved if name})]
    unsaved = {run.path for run in _runs.values() if run.pending}
    if not files or not all(file.is_file() and file not in unsaved for file in files):
        return "Its replies could not be saved; run the task again once that is mended."
    task = files[0].parent.name
    return (
        f"All replies are saved; then run: medtasks score {task} {shlex.join(map(str, files))}{included_option(task)}"
    )


class _Run:
    """The file of one process in one run of a task."""

    def __init__(self, folder: Path) -> None:
        rank, ranks = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        of_ranks = "" if ranks == "1" else f"-rank{rank}of{ranks}"
        now = datetime.datetime.now(datetime.UTC)
        self.path = folder / f"{now:%Y%m%dT%H%M%S_%fZ}-{os.getpid()}{of_ranks}.jsonl"
        self.read: set[tuple[str, str | None]] = set()  # documents with the rule that read them
        self._replies: dict[str, str] = {}
        self.pending = b""  # lines that the disk has not taken

    def add(self, doc_id: str, rule: str | None, reply: str) -> None:
        """Write one reply unless it is there."""
        self.read.add((doc_id, rule))
        if self._replies.get(doc_id) == reply:
            return
        self._replies[doc_id] = reply
        line = json.dumps({"doc_id": doc_id, "reply": reply}, ensure_ascii=True)
        self.pending += line.encode("ascii") + b"\n"
        try:
            append_whole(self.path, self.pending)
            self.pending = b""
        except OSError as error:
            warn_once(
                f"replies cannot be saved in {self.path.parent} ({error.strerror or type(error).__name__}); the run "
                f"goes on, but they cannot be scored again later. Free some space, or set MEDTASKS_HOME to another "
                f"folder."
            )


_runs: dict[tuple[Path, int], _Run] = {}
_lock = threading.Lock()  # the harness scores several documents at once
