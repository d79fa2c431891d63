"""Answers on disk as soon as they exist, so that a run that was killed goes on where it stopped.

One line of JSON per answer: ``{"key": ..., "check": ..., "tokens": ..., "answer": {...}}``. Answers are replayed where
all that decides about them beside the request is the same: weights, code, libraries, arguments.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from medtasks.data.home import home
from medtasks.data.shards import Shard
from medtasks.errors import warn_once

FOLDER_NAME = "journal"


@dataclass(frozen=True)
class Entry:
    """One answer."""

    answer: Mapping[str, Any]  # the fields of the answer
    tokens: int  # length of the model input, so that batches are cut alike whether or not an answer was replayed


def digest_of(*parts: object) -> str:
    """Return 64 hexadecimal digits that change with every part (what JSON does not know goes by its ``repr``).

    Example:
        >>> digest_of("a", 1) == digest_of("a1")
        False
    """
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode("ascii")).hexdigest()


def journal_folder(argument: str, model_id: str) -> Path | None:
    """Return the folder of a model's journals: in ``$MEDTASKS_HOME/journal`` for ``true``; ``None`` for ``false``."""
    if argument.lower() == "false":
        return None
    root = home() / FOLDER_NAME if argument.lower() == "true" else Path(argument).expanduser()
    return root / model_id


class Journal:
    """The answers of one model with one set of arguments.

    Answers of earlier runs, of all their ranks and shards, are replayed; this run's are appended to a file of its own,
    readable by its owner only, because replies are in it in clear. What this object wrote it does not replay: asking
    twice in one run computes twice.
    """

    def __init__(self, folder: Path, fingerprint: str, rank: int, processes: int) -> None:
        shard = Shard.from_environment()
        of_shard = f".shard{shard.index}of{shard.count}" if shard else ""  # machines may share the folder, not the file
        self.path = folder / f"{fingerprint[:24]}.rank{rank}of{processes}{of_shard}.jsonl"
        self._torn = self._damaged = 0
        self._stored: dict[str, Entry] = {}
        self._written: set[str] = set()
        self._pending = b""
        self._begun = False
        for file in sorted(folder.glob(f"{fingerprint[:24]}.rank*of*.jsonl")):
            self._stored.update(self._entries(file))
        if self._torn:
            logger.warning("the last answer in {} journal file(s) of {} was cut off and is dropped", self._torn, folder)
        if self._damaged:
            logger.warning("{} damaged line(s) in the journal under {} are skipped", self._damaged, folder)
        self._written.update(self._stored)

    def replay(self, key: str) -> Entry | None:
        """Return the answer that an earlier run gave under this key."""
        return self._stored.get(key)

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Append answers and wait until they are on the disk.

        A disk that is full or read-only costs the journal, not the run: one warning, and the lines are tried again with
        the next batch.
        """
        new = {key: entry for key, entry in entries.items() if key not in self._written}
        self._written.update(new)
        for key, entry in new.items():
            record = {"key": key, "check": _check(key, entry), "tokens": entry.tokens, "answer": entry.answer}
            self._pending += json.dumps(record).encode("ascii") + b"\n"
        try:
            self._write()
        except OSError as error:
            warn_once(
                f"answers cannot be kept in {self.path} ({error.strerror or type(error).__name__}); the run goes on "
                f"and loses nothing, but a killed run starts anew. Free some space, or name another folder with "
                f"--model_args journal=FOLDER."
            )

    def _write(self) -> None:
        if not self._pending:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            if not self._begun and size and os.pread(file, 1, size - 1) != b"\n":
                self._pending = b"\n" + self._pending  # closes the line that a killed run left behind
            self._begun = True
            left = self._pending
            try:
                while left:
                    left = left[os.write(file, left) :]
            except OSError:
                # Half a batch would be replayed beside a half that is computed without its neighbours.
                written = len(self._pending) - len(left)
                if written and os.fstat(file).st_size == size + written:
                    os.ftruncate(file, size)
                raise
            self._pending = b""
            os.fsync(file)
        finally:
            os.close(file)

    def _entries(self, file: Path) -> Iterator[tuple[str, Entry]]:
        try:
            lines = file.read_bytes().split(b"\n")
        except OSError as error:
            logger.warning("the journal {} cannot be read ({}) and is left out", file, error.strerror)
            return
        self._torn += bool(lines.pop())
        for line in filter(None, lines):
            entry = _parsed(line)
            if entry is None:
                self._damaged += 1
            else:
                yield entry


def _check(key: str, entry: Entry) -> str:
    return digest_of(key, entry.tokens, entry.answer)[:16]


def _parsed(line: bytes) -> tuple[str, Entry] | None:
    try:
        record = json.loads(line)
        entry = Entry(record["answer"], record["tokens"])
        sound = record["check"] == _check(record["key"], entry)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (record["key"], entry) if sound else None
