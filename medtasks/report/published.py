"""Published results of the benchmarks, shown next to a user's own.

Numbers are in ``published_results/*.csv``, exactly as printed. ``mapping.yaml`` there gives the task, metric and paper
of each row, and known misprints or reasons why it is not comparable.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from medtasks.report.report_model import PublishedScore
from medtasks.tasks.task_files import task_file

_FOLDER = Path(__file__).parent / "published_results"


def published_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return published results over all questions of a task that are defined like ours under the filter ``reference``.

    Figures that are not comparable for another reason than their definition are among them, with a remark that says so.

    Args:
        task_name: Name of the task. Variants, selections, few-shot tasks and protocols without published figures have
            no results, nor have groups and tasks of the harness.

    Returns:
        Results in the order of the task's metrics, best first within a metric, equal values in the paper's order.
    """
    scores = [score for _, score in _scores(task_name) if not score.group]
    if not scores:
        return ()
    metric_list = task_file(task_name).metric_list
    order = {}
    for position, entry in enumerate(metric_list.resolve() if metric_list else []):
        order[entry["metric"]] = (position, -1 if entry["higher_is_better"] else 1)

    def rank(score: PublishedScore) -> tuple[int, float]:
        position, sign = order[score.metric]
        return position, sign * score.value

    return tuple(sorted(scores, key=rank))


def published_group_scores(task_name: str) -> tuple[PublishedScore, ...]:
    """Return published results of groups of a task's questions.

    Args:
        task_name: Name of the task.

    Returns:
        Results in the order of the tables.
    """
    return tuple(score for _, score in _scores(task_name) if score.group)


def published_of(names: Mapping[str, str]) -> tuple[tuple[str, PublishedScore], ...]:
    """Return a model's published results over all questions.

    Args:
        names: Name of the model in each file of ``published_results``, by the file's name.

    Returns:
        Pairs of the name of our task and a result.
    """
    tasks: dict[str, None] = {}
    for table in _mapping()["tables"]:
        tasks |= dict.fromkeys(chain.from_iterable(table["tasks"].values()))
    scores = []
    for task in tasks:
        for name in names.items():
            for file, score in _scores(task):
                if (file, score.model) == name and not score.group:
                    scores.append((task, score))
    return tuple(scores)


def _scores(task_name: str) -> Iterator[tuple[str, PublishedScore]]:
    """Yield a task's scores over all questions and those of groups, with their files."""
    mapping = _mapping()
    remarks = [entry for entry in mapping["remarks"] if entry.get("task") in (None, task_name)]
    for table in mapping["tables"]:
        file = table["file"]
        for row in _rows_of(task_name, table):
            if any(_fits(entry, file, row) for entry in mapping["left_out"]):
                continue
            printed = row[table["value"]]
            score = PublishedScore(
                model=row["model"],
                metric=table["metrics"][row[table["metric"]]],
                value=float(Decimal(printed) / table["divided_by"]),
                printed=printed,
                source=table["source"],
                remark=" ".join(
                    entry["remark"] for entry in remarks if _fits(entry, file, row)
                ),
                column=table.get("column", ""),
                group=row[table["group"]] if "group" in table else "",
            )
            yield file, score


def _rows_of(task_name: str, table: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """Yield the rows of a table with a metric of ours that are about a task."""
    for row in table["rows"]:
        is_of_task = task_name in table["tasks"].get(row[table["by"]], ())
        has_metric = row[table["metric"]] in table["metrics"]
        if is_of_task and has_metric and _fits(table, table["file"], row):
            yield row


def _fits(entry: Mapping[str, Any], file: str, row: Mapping[str, str]) -> bool:
    """Return whether an entry of the mapping is about a row: one pattern of each column fits."""
    if entry["file"] != file:
        return False
    for column, patterns in entry.get("where", {}).items():
        choices = [patterns] if isinstance(patterns, str) else patterns
        if not any(fnmatchcase(row[column], pattern) for pattern in choices):
            return False
    return True


@cache
def _mapping() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return ``mapping.yaml``, which explains itself, each table with its ``rows``."""
    text = (_FOLDER / "mapping.yaml").read_text(encoding="utf-8")
    mapping: dict[str, Any] = yaml.safe_load(text)
    for table in mapping["tables"]:
        with (_FOLDER / table["file"]).open(encoding="utf-8", newline="") as lines:
            table["rows"] = list(csv.DictReader(lines))
    return mapping
