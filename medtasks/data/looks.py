"""Looks: growing parts of a task's rows, after each of which a run may stop, in a random order of whole clusters."""

import hashlib
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from medtasks.errors import MedTasksError

LOOK_VARIABLE = "MEDTASKS_LOOK"
"""Environment variable that tells the harness's processes which rows to ask."""

_FORM = re.compile(r"(\d{1,9})/(\d{1,9}) of seed (\d{1,18}), (\d{1,9}) rows", re.ASCII)


@dataclass(frozen=True)
class Look:
    """The first rows in the order of a seed; the first of ``count`` looks has the ``index`` 1."""

    index: int
    count: int
    seed: int
    size: int  # number of rows, those of earlier looks included

    @classmethod
    def parse(cls, text: str) -> "Look":
        """Read a text that ``str`` wrote; MedTasksError for any other."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise MedTasksError(
                f"{LOOK_VARIABLE}={text} names no look; unset it, as 'medtasks run --looks' sets it itself"
            )
        index, count, seed, size = map(int, match.groups())
        return cls(index, count, seed, size)

    def __str__(self) -> str:
        return f"{self.index}/{self.count} of seed {self.seed}, {self.size} rows"

    def rows(self, clusters: Sequence[Hashable]) -> list[int]:
        """Return the rows of this look, sorted; ``clusters`` has shape (rows,).

        MedTasksError: no whole clusters have as many rows, since the data are not those of the plan.
        """
        order = cluster_order(clusters, self.seed)
        sizes = Counter(clusters)
        reached = 0
        chosen = set()
        for cluster in order:
            if reached >= self.size:
                break
            chosen.add(cluster)
            reached += sizes[cluster]
        if reached != self.size:
            raise MedTasksError(
                f"look {self.index} of {self.count} does not end between two clusters of these data, so that they are "
                f"not those of the plan; plan the looks anew"
            )
        return [row for row, cluster in enumerate(clusters) if cluster in chosen]


def cluster_order(clusters: Sequence[Hashable], seed: int) -> list[Hashable]:
    """Return the clusters in a random order, which depends on no library's generator; clusters have shape (rows,)."""

    def drawn(cluster: Hashable) -> bytes:
        return hashlib.sha256(f"{seed} {cluster}".encode()).digest()

    return sorted(dict.fromkeys(clusters), key=drawn)


def look_sizes(clusters: Sequence[Hashable], seed: int, count: int, rows: int) -> list[int]:
    """Return the numbers of rows of the looks, which have equal parts of ``rows`` to within half a cluster.

    Looks that a large cluster makes the same are one, so that there may be fewer than ``count``.
    """
    sizes = Counter(clusters)
    ends = list(accumulate(sizes[cluster] for cluster in cluster_order(clusters, seed)))
    nearest: dict[int, None] = {}
    for look in range(1, count + 1):
        end = min(ends, key=lambda place: abs(place * count - rows * look))
        nearest[end] = None
    return list(nearest)
