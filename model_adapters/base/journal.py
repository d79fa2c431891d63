"""Answers on disk as soon as they exist, so that a run that was killed goes on where it stopped.

One line of JSON per answer: ``{"key": ..., "check": ..., "tokens": ..., "answer": {...}}``. Answers are replayed where
all that decides about them beside the request is the same: weights, code, libraries, arguments.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from torch import nn

from medtasks.data.home import home
from medtasks.errors import warn_once

from .arguments import AdapterArguments

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

    Answers of earlier runs, of all their ranks, are replayed; this run's answers are appended to a file of this rank,
    readable by its owner only, because replies are in it in clear. What this object wrote it does not replay: asking
    twice in one run computes twice.
    """

    def __init__(self, folder: Path, fingerprint: str, rank: int, processes: int) -> None:
        self.path = folder / f"{fingerprint[:24]}.rank{rank}of{processes}.jsonl"
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


# Say how a run is carried out, not what comes out. Of the device, only its type counts.
_NEUTRAL = {
    *("batch_size", "batch_tokens", "max_batch_size", "max_failed", "device", "journal"),
    *("feature_cache_mb", "prefix_cache_mb", "loglikelihood_format", "token_counts"),
}
_LIBRARIES = ("torch", "transformers", "pillow", "numpy")
_SAMPLED = 64
_READ_WHOLE = 2**24


def model_fingerprint(model_id: str, kind: type, arguments: AdapterArguments, device: str, weights: str) -> str:
    """Return a digest of everything about a model that may change an answer.

    The code of the adapters is part of it: whoever changes a preprocessing must not be served older answers.
    """
    decisive = {name: value for name, value in dataclasses.asdict(arguments).items() if name not in _NEUTRAL}
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    return digest_of(model_id, kind.__qualname__, _code_digest(kind), versions, decisive, device, weights)


def weights_digest(owner: object) -> str:
    """Return a digest of the weights that an object holds in its attributes, from some values of every tensor.

    Two checkpoints of one architecture differ in almost all values, so a few of each tensor tell them apart.
    """
    digest = hashlib.sha256()
    for attribute, module in sorted(vars(owner).items()):
        if isinstance(module, nn.Module):
            for name, tensor in sorted(module.state_dict().items()):
                digest.update(f"{attribute}.{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                digest.update(_some_values(tensor))
    return digest.hexdigest()


def files_digest(arguments: AdapterArguments) -> str:
    """Return a digest of the files and folders that arguments name: content of small files, size of large ones."""
    digests = []
    for name, value in sorted(dataclasses.asdict(arguments).items()):
        if isinstance(value, str) and value and name not in _NEUTRAL:
            path = Path(value).expanduser()
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            for file in filter(Path.is_file, files):
                size = file.stat().st_size
                large = size > _READ_WHOLE
                digests.append((name, file.name, str(size) if large else hashlib.sha256(file.read_bytes()).hexdigest()))
    return digest_of(digests)


def _some_values(tensor: torch.Tensor) -> bytes:
    if tensor.is_meta or tensor.numel() == 0:
        return b""
    flat = tensor.detach().reshape(-1)
    places = torch.linspace(0, flat.numel() - 1, min(_SAMPLED, flat.numel()), dtype=torch.float64).long()
    values: Any = flat[places.to(flat.device)].cpu().view(torch.uint8).numpy()
    return bytes(values.data)


@functools.cache
def _code_digest(kind: type) -> str:
    """Return a digest of this package's code, and of the module of an adapter that lives elsewhere."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    own = inspect.getsourcefile(kind)
    files += [Path(own)] if own else []
    return digest_of([(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])
