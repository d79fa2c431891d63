"""Which parts of a task's rows hold whole units only: the harness cuts rows, and an image pair is two of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CutUnits:
    """What ``--offset`` and ``--limit`` do to units, such as image pairs.

    Attributes:
        units: Units of which at least one row is asked.
        cut: Those of which not all rows are.
        better: Nearest settings that cut none, such as ``--limit 4``; empty where every setting does.
    """

    units: int
    cut: int
    better: tuple[str, ...]


def cut_units(units: Sequence[str], offset: int, limit: int | None) -> CutUnits:
    """Count the units that are cut when only some consecutive rows are asked.

    Args:
        units: Unit of each row, in the order of the rows.
        offset: First row asked, from 0.
        limit: How many rows; None for all that follow.

    Example:
        >>> cut_units(["a", "a", "b", "b"], 0, 3)
        CutUnits(units=2, cut=1, better=('--limit 2', '--limit 4'))
    """
    rows = len(units)
    stop = rows if limit is None else min(rows, offset + limit)
    asked, whole = Counter(units[offset:stop]), Counter(units)
    cut = sum(count < whole[unit] for unit, count in asked.items())
    return CutUnits(len(asked), cut, _better(units, offset, limit, stop) if cut else ())


def _better(units: Sequence[str], offset: int, limit: int | None, stop: int) -> tuple[str, ...]:
    ends = _ends(units)
    start = max(end for end in ends if end <= offset)
    if limit is None:
        after = min(end for end in ends if end >= offset)
        return tuple(f"--offset {place}" for place in (start, after) if place < len(units))
    below = [end for end in ends if start < end <= stop][-1:]
    above = [end for end in ends if end >= stop][:1]
    moved = "" if start == offset else f"--offset {start} "
    return tuple(f"{moved}--limit {end - start}" for end in dict.fromkeys([*below, *above]))


def _ends(units: Sequence[str]) -> list[int]:
    """Return the places between rows, from 0, where no unit has rows on both sides."""
    last = {unit: row for row, unit in enumerate(units)}
    ends, reach = [0], 0
    for row, unit in enumerate(units, start=1):
        reach = max(reach, last[unit] + 1)
        if reach == row:
            ends.append(row)
    return ends
