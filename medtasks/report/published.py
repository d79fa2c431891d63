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

from medtasks.report.report_model import PublishedScore
from medtasks.tasks.task_files import task_file

_FOLDER = Path(__file__).parent / "published_results"


def published_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return published results over all questions of a task that are defined like ours under the filter ``reference``.

    Figures that are not comparable for another reason than their definition are among them, with a remark that says so.
    They are in order of the task's metrics, best first within a metric; equal values in the paper's order. Variants,
    selections, few-shot tasks and protocols without published figures have none, nor have groups and tasks of the
    harness.
    """
    scores = [score for _, score in _scores(task_name) if not score.group]
    if not scores:
        return ()
    metric_list = task_file(task_name).metric_list
    entries = metric_list.resolve() if metric_list else []
    names = [entry["metric"] for entry in entries]
    signs = {entry["metric"]: -1 if entry["higher_is_better"] else 1 for entry in entries}
    return tuple(
        sorted(
            scores, key=lambda score: (names.index(score.metric), signs[score.metric] * score.value)
        )
    )


def published_group_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return published results of groups of a task's questions, in the order of the tables."""
    return tuple(score for _, score in _scores(task_name) if score.group)


def published_of(names: Mapping[str, str]) -> tuple[tuple[str, PublishedScore], ...]:
    """Return a model's published results over all questions, with our task, by the model's name in each file."""
    tasks = (
        task
        for table in _published()["tables"]
        for some in table["tasks"].values()
        for task in some
    )
    return tuple(
        (task, score)
        for task in dict.fromkeys(tasks)
        for named in names.items()
        for file, score in _scores(task)
        if (file, score.model) == named and not score.group
    )


def _scores(task_name: str) -> Iterator[tuple[str, PublishedScore]]:
    """Yield a task's scores over all questions and those of groups, with their files."""
    published = _published()
    for table in published["tables"]:
        name, metrics = table["file"], table["metrics"]
        for row in table["rows"]:
            of_task = (
                task_name in table["tasks"].get(row[table["by"]], ())
                and row[table["metric"]] in metrics
            )
            if not of_task or not _fits(table, name, row):
                continue
            if any(_fits(rows, name, row) for rows in published["left_out"]):
                continue
            remarks = (
                remark for remark in published["remarks"] if remark.get("task") in (None, task_name)
            )
            score = PublishedScore(
                model=row["model"],
                metric=metrics[row[table["metric"]]],
                value=float(Decimal(row[table["value"]]) / table["divided_by"]),
                printed=row[table["value"]],
                source=table["source"],
                remark=" ".join(remark["remark"] for remark in remarks if _fits(remark, name, row)),
                column=table.get("column", ""),
                group=row[table["group"]] if "group" in table else "",
            )
            yield name, score


def _fits(rows: Mapping[str, Any], file: str, row: Mapping[str, str]) -> bool:
    """Return whether an entry of the mapping is about a row: one pattern of each column fits."""
    return rows["file"] == file and all(
        any(
            fnmatchcase(row[column], pattern)
            for pattern in ([patterns] if isinstance(patterns, str) else patterns)
        )
        for column, patterns in rows.get("where", {}).items()
    )


@cache
def _published() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return ``mapping.yaml``, which explains itself, each table with its ``rows``."""
    published: dict[str, Any] = yaml.safe_load(
        (_FOLDER / "mapping.yaml").read_text(encoding="utf-8")
    )
    for table in published["tables"]:
        with (_FOLDER / table["file"]).open(encoding="utf-8", newline="") as lines:
            table["rows"] = list(csv.DictReader(lines))
    return published
