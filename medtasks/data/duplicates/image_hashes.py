"""Image files below folders, their hashes, and the features by which two images look the same.

Medical images of one kind look alike, so a short hash with a generous distance calls every chest X-ray a copy of
every other. Here a pair counts as near-duplicate when both hold:

1. The 256-bit DCT hashes (``imagehash.phash`` with ``hash_size=16``) differ in at most :data:`DISTANCE` bits, or in at
   least 256 less that many, which an inverted image does.
2. The details correlate by at least :data:`LIKENESS`: sketches of 64 x 64 pixels (28 x 28 where an image is smaller
   than 56) without their slow variation of brightness and with equal local contrast.

Measured by ``benchmarks/duplicate_recall.py`` on synthetic images, 1,000 each of eight kinds: of 499,500 pairs of
different images of a kind at most 18 count as copies (eyes; by the hash alone 296). Detected are all copies that were
re-encoded, resized by a factor of 1/4 to 2, changed in brightness or contrast, noisy, softened, inverted or given a
border; 99.6 % of those with a line of text or cropped by 1 %; 64 % with equalised histogram; hardly any cropped by 2 %
or more, or rotated by 3 degrees. Neighbouring slices of a volume or frames of a video may count as copies.
"""

import hashlib
import io
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import BaseModel, ValidationError
from tqdm import tqdm

from medtasks.data.images.decoding import decode_for_viewing
from medtasks.data.images.image_store import pixels_sha256
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import read_file
from medtasks.errors import MedTasksError
from medtasks.home import file_state, home
from medtasks.net.disk_cache import SqliteCache

BITS = 256
DISTANCE = 40
"""Default limit on the bits that differ in the hashes of near-duplicates."""
SIDE, TINY_SIDE = 64, 28
LIKENESS = {SIDE: 0.85, TINY_SIDE: 0.985}
"""Least correlation of the details of near-duplicates, by the side of the sketches compared."""

Size = tuple[int, int]  # width and height in pixels
ImagePair = tuple[int, int]  # positions of two images, of one set or of two
Sketch = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]

_SMALLEST = 56  # pixels of the shorter side; a quarter of the usual 224
_FLAT = 8  # grey levels
_BORDER = 4  # grey levels that a plain border may vary by, which JPEG makes of a single one
_SPECKS = 0.005  # share of a border's line that may differ more
_CORE = 0.2  # an image that is narrower than this without its border has none
_BLUR = 2.0  # pixels
_FLOOR = 4.0  # grey levels of contrast below which there is only noise
_ROWS = 8  # hashes compared with all others at once
_BLOCK = 4096  # and between two results
CACHE_NAME = "picture_hashes.sqlite"
_VERSION = 3  # of the hashes; hashes of another version are not used
_CHUNK = 1000  # files between two writes to the cache
_CANNOT_KEEP = (
    "Hashes of images cannot be kept in {path} ({error}); the search goes on, "
    "and the next one hashes them again."
)
# Decoders of rare formats raise any of these on damaged files; one such file must not end the search.
_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
DICOM_ENDINGS = (".dcm", ".dicom", ".ima")
_MOST_PAIRS = 1_000_000
_DETAILS_KEPT = 20_000  # vectors, about 160 MB


def sketches(image: Image.Image) -> list[Sketch]:
    """Return 64 x 64 grey versions of an image and of its part inside a plain border.

    Returns:
        Two of them, one for an image without a border, and none for a flat image.

    Example:
        >>> [sketch.shape for sketch in sketches(Image.radial_gradient("L"))]
        [(64, 64)]
        >>> sketches(Image.new("L", (100, 100)))
        []
    """
    grey = image.convert("L")
    whole = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    if int(whole.max()) - int(whole.min()) <= _FLAT:
        return []
    pixels = np.asarray(grey)
    height, width = pixels.shape
    left = _plain_lines(pixels.T)
    top = _plain_lines(pixels)
    right = width - _plain_lines(pixels.T[::-1])
    bottom = height - _plain_lines(pixels[::-1])
    box = (left, top, right, bottom)
    core = min((right - left) / width, (bottom - top) / height)
    if box == (0, 0, width, height) or core < _CORE:
        return [whole]
    inside = grey.crop(box).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return [whole, np.asarray(inside)]


