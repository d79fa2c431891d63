"""Figures of rows: a name at the left, and a bar or a point with its interval for every rule."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medtasks.audit.report.contents import Score
from medtasks.audit.report.figures.style import (
    AXIS,
    GREY,
    GRID,
    LINE,
    Look,
    add_legend,
    in_percent,
    legend_height,
    legend_text,
    name_margin,
    new_figure,
)
from medtasks.audit.report.figures.svg import shown_text
from medtasks.audit.report.page.words import NOT_DEFINED, signed

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SERIES, _GAP, _LEAST = 0.1, 0.1, 0.22  # inches
_DENSE = 0.55
_NAME_LINE = 34  # characters


@dataclass(frozen=True)
class Rows:
    """A figure with a row per name.

    Attributes:
        figure: The figure.
        axes: Its axes; a row is 1 high, the first one is 0.
        dense: Whether series are points, close together.
    """

    figure: "Figure"
    axes: "Axes"
    dense: bool

    def draw(self, score: Score, row: int, position: int, series: int, look: Look) -> None:
        """Draw one series of a row with its interval.

        Args:
            score: Value and interval.
            row: Which row.
            position: Which of the row's series.
            series: How many the row has; together they take 0.8 of it.
            look: How it is drawn.
        """
        y = row + 0.8 * ((position + 0.5) / series - 0.5)
        if math.isnan(score.value):
            self._say(NOT_DEFINED, y)
        elif self.dense:
            self._draw_point(score, y, look)
        else:
            self._draw_bar(score, y, 0.8 / series, look)

    def _say(self, text: str, y: float) -> None:
        self.axes.text(0, y, f" {text}", va="center", fontsize=6, color=GREY)

    def _draw_bar(self, score: Score, y: float, height: float, look: Look) -> None:
        self.axes.barh(
            y, score.value, height=height, color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0.4
        )
        if ends := _whiskers(score):
            self.axes.errorbar(score.value, y, xerr=ends, fmt="none", ecolor="black", elinewidth=0.8, capsize=1.5)
        elif score.value == 0:
            self._say("0", y)  # a bar without length is no different from none

    def _draw_point(self, score: Score, y: float, look: Look) -> None:
        if ends := _whiskers(score):
            self.axes.errorbar(score.value, y, xerr=ends, fmt="none", ecolor=look.colour, elinewidth=1.2)
        self.axes.plot([score.value], [y], clip_on=False, **_point(look))

    def finish(self, rules: dict[str, Look], others: Sequence["Artist"] = ()) -> None:
        """Write the legend: of the rules, and of what else was drawn."""
        add_legend(self.figure, [*(self._handle(rule, look) for rule, look in rules.items()), *others])

    def _handle(self, rule: str, look: Look) -> "Artist":
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        if self.dense:
            return Line2D([], [], label=legend_text(rule), **_point(look))
        return Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", label=legend_text(rule))


def new_rows(
    title: str,
    warnings: Sequence[str],
    names: Sequence[str],
    series: int,
    legend: Sequence[str],
    *,
    dense: bool = False,
) -> Rows:
    """Return a figure with a row per name, high enough for its series and its lines of text.

    Args:
        title: Heading.
        warnings: Below it.
        names: At the left, from the top; at least one.
        series: How many bars or points a row holds at most.
        legend: What the legend will say.
        dense: Draw points, which take less room than bars.
    """
    lines = 1 + max(name.count("\n") for name in names)
    step = max((_SERIES * series + _GAP) * (_DENSE if dense else 1), _LEAST, LINE * lines + 0.06)
    below = AXIS + legend_height(legend)
    figure, axes = new_figure(title, warnings, height=step * len(names), left=name_margin(names), bottom=below)
    axes.set_yticks(range(len(names)), labels=list(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    return Rows(figure, axes, dense)


def row_name(name: str, addition: str = "", *, lines: int = 2) -> str:
    """Return the name of a row, on a few lines, cut if it is longer, with an addition at its end.

    Example:
        >>> row_name("Cerebral", "(n = 79)")
        'Cerebral (n = 79)'
    """
    wrapped = textwrap.wrap(shown_text(name), _NAME_LINE, max_lines=lines, placeholder=" …") or ["(empty)"]
    fits = lines == 1 or len(wrapped[-1]) + len(addition) < _NAME_LINE
    return "\n".join(wrapped) + (" " if fits else "\n") * bool(addition) + addition


def set_score_axis(axes: "Axes", values: Sequence[float], share: bool) -> None:
    """Let the horizontal axis begin at 0 and hold all values, in percent for shares."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if share:
        in_percent(axes, "x")
        axes.set_xlim(0, min(1.0, math.floor(10 * high + 1.2) / 10))
    else:
        axes.set_xlim(1.05 * low, 1.05 * high or 1)


def set_difference_axis(axes: "Axes", values: Sequence[float], share: bool) -> None:
    """Let the horizontal axis hold all differences and a line at 0, in percentage points for shares."""
    from matplotlib.ticker import FuncFormatter

    finite = [value for value in values if math.isfinite(value)]
    low, high = min([-0.02, *finite]), max([0.02, *finite])
    room = 0.05 * (high - low)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(low - room, high + room)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: signed(round(value, 9), share).removesuffix(" pts").removesuffix(".0"))
    )


def _point(look: Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": "",
        "markersize": 4,
        "markeredgecolor": "black",
        "markeredgewidth": 0.4,
    }


def _whiskers(score: Score) -> list[list[float]] | None:
    """Return how far an interval reaches to both sides of a value; None if there is none."""
    if not (math.isfinite(score.low) and math.isfinite(score.high)):
        return None
    return [[max(0.0, score.value - score.low)], [max(0.0, score.high - score.value)]]
