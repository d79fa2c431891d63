"""Embeddings on disk, so that no image is embedded twice.

``MEDTASKS_HOME/embeddings/<digest of the encoder>.sqlite`` holds a vector of length 1 in float16 for each image, by the
SHA-256 of its file. A batch is on disk before the next one is computed.
"""

import io
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from medtasks.curate.pairs.encoders import Encoder
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.decoding import LINEAR, decoded, fault_of_kind
from medtasks.errors import MedTasksError, one_line
from medtasks.home import home
from medtasks.net.disk_cache import SqliteCache

FOLDER = "embeddings"
UNREADABLE, UNUSABLE = "image cannot be read", "without a usable embedding"
_BYTES = 2  # of a number in float16
_GIVE_UP = 8  # images in a row that an encoder fails on
# Decoders of rare formats raise whatever their bugs make of a damaged file.
_BROKEN = (ArithmeticError, AttributeError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class Embedded:
    """The embeddings of images by one encoder."""

    dimension: int
    vectors: npt.NDArray[np.float16]  # shape (embedded images, dimension), of length 1, in the order of ``kept``
    kept: npt.NDArray[np.int64]  # numbers of the images that have a vector, rising
    left_out: Counter[str]  # number of other images by reason


def file_digests(files: Sequence[Path]) -> list[bytes]:
    """Return the SHA-256 of each file; empty for a file that cannot be read."""

    def digest(file: Path) -> bytes:
        try:
            return bytes.fromhex(file_sha256(file))
        except OSError:
            return b""

    with ThreadPoolExecutor() as workers:
        return list(tqdm(workers.map(digest, files), "Reading", len(files), unit="image", leave=False, disable=None))


def embedded(files: Sequence[Path], digests: Sequence[bytes], encoder: Encoder, batch_size: int) -> Embedded:
    """Return the embeddings of image files by their SHA-256, computing those that are not on disk yet.

    MedTasksError: the encoder gives no vectors, or ones of another dimension than those on disk; or the disk is full.
    Embeddings computed before are kept.
    """
    store = _Store(home() / FOLDER / f"{encoder.digest}.sqlite", ("images", "vector"), "", disposable=True)
    reasons = {b"": UNREADABLE}
    stored = dict(store.get(set(digests)))
    todo = {digest: file for digest, file in zip(digests, files, strict=True) if digest and digest not in stored}
    encode: _Encoding | None = None
    most_failures = _GIVE_UP if stored else min(_GIVE_UP, len(todo))
    with tqdm(desc="Embedding", total=len(todo), unit="image", disable=None if todo else True) as bar:
        for batch in _decoded_batches(todo, batch_size):
            reasons.update((digest, image) for digest, image in batch if isinstance(image, str))
            images = {digest: image for digest, image in batch if not isinstance(image, str)}
            if images:
                encode = encode or _Encoding(encoder, most_failures)
                vectors = encode(list(images.values()))
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
                    units = zip(images, (vectors / lengths).astype(np.float16), strict=True)
                new = {digest: unit.tobytes() for digest, unit in units if unit.size and np.isfinite(unit).all()}
                before, now = (len(next(iter(vectors.values()), b"")) // _BYTES for vectors in (stored, new))
                if before and now and before != now:
                    raise MedTasksError(
                        f"the encoder {encoder.name} gives {now} numbers per image, and {store.path} holds embeddings "
                        f"of {before}; delete that file if it is another encoder's"
                    )
                store.put(new)
                stored.update(new)
            bar.update(len(batch))
    numbers = [number for number, digest in enumerate(digests) if digest in stored]
    left_out = Counter(reasons.get(digest, UNUSABLE) for digest in digests if digest not in stored)
    dimension = len(next(iter(stored.values()), b"")) // _BYTES
    joined = np.frombuffer(b"".join(stored[digests[number]] for number in numbers), np.float16)
    return Embedded(dimension, joined.reshape(len(numbers), dimension), np.array(numbers, np.int64), left_out)


def _decoded_batches(todo: Mapping[bytes, Path], size: int) -> Iterator[list[tuple[bytes, Image.Image | str]]]:
    """Decode a batch while the one before it is encoded; for an image that cannot be read, yield the reason."""

    def decode(file: Path) -> Image.Image | str:
        try:
            return decoded(io.BytesIO(file.read_bytes()), LINEAR).pixels
        except _BROKEN as error:
            return (isinstance(error, OSError) and fault_of_kind(error)) or UNREADABLE

    waiting: deque[list[tuple[bytes, Future[Image.Image | str]]]] = deque()
    items = list(todo.items())
    with warnings.catch_warnings(), ThreadPoolExecutor() as workers:
        warnings.simplefilter("ignore")  # of decoders about metadata, which may name a file or a patient
        for start in range(0, len(items) + size, size) if items else ():
            waiting.append([(digest, workers.submit(decode, file)) for digest, file in items[start : start + size]])
            if len(waiting) == 2:
                yield [(digest, image.result()) for digest, image in waiting.popleft()]


class _Encoding:
    """Encodes batches, and the images of a batch that fails one by one: an odd image must not end a long run."""

    def __init__(self, encoder: Encoder, most_failures: int) -> None:
        self._encode, self._name, self._most = encoder.load(), encoder.name, most_failures
        self._failures = 0  # in a row

    def __call__(self, images: Sequence[Image.Image]) -> npt.NDArray[np.float32]:
        """Return vectors of shape (images, dimension): zeros for images that fail, of dimension 0 if all do."""
        try:
            vectors = np.asarray(self._encode(images), np.float32)
        except MedTasksError:
            raise
        except Exception as error:
            if len(images) > 1:
                parts = [self([image]) for image in images]
                sizes = {part.shape[1] for part in parts} - {0}
                if len(sizes) > 1:
                    raise MedTasksError(
                        f"the encoder {self._name} gives vectors of different lengths; take another"
                    ) from None
                return np.concatenate([part if part.size else np.zeros((1, max(sizes, default=0))) for part in parts])
            self._failures += 1
            if self._failures >= self._most:
                fix = "give a smaller --batch-size" if "memory" in str(error) else "take another"
                raise MedTasksError(
                    f"the encoder {self._name} fails ({one_line(error)}); {fix}, what it has embedded before is kept"
                ) from error
            return np.zeros((1, 0), np.float32)
        if vectors.ndim != 2 or vectors.shape[0] != len(images) or not vectors.shape[1]:
            raise MedTasksError(
                f"the encoder {self._name} returned an array of shape {vectors.shape} for {len(images)} images; it has "
                f"to return one of shape ({len(images)}, dimension)"
            )
        self._failures = 0
        return vectors


class _Store(SqliteCache):
    """Vectors of one encoder, by the SHA-256 of the image's file."""

    def failed(self, error: Exception) -> None:
        """Raise, because vectors that are not kept are lost."""
        raise MedTasksError(
            f"cannot keep embeddings in {self.path} ({error}); make room and run it again, nothing that is in it is "
            f"computed again"
        ) from error
