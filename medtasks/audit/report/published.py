"""Published results of the benchmarks, shown next to a user's own.

Numbers are in ``published_results/*.csv``, exactly as printed. ``mapping.yaml`` there gives the task, metric and paper
of each row, and known misprints or reasons why it is not comparable.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from medtasks.audit.report.contents import PublishedScore
from medtasks.tasks.task_files import task_file

_FOLDER = Path(__file__).parent / "published_results"
_Row = Mapping[str, str]
_Entry = Mapping[str, Any]  # as mapping.yaml explains


def published_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return published results of a task's benchmark that are defined like ours under the filter ``reference``.

    Figures that are not comparable for another reason than their definition are among them, with a remark that says so.
    They are in order of the task's metrics, best first within a metric; equal values in the paper's order. Variants,
    selections, few-shot tasks and protocols without published figures have none, nor have groups and tasks of the
    harness.
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


def published_of(names: Mapping[str, str]) -> tuple[tuple[str, PublishedScore], ...]:
    """Return a model's published results over all questions, with our task, by the model's name in each file."""
    return tuple(
        (task, score)
        for task in dict.fromkeys(
            task for table in _mapping()["tables"] for some in table["tasks"].values() for task in some
        )
        for file, model in names.items()
        for group, score in _found(task, file)
        if group is None and score.model == model
    )


def _found(task_name: str, file: str = "") -> Iterator[tuple[str | None, PublishedScore]]:
    """Yield a task's scores, of one file or of all, with their groups, None for all questions."""
    for table in _mapping()["tables"]:
        groups, name = table.get("groups"), table["file"]
        for row in _rows(name) if file in ("", name) else ():
            of_task = task_name in table["tasks"].get(row[table["by"]], ()) and row[table["metric"]] in table["metrics"]
            left_out = any(_fits(rows, name, row) for rows in _mapping()["left_out"])
            if not of_task or not _fits(table, name, row) or left_out:
                continue
            remarks = (remark for remark in _mapping()["remarks"] if remark.get("task") in (None, task_name))
            score = PublishedScore(
                model=row["model"],
                metric=table["metrics"][row[table["metric"]]],
                value=float(Decimal(row[table["value"]]) / table["divided_by"]),
                printed=row[table["value"]],
                source=table["source"],
                remark=" ".join(remark["remark"] for remark in remarks if _fits(remark, name, row)),
            )
            yield (row[groups] if groups else None), score


def _fits(rows: _Entry, file: str, row: _Row) -> bool:
    """Return whether an entry is about a row: one pattern of each column fits."""
    return rows["file"] == file and all(
        any(fnmatchcase(row[column], pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))
        for column, patterns in rows.get("where", {}).items()
    )


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
def _mapping() -> Mapping[str, Sequence[_Entry]]:
    mapping: Mapping[str, Sequence[_Entry]] = yaml.safe_load((_FOLDER / "mapping.yaml").read_text(encoding="utf-8"))
    return mapping


@cache
def _rows(file: str) -> tuple[_Row, ...]:
    with (_FOLDER / file).open(encoding="utf-8", newline="") as lines:
        return tuple(csv.DictReader(lines))
