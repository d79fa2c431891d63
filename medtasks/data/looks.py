"""Looks: growing parts of a task's rows, after each of which a run may stop, in a random order of whole clusters."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate

import numpy as np

from medtasks.errors import MedTasksError

LOOK_VARIABLE = "MEDTASKS_LOOK"
"""Environment variable that tells the harness's processes which rows to ask."""


@dataclass(frozen=True)
class Look:
    """The first rows in the order of a seed, one of ``count`` looks."""

    index: int  # from 1
    count: int
    seed: int
    size: int  # number of rows, those of earlier looks included

    @classmethod
    def parse(cls, text: str) -> "Look":
        """Read a text that ``str`` wrote.

        Example:
            >>> Look.parse("2 4 7 300")
            Look(index=2, count=4, seed=7, size=300)
        """
        return cls(*map(int, text.split()))

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    def rows(self, clusters: Sequence[Hashable]) -> list[int]:
        """Return the rows of this look, sorted.

        Args:
            clusters: Of all rows, shape (rows,).

        Raises:
            MedTasksError: No whole clusters have as many rows, since the data are not those of the plan.
        """
        ends = cluster_ends(clusters, self.seed)
        if self.size not in ends.values():
            raise MedTasksError(
                f"look {self.index} of {self.count} does not end between two clusters of these data, so that they are "
                f"not those of the plan; plan the looks anew"
            )
        return [row for row, cluster in enumerate(clusters) if ends[cluster] <= self.size]


def cluster_ends(clusters: Sequence[Hashable], seed: int) -> dict[Hashable, int]:
    """Put clusters into a random order that depends on no library's generator.

    Args:
        clusters: Of all rows, shape (rows,).
        seed: Of the order.

    Returns:
        The number of rows of each cluster and of those before it, by cluster, in this order.
    """
    sizes = Counter(clusters)
    order = sorted(
        sizes, key=lambda cluster: hashlib.sha256(f"{seed} {cluster}".encode()).digest()
    )
    return dict(zip(order, accumulate(sizes[cluster] for cluster in order), strict=True))


def look_sizes(clusters: Sequence[Hashable], seed: int, count: int, rows: int) -> list[int]:
    """Return the numbers of rows of the looks, which have equal parts to within half a cluster.

    Args:
        clusters: Of all rows, shape (rows,).
        seed: Of the order of clusters.
        count: Number of looks. There may be fewer, because looks that a large cluster would make equal are merged.
        rows: Number of rows of the last look.
    """
    ends = np.array(list(cluster_ends(clusters, seed).values()))
    targets = [rows * look / count for look in range(1, count + 1)]
    return sorted({int(ends[np.abs(ends - target).argmin()]) for target in targets})
