"""The neighbours of many images in the space of an encoder, by FAISS, and how many of them it finds.

Embeddings are kept in lists of those that are near each other, and an image is compared with those of a few lists. How
many lists that takes is found out on images drawn at random, whose neighbours are counted exactly.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from medtasks.curate.similarity import CHUNK, ROUGH, Floats, Limits, Numbers, Space, slices
from medtasks.errors import MedTasksError

LEAST_RECALL = 0.99
"""FAISS looks into more and more of its lists until it finds this share of the neighbours of some images."""
CODED = 2e-3
"""How far similarities may be off that FAISS computes from vectors in float16."""

_ASKED = 2048  # images whose neighbours are looked for at once; FAISS is four times slower with 256
_MEASURED, _MOST_MEASURED = 200, 2000  # images whose neighbours are counted exactly, until there are ...
_ENOUGH, _PLENTY = 500, 100_000  # confusing pairs among them, or neighbours at all
_LEAST_LISTS = 8
_ROUNDS = 5  # of learning the lists; more cost time and find no more
_PER_LIST = 40  # images per list, at least, from which the lists are learned


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
