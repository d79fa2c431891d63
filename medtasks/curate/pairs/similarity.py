"""Similarity of images to an encoder, and the limits that make a pair confusing.

Similarity is the cosine of two embeddings, rounded to six digits: they are kept in float16, which moves it in the
fourth.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from medtasks.errors import MedTasksError

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]

CHUNK = 8192  # embeddings or pairs of them in memory at once in full precision
ROUGH = 1e-4  # how far similarities computed in float32 may be off
_DIGITS = 6


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
        for start in range(0, len(vectors), CHUNK):
            lengths[start : start + CHUNK] = np.linalg.norm(vectors[start : start + CHUNK].astype(np.float64), axis=1)
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
        for start in range(0, len(first), CHUNK):
            one, two = first[start : start + CHUNK], second[start : start + CHUNK]
            products = np.einsum("nd,nd->n", self.vectors[one].astype(kind), self.vectors[two].astype(kind))
            found[start : start + CHUNK] = products / (self.lengths[one] * self.lengths[two])
        return found

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
