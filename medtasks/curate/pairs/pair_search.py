"""Search for pairs that a medical encoder finds alike and a vision-only one does not (MediConfusion, section 2).

All pairs are compared, in blocks of one matrix product of the medical embeddings and, where few pass, the general
similarity of those alone. Similarity is the cosine of two embeddings, rounded to six digits: they are kept in float16,
which moves it in the fourth.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from medtasks.errors import MedTasksError

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]

MOST_PAIRS = 1_000_000
"""Of more pairs than these, those with the largest gaps are kept."""
_CHUNK = 8192  # embeddings or pairs of them in memory at once in full precision
_ROUGH = 1e-4  # error allowed for similarities computed in float32
_DIGITS = 6
_ROWS, _COLUMNS = 1024, 4096  # of one block of similarities: 16 MB
_FEW = 0.02  # share of a block from which the product of the whole block is faster than gathering
_TYPICAL = 2000  # pairs drawn to describe the usual similarities


@dataclass(frozen=True)
class Limits:
    """Limits of similarity that make a pair confusing."""

    sim_med: float = 0.9  # at least
    sim_gen: float = 0.75  # at most

    def met(self, sim_med: Any, sim_gen: Any) -> Any:
        """Return whether pairs of such similarities are confusing.

        Example:
            >>> Limits().met(0.9, 0.75), Limits().met(0.9, 0.76)
            (True, False)
        """
        return (sim_med >= self.sim_med) & (sim_gen <= self.sim_gen)


class Space:
    """The embeddings of one encoder, of any length."""

    def __init__(self, vectors: Floats) -> None:
        self.vectors: npt.NDArray[np.float32] = vectors.astype(np.float32)
        self.lengths = np.empty(len(vectors), np.float64)
        for part in _slices(len(vectors)):
            self.lengths[part] = np.linalg.norm(vectors[part].astype(np.float64), axis=1)
        if not (np.isfinite(self.lengths) & (self.lengths > 0)).all():
            raise MedTasksError("an embedding is zero or no number; leave its image out")

    def block(self, start: int, size: int) -> npt.NDArray[np.float32]:
        """Return ``size`` vectors at length 1."""
        part = slice(start, start + size)
        return np.asarray(self.vectors[part] / self.lengths[part].astype(np.float32)[:, None], np.float32)

    def cosines(self, first: Numbers, second: Numbers, kind: type = np.float32) -> Floats:
        """Return the similarities of pairs, computed in float32 or float64."""
        cosines: Floats = np.empty(len(first), kind)
        for part in _slices(len(first)):
            left, right = first[part], second[part]
            products = np.einsum("nd,nd->n", self.vectors[left].astype(kind), self.vectors[right].astype(kind))
            cosines[part] = products / (self.lengths[left] * self.lengths[right])
        return cosines

    def similarities(self, first: Numbers, second: Numbers) -> Floats:
        """Return the similarities of pairs as they are recorded, in float64."""
        return _rounded(self.cosines(first, second, np.float64))


def _rounded(numbers: Floats) -> Floats:
    """Round similarities, or differences of them, to the digits that count."""
    return np.asarray(np.round(numbers, _DIGITS))


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK))


@dataclass(frozen=True)
class ConfusingPairs:
    """Confusing pairs, the largest gap first; of equal gaps the smallest numbers first."""

    first: Numbers  # number of an image
    second: Numbers  # of the other one, which is larger
    sim_med: Floats  # float64
    sim_gen: Floats
    more: bool  # whether there were more than MOST_PAIRS
    of_one_group: int  # pairs left out because both images are of one group
    compared: int  # pairs that were compared

    def __len__(self) -> int:
        return len(self.first)

    def where(self, mask: npt.NDArray[np.bool_]) -> "ConfusingPairs":
        """Return some of the pairs."""
        parts = {name: getattr(self, name)[mask] for name in ("first", "second", "sim_med", "sim_gen")}
        return replace(self, **parts)


@dataclass
class _Search:
    """State of a search: spaces, limits, and the largest gaps so far."""

    medical: Space
    general: Space
    limits: Limits
    groups: Numbers  # -1: of no group
    most: int
    parts: list[tuple[Floats, ...]] = field(default_factory=list)
    number: int = 0  # of pairs in ``parts``
    floor: float = -math.inf  # gap that a further pair has to reach
    more: bool = False
    of_one_group: int = 0

    def consider(self, first: Numbers, second: Numbers, medical: Floats, general: Floats | None = None) -> None:
        """Keep those pairs that are confusing, given their similarities as computed in float32."""
        rough = self.general.cosines(first, second) if general is None else general
        near = (rough <= self.limits.sim_gen + _ROUGH) & (medical - rough >= self.floor - 2 * _ROUGH)
        first, second = first[near], second[near]
        sim_med, sim_gen = self.medical.similarities(first, second), self.general.similarities(first, second)
        confusing = self.limits.met(sim_med, sim_gen)
        same = confusing & (self.groups[first] == self.groups[second]) & (self.groups[first] >= 0)
        self.of_one_group += int(same.sum())
        good = confusing & ~same
        self.parts.append((first[good], second[good], sim_med[good], sim_gen[good]))
        self.number += int(good.sum())
        if self.number > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        """Sort the pairs, and drop the smallest gaps of too many."""
        pairs = [np.concatenate(part) for part in zip(*self.parts, strict=True)]
        order = np.lexsort((pairs[1], pairs[0], -_rounded(pairs[2] - pairs[3])))
        pairs = [part[order] for part in pairs]
        if len(pairs[0]) > self.most:
            self.more = True
            pairs = [part[: self.most] for part in pairs]
            self.floor = float(pairs[2][-1] - pairs[3][-1])
        self.parts, self.number = [tuple(pairs)], len(pairs[0])

    def compare_all(self) -> None:
        """Compare all images with each other."""
        count = len(self.groups)
        with tqdm(desc="Comparing", total=count, unit="image", leave=False, disable=None) as bar:
            for top in range(0, count, _ROWS):
                rows = self.medical.block(top, _ROWS)
                for left in range(top, count, _COLUMNS):
                    alike = rows @ self.medical.block(left, _COLUMNS).T
                    near = alike >= self.limits.sim_med - _ROUGH
                    if left < top + _ROWS:  # of a block on the diagonal, what is above it
                        near = np.triu(near, top - left + 1)
                    first, second = np.nonzero(near)
                    general = None
                    if len(first) > _FEW * near.size:
                        general = (self.general.block(top, _ROWS) @ self.general.block(left, _COLUMNS).T)[near]
                    self.consider(first + top, second + left, alike[near], general)
                bar.update(len(rows))

    def compare_some(self, sample: int, seed: int) -> None:
        """Compare pairs drawn at random, each once."""
        count = len(self.groups)
        numbers = draw_numbers(count * (count - 1) // 2, sample, seed)
        for start in tqdm(range(0, sample, _CHUNK), "Comparing", unit="batch", leave=False, disable=None):
            number = numbers[start : start + _CHUNK]  # of the pair: (0, 1), (0, 2), (1, 2), (0, 3), ... from 0 on
            second = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
            second -= second * (second - 1) // 2 > number
            second += (second + 1) * second // 2 <= number
            first = number - second * (second - 1) // 2
            alike = self.medical.cosines(first, second)
            near = alike >= self.limits.sim_med - _ROUGH
            self.consider(first[near], second[near], alike[near])

    def result(self, compared: int) -> ConfusingPairs:
        """Return the pairs in order."""
        self.consider(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))  # there may have been none
        self._cut()
        first, second, sim_med, sim_gen = self.parts[0]
        return ConfusingPairs(first, second, sim_med, sim_gen, self.more, self.of_one_group, compared)


def find_pairs(
    medical: Floats,
    general: Floats,
    limits: Limits,
    groups: Numbers | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    most: int = MOST_PAIRS,
) -> ConfusingPairs:
    """Find the confusing pairs of images, never two of one group.

    ``medical`` and ``general`` have the shapes (images, dimension), each of its own dimension and in float16 or
    float32; ``groups`` holds one number per image, -1 for none. With ``sample`` only that many pairs are compared,
    drawn at random as in the paper. Equal input gives equal output.
    """
    count = len(medical)
    if len(general) != count:
        raise ValueError(f"{count} medical and {len(general)} general embeddings")
    pairs = count * (count - 1) // 2
    groups = np.full(count, -1, np.int64) if groups is None else groups
    search = _Search(Space(medical), Space(general), limits, groups, most)
    if sample is not None and sample < pairs:
        search.compare_some(sample, seed)
        return search.result(sample)
    search.compare_all()
    return search.result(pairs)


def draw_numbers(below: int, number: int, seed: int) -> Numbers:
    """Draw distinct numbers below a limit at random, rising.

    Numpy's way to do so may hold all numbers in memory, a billion for 50,000 images.
    """
    draw = np.random.default_rng(seed)
    few = min(number, below - number)  # of more than half, the numbers that are not drawn
    numbers = np.zeros(0, np.int64)
    while len(numbers) < few:
        numbers = np.sort(np.concatenate([numbers, draw.integers(0, below, (few - len(numbers)) * 5 // 4 + 16)]))
        numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    numbers = np.sort(draw.permutation(numbers)[:few])
    return numbers if few == number else np.setdiff1d(np.arange(below), numbers, assume_unique=True)


def usual_similarities(vectors: Floats) -> str:
    """Describe the similarities of images to an encoder, by pairs drawn at random."""
    first, second = np.random.default_rng(0).integers(0, len(vectors), (2, _TYPICAL))
    cosines = Space(vectors).cosines(first[first != second], second[first != second])
    low, middle, high = np.quantile(cosines, (0.01, 0.5, 0.99))
    return f"{middle:.2f} in the middle and {low:.2f} to {high:.2f} for 98 % of them"


def best_per_image(pairs: ConfusingPairs, most: int) -> ConfusingPairs:
    """Return the pairs that remain if they are taken in order and each image in at most ``most`` of them."""
    uses: Counter[int] = Counter()
    mask = np.zeros(len(pairs), bool)
    for number, (first, second) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if uses[first] < most and uses[second] < most:
            uses.update((first, second))
            mask[number] = True
    return pairs.where(mask)
