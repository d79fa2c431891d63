"""Embeddings on disk: one file per encoder under ``MEDTASKS_HOME``, read through the page cache, never twice computed.

``embeddings/<digest of the encoder>/rows`` holds one row per image in the order in which they were computed: SHA-256
of its file, then its vector of length 1 in float16. A batch is on disk before the next one is computed; a row that was
cut off by a kill is dropped, one that is no unit vector (a hole that a failing disk left) is computed again.
``encoder.json`` beside it says which encoder it was and of which dimension.
"""

import hashlib
import io
import json
import os
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from medtasks.curate.encoders import Encoder
from medtasks.data.decoding import LINEAR, decoded, mend_of
from medtasks.data.home import append_whole, home, written_whole
from medtasks.errors import MedTasksError

FOLDER = "embeddings"
UNREADABLE, UNUSABLE = "image cannot be read", "without a usable embedding"
Half = npt.NDArray[np.float16]
_KEY_BYTES = 32
_OFF_UNIT = 0.01  # rounding to float16 changes a length of 1 by less than 0.001
_AT_ONCE = 65_536  # rows read at once
_GIVE_UP = 8  # images in a row that an encoder fails on
# Decoders of rare formats raise whatever their bugs make of a damaged file.
_BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Embedded:
    """What an encoder made of images."""

    dimension: int
    vectors: Half  # shape (embedded images, dimension), of length 1, in the order of ``kept``
    kept: npt.NDArray[np.int64]  # numbers of the images that have a vector, rising
    left_out: Counter[str]  # how many images for which reason


def file_digests(files: Sequence[Path]) -> list[bytes]:
    """Return the SHA-256 of each file; nothing for one that cannot be read."""
    with ThreadPoolExecutor() as workers:
        return list(tqdm(workers.map(_sha256, files), "Reading", len(files), unit="image", leave=False, disable=None))


def embedded(files: Sequence[Path], digests: Sequence[bytes], encoder: Encoder, batch_size: int) -> Embedded:
    """Return the embeddings of image files by their SHA-256, computing those that are not on disk yet.

    Raises:
        MedTasksError: The encoder is in use by another process, gives no vectors, or ones of another dimension than
            those on disk; or the disk is full. What was computed before is kept.
    """
    store = _Store(home() / FOLDER / encoder.digest, encoder)
    failed = {b"": UNREADABLE}
    known = store.known()
    todo = {digest: file for digest, file in zip(digests, files, strict=True) if digest and digest not in known}
    if todo:
        with store.writing():
            known = store.known()
            todo = {digest: file for digest, file in todo.items() if digest not in known}
            _compute(todo, encoder, store, batch_size, failed)
        known = store.known()
    kept = [number for number, digest in enumerate(digests) if digest in known]
    left_out = Counter(failed.get(digest, UNUSABLE) for digest in digests if digest not in known)
    rows = [known[digests[number]] for number in kept]
    return Embedded(store.dimension or 0, store.vectors(rows), np.array(kept, np.int64), left_out)


def _compute(
    todo: Mapping[bytes, Path], encoder: Encoder, store: "_Store", batch_size: int, failed: dict[bytes, str]
) -> None:
    encode: _Encoding | None = None
    most_failures = _GIVE_UP if store.dimension else min(_GIVE_UP, len(todo))
    with tqdm(desc="Embedding", total=len(todo), unit="image", disable=None) as bar:
        for batch in _decoded_batches(todo, batch_size):
            failed.update((digest, why) for digest, why in batch if isinstance(why, str))
            seen = [(digest, image) for digest, image in batch if not isinstance(image, str)]
            if seen:
                encode = encode or _Encoding(encoder, most_failures)
                store.append([digest for digest, _ in seen], encode([image for _, image in seen]))
            bar.update(len(batch))


def _decoded_batches(todo: Mapping[bytes, Path], size: int) -> Iterator[list[tuple[bytes, Image.Image | str]]]:
    """Decode a batch while the one before it is encoded: no more are in memory."""
    waiting: deque[list[tuple[bytes, Future[Image.Image | str]]]] = deque()
    items = list(todo.items())
    with warnings.catch_warnings(), ThreadPoolExecutor() as workers:
        warnings.simplefilter("ignore")  # of decoders about metadata, which may name a file or a patient
        for start in range(0, len(items) + size, size):
            waiting.append([(digest, workers.submit(_seen, file)) for digest, file in items[start : start + size]])
            if len(waiting) == 2:
                yield [(digest, image.result()) for digest, image in waiting.popleft()]


def _seen(file: Path) -> Image.Image | str:
    """Return what a model sees of a file, or why it cannot be read."""
    try:
        return decoded(io.BytesIO(file.read_bytes()), LINEAR).pixels
    except _BROKEN as error:
        return (isinstance(error, OSError) and mend_of(error)) or UNREADABLE


