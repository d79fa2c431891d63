"""Tables, page and files of a board."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.home import as_json
from medtasks.report.page import write_rendered
from medtasks.report.published import published_scores
from medtasks.report.report_model import PublishedScore
from medtasks.report.tables import NOT_DEFINED, Cell, Row, Table, cells
from medtasks.report.wording import (
    DATA_WARNINGS,
    change_text,
    count,
    label,
    names_by,
    number,
    p_statement,
    score_text,
)
from medtasks.scores.board_model import Board, BoardCell, BoardColumn, BoardRow, board_lines
from medtasks.scores.curves import CheckpointTest, Curve, curves
from medtasks.stats.paired import ALPHA
from medtasks.version import __version__

RANKS = (
    "In parentheses: the ranks that each model may have among the runs, by paired tests of all pairs on the same "
    "samples, corrected by Holm within the column; all are meant to hold together with 95 % confidence."
)
_READINGS = {
    "published": "each benchmark's published rule",
    "careful": "a careful rule, which takes no answer that a reader would not",
}


@dataclass(frozen=True)
class PublishedRow:
    """A model's published scores from one source."""

    model: str
    source: str
    scores: Mapping[str, PublishedScore]  # by task


def published_rows(board: Board) -> list[PublishedRow]:
    """Return the published rows of the board's columns.

    Returns:
        A row per model and source, in the papers' order. Only the reading ``published`` has any.
    """
    if board.reading != "published":
        return []
    rows: dict[tuple[str, str], dict[str, PublishedScore]] = {}
    for column in board.columns:
        for score in published_scores(column.task):
            if score.metric == column.metric:
                rows.setdefault((score.model, score.source), {})[column.task] = score
    return [PublishedRow(model, source, scores) for (model, source), scores in rows.items()]


def board_table(
    board: Board,
    published: Sequence[PublishedRow] = (),
    *,
    intervals: bool = True,
) -> Table:
    """Return the table of a board: published rows first, then the runs, best and second best marked.

    Args:
        board: The board.
        published: Rows of :func:`published_rows`.
        intervals: Whether scores have their intervals.
    """
    headings = [Cell(column.task, code=True, remark=column.metric) for column in board.columns]
    notes: dict[str, int] = {}
    rows = [_published_cells(row, board, notes) for row in published]
    for run in board.rows:
        scores = [
            _score_cell(board, column, run, intervals=intervals) for column in board.columns
        ]
        rows.append(cells(run.name, *scores))
    further = [RANKS] if len(board.rows) > 1 else []
    return Table(
        label=label("board"),
        caption=f"Main metric of each task, read by {_READINGS[board.reading]}.",
        columns="l" + "r" * len(board.columns),
        headings=cells("Model", *headings),
        rows=rows,
        warnings=tuple(_data_warnings(board)),
        notes=(*notes, *further, *_reading_notes(board), *board.notes),
        split=len(published),
    )


def _published_cells(row: PublishedRow, board: Board, notes: dict[str, int]) -> Row:
    """Return the cells of a published row. Its source and its remarks are added to ``notes`` (numbers by text)."""
    texts = [Cell(row.model, marks=_marks(notes, row.source))]
    for column in board.columns:
        score = row.scores.get(column.task)
        if score is None:
            texts.append(Cell(NOT_DEFINED))
            continue
        marks = _marks(notes, score.remark) if score.remark else ()
        texts.append(Cell(number(score.value, _is_share(board, column)), marks=marks))
    return tuple(texts)


def _data_warnings(board: Board) -> Iterable[str]:
    """Yield a sentence on the columns whose data are synthetic, incomplete or of unknown size."""
    tasks_by_title = names_by((column.task, column.data_warning) for column in board.columns)
    for title, tasks in tasks_by_title.items():
        if title:
            yield f"{title}: {DATA_WARNINGS[title]} ({tasks})"


def _marks(notes: dict[str, int], text: str) -> tuple[int, ...]:
    """Return the number of a note, which is added to ``notes`` (numbers by text) if it is new."""
    return (notes.setdefault(text, len(notes) + 1),)


def _is_share(board: Board, column: BoardColumn) -> bool:
    """Return whether all scores of runs in a column are fractions."""
    return all(
        row.cells[column.task].score.share for row in board.rows if column.task in row.cells
    )


def _score_cell(board: Board, column: BoardColumn, row: BoardRow, *, intervals: bool) -> Cell:
    """Return a run's score with its ranks, marked if it is the best or second best, or "n/a" if it has none."""
    cell = row.cells.get(column.task)
    if cell is None or not cell.is_defined:
        return Cell(NOT_DEFINED)
    score = cell.score
    text = score_text(score) if intervals else number(score.value, score.share)
    if cell.ranks:
        first, last = cell.ranks
        text += f" ({first})" if first == last else f" ({first}–{last})"
    position = 0
    if row.name in board.fullest(column):
        position = _place(score.value, *board.best(column))
    return Cell(text, remark=_losses(cell), place=position)


def _place(value: float, best: float, second: float) -> int:
    """Return 1 for the best value of a column, 2 for the second best, and 0 for all others."""
    if value == best:
        return 1
    return 2 if value == second else 0


