"""Embeddings on disk: one SQLite file per encoder under ``MEDTASKS_HOME``, so that no image is embedded twice.

``embeddings/<digest of the encoder>.sqlite`` holds the vector of each image, of length 1 in float16, by the SHA-256 of
its file. A batch is on disk before the next one is computed.
"""

import hashlib
import io
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from medtasks.curate.encoders import Encoder
from medtasks.data.decoding import LINEAR, decoded, mend_of
from medtasks.data.home import home
from medtasks.data.sqlite_cache import SqliteCache
from medtasks.errors import MedTasksError

FOLDER = "embeddings"
UNREADABLE, UNUSABLE = "image cannot be read", "without a usable embedding"
Half = npt.NDArray[np.float16]
_BYTES = 2  # of a number in float16
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
        MedTasksError: The encoder gives no vectors, or ones of another dimension than those on disk; or the disk is
            full. What was computed before is kept.
    """
    store = _Store(encoder)
    failed = {b"": UNREADABLE}
    known = dict(store.get(set(digests)))
    todo = {digest: file for digest, file in zip(digests, files, strict=True) if digest and digest not in known}
    if todo:
        encode: _Encoding | None = None
        most_failures = min(_GIVE_UP, len(todo)) if not known else _GIVE_UP
        with tqdm(desc="Embedding", total=len(todo), unit="image", disable=None) as bar:
            for batch in _decoded_batches(todo, batch_size):
                failed.update((digest, why) for digest, why in batch if isinstance(why, str))
                seen = [(digest, image) for digest, image in batch if not isinstance(image, str)]
                if seen:
                    encode = encode or _Encoding(encoder, most_failures)
                    vectors = _units(encode([image for _, image in seen]))
                    new = {digest: vector for (digest, _), vector in zip(seen, vectors, strict=True) if vector}
                    store.check(known, new)
                    store.put(new)
                    known.update(new)
                bar.update(len(batch))
    kept = [number for number, digest in enumerate(digests) if digest in known]
    left_out = Counter(failed.get(digest, UNUSABLE) for digest in digests if digest not in known)
    dimension = len(next(iter(known.values()), b"")) // _BYTES
    vectors_of_kept = np.frombuffer(b"".join(known[digests[number]] for number in kept), np.float16)
    return Embedded(dimension, vectors_of_kept.reshape(len(kept), dimension), np.array(kept, np.int64), left_out)


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


def _units(vectors: npt.NDArray[np.float32]) -> list[bytes]:
    """Return vectors at length 1 in float16; nothing for one that is zero or not finite."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        units = (vectors / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)).astype(np.float16)
    return [unit.tobytes() if np.isfinite(unit).all() else b"" for unit in units]


class _Store(SqliteCache):
    """Vectors of one encoder, by the SHA-256 of the image's file."""

    def __init__(self, encoder: Encoder) -> None:
        path = home() / FOLDER / f"{encoder.digest}.sqlite"
        super().__init__(path, ("images", "vector"), "", disposable=True)
        self._name = encoder.name

    def check(self, known: Mapping[bytes, bytes], new: Mapping[bytes, bytes]) -> None:
        """Refuse new vectors of another dimension than the known ones have; all of one batch have the same."""
        before, now = (len(next(iter(vectors.values()), b"")) // _BYTES for vectors in (known, new))
        if before and now and before != now:
            raise MedTasksError(
                f"the encoder {self._name} gives {now} numbers per image, and {self.path} holds embeddings of "
                f"{before}; delete that file if it is another encoder's"
            )

    def failed(self, error: Exception) -> None:
        """Raise, because vectors that are not kept are lost."""
        raise MedTasksError(
            f"cannot keep embeddings in {self.path} ({error}); make room and run it again, nothing that is in it is "
            f"computed again"
        ) from error
