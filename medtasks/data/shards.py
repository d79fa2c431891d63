"""Shards: parts of every task's rows for several runs, chosen by the data alone.

Machines that run shards need not communicate, and rows keep their numbers in the whole split.
"""

import heapq
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.stats.standard_error import connected_components

SHARD_VARIABLE = "MEDTASKS_SHARD"
"""Environment variable that tells the harness's processes their shard."""

_TOGETHER = ("pair_id", "rotation_of", "unit_id", "patient_id", "image_id")
_FORM = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class Shard:
    """One of ``count`` parts of the rows."""

    index: int  # from 1
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Read a text such as ``3/16``.

        Raises:
            MedTasksError: It names no shard.

        Example:
            >>> Shard.parse("3/16")
            Shard(index=3, count=16)
        """
        match = _FORM.fullmatch(text.strip())
        index, count = map(int, match.groups()) if match else (0, 0)
        if not 1 <= index <= count:
            raise MedTasksError(
                f"--shard {text} names no part of the data; give its number and how many there are, such as --shard "
                f"3/16, from 1/16 to 16/16"
            )
        return cls(index, count)

    @classmethod
    def from_environment(cls) -> "Shard | None":
        """Return the shard that :data:`SHARD_VARIABLE` names, None if it is not set.

        Errors are those of :meth:`parse`.
        """
        text = os.environ.get(SHARD_VARIABLE)
        return cls.parse(text) if text else None

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def rows(self, clusters: Sequence[Hashable]) -> list[int]:
        """Return the rows of this shard, sorted. No cluster is in two shards, and every row is in one.

        A shard is the range of rows between two cuts. Each cut is at the place nearest to equal shares that divides no
        cluster. Where clusters lie scattered, some shard would miss its share by more than the largest cluster. Then
        each cluster, the largest first and of equal ones the first, goes to the shard that has the fewest rows.

        Args:
            clusters: Of all rows, shape (rows,).

        Example:
            >>> Shard(1, 2).rows(["a", "a", "a", "b", "b", "c"]), Shard(1, 2).rows(["a", "b", "c", "a", "b", "c"])
            ([0, 1, 2], [0, 2, 3, 5])
        """
        total = len(clusters)
        places = cut_places(clusters)
        # The nearest place to each share, and of two that are equally near the first.
        cuts = []
        for part in range(self.count + 1):
            after = bisect_left(places, total * part, key=lambda place: place * self.count)
            around = places[max(after - 1, 0) : after + 1]
            cuts.append(min(around, key=lambda place: abs(place * self.count - total * part)))
        sizes = [stop - start for start, stop in pairwise(cuts)]
        largest = max(Counter(clusters).values(), default=0)
        if all(abs(size * self.count - total) <= largest * self.count for size in sizes):
            return list(range(cuts[self.index - 1], cuts[self.index]))
        shard_of = {}
        fewest = [(0, shard) for shard in range(self.count)]
        # The counter has the order of the first rows, which sorting keeps for clusters of equal size.
        for cluster, size in sorted(Counter(clusters).items(), key=lambda item: -item[1]):
            rows, shard = fewest[0]
            shard_of[cluster] = shard
            heapq.heapreplace(fewest, (rows + size, shard))
        return [
            row for row, cluster in enumerate(clusters) if shard_of[cluster] == self.index - 1
        ]


def cut_places(clusters: Sequence[Hashable]) -> list[int]:
    """Return the places between rows, from 0, where no cluster has rows on both sides.

    Args:
        clusters: Of all rows, shape (rows,).

    Example:
        >>> cut_places(["a", "b", "a", "c"])
        [0, 3, 4]
    """
    last = {cluster: row for row, cluster in enumerate(clusters)}
    places = [0]
    reach = 0  # end of the clusters so far
    for row, cluster in enumerate(clusters, start=1):
        reach = max(reach, last[cluster] + 1)
        if reach == row:
            places.append(row)
    return places


def clusters_of(documents: Any) -> list[int]:
    """Return the cluster of each document, shape (documents,): connected by pair, rotation, patient or image.

    Args:
        documents: A table of the ``datasets`` library, of which no other column is read, or a list. Of a list, what is
            no mapping has no keys and is a cluster of its own.
    """
    keys: list[list[Hashable]] = [[] for _ in range(len(documents))]
    for name in _TOGETHER:
        column: Sequence[Any] = ()  # of a table without this column
        if not hasattr(documents, "column_names"):
            column = [row.get(name) if isinstance(row, Mapping) else None for row in documents]
        elif name in documents.column_names:
            column = documents[name]
        for row, value in enumerate(column):
            if value is not None:
                keys[row].append((name, value))
    return connected_components(keys)
