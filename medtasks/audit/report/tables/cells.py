"""Cells and tables of a report for an issue or a paper, apart from how they are written."""

import re
from dataclasses import dataclass

from medtasks.audit.report.contents import Score, TaskReport
from medtasks.audit.report.page.words import NOT_DEFINED, count, difference_interval, interval, number, signed

INTERVALS = "Brackets hold 95 % intervals."


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: What it says.
        code: Whether it is a name as one types it.
        marks: Numbers of the notes that are about it.
    """

    text: str
    code: bool = False
    marks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes:
        label: Unique in the report; of letters, digits and ``-_.``.
        caption: Sentences.
        columns: A letter per column: l and r for left and right, p for long text.
        headings: One per column.
        rows: Cells, one per column.
        warnings: What must not be overlooked; rows of the table, before the others.
        notes: Sentences below the table; a cell's marks count from 1.
        ours: How many of the first rows are of this run, where others follow that are not; else 0.
    """

    label: str
    caption: str
    columns: str
    headings: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ours: int = 0


def name_cell(text: str) -> Cell:
    """Return a cell with a name as one types it."""
    return Cell(text, code=True)


def cells(*texts: str) -> tuple[Cell, ...]:
    """Return a cell per text."""
    return tuple(Cell(text) for text in texts)


def label(*parts: str) -> str:
    """Return a label that differs for different parts.

    Example:
        >>> label("a task", "scores")
        'a-20-task.scores'
    """
    return ".".join(re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found.group()):x}-", part) for part in parts)


def scored(score: Score | None) -> str:
    """Return a score with its interval."""
    return estimate(score.value, score.low, score.high, score.share) if score else NOT_DEFINED


def estimate(value: float, low: float, high: float, share: bool) -> str:
    """Return a value with its interval, if it has one."""
    ends = interval(low, high, share).replace("%", "")
    shown = number(value, share)
    return shown if NOT_DEFINED in (shown, ends) else f"{shown} [{ends}]"


def difference(value: float, low: float, high: float, share: bool) -> str:
    """Return a difference with its interval, if it has one."""
    ends = difference_interval(low, high, share).removesuffix(" pts")
    shown = signed(value, share)
    return shown if NOT_DEFINED in (shown, ends) else f"{shown} [{ends}]"


def warnings(task: TaskReport) -> tuple[str, ...]:
    """Return what a reader of any table of a task must not overlook."""
    found = []
    if task.sample_data:
        found.append("SAMPLE DATA: drawn pictures, no score of a model")
    elif task.dataset and not task.complete_data:
        found.append("INCOMPLETE DATA: not comparable with published scores")
    if task.answered < task.documents:
        found.append(f"PARTIAL RUN: {questions(task)} questions answered")
    return tuple(found)


def questions(task: TaskReport) -> str:
    """Return how many questions were answered, of how many."""
    return f"{count(task.answered)} of {count(task.documents)}" if task.documents else count(task.answered)
