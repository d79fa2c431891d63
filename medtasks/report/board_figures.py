"""Figures of a board: one curve per task over training steps, with the band of its intervals."""

import math
from collections.abc import Sequence
from functools import partial

from medtasks.report import figure_style as style
from medtasks.report.board_tables import sentence
from medtasks.report.figures import svg_elements
from medtasks.scores.board_model import Board
from medtasks.scores.curves import Curve, curves

_HEIGHT, _LEFT, _BOTTOM = 2.4, 0.75, 0.85  # inches


def curve_figures(board: Board) -> dict[str, str]:
    """Return the curves of a board as SVG elements, one figure per task."""
    by_task: dict[str, list[Curve]] = {}
    for curve in curves(board):
        by_task.setdefault(curve.column.task, []).append(curve)
    return svg_elements(
        {f"curve/{task}": partial(_draw, of_task) for task, of_task in by_task.items()}
    )


def _draw(of_task: Sequence[Curve]) -> style.Drawing:
    """Draw the curves of one task."""
    column = of_task[0].column
    title = f"{column.task}: {column.metric} over training"
    figure, axes = style.new_figure(title, (), height=_HEIGHT, left=_LEFT, bottom=_BOTTOM)
    for number, curve in enumerate(of_task):
        look = style.LOOKS[number % len(style.LOOKS)]
        steps = [step for step, _ in curve.points]
        scores = [cell.score for _, cell in curve.points]
        axes.plot(
            steps,
            [score.value for score in scores],
            color=look.colour,
            marker=look.marker,
            markersize=4,
            label=style.legend_text(curve.name),
        )
        if all(math.isfinite(score.low) and math.isfinite(score.high) for score in scores):
            low = [score.low for score in scores]
            axes.fill_between(
                steps,
                low,
                [score.high for score in scores],
                color=look.colour,
                alpha=0.18,
                linewidth=0,
            )
    axes.grid(axis="y", color=style.GRID, linewidth=0.5)
    axes.set_xlabel("step")
    if all(cell.score.share for curve in of_task for _, cell in curve.points):
        axes.yaxis.set_major_formatter(style.PERCENT)
    figure.legend(loc="lower center", ncols=min(3, len(of_task)), borderaxespad=0.2)
    describes = " ".join(
        ["Points are scores, bands their 95 % intervals.", *map(sentence, of_task)]
    )
    return style.Drawing(figure, title, describes)