def _plain_lines(lines: npt.NDArray[np.uint8]) -> int:
    """Count the lines, from the first on, that have its grey."""
    level = float(np.median(lines[0]))
    for number, line in enumerate(lines):
        if np.count_nonzero(np.abs(line - level) > _BORDER) / line.size > _SPECKS:
            return number
    return len(lines)


def perceptual_hash(sketch: Sketch) -> str:
    """Return the hash of a sketch: 64 hexadecimal digits."""
    import imagehash

    return str(imagehash.phash(Image.fromarray(sketch), hash_size=16, highfreq_factor=4))


def stack_hashes(hashes: Sequence[str]) -> Hashes:
    """Return hashes in hexadecimal digits as an array of shape (hashes, 4).

    Example:
        >>> stack_hashes(["0" * 64, "f" * 64]).shape
        (2, 4)
    """
    return np.frombuffer(bytes.fromhex("".join(hashes)), np.uint64).reshape(-1, BITS // 64)


def sketch_side(first: Size, second: Size) -> int:
    """Return the side of the sketches to compare two images by, given their sizes in pixels.

    Example:
        >>> sketch_side((512, 512), (1024, 768)), sketch_side((512, 512), (28, 28))
        (64, 28)
    """
    return SIDE if min(*first, *second) >= _SMALLEST else TINY_SIDE


def details(sketch: Sketch, side: int) -> npt.NDArray[np.float32]:
    """Return the features that tell images of one kind apart.

    Args:
        sketch: Shape (64, 64).
        side: Of the square that it is reduced to, see :func:`sketch_side`.

    Returns:
        A vector of shape (side * side,). The product of two is the correlation of their details.
    """
    from scipy import ndimage  # type: ignore[import-untyped]  # it has no types

    if side == SIDE:
        grey = np.asarray(sketch, np.float32)
    else:
        # Sketches of a large image hold more than those of a small one until both are reduced.
        reduced = Image.fromarray(sketch).resize((side, side), Image.Resampling.BICUBIC)
        grey = np.asarray(reduced, np.float32)
    fine = grey - ndimage.gaussian_filter(grey, _BLUR, mode="nearest")
    contrast = np.sqrt(ndimage.gaussian_filter(fine * fine, 1.5 * _BLUR, mode="nearest"))
    even = (fine / (contrast + _FLOOR)).ravel()
    even -= even.mean()
    vector: npt.NDArray[np.float32] = even / max(float(np.linalg.norm(even)), 1e-6)
    return vector


def close_pairs(
    first: Hashes,
    second: Hashes,
    distance: int,
) -> Iterator[tuple[int, Any, Any, Any, Any]]:
    """Find the pairs of hashes that differ in few bits, or in nearly all.

    Args:
        first: Shape (n, 4).
        second: Shape (m, 4).
        distance: Most bits that differ, or that do not.

    Yields:
        For parts of ``second``, in order: the part's end, and four arrays of equal length: row in ``first``, row in
        ``second``, bits that differ (or do not), and whether one image is inverted.
    """
    words = np.ascontiguousarray(first.T)

    def compare(start: int) -> tuple[Any, ...]:
        """Return the columns that :func:`close_pairs` yields, for the rows of ``second`` from ``start`` on."""
        rows = second[start : min(start + _ROWS, end)]
        differ = np.zeros((len(rows), len(first)), np.uint16)
        for number, word in enumerate(words):
            differ += np.bitwise_count(rows[:, number, None] ^ word)
        other, row = np.nonzero((differ <= distance) | (differ >= BITS - distance))
        bits = differ[other, row].astype(np.int64)
        inverted = bits > BITS // 2
        return row, other + start, np.where(inverted, BITS - bits, bits), inverted

    with ThreadPoolExecutor() as workers:
        for block in range(0, len(second), _BLOCK):
            end = min(block + _BLOCK, len(second))
            parts = list(workers.map(compare, range(block, end, _ROWS)))
            row, other, bits, inverted = map(np.concatenate, zip(*parts, strict=True))
            yield end, row, other, bits, inverted


def read_image(path: Path, data: bytes | None = None) -> tuple[Image.Image, str]:
    """Read an image of any format, and the SHA-256 of its pixels.

    It is decoded by the rule ``linear``, whatever the rule of its dataset, which may lose detail that tells twins.

    Args:
        path: File. Its ending tells DICOM from the rest.
        data: Its content, or None to read it.

    Raises:
        UnreadableImage: It is no image, or damaged. Decoders of rare formats raise other errors, too.
    """
    if path.suffix.lower() in DICOM_ENDINGS:
        from medtasks.data.sources.multimedeval.x_rays import read_dicom

        image = read_dicom(path)
    else:
        image = decode_for_viewing(io.BytesIO(read_file(path) if data is None else data)).pixels
    return image, pixels_sha256(image.convert("RGB"))


class ImageHash(BaseModel, frozen=True):
    """Hashes of one image, in hexadecimal digits."""

    file_sha256: str  # of the file's bytes
    pixels_sha256: str  # of size and RGB pixels
    size: Size
    views: tuple[str, ...]  # hash of each of its sketches, none for an image of a single grey


def hash_images(files: Sequence[Path]) -> tuple[dict[Path, ImageHash], dict[Path, str]]:
    """Hash images on all processors.

    A file whose path, size and time of change are those of an earlier call is not decoded again.

    Args:
        files: Of any format that Pillow or pydicom reads.

    Returns:
        The hashes by file, and the error message of each unreadable file.
    """
    cache = SqliteCache(
        home() / CACHE_NAME, ("pictures", "hash"), _CANNOT_KEEP, disposable=True
    )
    hashes = {}
    errors = {}
    total = len(files)
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor() as workers,
        tqdm(
            desc="Hashing images", total=total, unit="image", leave=False, disable=None
        ) as bar,
    ):
        # Decoders warn about metadata, and may name a file or a patient.
        warnings.simplefilter("ignore")
        for start in range(0, total, _CHUNK):
            part = files[start : start + _CHUNK]
            # Keys change when a file does, and do not show its path. Missing files have none.
            keys = {}
            for path in part:
                with suppress(OSError):
                    state = f"{_VERSION}\0{path.absolute()}\0{file_state(path)}"
                    digest = hashlib.sha256(state.encode("utf-8", "surrogateescape"))
                    keys[path] = digest.digest()
            cached = cache.get(keys.values())
            for path, key in keys.items():
                # An image may be new, or its hash damaged.
                with suppress(KeyError, ValidationError):
                    hashes[path] = ImageHash.model_validate_json(cached[key])
            missing = [path for path in part if path not in hashes]
            made = {}
            for path, result in zip(missing, workers.map(_hash_file, missing), strict=True):
                if isinstance(result, str):
                    errors[path] = result
                    continue
                hashes[path] = result
                if path in keys:
                    made[keys[path]] = result.model_dump_json().encode()
            cache.put(made)
            bar.update(len(part))
    return hashes, errors


