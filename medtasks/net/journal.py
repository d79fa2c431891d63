"""Append-only journal of answers, from which a killed run goes on where it stopped.

One line of JSON per answer: ``{"key": ..., "check": ..., "tokens": ..., "run": ..., "answer": {...}}``. Answers are
replayed if request, weights, code, libraries and arguments are the same; ``run`` tells whether another run asked. A
damaged answer must never be replayed.
"""

import asyncio
import hashlib
import json
import os
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from loguru import logger

from medtasks.errors import warn_once
from medtasks.home import append_whole, home

FOLDER_NAME = "journal"
RUN_VARIABLE = "MEDTASKS_RUN"
"""Environment variable with the id of the run that the harness's processes belong to."""


@dataclass(frozen=True)
class Entry:
    """One answer."""

    answer: Mapping[str, Any]
    # Length of the model input, so that batches stay the same when answers are replayed.
    tokens: int
    run: str = field(default="", compare=False)  # id of the run that asked


def digest_of(*parts: object) -> str:
    """Return a SHA-256 digest of the parts as JSON, in hexadecimal. Other types count by their ``repr``.

    Example:
        >>> digest_of("a", {"b": 1, "c": 2}) == digest_of("a", {"c": 2, "b": 1})
        True
    """
    text = json.dumps(parts, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def current_run() -> str:
    """Return the id of the run of this process.

    Without ``medtasks run``, one for all workers of a torchrun agent.
    """
    if run := os.environ.get(RUN_VARIABLE):
        return run
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return secrets.token_hex(8)
    agent = psutil.Process(os.getppid())  # it starts workers again after a failure
    return digest_of(agent.pid, agent.create_time())[:16]


def journal_folder(argument: str, model_id: str) -> Path | None:
    """Return the folder of a model's journals.

    Args:
        argument: ``true`` for ``$MEDTASKS_HOME/journal``, ``false`` for none, or a folder.
        model_id: Name of the model, which is the folder's last part.
    """
    if argument.lower() == "false":
        return None
    root = home() / FOLDER_NAME if argument.lower() == "true" else Path(argument).expanduser()
    return root / model_id


def _stored_entry(line: bytes) -> tuple[str, Entry] | None:
    """Return the key and the answer of a line, or None if it is damaged."""
    try:
        record = json.loads(line)
        entry = Entry(record["answer"], record["tokens"], record.get("run", ""))
        if record["check"] == digest_of(record["key"], entry.tokens, entry.answer)[:16]:
            return record["key"], entry
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


class Journal:
    """The answers of one model with one set of arguments.

    Answers of earlier runs are replayed from all their ranks, for any number of processes. New ones go to a file of
    this object alone: shards that share the folder, or a worker that outlived its agent, may have the same rank. Only
    its owner can read it, because it holds replies in clear. Answers of this object are not replayed: asking twice in
    one run computes twice.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: str,
        rank: int,
        processes: int,
    ) -> None:
        name = f"{fingerprint[:24]}.rank{rank}of{processes}"
        self.path = folder / f"{name}.{secrets.token_hex(8)}.jsonl"
        self.run = current_run()
        self._stored: dict[str, Entry] = {}
        self._pending = b""
        torn = 0
        damaged = 0
        for file in sorted(folder.glob(f"{fingerprint[:24]}.rank*of*.jsonl")):
            try:
                lines = file.read_bytes().split(b"\n")
            except OSError as error:
                logger.warning(
                    "the journal {} cannot be read ({}) and is left out", file, error.strerror
                )
                continue
            if lines.pop():
                torn += 1
            for line in filter(None, lines):
                stored = _stored_entry(line)
                if stored is None:
                    damaged += 1
                else:
                    key, entry = stored
                    self._stored[key] = entry
        if torn:
            logger.warning(
                "the last answer in {} journal file(s) of {} was cut off and is dropped",
                torn,
                folder,
            )
        if damaged:
            logger.warning(
                "{} damaged line(s) in the journal under {} are skipped", damaged, folder
            )
        self._written = set(self._stored)

    def replay(self, key: str) -> Entry | None:
        """Return the answer to an equal request before this object was made, or None.

        Args:
            key: What :meth:`add` got, a :func:`digest_of` the request.
        """
        return self._stored.get(key)

    def is_copy(self, entry: Entry) -> bool:
        """Return whether another run asked for an answer. An earlier attempt at this run is no other run."""
        return entry.run != self.run

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Append answers and wait until they are on the disk.

        A disk that is full or read-only causes one warning, and the lines are tried again with the next batch.

        Args:
            entries: Answers by key. One that is on the disk already is not written again.
        """
        new = {key: entry for key, entry in entries.items() if key not in self._written}
        self._written.update(new)
        for key, entry in new.items():
            check = digest_of(key, entry.tokens, entry.answer)[:16]
            record = {
                "key": key,
                "check": check,
                "tokens": entry.tokens,
                "run": self.run,
                "answer": entry.answer,
            }
            self._pending += json.dumps(record).encode("ascii") + b"\n"
        try:
            if self._pending:
                append_whole(self.path, self._pending, durable=True)
                self._pending = b""
        except OSError as error:
            warn_once(
                f"answers cannot be kept in {self.path} ({error.strerror or type(error).__name__}); the run goes on "
                f"and loses nothing, but a killed run starts anew. Free some space, or name another folder with "
                f"--model_args journal=FOLDER."
            )


class AsyncJournal:
    """A journal for concurrent requests: answers that arrive during a write go into the next one together.

    One thread writes, so that the disk blocks neither an event loop nor another request. Requests may come from threads
    and from several event loops. Nothing else may add to the journal.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.replay = journal.replay
        self._writer = ThreadPoolExecutor(1, "journal")
        self._lock = threading.Lock()
        self._waiting: dict[str, Entry] = {}
        self._next: Future[None] | None = None  # the write that has not begun yet

    async def add(self, entries: Mapping[str, Entry]) -> None:
        """Append answers and wait until they are on the disk as in :meth:`Journal.add`.

        Cancelling stops no write.
        """
        with self._lock:
            for key, entry in entries.items():
                self._waiting.setdefault(key, entry)
            if self._next is None:
                self._next = Future()
                self._next.set_running_or_notify_cancel()  # several requests wait for it, so none of them may cancel it
                self._writer.submit(self._write, self._next)
            written = self._next
        await asyncio.wrap_future(written)

    def _write(self, written: "Future[None]") -> None:
        """Write all waiting answers, and end or fail the future that their requests wait for."""
        with self._lock:
            entries = self._waiting
            self._waiting = {}
            self._next = None
        try:
            self.journal.add(entries)
        except BaseException as error:  # noqa: BLE001  # passed on to the waiting requests
            written.set_exception(error)
        else:
            written.set_result(None)