class _Encoding:
    """Encodes batches, and the images of one that fails one by one: an odd image must not end a run over many."""

    def __init__(self, encoder: Encoder, most_failures: int) -> None:
        self._encode, self._name, self._most = encoder.load(), encoder.name, most_failures
        self._failures = 0  # in a row

    def __call__(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        """Return vectors of shape (images, dimension): zeros for what fails, of dimension 0 where all do."""
        try:
            vectors = _checked(self._encode(images), len(images), self._name)
        except MedTasksError:
            raise
        except Exception as error:
            if len(images) > 1:
                return self._one_by_one(images)
            self._failures += 1
            if self._failures >= self._most:
                raise MedTasksError(
                    f"the encoder {self._name} fails ({type(error).__name__}: {' '.join(str(error).split())[:200]}); "
                    f"{'give a smaller --batch-size' if 'memory' in str(error) else 'take another'}, what it has "
                    f"embedded before is kept"
                ) from error
            return np.zeros((1, 0), np.float32)
        self._failures = 0
        return vectors

    def _one_by_one(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        parts = [self([image]) for image in images]
        sizes = {part.shape[1] for part in parts} - {0}
        if len(sizes) > 1:
            raise MedTasksError(f"the encoder {self._name} gives vectors of different lengths; take another")
        return np.concatenate([part if part.size else np.zeros((1, max(sizes, default=0))) for part in parts])


def _checked(given: Any, count: int, name: str) -> npt.NDArray[np.float32]:
    vectors = np.asarray(given, np.float32)
    if vectors.ndim != 2 or vectors.shape[0] != count or not vectors.shape[1]:
        raise MedTasksError(
            f"the encoder {name} returned an array of shape {vectors.shape} for {count} images; it has to return one "
            f"of shape ({count}, dimension)"
        )
    return vectors


def _sha256(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return b""


class _Store:
    """The rows of one encoder."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        self._folder, self._encoder = folder, encoder
        self._rows = folder / "rows"
        self.dimension: int | None = None
        self._read_facts()

    def known(self) -> dict[bytes, int]:
        """Return the row of each image that has a sound vector."""
        rows = self._mapped()
        known: dict[bytes, int] = {}
        for start in range(0, len(rows), _AT_ONCE):
            part = rows[start : start + _AT_ONCE]
            with np.errstate(over="ignore", invalid="ignore"):
                lengths = np.sqrt(np.einsum("nd,nd->n", part["vector"], part["vector"], dtype=np.float32))
            sound = np.abs(lengths - 1) < _OFF_UNIT  # not for NaN
            keys = part["sha256"].tobytes()
            for at in np.flatnonzero(sound).tolist():
                known[keys[at * _KEY_BYTES : (at + 1) * _KEY_BYTES]] = start + at
        return known

    def vectors(self, rows: Sequence[int]) -> Half:
        """Return the vectors of rows."""
        mapped = self._mapped()
        found: Half = mapped["vector"][np.array(rows, np.int64)]
        return found

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Let no other process write within the block; MedTasksError while another does."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = filelock.FileLock(self._folder / "lock", blocking=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise MedTasksError(
                f"another process is embedding images with {self._encoder.name}; run this again when it has ended"
            ) from None
        try:
            self._read_facts()
            self._drop_torn_row()
            yield
        finally:
            lock.release()

    def append(self, digests: Sequence[bytes], vectors: npt.NDArray[np.float32]) -> None:
        """Add the vectors of images that have one: finite and not zero; and wait for the disk."""
        if not vectors.size:
            return
        if self.dimension is None:
            self._note(vectors.shape[1])
        if vectors.shape[1] != self.dimension:
            raise MedTasksError(
                f"the encoder {self._encoder.name} gives {vectors.shape[1]} numbers per image, and {self._folder} "
                f"holds embeddings of {self.dimension}; delete that folder if it is another encoder's"
            )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            units = (vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)).astype(np.float16)
        rows = np.zeros(len(digests), self._kind())
        rows["sha256"] = np.frombuffer(b"".join(digests), f"V{_KEY_BYTES}")
        rows["vector"] = units
        try:
            append_whole(self._rows, rows[np.isfinite(units).all(axis=1)].tobytes(), durable=True)
        except OSError as error:
            raise MedTasksError(
                f"cannot write {self._rows}: {error.strerror or error}; make room and run it again, nothing that is in "
                f"it is computed again"
            ) from error

    def _read_facts(self) -> None:
        facts = self._folder / "encoder.json"
        try:
            self.dimension = int(json.loads(facts.read_bytes())["dimension"])
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError):
            raise MedTasksError(
                f"{facts} is damaged; delete {self._folder}, its embeddings are computed again"
            ) from None

    def _note(self, dimension: int) -> None:
        facts = {"encoder": self._encoder.name, "digest": self._encoder.digest, "dimension": dimension}
        with written_whole(self._folder / "encoder.json") as partial:
            partial.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        self.dimension = dimension

    def _kind(self) -> np.dtype[Any]:
        return np.dtype([("sha256", f"V{_KEY_BYTES}"), ("vector", "<f2", (self.dimension or 0,))])

    def _mapped(self) -> Any:
        kind = self._kind()
        whole = self._rows.stat().st_size // kind.itemsize if self.dimension and self._rows.is_file() else 0
        return np.memmap(self._rows, kind, "r", shape=(whole,)) if whole else np.zeros(0, kind)

    def _drop_torn_row(self) -> None:
        if self.dimension and self._rows.is_file():
            size, each = self._rows.stat().st_size, self._kind().itemsize
            if size % each:
                os.truncate(self._rows, size - size % each)