def _hash_file(path: Path) -> ImageHash | str:
    """Return the hash of an image, or why it cannot be read."""
    try:
        data = read_file(path)
        image, pixels = read_image(path, data)
        views = tuple(perceptual_hash(sketch) for sketch in sketches(image))
        digest = hashlib.sha256(data).hexdigest()
        return ImageHash(file_sha256=digest, pixels_sha256=pixels, size=image.size, views=views)
    except UnreadableImage as error:
        return str(error)
    except _FAILURES as error:
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        return f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class Resemblance:
    """Resemblance of two images."""

    distance: int  # bits that differ in their hashes, of 256
    likeness: float  # correlation of their details, up to 1
    inverted: bool = False  # whether dark is bright in one of them


@dataclass(frozen=True)
class _View:
    image: int
    file: Path
    size: Size
    sketch: int  # 0 for the whole image, 1 for the part inside its border


class ImageViews:
    """Views of images and their hashes, none of a single grey."""

    def __init__(self, images: Sequence[tuple[Path, ImageHash]]) -> None:
        self.views: list[_View] = []
        hashes: list[str] = []
        for number, (file, image) in enumerate(images):
            hashes += image.views
            for sketch in range(len(image.views)):
                self.views.append(_View(number, file, image.size, sketch))
        self.hashes = stack_hashes(hashes)