def _losses(cell: BoardCell) -> str:
    """Count the samples of a cell that were not asked or have no answer. The text is empty if all were read."""
    parts = []
    asked = cell.samples + cell.lost
    if asked < cell.questions:
        parts.append(f"{count(asked)} of {count(cell.questions)} questions")
    if cell.invalid:
        parts.append(f"{count(cell.invalid)} invalid")
    if cell.lost:
        parts.append(f"{count(cell.lost)} failed")
    return ", ".join(parts)


def _reading_notes(board: Board) -> Iterable[str]:
    """Name the metric of each column, the columns without the board's reading, and the replies that were not read."""
    tasks = names_by((column.task, column.metric) for column in board.columns)
    metrics = [f"{metric} of {names}" for metric, names in tasks.items()]
    yield f"Metrics: {'; '.join(metrics)}."
    if lacking := [column.task for column in board.columns if not column.has_reading]:
        yield f"No {board.reading} rule, read by the only one: {', '.join(lacking)}."
    for row in board.rows:
        losses = []
        for task, cell in row.cells.items():
            if text := _losses(cell):
                losses.append(f"{task} {text}")
        if losses:
            yield f"{row.name}: {'; '.join(losses)}."


def board_as_dict(board: Board, published: Sequence[PublishedRow]) -> dict[str, Any]:
    """Return a board as JSON values.

    Args:
        board: The board.
        published: Rows of :func:`published_rows`.
    """
    rows = []
    for row in board.rows:
        scores = {}
        for task, cell in row.cells.items():
            scores[task] = as_json(
                {
                    **vars(cell.score),
                    "samples": cell.samples,
                    "invalid": cell.invalid,
                    "lost": cell.lost,
                    "questions": cell.questions,
                    "ranks": cell.ranks,
                }
            )
        rows.append({"name": row.name, "path": row.path, "step": row.step, "scores": scores})
    sentences = []
    for curve in curves(board):
        sentences.append(
            {"name": curve.name, "task": curve.column.task, "sentence": sentence(curve)}
        )
    return {
        "schema_version": 1,
        "medtasks": __version__,
        "reading": board.reading,
        "columns": as_json(board.columns),
        "rows": rows,
        "published": as_json(published),
        "curves": sentences,
        "notes": list(board.notes),
    }


def board_csv(board: Board, published: Sequence[PublishedRow]) -> str:
    """Return a board as CSV.

    Args:
        board: The board.
        published: Rows of :func:`published_rows`.

    Returns:
        A line per model and column. A number that is not defined is an empty cell.
    """
    lines = board_lines(board)
    for row in published:
        for task, score in row.scores.items():
            lines.append(
                {
                    "model": row.model,
                    "task": task,
                    "metric": score.metric,
                    "value": score.value,
                    "source": row.source,
                }
            )
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        for name, value in line.items():
            if value != value:  # NaN
                line[name] = ""
        writer.writerow(line)
    return text.getvalue()


def curve_sentences(board: Board) -> list[str]:
    """Return a sentence on each curve of a board."""
    return [sentence(curve) for curve in curves(board)]


def sentence(curve: Curve) -> str:
    """Say whether the best checkpoint is better than the first, and the last one worse than the best."""
    first = curve.points[0][0]
    last = curve.points[-1][0]
    values = {}
    for step, cell in curve.points:
        values[step] = number(cell.score.value, cell.score.share)
    parts = [
        f"{curve.name}, {curve.column.task}: the best checkpoint is step {curve.best} ({values[curve.best]})"
    ]
    if curve.best == first:
        parts.append("which is the first one")
    elif curve.gain:
        parts.append(_result_of(curve, curve.gain, f"better than step {first}"))
    if curve.best == last:
        parts.append("and the last one")
    elif curve.decline:
        parts.append(
            f"the last, step {last} ({values[last]}), is {_result_of(curve, curve.decline, 'worse than it')}"
        )
    return ", ".join(parts) + "."


def _result_of(curve: Curve, test: CheckpointTest, claim: str) -> str:
    """Say whether a test of two checkpoints shows a claim, such as "worse than it", with its numbers."""
    verdict = f"significantly {claim}" if test.p_holm <= ALPHA else f"not shown to be {claim}"
    share = curve.points[0][1].score.share
    return (
        f"{verdict} ({change_text(test.result, share)}, {p_statement(test.p_holm)}, p corrected for "
        f"{len(curve.points) - 1} looks)"
    )


def write_board_page(
    board: Board,
    published: Sequence[PublishedRow],
    path: Path,
    figures: Mapping[str, str],
) -> None:
    """Write a board as one HTML file with a sortable table.

    Args:
        board: The board.
        published: Rows of :func:`published_rows`.
        path: The file.
        figures: SVG elements by key, in their order on the page.

    Raises:
        MedTasksError: The file cannot be written.
    """
    from markupsafe import Markup

    tasks = [column.task for column in board.columns]
    rows = []  # numbers by task, by which the rows of the table are sorted
    for row in published:
        rows.append({task: repr(score.value) for task, score in row.scores.items()})
    for run in board.rows:
        values = {}
        for task, cell in run.cells.items():
            if cell.is_defined:
                values[task] = repr(cell.score.value)
        rows.append(values)
    write_rendered(
        "board",
        path,
        table=board_table(board, published),
        values=[[values.get(task, "") for task in tasks] for values in rows],
        published=len(published),
        sentences=curve_sentences(board),
        figures=[*map(Markup, figures.values())],
    )
