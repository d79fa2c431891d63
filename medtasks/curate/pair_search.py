"""Pairs that a medical encoder takes for alike and a vision-only one does not (MediConfusion, section 2).

Similarity is the cosine of two embeddings, rounded to six digits: they are kept in float16, which moves it in the
fourth. Up to :data:`EXACT_UP_TO` images all pairs are looked at, in blocks of one matrix product of the medical
embeddings and, where few pass, the general similarity of those alone. Above, FAISS finds the neighbours in the medical
space, and both conditions are then tested as before: what is found is right, and how much of it is found is measured.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from medtasks.errors import MedTasksError

EXACT_UP_TO = 20_000
MOST_PAIRS = 1_000_000
"""Of more pairs than these, those with the largest gaps are kept."""
LEAST_RECALL = 0.99
"""FAISS looks into more and more of its lists until it finds this share of the neighbours of some images."""

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]

_ROWS, _COLUMNS = 1024, 4096  # of one block of similarities: 16 MB
_CHUNK = 8192  # pairs whose embeddings are gathered at once
_FEW = 0.02  # share of a block from which the product of the whole block is faster than gathering
_SLACK = 1e-4  # of similarities in float32, before the exact test
_DIGITS = 6
_CODED_SLACK = 2e-3  # of similarities of vectors in float16
_ASKED = 256  # images whose neighbours FAISS looks for at once
_MEASURED, _MOST_MEASURED = 200, 2000  # images whose neighbours are counted exactly, until there are ...
_ENOUGH = 500  # neighbours
_LEAST_LISTS = 8
_PER_LIST = 64  # images per list that FAISS learns its lists from


@dataclass(frozen=True)
class Limits:
    """What makes a pair confusing."""

    sim_med: float = 0.9  # at least
    sim_gen: float = 0.75  # at most

    def met(self, sim_med: Any, sim_gen: Any) -> Any:
        """Return whether pairs of such similarities are confusing.

        Example:
            >>> Limits().met(0.9, 0.75), Limits().met(0.9, 0.76)
            (True, False)
        """
        return (sim_med >= self.sim_med) & (sim_gen <= self.sim_gen)


@dataclass(frozen=True)
class FoundPairs:
    """Confusing pairs, the largest gap first; of equal gaps the smallest numbers first."""

    first: Numbers  # number of an image
    second: Numbers  # of the other one, which is larger
    sim_med: Floats  # float64
    sim_gen: Floats
    more: bool  # whether there were more than are kept
    of_one_group: int  # how many were left out because both images are of one group
    compared: int  # how many pairs were looked at; with FAISS all, by way of its lists
    recall: "Recall | None" = None  # with FAISS

    def __len__(self) -> int:
        return len(self.first)

    def where(self, wanted: npt.NDArray[np.bool_]) -> "FoundPairs":
        """Return some of the pairs."""
        parts = (self.first[wanted], self.second[wanted], self.sim_med[wanted], self.sim_gen[wanted])
        return FoundPairs(*parts, self.more, self.of_one_group, self.compared, self.recall)


@dataclass(frozen=True)
class Recall:
    """How much FAISS finds of what is there, on some images drawn at random."""

    images: int
    neighbours: int  # how many there are at the medical limit, counted exactly
    found: int  # of these
    pairs: int  # how many of the neighbours make a confusing pair
    pairs_found: int
    lists: int  # of the index
    looked_into: int  # of the lists, for each image

    def __str__(self) -> str:
        pairs = f", {self.pairs_found} of {self.pairs} confusing pairs" if self.pairs else ""
        return (
            f"{self.found} of {self.neighbours} neighbours of {self.images} images drawn at random were found{pairs} "
            f"({self.looked_into} of {self.lists} lists)"
        )


class _Space:
    """The embeddings of one encoder, of any length."""

    def __init__(self, vectors: Floats) -> None:
        self.vectors = vectors
        lengths = np.empty(len(vectors), np.float64)
        for start in range(0, len(vectors), _CHUNK):
            lengths[start : start + _CHUNK] = np.linalg.norm(vectors[start : start + _CHUNK].astype(np.float64), axis=1)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise MedTasksError("an embedding is zero or no number; leave its image out")
        self.lengths = lengths

    def block(self, part: Any) -> npt.NDArray[np.float32]:
        """Return some vectors at length 1."""
        units: npt.NDArray[np.float32] = self.vectors[part].astype(np.float32)
        units /= self.lengths[part].astype(np.float32)[:, None]
        return units

    def cosines(self, first: Numbers, second: Numbers, kind: type = np.float32) -> Floats:
        """Return the similarities of pairs, computed in float32 or float64."""
        found: Floats = np.empty(len(first), kind)
        for start in range(0, len(first), _CHUNK):
            one, two = first[start : start + _CHUNK], second[start : start + _CHUNK]
            products = np.einsum("nd,nd->n", self.vectors[one].astype(kind), self.vectors[two].astype(kind))
            found[start : start + _CHUNK] = products / (self.lengths[one] * self.lengths[two])
        return found


@dataclass
class _Search:
    """What is searched, and the largest gaps so far."""

    medical: _Space
    general: _Space
    limits: Limits
    groups: Numbers  # -1: of no group
    most: int
    kept: list[tuple[Floats, ...]] = field(default_factory=list)
    number: int = 0  # of pairs in ``kept``
    floor: float = -math.inf  # gap that a further pair has to reach
    more: bool = False
    of_one_group: list[Numbers] = field(default_factory=list)

    def consider(self, first: Numbers, second: Numbers, medical: Floats, general: Floats | None = None) -> None:
        """Keep those pairs that are confusing, given their similarities as they were computed so far."""
        rough = self.general.cosines(first, second) if general is None else general
        near = (rough <= self.limits.sim_gen + _SLACK) & (medical - rough >= self.floor - _CODED_SLACK)
        first, second = first[near], second[near]
        sim_med = np.round(self.medical.cosines(first, second, np.float64), _DIGITS)
        sim_gen = np.round(self.general.cosines(first, second, np.float64), _DIGITS)
        confusing = self.limits.met(sim_med, sim_gen)
        same = confusing & (self.groups[first] == self.groups[second]) & (self.groups[first] >= 0)
        self.of_one_group.append(first[same] * len(self.groups) + second[same])
        good = confusing & ~same
        self.kept.append((first[good], second[good], sim_med[good], sim_gen[good]))
        self.number += int(good.sum())
        if self.number > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        """Put the kept pairs in order, each once, and drop the smallest gaps of too many."""
        first, second, sim_med, sim_gen = (np.concatenate(part) for part in zip(*self.kept, strict=True))
        order = np.lexsort((second, first, -np.round(sim_med - sim_gen, _DIGITS)))
        first, second, sim_med, sim_gen = (part[order] for part in (first, second, sim_med, sim_gen))
        once = np.ones(len(first), bool)
        once[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        pairs = [part[once] for part in (first, second, sim_med, sim_gen)]
        if len(pairs[0]) > self.most:
            self.more = True
            pairs = [part[: self.most] for part in pairs]
            self.floor = float(pairs[2][-1] - pairs[3][-1])
        self.kept, self.number = [tuple(pairs)], len(pairs[0])

    def found(self, compared: int, recall: Recall | None = None) -> FoundPairs:
        """Return the pairs in order."""
        self.consider(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))  # there may have been none
        self._cut()
        first, second, sim_med, sim_gen = self.kept[0]
        same = len(np.unique(np.concatenate(self.of_one_group)))
        return FoundPairs(first, second, sim_med, sim_gen, self.more, same, compared, recall)


def find_pairs(
    medical: Floats,
    general: Floats,
    limits: Limits,
    groups: Numbers | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    exact_up_to: int = EXACT_UP_TO,
    most: int = MOST_PAIRS,
) -> FoundPairs:
    """Find the confusing pairs of images, never two of one group.

    ``medical`` and ``general`` have the shapes (images, dimension), each of its own dimension and in float16 or
    float32; ``groups`` holds one number per image, -1 for none. With ``sample`` that many pairs are drawn at random, as
    the paper does, and only these are looked at. Equal input gives equal output, whatever the processors.
    """
    count = len(medical)
    if len(general) != count:
        raise ValueError(f"{count} medical and {len(general)} general embeddings")
    everything = count * (count - 1) // 2
    alone = np.full(count, -1, np.int64) if groups is None else groups
    if sample is None and count <= exact_up_to:
        medical, general = medical.astype(np.float32), general.astype(np.float32)
    search = _Search(_Space(medical), _Space(general), limits, alone, most)
    if sample is not None and sample < everything:
        _look_at_some(search, sample, seed)
        return search.found(sample)
    if count <= exact_up_to:
        _look_at_all(search)
        return search.found(everything)
    return search.found(everything, _look_by_lists(search, seed))


def _look_at_all(search: _Search) -> None:
    count = len(search.groups)
    medical, general = (space.block(slice(None)) for space in (search.medical, search.general))
    with tqdm(desc="Comparing", total=count, unit="image", leave=False, disable=None) as bar:
        for top in range(0, count, _ROWS):
            for left in range(top, count, _COLUMNS):
                rows, columns = medical[top : top + _ROWS], medical[left : left + _COLUMNS]
                alike = rows @ columns.T
                near = alike >= search.limits.sim_med - _SLACK
                if left < top + _ROWS:  # of a block on the diagonal, what is above it
                    near = np.triu(near, top - left + 1)
                first, second = np.nonzero(near)
                known = None
                if len(first) > _FEW * near.size:
                    known = (general[top : top + _ROWS] @ general[left : left + _COLUMNS].T)[near]
                search.consider(first + top, second + left, alike[near], known)
            bar.update(len(medical[top : top + _ROWS]))


def _look_at_some(search: _Search, sample: int, seed: int) -> None:
    """Look at pairs drawn at random, each once."""
    count = len(search.groups)
    drawn = np.random.default_rng(seed).choice(count * (count - 1) // 2, sample, replace=False)
    drawn.sort()
    for start in tqdm(range(0, sample, _CHUNK), "Comparing", unit="batch", leave=False, disable=None):
        first, second = _pair(drawn[start : start + _CHUNK])
        alike = search.medical.cosines(first, second)
        near = alike >= search.limits.sim_med - _SLACK
        search.consider(first[near], second[near], alike[near])


def _pair(number: Numbers) -> tuple[Numbers, Numbers]:
    """Return the pair of each number: (0, 1), (0, 2), (1, 2), (0, 3), ... from 0 on."""
    second = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
    second -= second * (second - 1) // 2 > number
    second += (second + 1) * second // 2 <= number
    return number - second * (second - 1) // 2, second


def _look_by_lists(search: _Search, seed: int) -> Recall:
    index = _index(search.medical, seed)
    recall = _measured(search, index, seed)
    count = len(search.groups)
    with tqdm(desc="Comparing", total=count, unit="image", leave=False, disable=None) as bar:
        for asked in _slices(count, _ASKED):
            first, second, alike = _neighbours(index, search, np.arange(asked.start, asked.stop))
            search.consider(np.minimum(first, second), np.maximum(first, second), alike)
            bar.update(asked.stop - asked.start)
    return recall


def _index(space: _Space, seed: int) -> Any:
    """Return an index of vectors in float16, in about as many lists as each has vectors."""
    try:
        import faiss
    except ImportError as error:
        raise MedTasksError(
            f"more than {EXACT_UP_TO:,} images are compared by FAISS; install it with pip install 'medtasks[curate]', "
            f"or give --sample"
        ) from error
    count, dimension = space.vectors.shape
    lists = max(1, round(math.sqrt(count)))
    quantizer = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dimension, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
    )
    index.cp.seed = seed
    index.cp.max_points_per_centroid = _PER_LIST
    learned = np.random.default_rng(seed).choice(count, min(count, lists * _PER_LIST), replace=False)
    index.train(space.block(np.sort(learned)))
    for part in tqdm(list(_slices(count, _CHUNK)), "Indexing", unit="batch", leave=False, disable=None):
        index.add(space.block(part))
    return index


def _measured(search: _Search, index: Any, seed: int) -> Recall:
    """Let an index look into enough of its lists, and say how much it then finds."""
    count = len(search.groups)
    drawn = np.random.default_rng(seed).permutation(count)[:_MOST_MEASURED]
    asked, there, good = drawn[:0], drawn[:0], drawn[:0]
    while len(there) < _ENOUGH and len(asked) < len(drawn):
        more = drawn[len(asked) : len(asked) + _MEASURED]
        near, confusing = _counted(search, more)
        asked, there, good = (np.concatenate(two) for two in ((asked, more), (there, near), (good, confusing)))
    index.nprobe = min(_LEAST_LISTS, index.nlist)
    while True:
        first, second, _ = _neighbours(index, search, asked)
        pairs = first * count + second
        found, good_found = int(np.isin(there, pairs).sum()), int(np.isin(good, pairs).sum())
        enough = found >= LEAST_RECALL * len(there) and good_found >= LEAST_RECALL * len(good)
        if enough or index.nprobe >= index.nlist:
            break
        index.nprobe = min(2 * index.nprobe, index.nlist)
    return Recall(len(asked), len(there), found, len(good), good_found, index.nlist, index.nprobe)


def _counted(search: _Search, asked: Numbers) -> tuple[Numbers, Numbers]:
    """Return all medical neighbours of images, and those that make a confusing pair, as numbers of their pairs."""
    count = len(search.groups)
    rows = search.medical.block(asked)
    near, confusing = [], []
    for part in _slices(count, _CHUNK):
        row, column = np.nonzero(rows @ search.medical.block(part).T >= search.limits.sim_med - _SLACK)
        first, second = asked[row], column + part.start
        first, second = first[first != second], second[first != second]
        sim_med = np.round(search.medical.cosines(first, second, np.float64), _DIGITS)
        sim_gen = np.round(search.general.cosines(first, second, np.float64), _DIGITS)
        pairs = first * count + second
        near.append(pairs[sim_med >= search.limits.sim_med])
        confusing.append(pairs[search.limits.met(sim_med, sim_gen)])
    return np.concatenate(near), np.concatenate(confusing)


def _neighbours(index: Any, search: _Search, asked: Numbers) -> tuple[Numbers, Numbers, Floats]:
    """Return the neighbours of images in the medical space: which was asked for, which was found, how alike."""
    radius = search.limits.sim_med - _CODED_SLACK
    ends, alike, found = index.range_search(search.medical.block(asked), radius)
    first = np.repeat(asked, np.diff(ends.astype(np.int64)))
    other = first != found
    return first[other], found[other].astype(np.int64), alike[other]


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def best_per_image(pairs: FoundPairs, most: int) -> FoundPairs:
    """Return the pairs that are left when they are taken in order and each image in at most ``most`` of them."""
    used: Counter[int] = Counter()
    wanted = np.zeros(len(pairs), bool)
    for number, (first, second) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if used[first] < most and used[second] < most:
            used.update((first, second))
            wanted[number] = True
    return pairs.where(wanted)
