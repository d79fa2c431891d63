"""Published results of the benchmarks, beside which a user's own are shown.

Figures lie in ``published_results/*.csv``, exactly as printed. ``mapping.yaml`` there says which of our tasks and
metrics each row belongs to, from which paper it is, and what is wrong with it or makes it not comparable.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from medtasks.audit.report.contents import PublishedScore
from medtasks.harness.task_files import task_file

_FOLDER = Path(__file__).parent / "published_results"
_Row = Mapping[str, str]


@dataclass(frozen=True)
class _Pattern:
    """Some rows of a file.

    Attributes:
        file: Name of the file.
        where: Shell patterns by column; one pattern of each column must fit.
    """

    file: str
    where: Mapping[str, Sequence[str]]

    def fits(self, file: str, row: _Row) -> bool:
        return self.file == file and all(
            any(fnmatchcase(row[column], pattern) for pattern in patterns) for column, patterns in self.where.items()
        )


@dataclass(frozen=True)
class _Remark:
    """A remark on some rows; ``task`` is None where it holds for every task that they belong to."""

    rows: _Pattern
    task: str | None
    text: str


@dataclass(frozen=True)
class _Table:
    """Rows of one file that are read in one way, see ``mapping.yaml``."""

    file: str
    source: str
    by: str
    tasks: Mapping[str, Sequence[str]]
    metric: str
    metrics: Mapping[str, str]
    value: str
    divided_by: int
    groups: str | None = None


def published_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return the published results of a task's benchmark that are defined as ours are under the filter ``reference``.

    Figures that are not comparable for another reason than their definition are among them, with a remark that says so.

    Args:
        task_name: Name of a task. Variants, selections, few-shot tasks and protocols without published figures have
            none, nor have groups and tasks of the harness.

    Returns:
        In order of the task's metrics, best first within a metric; equal values in the paper's order.
    """
    return _sorted(task_name, [score for group, score in _found(task_name) if group is None])


def published_groups(task_name: str) -> Mapping[str, tuple[PublishedScore, ...]]:
    """Return published results by group of the questions, such as MediConfusion's medical areas; mostly none.

    Each group's are as :func:`published_scores` gives them.
    """
    groups: dict[str, list[PublishedScore]] = {}
    for group, score in _found(task_name):
        if group is not None:
            groups.setdefault(group, []).append(score)
    return {group: _sorted(task_name, scores) for group, scores in groups.items()}


def _found(task_name: str) -> Iterator[tuple[str | None, PublishedScore]]:
    """Yield a task's scores with the group they are of, None for all questions."""
    tables, remarks, left_out = _mapping()
    for table in tables:
        for row in _rows(table.file):
            if task_name not in table.tasks.get(row[table.by], ()) or row[table.metric] not in table.metrics:
                continue
            if any(rows.fits(table.file, row) for rows in left_out):
                continue
            about = [
                remark.text
                for remark in remarks
                if remark.task in (None, task_name) and remark.rows.fits(table.file, row)
            ]
            score = PublishedScore(
                model=row["model"],
                metric=table.metrics[row[table.metric]],
                value=float(Decimal(row[table.value]) / table.divided_by),
                printed=row[table.value],
                source=table.source,
                remark=" ".join(about),
            )
            yield (row[table.groups] if table.groups else None), score


def _sorted(task_name: str, scores: Sequence[PublishedScore]) -> tuple[PublishedScore, ...]:
    """Sort scores by the task's own list of metrics, which also says which direction is better."""
    if not scores:
        return ()
    metric_list = task_file(task_name).metric_list
    entries = metric_list.resolve() if metric_list else []
    names = [entry["metric"] for entry in entries]
    signs = {entry["metric"]: -1 if entry["higher_is_better"] else 1 for entry in entries}
    return tuple(sorted(scores, key=lambda one: (names.index(one.metric), signs[one.metric] * one.value)))


@cache
def _mapping() -> tuple[tuple[_Table, ...], tuple[_Remark, ...], tuple[_Pattern, ...]]:
    """Return the tables, the remarks, and the rows that belong to no task."""
    config = yaml.safe_load((_FOLDER / "mapping.yaml").read_text(encoding="utf-8"))
    remarks = [_Remark(_pattern(entry), entry.get("task"), entry["remark"]) for entry in config["remarks"]]
    tables = [_Table(**entry) for entry in config["tables"]]
    return tuple(tables), tuple(remarks), tuple(map(_pattern, config["left_out"]))


def _pattern(entry: Mapping[str, Any]) -> _Pattern:
    where = entry.get("where", {})
    return _Pattern(entry["file"], {key: value if isinstance(value, list) else [value] for key, value in where.items()})


@cache
def _rows(file: str) -> tuple[_Row, ...]:
    with (_FOLDER / file).open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))
