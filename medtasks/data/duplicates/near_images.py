"""Near-duplicates among images: candidates by their hashes, confirmed by their details."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from medtasks.data.duplicates.image_hashes import (
    BITS,
    DISTANCE,
    LIKENESS,
    TURNS,
    ImageHash,
    close_pairs,
    details,
    perceptual_hash,
    read_image,
    side_compared,
    sketches,
    stacked,
    turned,
)
from medtasks.errors import MedTasksError

_MOST_PAIRS = 1_000_000
_DETAILS_KEPT = 20_000  # vectors, about 160 MB


@dataclass(frozen=True)
class Alike:
    """Resemblance of two images."""

    distance: int  # bits that differ in their hashes, of 256
    likeness: float  # correlation of their details, up to 1
    turn: str = ""  # orientation of one of them, of ``perceptual_hash.TURNS``; empty if both are laid the same way
    inverted: bool = False  # whether dark is bright in one of them


@dataclass(frozen=True)
class _View:
    image: int
    file: Path
    size: tuple[int, int]
    sketch: int  # 0 for the whole image, 1 for the part inside its border
    turn: str


class Looks:
    """Views of images and their hashes; images of a single grey have none.

    With ``any_turn`` also the mirrored and rotated views, for which every image is read at once.
    """

    def __init__(self, images: Sequence[tuple[Path, ImageHash]], *, any_turn: bool = False) -> None:
        self.views: list[_View] = []
        hashes: list[str] = []
        with ThreadPoolExecutor() as workers:
            files = [file for file, _ in images]
            read = workers.map(_sketches, files) if any_turn else [[] for _ in files]
            for number, ((file, known), upright) in enumerate(zip(images, read, strict=True)):
                self.views += [_View(number, file, known.size, at, "") for at in range(len(known.views))]
                hashes += known.views
                for turn in list(TURNS)[1:]:
                    self.views += [_View(number, file, known.size, at, turn) for at in range(len(upright))]
                    hashes += [perceptual_hash(turned(sketch, turn)) for sketch in upright]
        self.hashes = stacked(hashes)


def near(first: Looks, second: Looks, distance: int) -> dict[tuple[int, int], Alike]:
    """Find all images that look the same, in two sets or, given the same object twice, in one.

    Returns the closest resemblance, by number of the image in ``first`` and in ``second``; the smaller number first
    where both are the same. More than a million pairs are a MedTasksError: that says nothing about any of them.
    """
    pairs: dict[tuple[int, int], Alike] = {}
    likeness_of = _likenesses()

    def confirmed(row: int, other: int, bits: int, inverted: bool) -> tuple[tuple[int, int], Alike] | None:
        one, two = first.views[row], second.views[other]
        likeness = None if first is second and one.image >= two.image else likeness_of(one, two, inverted)
        return None if likeness is None else ((one.image, two.image), Alike(bits, likeness, one.turn, inverted))

    with (
        ThreadPoolExecutor() as workers,
        tqdm(desc="Comparing", total=len(second.hashes), unit="image", leave=False, disable=None) as bar,
    ):
        for end, *candidates in close_pairs(first.hashes, second.hashes, distance):
            for match in workers.map(confirmed, *(column.tolist() for column in candidates)):
                if match and (match[0] not in pairs or match[1].likeness > pairs[match[0]].likeness):
                    pairs[match[0]] = match[1]
            bar.update(end - bar.n)
            if len(pairs) > _MOST_PAIRS:
                raise MedTasksError(
                    f"more than {_MOST_PAIRS:,} pairs of pictures look the same; nearly all are of one kind, so take a "
                    f"smaller --distance than {distance}"
                )
    return pairs


def near_pairs(images: Sequence[tuple[Path, ImageHash]], pairs: Iterable[tuple[int, int]]) -> list[bool]:
    """Return which pairs of images, by their numbers, look the same when both are laid as they are."""
    likeness_of = _likenesses()
    views = [
        [(_View(number, file, known.size, at, ""), int(view, 16)) for at, view in enumerate(known.views)]
        for number, (file, known) in enumerate(images)
    ]
    with ThreadPoolExecutor() as workers:
        close = [
            [
                workers.submit(likeness_of, one, two, bits > BITS // 2)
                for (one, first_hash), (two, second_hash) in product(views[first], views[second])
                if min(bits := (first_hash ^ second_hash).bit_count(), BITS - bits) <= DISTANCE
            ]
            for first, second in pairs
        ]
        return [any(likeness.result() is not None for likeness in of_pair) for of_pair in close]


def _likenesses() -> Callable[[_View, _View, bool], float | None]:
    """Return a function that gives the likeness of two views, None if they differ; it keeps the details it has read."""

    @lru_cache(_DETAILS_KEPT)
    def details_of(view: _View, side: int) -> npt.NDArray[np.float16]:
        upright = _sketches(view.file)
        if view.sketch >= len(upright):  # the image cannot be read any more
            return np.zeros(side * side, np.float16)
        return details(turned(upright[view.sketch], view.turn), side).astype(np.float16)

    def likeness_of(one: _View, two: _View, inverted: bool) -> float | None:
        side = side_compared(one.size, two.size)
        product_of_details = float(details_of(one, side).astype(np.float32) @ details_of(two, side).astype(np.float32))
        likeness = min(-product_of_details if inverted else product_of_details, 1.0)
        return likeness if likeness >= LIKENESS[side] else None

    return likeness_of


def _sketches(file: Path) -> list[npt.NDArray[np.uint8]]:
    try:
        return sketches(read_image(file)[0])
    except OSError:  # it was there when it was hashed
        return []
