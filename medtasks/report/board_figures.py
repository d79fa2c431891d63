"""Figures of a board: one curve per task over training steps, with the band of its intervals."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import chain, cycle

from medtasks.report import figure_style as style
from medtasks.report.board_tables import sentence
from medtasks.report.figures import svg_elements
from medtasks.scores.board_model import Board
from medtasks.scores.curves import Curve, curves

_SIZES = {"height": 2.4, "left": 0.75, "bottom": 0.85}  # inches


def curve_figures(board: Board) -> dict[str, str]:
    """Draw the curves of a board.

    Returns:
        SVG elements, one figure per task, by keys ``curve/TASK``.
    """
    by_task: dict[str, list[Curve]] = {}
    for curve in curves(board):
        by_task.setdefault(f"curve/{curve.column.task}", []).append(curve)
    return svg_elements(
        {key: partial(_draw, task_curves) for key, task_curves in by_task.items()}
    )


def _draw(task_curves: Sequence[Curve]) -> style.Drawing:
    """Draw the curves of one task."""
    column = task_curves[0].column
    title = f"{column.task}: {column.metric} over training"
    figure, axes = style.new_figure(title, (), **_SIZES)
    for curve, look in zip(task_curves, cycle(style.LOOKS), strict=False):
        rows = []
        for step, cell in curve.points:
            rows.append((step, cell.score.value, cell.score.low, cell.score.high))
        steps, values, low, high = zip(*rows, strict=True)
        axes.plot(
            steps,
            values,
            color=look.colour,
            marker=look.marker,
            markersize=4,
            label=style.legend_text(curve.name),
        )
        if all(map(math.isfinite, low + high)):
            axes.fill_between(steps, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.grid(axis="y", color=style.GRID, linewidth=0.5)
    axes.set_xlabel("step")
    cells = chain.from_iterable(curve.points for curve in task_curves)
    if all(cell.score.share for _, cell in cells):
        axes.yaxis.set_major_formatter(style.PERCENT)
    figure.legend(loc="lower center", ncols=min(3, len(task_curves)), borderaxespad=0.2)
    sentences = ["Points are scores, bands their 95 % intervals.", *map(sentence, task_curves)]
    return style.Drawing(figure, title, " ".join(sentences))
