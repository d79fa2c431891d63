"""Scores by group of questions, and what is known of the wrong answers."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.selecting import values
from medtasks.errors import MedTasksError
from medtasks.extract.error_classes import ErrorClass, error_class
from medtasks.hooks.metric_list import is_failed, scored_samples

_MAIN = "accuracy"
_EXPORTED = ("doc_id", "rule", "question", "options", "key", "value", "reason", "class", "class_by_human", "reply")


@dataclass(frozen=True)
class GroupScore:
    """Accuracy of one group.

    Attributes:
        questions: How many of it are scored: those that were answered and, where a judge reads, judged.
        accuracy: Share of right answers.
        error: Its standard error, at the task's own unit; NaN for fewer than two units.
    """

    questions: int
    accuracy: float
    error: float


@dataclass(frozen=True)
class WrongAnswer:
    """One wrong answer.

    Attributes:
        document: Its document.
        record: What the task's hook made of the reply.
        reply: The reply as the model gave it; empty for likelihoods.
        kind: Why it is wrong, as far as a rule can tell.
    """

    document: Mapping[str, Any]
    record: Mapping[str, Any]
    reply: str
    kind: ErrorClass


def by_group(
    documents: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    metrics: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
) -> dict[str, dict[str, GroupScore]]:
    """Return the accuracy of each group, by the task's own aggregation.

    Args:
        documents: Shape (samples,).
        samples: What ``process_results`` gave for them, shape (samples,).
        metrics: The task's ``metric_list``.
        columns: Columns that group the documents; a document with several values counts in each of their groups.

    Returns:
        Scores by column and value, the largest group first; nothing for a task without accuracy.
    """
    aggregations = {entry["metric"]: entry["aggregation"] for entry in metrics}
    if _MAIN not in aggregations:
        return {}
    found: dict[str, dict[str, GroupScore]] = {}
    for column in columns:
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for document, sample in zip(documents, samples, strict=True):
            for value in () if is_failed(sample[_MAIN]) else values(document, column):
                groups.setdefault(value, []).append(sample)
        ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        found[column] = {
            value: GroupScore(
                scored_samples([member[_MAIN] for member in members]),
                aggregations[_MAIN]([member[_MAIN] for member in members]),
                aggregations[f"{_MAIN}_stderr"]([member[f"{_MAIN}_stderr"] for member in members]),
            )
            for value, members in ordered
        }
    return found


def wrong_answers(
    documents: Sequence[Mapping[str, Any]], samples: Sequence[Mapping[str, Any]], replies: Sequence[str | None]
) -> list[WrongAnswer]:
    """Return the wrong answers of a task whose records have a ``key`` and a ``value``; of another task none.

    Args:
        documents: Shape (samples,).
        samples: What ``process_results`` gave for them, shape (samples,).
        replies: Raw replies, shape (samples,); None for likelihoods.
    """
    found = []
    for document, sample, reply in zip(documents, samples, replies, strict=True):
        record = sample.get(_MAIN)
        if not isinstance(record, Mapping) or not {"key", "value"} <= record.keys() or is_failed(record):
            continue
        if record["key"] != record["value"]:
            kind = ErrorClass.FOR_A_HUMAN if reply is None else error_class(reply, record["value"])
            found.append(WrongAnswer(document, record, reply or "", kind))
    return found


def count_kinds(wrong: Sequence[WrongAnswer]) -> dict[str, int]:
    """Return how many wrong answers are of which kind, the most frequent first."""
    return dict(Counter(str(one.kind) for one in wrong).most_common())


def export_wrong_answers(path: Path, private: Sequence[str], wrong: Mapping[str, Sequence[WrongAnswer]]) -> None:
    """Write wrong answers as CSV, with an empty column for a human's judgement.

    Args:
        path: The file.
        private: Datasets of the questions whose text may not leave their folders.
        wrong: Wrong answers by filter name.

    Raises:
        MedTasksError: The file cannot be written, or the dataset's text may not leave its folder.
    """
    if private:
        names = ",".join(private)
        raise MedTasksError(
            f"'{names}' is credentialed, and --export-errors writes questions and replies in clear; allow it with "
            f"MEDTASKS_LOG_TEXT={names}"
        )
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(_EXPORTED)
            for name, answers in wrong.items():
                for one in answers:
                    options = " | ".join(one.document.get("options") or ())
                    kind = "" if one.kind is ErrorClass.FOR_A_HUMAN else str(one.kind)
                    cells = [one.document["doc_id"], name, one.document.get("question"), options]
                    record = (one.record["key"], one.record["value"], one.record["reason"])
                    table.writerow([*cells, *record, kind, "", one.reply])
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error