def near(
    first: ImageViews,
    second: ImageViews,
    distance: int,
) -> dict[ImagePair, Resemblance]:
    """Find all images that look the same, in two sets or, given the same object twice, in one.

    Args:
        first: Views of the images of a set.
        second: Those of another set, or the same object.
        distance: Most bits that differ in the hashes of images that look the same.

    Returns:
        The closest resemblance by number of the image in ``first`` and in ``second``, in one set the smaller number
        first.

    Raises:
        MedTasksError: More than a million pairs look the same, which says nothing about any of them.
    """
    pairs: dict[ImagePair, Resemblance] = {}
    likeness_of = _likenesses()

    def resemblance_of(
        row: int,
        other: int,
        bits: int,
        inverted: bool,
    ) -> tuple[ImagePair, Resemblance] | None:
        """Return the images of two views and their resemblance.

        None if their details differ, and in one set for one image and for a pair in the other order.
        """
        view = first.views[row]
        twin = second.views[other]
        if first is second and view.image >= twin.image:
            return None
        likeness = likeness_of(view, twin, inverted)
        if likeness is None:
            return None
        return (view.image, twin.image), Resemblance(bits, likeness, inverted)

    total = len(second.hashes)
    with (
        ThreadPoolExecutor() as workers,
        tqdm(desc="Comparing", total=total, unit="image", leave=False, disable=None) as bar,
    ):
        for end, *candidates in close_pairs(first.hashes, second.hashes, distance):
            columns = [column.tolist() for column in candidates]
            for pair, resemblance in filter(None, workers.map(resemblance_of, *columns)):
                closest = pairs.setdefault(pair, resemblance)
                if resemblance.likeness > closest.likeness:
                    pairs[pair] = resemblance
            bar.update(end - bar.n)
            if len(pairs) > _MOST_PAIRS:
                raise MedTasksError(
                    f"more than {_MOST_PAIRS:,} pairs of images look the same; nearly all are of one kind, so take a "
                    f"smaller --distance than {distance}"
                )
    return pairs


def near_pairs(
    images: Sequence[tuple[Path, ImageHash]], pairs: Iterable[ImagePair]
) -> list[bool]:
    """Return for each pair of images, in order, whether they look the same. Unlike :func:`near` it skips other pairs.

    Args:
        images: Files and their hashes.
        pairs: Positions in ``images``.
    """
    looks = ImageViews(images)
    likeness_of = _likenesses()
    rows: dict[int, list[int]] = defaultdict(list)
    for row, view in enumerate(looks.views):
        rows[view.image].append(row)

    def are_near(pair: ImagePair) -> bool:
        """Return whether a view of one image looks like a view of the other."""
        for first, second in product(*(rows.get(image, ()) for image in pair)):
            bits = int(np.bitwise_count(looks.hashes[first] ^ looks.hashes[second]).sum())
            if min(bits, BITS - bits) > DISTANCE:
                continue
            inverted = bits > BITS // 2
            if likeness_of(looks.views[first], looks.views[second], inverted):
                return True
        return False

    with ThreadPoolExecutor() as workers:
        return list(workers.map(are_near, pairs))


def _likenesses() -> Callable[[_View, _View, bool], float | None]:
    """Return a function that gives the likeness of two views, None if they differ, and caches their details."""

    @lru_cache(_DETAILS_KEPT)
    def details_of(view: _View, side: int) -> npt.NDArray[np.float16]:
        try:
            sketch = sketches(read_image(view.file)[0])[view.sketch]
        except (OSError, IndexError):  # it could be read when it was hashed
            return np.zeros(side * side, np.float16)
        return details(sketch, side).astype(np.float16)

    def likeness_of(view: _View, twin: _View, inverted: bool) -> float | None:
        """Return the correlation of the details of two views, or None if it is too low for copies."""
        side = sketch_side(view.size, twin.size)
        correlation = float(
            details_of(view, side).astype(np.float32)
            @ details_of(twin, side).astype(np.float32)
        )
        likeness = min(-correlation if inverted else correlation, 1.0)
        return likeness if likeness >= LIKENESS[side] else None

    return likeness_of
