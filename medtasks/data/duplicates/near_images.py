"""Near-duplicates among images: candidates by their hashes, confirmed by their details."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from medtasks.data.duplicates.image_files import ImageHash, read_image
from medtasks.data.duplicates.perceptual_hash import (
    LIKENESS,
    TURNS,
    Sketch,
    close_pairs,
    details,
    perceptual_hash,
    side_compared,
    sketches,
    stacked,
    turned,
)
from medtasks.errors import MedTasksError

_CONFIRMED_AT_ONCE = 1024
_READ_AT_ONCE = 256
_MOST_FOUND = 1_000_000


@dataclass(frozen=True)
class Alike:
    """How two images resemble each other."""

    distance: int  # bits that differ in their hashes, of 256
    likeness: float  # correlation of their details, up to 1
    turn: str = ""  # how one is laid, of ``perceptual_hash.TURNS``; empty if both are laid the same way
    inverted: bool = False  # whether dark is bright in one of them


class Looks:
    """What images look like: their hashes at hand, their details read when they are asked for.

    Images of a single grey are never near to any. With ``any_turn`` all other ways to lay them are read, at once.
    """

    def __init__(self, images: Sequence[tuple[Path, ImageHash]], *, any_turn: bool = False) -> None:
        self._images = images
        self._sketches: dict[int, list[Sketch]] = {}
        self._details: dict[tuple[int, int], npt.NDArray[np.float16]] = {}
        if any_turn:
            self._read(range(len(images)))
        self.rows: list[tuple[int, int, str]] = []
        hashes: list[bytes] = []
        for number, (_, known) in enumerate(images):
            for view, upright in enumerate(known.views):
                self.rows.append((number, view, ""))
                hashes.append(upright)
                for turn in list(TURNS)[1:] if any_turn and view < len(self._sketches[number]) else ():
                    self.rows.append((number, view, turn))
                    hashes.append(perceptual_hash(turned(self._sketches[number][view], turn)))
        self.hashes = stacked(hashes)
        self.numbers = np.array([number for number, _, _ in self.rows], np.int64)

    def size(self, row: int) -> tuple[int, int]:
        """Return width and height of the image of a row."""
        return self._images[self.rows[row][0]][1].size

    def details(self, rows: Sequence[int], side: int) -> npt.NDArray[np.float32]:
        """Return details of rows, shape (rows, side * side); zeros for an image that cannot be read any more."""
        new = [row for row in dict.fromkeys(rows) if (row, side) not in self._details]
        self._read(self.rows[row][0] for row in new)
        shown = [self._sketch(row) for row in new]
        if shown:
            made = details(np.stack(shown), side).astype(np.float16)
            self._details.update(((row, side), vector) for row, vector in zip(new, made, strict=True))
        return np.stack([self._details[row, side] for row in rows]).astype(np.float32)

    def forget(self) -> None:
        """Free what was read."""
        self._sketches.clear()
        self._details.clear()

    def _sketch(self, row: int) -> Sketch:
        number, view, turn = self.rows[row]
        read = self._sketches[number]
        return turned(read[view], turn) if view < len(read) else np.zeros((64, 64), np.uint8)

    def _read(self, numbers: Any) -> None:
        new = [number for number in dict.fromkeys(numbers) if number not in self._sketches]
        with ThreadPoolExecutor() as workers:
            for start in range(0, len(new), _READ_AT_ONCE):
                part = new[start : start + _READ_AT_ONCE]
                files = [self._images[number][0] for number in part]
                self._sketches.update(zip(part, workers.map(_read_sketches, files), strict=True))


def near(first: Looks, second: Looks, distance: int) -> dict[tuple[int, int], Alike]:
    """Find all images that look the same, in two sets or, given the same object twice, in one.

    Returns the closest resemblance, by number of the image in ``first`` and in ``second``; the smaller number first
    where both are the same. More than a million pairs are a MedTasksError: that says nothing about any of them.
    """
    found: dict[tuple[int, int], Alike] = {}
    with tqdm(desc="Comparing", total=len(second.hashes), unit="picture", leave=False, disable=None) as bar:
        for end, row, other, bits, inverted in close_pairs(first.hashes, second.hashes, distance):
            pairs = first.numbers[row], second.numbers[other]
            wanted = pairs[0] < pairs[1] if first is second else np.full(len(row), True)
            _confirm(first, second, [part[wanted] for part in (row, other, bits, inverted)], found)
            if first is not second:
                second.forget()  # a large folder is met once, in order
            bar.update(end - bar.n)
            if len(found) > _MOST_FOUND:
                raise MedTasksError(
                    f"more than {_MOST_FOUND:,} pairs of pictures look the same; nearly all are of one kind, so take a "
                    f"smaller --distance than {distance}"
                )
    return found


def _confirm(first: Looks, second: Looks, candidates: Sequence[Any], found: dict[tuple[int, int], Alike]) -> None:
    rows, others, bits, inverted = candidates
    sides = np.array(
        [side_compared(first.size(row), second.size(other)) for row, other in zip(rows, others, strict=True)], np.int64
    )
    for side, least in LIKENESS.items():
        of_side = np.flatnonzero(sides == side)
        for start in range(0, len(of_side), _CONFIRMED_AT_ONCE):
            part = of_side[start : start + _CONFIRMED_AT_ONCE]
            product = first.details(rows[part].tolist(), side) * second.details(others[part].tolist(), side)
            likeness = np.where(inverted[part], -1, 1) * product.sum(axis=1)
            for at in np.flatnonzero(likeness >= least):
                row, other = int(rows[part[at]]), int(others[part[at]])
                pair = first.rows[row][0], second.rows[other][0]
                alike = Alike(
                    int(bits[part[at]]), min(float(likeness[at]), 1.0), first.rows[row][2], bool(inverted[part[at]])
                )
                if pair not in found or alike.likeness > found[pair].likeness:
                    found[pair] = alike


def _read_sketches(file: Path) -> list[Sketch]:
    try:
        return sketches(read_image(file)[0])
    except OSError:  # it was there when it was hashed
        return []
