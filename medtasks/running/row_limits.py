"""What ``--limit`` and ``--offset`` of the harness do: they count rows, and an image pair is two of them.

A shard (:mod:`medtasks.data.shards`) takes their place.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medtasks.data.document_store import open_documents
from medtasks.data.schema import SPLIT
from medtasks.data.shards import cut_places
from medtasks.data.variants import ROTATED
from medtasks.errors import MedTasksError, listed
from medtasks.running.guarded_run import GuardedRun
from medtasks.runs.run_manifest import Notice, refuse, warn
from medtasks.tasks.task_files import task_file, tasks_of


def row_limit(run: GuardedRun) -> Iterator[Notice]:
    """Refuse a limit that asks nothing, or a share of which the harness makes something else."""
    limit = run.options.number("limit")
    if limit is None or limit == -1:
        return
    if not 0 < limit < math.inf:
        yield refuse(f"--limit {limit:g} asks no row of the data at all; leave it out (or give -1) for all of them")
    elif limit < 1:
        count = run.count()
        if count > 1:
            yield refuse(
                f"--limit {limit:g} is a share, and the harness applies the first task's number of rows to all {count} "
                f"tasks; run them one by one, or give a number of rows such as --limit 8"
            )
    elif "." in run.options.text("limit"):
        yield warn(
            f"--limit {limit} means {int(limit)} rows of each task, not a share; give a whole number, or one below 1"
        )


def row_offset(run: GuardedRun) -> Iterator[Notice]:
    """Refuse an offset before the first row."""
    offset = run.options.number("offset")
    if offset is not None and offset < 0:
        yield refuse(f"--offset {offset:g} lies before the first row; give the number of rows to skip")


def row_shard(run: GuardedRun) -> Iterator[Notice]:
    """Refuse what chooses rows beside a shard, or finds the requests of another one."""
    limit = run.options.number("limit")
    given = {"--limit": limit not in (None, -1), "--offset": bool(run.options.number("offset"))}
    given["--cache_requests"] = bool(run.options.text("cache_requests"))
    if run.shard is not None and any(given.values()):
        names = listed([name for name, is_given in given.items() if is_given])
        yield refuse(f"--shard {run.shard} chooses the rows of every task itself; leave out {names}")


def cut_rows(run: GuardedRun) -> Iterator[Notice]:
    """Name pairs and rotated questions that are cut; rows are counted as the harness counts them."""
    limit, offset = run.options.number("limit"), int(run.options.number("offset") or 0)
    if offset < 0 or (limit is not None and limit != -1 and not 0 < limit < math.inf):
        return
    given = " ".join(f"--{name} {run.options.text(name)}" for name in ("offset", "limit") if run.options.text(name))
    for task, dataset in run.datasets.items() if given else ():
        rows = rows_of(task, dataset)
        count = None if limit is None or limit == -1 else math.ceil(rows.count * limit) if limit < 1 else int(limit)
        if rows.count and offset >= rows.count:
            yield warn(f"--offset {offset} skips all {rows.count} rows of {task}, which then fails; give a smaller one")
        elif rows.units and (found := cut_units(rows.units, offset, count)).cut:
            yield warn(
                f"{given} cuts {found.cut} of {found.units} {rows.kind} of {task}, which {rows.loss}: it counts "
                f"consecutive rows of the data, {rows.parts}; give {' or '.join(found.better)}"
            )


@dataclass(frozen=True)
class Rows:
    """What the harness counts of a task, and the words for it."""

    count: int = 0  # 0 for a dataset that is not there or damaged: why, is said elsewhere
    units: Sequence[str] = ()  # what belongs together, for each row; empty where each row is a question of its own
    kind: str = "pairs"
    parts: str = "each image of a pair is one"
    loss: str = "are then in no score of pairs"


def rows_of(task: str, dataset: str) -> Rows:
    """Return the rows of a task, ours or not, in the order of its prepared dataset."""
    try:
        table = open_documents(dataset)[SPLIT]
    except MedTasksError:
        return Rows()
    if tasks_of(task) == [task] and task_file(task).variant == ROTATED:
        asked = zip(table["doc_id"], table["options"], strict=True)
        units = [question for question, options in asked for _ in options]
        rotation, loss = "each rotation of a question is one", "have then no worst case and no flips"
        return Rows(len(units), units, "questions", rotation, loss)
    return Rows(len(table), list(table["pair_id"]) if "pair_id" in table.column_names else ())


@dataclass(frozen=True)
class CutUnits:
    """What ``--offset`` and ``--limit`` do to units, such as image pairs."""

    units: int  # those of which at least one row is asked
    cut: int  # those of which not all rows are
    better: tuple[str, ...]  # nearest settings that cut none, such as ``--limit 4``; empty where every setting does


def cut_units(units: Sequence[str], offset: int, limit: int | None) -> CutUnits:
    """Count the units that are cut when only a number of rows from an offset on are asked, or all that follow.

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
    ends = cut_places(units)
    start = max(end for end in ends if end <= offset)
    if limit is None:
        after = min(end for end in ends if end >= offset)
        return tuple(f"--offset {place}" for place in (start, after) if place < len(units))
    below = [end for end in ends if start < end <= stop][-1:]
    above = [end for end in ends if end >= stop][:1]
    moved = "" if start == offset else f"--offset {start} "
    return tuple(f"{moved}--limit {end - start}" for end in dict.fromkeys([*below, *above]))
