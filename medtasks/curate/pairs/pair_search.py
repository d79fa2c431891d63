"""Pairs that a medical encoder takes for alike and a vision-only one does not (MediConfusion, section 2).

Up to :data:`EXACT_UP_TO` images all pairs are looked at, in blocks of one matrix product of the medical embeddings
and, where few pass, the general similarity of those alone. Above, FAISS finds the neighbours in the medical space, and
both conditions are then tested as before: what is found is right, and how much of it is found is measured. FAISS keeps
embeddings in lists of those that are near each other, and compares an image with those of a few lists. How many lists
that takes is found out on images drawn at random, whose neighbours are counted exactly.

Similarity is the cosine of two embeddings, rounded to six digits: they are kept in float16, which moves it in the
fourth.
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

EXACT_UP_TO = 20_000
MOST_PAIRS = 1_000_000
"""Of more pairs than these, those with the largest gaps are kept."""
LEAST_RECALL = 0.99
"""FAISS looks into more and more of its lists until it finds this share of the neighbours of some images."""
CODED = 2e-3
"""Most error of similarities that FAISS computes from vectors in float16."""
CHUNK = 8192  # embeddings or pairs of them in memory at once in full precision
ROUGH = 1e-4  # how far similarities computed in float32 may be off
_DIGITS = 6
_ROWS, _COLUMNS = 1024, 4096  # of one block of similarities: 16 MB
_FEW = 0.02  # share of a block from which the product of the whole block is faster than gathering
_DRAWN = 2000  # pairs from which usual similarities are told
_ASKED = 2048  # images whose neighbours are looked for at once; FAISS is four times slower with 256
_MEASURED, _MOST_MEASURED = 200, 2000  # images whose neighbours are counted exactly, until there are ...
_ENOUGH, _PLENTY = 500, 100_000  # confusing pairs among them, or neighbours at all
_LEAST_LISTS = 8
_ROUNDS = 5  # of learning the lists; more cost time and find no more
_PER_LIST = 40  # images per list, at least, from which the lists are learned


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
        self.vectors = vectors
        lengths = np.empty(len(vectors), np.float64)
        for part in slices(len(vectors), CHUNK):
            lengths[part] = np.linalg.norm(vectors[part].astype(np.float64), axis=1)
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
        cosines: Floats = np.empty(len(first), kind)
        for part in slices(len(first), CHUNK):
            one, two = first[part], second[part]
            products = np.einsum("nd,nd->n", self.vectors[one].astype(kind), self.vectors[two].astype(kind))
            cosines[part] = products / (self.lengths[one] * self.lengths[two])
        return cosines

    def similarities(self, first: Numbers, second: Numbers) -> Floats:
        """Return the similarities of pairs as they are recorded, in float64."""
        return rounded(self.cosines(first, second, np.float64))


def rounded(numbers: Floats) -> Floats:
    """Return similarities, or differences of them, to the digits that count."""
    found: Floats = np.round(numbers, _DIGITS)
    return found


def slices(count: int, size: int) -> Iterator[slice]:
    """Cut ``count`` rows into parts."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


@dataclass(frozen=True)
class Recall:
    """Recall of FAISS on some images drawn at random."""

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
    recall: Recall | None = None  # with FAISS

    def __len__(self) -> int:
        return len(self.first)

    def where(self, wanted: npt.NDArray[np.bool_]) -> "FoundPairs":
        """Return some of the pairs."""
        parts = {name: getattr(self, name)[wanted] for name in ("first", "second", "sim_med", "sim_gen")}
        return replace(self, **parts)


@dataclass
class _Search:
    """State of a search: spaces, limits, and the largest gaps so far."""

    medical: Space
    general: Space
    limits: Limits
    groups: Numbers  # -1: of no group
    most: int
    kept: list[tuple[Floats, ...]] = field(default_factory=list)
    number: int = 0  # of pairs in ``kept``
    floor: float = -math.inf  # gap that a further pair has to reach
    more: bool = False
    of_one_group: int = 0

    def consider(self, first: Numbers, second: Numbers, medical: Floats, general: Floats | None = None) -> None:
        """Keep those pairs that are confusing, given their similarities as they were computed so far."""
        rough = self.general.cosines(first, second) if general is None else general
        near = (rough <= self.limits.sim_gen + ROUGH) & (medical - rough >= self.floor - CODED)
        first, second = first[near], second[near]
        sim_med, sim_gen = self.medical.similarities(first, second), self.general.similarities(first, second)
        confusing = self.limits.met(sim_med, sim_gen)
        same = confusing & (self.groups[first] == self.groups[second]) & (self.groups[first] >= 0)
        self.of_one_group += int(same.sum())
        good = confusing & ~same
        self.kept.append((first[good], second[good], sim_med[good], sim_gen[good]))
        self.number += int(good.sum())
        if self.number > 2 * self.most:
            self._cut()

    def _cut(self) -> None:
        """Put the kept pairs in order, and drop the smallest gaps of too many."""
        pairs = [np.concatenate(part) for part in zip(*self.kept, strict=True)]
        order = np.lexsort((pairs[1], pairs[0], -rounded(pairs[2] - pairs[3])))
        pairs = [part[order] for part in pairs]
        if len(pairs[0]) > self.most:
            self.more = True
            pairs = [part[: self.most] for part in pairs]
            self.floor = float(pairs[2][-1] - pairs[3][-1])
        self.kept, self.number = [tuple(pairs)], len(pairs[0])

    def look_at_all(self) -> None:
        """Compare all images with each other."""
        count = len(self.groups)
        medical, general = (space.block(slice(None)) for space in (self.medical, self.general))
        with tqdm(desc="Comparing", total=count, unit="image", leave=False, disable=None) as bar:
            for top in range(0, count, _ROWS):
                for left in range(top, count, _COLUMNS):
                    rows, columns = medical[top : top + _ROWS], medical[left : left + _COLUMNS]
                    alike = rows @ columns.T
                    near = alike >= self.limits.sim_med - ROUGH
                    if left < top + _ROWS:  # of a block on the diagonal, what is above it
                        near = np.triu(near, top - left + 1)
                    first, second = np.nonzero(near)
                    known = None
                    if len(first) > _FEW * near.size:
                        known = (general[top : top + _ROWS] @ general[left : left + _COLUMNS].T)[near]
                    self.consider(first + top, second + left, alike[near], known)
                bar.update(len(medical[top : top + _ROWS]))

    def look_at_some(self, sample: int, seed: int) -> None:
        """Look at pairs drawn at random, each once."""
        count = len(self.groups)
        drawn = _drawn(count * (count - 1) // 2, sample, seed)
        for start in tqdm(range(0, sample, CHUNK), "Comparing", unit="batch", leave=False, disable=None):
            number = drawn[start : start + CHUNK]  # of the pair: (0, 1), (0, 2), (1, 2), (0, 3), ... from 0 on
            second = ((1 + np.sqrt(1 + 8 * number.astype(np.float64))) / 2).astype(np.int64)
            second -= second * (second - 1) // 2 > number
            second += (second + 1) * second // 2 <= number
            first = number - second * (second - 1) // 2
            alike = self.medical.cosines(first, second)
            near = alike >= self.limits.sim_med - ROUGH
            self.consider(first[near], second[near], alike[near])

    def found(self, compared: int, recall: Recall | None = None) -> FoundPairs:
        """Return the pairs in order."""
        self.consider(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))  # there may have been none
        self._cut()
        first, second, sim_med, sim_gen = self.kept[0]
        return FoundPairs(first, second, sim_med, sim_gen, self.more, self.of_one_group, compared, recall)


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
    the paper does, and only these are looked at. Equal input gives equal output.
    """
    count = len(medical)
    if len(general) != count:
        raise ValueError(f"{count} medical and {len(general)} general embeddings")
    everything = count * (count - 1) // 2
    alone = np.full(count, -1, np.int64) if groups is None else groups
    if sample is None and count <= exact_up_to:
        medical, general = medical.astype(np.float32), general.astype(np.float32)
    search = _Search(Space(medical), Space(general), limits, alone, most)
    if sample is not None and sample < everything:
        search.look_at_some(sample, seed)
        return search.found(sample)
    if count <= exact_up_to:
        search.look_at_all()
        return search.found(everything)
    index = NeighbourSearch(search.medical, search.general, limits, seed)
    for first, second, alike in index.pairs():
        search.consider(first, second, alike)
    return search.found(everything, index.recall)


def _drawn(everything: int, number: int, seed: int) -> Numbers:
    """Return so many of the numbers below ``everything``, drawn at random without one twice, rising.

    Numpy's way to do so may hold all numbers in memory, a billion for 50,000 images.
    """
    draw = np.random.default_rng(seed)
    few = min(number, everything - number)  # of more than half, what is not drawn
    found = np.zeros(0, np.int64)
    while len(found) < few:
        found = np.sort(np.concatenate([found, draw.integers(0, everything, (few - len(found)) * 5 // 4 + 16)]))
        found = found[np.diff(found, prepend=-1) > 0]
    found = np.sort(draw.permutation(found)[:few])
    return found if few == number else np.setdiff1d(np.arange(everything), found, assume_unique=True)


def usual_similarities(vectors: Floats) -> str:
    """Describe the similarities of images to an encoder, by pairs drawn at random."""
    first, second = np.random.default_rng(0).integers(0, len(vectors), (2, _DRAWN))
    found = Space(vectors).cosines(first[first != second], second[first != second])
    low, middle, high = np.quantile(found, (0.01, 0.5, 0.99))
    return f"{middle:.2f} in the middle and {low:.2f} to {high:.2f} for 98 % of them"


def best_per_image(pairs: FoundPairs, most: int) -> FoundPairs:
    """Return the pairs that are left when they are taken in order and each image in at most ``most`` of them."""
    used: Counter[int] = Counter()
    wanted = np.zeros(len(pairs), bool)
    for number, (first, second) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        if used[first] < most and used[second] < most:
            used.update((first, second))
            wanted[number] = True
    return pairs.where(wanted)


class NeighbourSearch:
    """An index of the medical embeddings of images."""

    def __init__(self, medical: Space, general: Space, limits: Limits, seed: int) -> None:
        self._medical, self._general, self._limits = medical, general, limits
        self._count = len(medical.vectors)
        self._index = _index(medical, seed)
        self.recall = self._measured(seed)

    def pairs(self) -> Iterator[tuple[Numbers, Numbers, Floats]]:
        """Yield the neighbours that were found, each pair once: two images, and about how alike they are."""
        with tqdm(desc="Comparing", total=self._count, unit="image", leave=False, disable=None) as bar:
            for asked in slices(self._count, _ASKED):
                first, second, alike = self._neighbours(np.arange(asked.start, asked.stop))
                once = first < second  # asked for from its first image alone, as when the recall was measured
                yield first[once], second[once], alike[once]
                bar.update(asked.stop - asked.start)

    def _measured(self, seed: int) -> Recall:
        """Let an index look into enough of its lists, and say how much it then finds."""
        drawn = np.random.default_rng(seed).permutation(self._count)[:_MOST_MEASURED]
        asked, there, good = drawn[:0], drawn[:0], drawn[:0]
        while len(good) < _ENOUGH and len(there) < _PLENTY and len(asked) < len(drawn):
            more = drawn[len(asked) : len(asked) + _MEASURED]
            near, confusing = self._counted(more)
            asked, there, good = (np.concatenate(two) for two in ((asked, more), (there, near), (good, confusing)))
        index = self._index
        index.nprobe = min(_LEAST_LISTS, index.nlist)
        while True:
            first, second, _ = self._neighbours(asked)
            pairs = first * self._count + second
            found, good_found = int(np.isin(there, pairs).sum()), int(np.isin(good, pairs).sum())
            enough = found >= LEAST_RECALL * len(there) and good_found >= LEAST_RECALL * len(good)
            if enough or index.nprobe >= index.nlist:
                break
            index.nprobe = min(2 * index.nprobe, index.nlist)
        return Recall(len(asked), len(there), found, len(good), good_found, index.nlist, index.nprobe)

    def _counted(self, asked: Numbers) -> tuple[Numbers, Numbers]:
        """Return all medical neighbours of images, and those that make a confusing pair, as numbers of their pairs."""
        rows = self._medical.block(asked)
        near, confusing = [], []
        for part in slices(self._count, CHUNK):
            row, column = np.nonzero(rows @ self._medical.block(part).T >= self._limits.sim_med - ROUGH)
            first, second = asked[row], column + part.start
            first, second = first[first != second], second[first != second]
            sim_med = self._medical.similarities(first, second)
            sim_gen = self._general.similarities(first, second)
            pairs = first * self._count + second
            near.append(pairs[sim_med >= self._limits.sim_med])
            confusing.append(pairs[self._limits.met(sim_med, sim_gen)])
        return np.concatenate(near), np.concatenate(confusing)

    def _neighbours(self, asked: Numbers) -> tuple[Numbers, Numbers, Floats]:
        """Return the neighbours of images in the medical space: which was asked for, which was found, how alike."""
        radius = self._limits.sim_med - CODED
        ends, alike, found = self._index.range_search(self._medical.block(asked), radius)
        first = np.repeat(asked, np.diff(ends.astype(np.int64)))
        other = first != found
        return first[other], found[other].astype(np.int64), alike[other]


def _index(space: Space, seed: int) -> Any:
    """Return an index of vectors in float16, in lists of those that are near each other."""
    try:
        import faiss
    except ImportError as error:
        raise MedTasksError(
            f"{len(space.vectors):,} images are too many to compare them all without FAISS; install it with "
            f"pip install 'medtasks[curate]', or give --sample"
        ) from error
    count, dimension = space.vectors.shape
    lists = max(1, min(round(4 * math.sqrt(count)), count // _PER_LIST))
    quantizer = faiss.IndexFlatIP(dimension)
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dimension, lists, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
    )
    index.cp.seed = seed
    index.cp.max_points_per_centroid = _PER_LIST
    index.cp.niter = _ROUNDS
    learned = np.random.default_rng(seed).choice(count, min(count, lists * _PER_LIST), replace=False)
    index.train(space.block(np.sort(learned)))
    for part in tqdm(list(slices(count, CHUNK)), "Indexing", unit="batch", leave=False, disable=None):
        index.add(space.block(part))
    return index
