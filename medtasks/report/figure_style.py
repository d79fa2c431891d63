"""Style of a report's figures, figures with rows of scores, and the conversion to SVG elements and files.

Colours are Okabe and Ito's, which colour-blind readers tell apart; hatches and marks help in print without colours.
"""

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from medtasks.report.report_model import RunReport
from medtasks.report.tables import NOT_DEFINED
from medtasks.report.wording import encode_name
from medtasks.scores.score_model import MetricScore

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FONTS = "'DejaVu Sans', Verdana, Arial, Helvetica, sans-serif"
_NO_METADATA = {"svg": ("Creator", "Date", "Format", "Type"), "png": ("Software",)}
_DPI = 200
_INVISIBLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]+")
_SIZE = 8  # points
RC_PARAMS: dict[Any, Any] = {  # of matplotlib, under which figures are drawn and written
    "svg.fonttype": "none",
    "svg.hashsalt": "medtasks",
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that figures are the same everywhere
    "font.size": _SIZE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": _SIZE,
}

# Sizes are in inches.
WIDTH = 7.0  # a page's text
AXIS = 0.45  # an axis with its label
LINE = 0.14  # a line of text
PERCENT = "{x:.0%}"  # labels of shares at an axis
GREY, RED, GRID = "#444444", "#A00000", "#DDDDDD"
_EDGE = 0.1
_POINTS = 72
_TITLE_CHARACTERS, _LEGEND_CHARACTERS = 76, 70
_LEGEND_LINE, _LEGEND_HANDLE = 0.19, 0.6
_MOST_COLUMNS = 4
_FIRST = ("reference", "robust", "strict")
_SERIES = 0.055  # a score of a row that has one per series
_GAP = 0.055  # between two such rows
_LEAST = 0.22  # such a row, at least
_ROW = 0.36  # a row with a bar
_NAME_LINE = 34  # characters


@dataclass(frozen=True)
class Drawing:
    """A figure and what it shows."""

    figure: "Figure"
    title: str  # what it is, a few words
    describes: str  # sentences for a reader who does not see it


def shown_text(text: str) -> str:
    r"""Return a text without characters that XML forbids, and with single blanks.

    Example:
        >>> shown_text("CT\x00 of\n the head")
        'CT of the head'
    """
    return " ".join(_INVISIBLE.sub(" ", text).split())


def svg_element(drawing: Drawing, key: str) -> str:
    """Return a drawing as ``<svg>`` for a page.

    It has no style sheet and no style attributes, which a page's security policy may forbid and which would reach
    beyond it.

    Args:
        drawing: The drawing.
        key: Key of the figure, with which all its ids begin.
    """
    text = file_content(drawing.figure, "svg").decode()
    prefix = f"figure-{encode_name(key, end='-')}-"

    def embed_tag(tag: re.Match[str]) -> str:
        own_ids = re.sub(r'( id="|href="#|url\(#)', rf"\g<0>{prefix}", tag.group())
        return re.sub(r' style="([^"]*)"', _attributes, own_ids)

    body = text[text.index("<svg") :]
    body = re.sub(r"<style.*?</style>|<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]*>", embed_tag, body)
    labels = f'aria-labelledby="{prefix}title {prefix}describes"'
    start = f'<svg role="img" {labels} stroke-linejoin="round" stroke-linecap="butt"'
    about = (
        f'<title id="{prefix}title">{escape(shown_text(drawing.title))}</title>'
        f'<desc id="{prefix}describes">{escape(shown_text(drawing.describes))}</desc>'
    )
    root, _, inner = re.sub(r">\s+<", "><", body).partition(">")
    return f"{start}{root.removeprefix('<svg')}>{about}{inner.strip()}"


def _attributes(style: re.Match[str]) -> str:
    """Return the declarations of a style attribute as attributes of their own."""
    texts = []
    for declaration in style.group(1).split(";"):
        name, value = map(str.strip, declaration.split(":", 1))
        if name == "font-family":
            value = _FONTS  # which other systems have, too
        texts.append(f" {name}={quoteattr(value)}")
    return "".join(texts)


def file_content(figure: "Figure", form: str) -> bytes:
    """Return a figure as the bytes of a file, which do not depend on the time.

    Args:
        figure: The figure.
        form: ``svg`` or ``png``.
    """
    content = io.BytesIO()
    figure.savefig(content, format=form, dpi=_DPI, metadata=dict.fromkeys(_NO_METADATA[form]))
    return content.getvalue()


@dataclass(frozen=True)
class Look:
    """Look of one of several series."""

    colour: str
    hatch: str
    marker: str


LOOKS = (
    Look("#0072B2", "", "o"),
    Look("#E69F00", "////", "s"),
    Look("#009E73", "\\\\\\\\", "D"),
    Look("#CC79A7", "xxxx", "^"),
    Look("#56B4E9", "||||", "v"),
    Look("#D55E00", "++++", "P"),
)


def rule_looks(report: RunReport) -> dict[str, Look]:
    """Return the look of each rule, by its name.

    Looks are the same in all figures of a report. From the seventh rule on they repeat.
    """
    rules = chain.from_iterable(task.rules for task in report.tasks)
    names = dict.fromkeys(rule.name for rule in rules)
    ordered = sorted(
        names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)
    )
    return {name: LOOKS[position % len(LOOKS)] for position, name in enumerate(ordered)}


def new_figure(
    title: str,
    warnings: Sequence[str],
    *,
    height: float,
    left: float,
    bottom: float,
    right: float = 0.3,
) -> tuple["Figure", "Axes"]:
    """Return a figure with a heading, warnings below it, and one pair of axes.

    Args:
        title: Its heading, at most three lines of which are shown.
        warnings: A line each.
        height: Height of the axes, in inches.
        left: Margin between the left edge and the axes, in inches.
        bottom: Margin below the axes, in inches.
        right: Margin between the axes and the right edge, in inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heading = textwrap.wrap(shown_text(title), _TITLE_CHARACTERS, max_lines=3, placeholder=" …")
    top = _EDGE + LINE * (len(heading) * 1.15 + len(warnings)) + 0.12
    whole = top + height + bottom
    figure = Figure(figsize=(WIDTH, whole))
    FigureCanvasAgg(figure)
    x = _EDGE / WIDTH
    y = 1 - _EDGE / whole
    text = "\n".join(heading)
    figure.text(x, y, text, va="top", fontsize=9, fontweight="bold", linespacing=1.15)
    y -= 1.15 * LINE * len(heading) / whole
    text = "\n".join(map(shown_text, warnings))
    figure.text(x, y, text, va="top", color=RED, linespacing=1.15)
    box = (left / WIDTH, bottom / whole, (WIDTH - left - right) / WIDTH, height / whole)
    return figure, figure.add_axes(box)


def text_width(text: str) -> float:
    """Return the width of a text's widest line, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="DejaVu Sans", size=_SIZE)
    measure = TextToPath().get_text_width_height_descent
    return (
        max(float(measure(line, font, ismath=False)[0]) for line in text.split("\n")) / _POINTS
    )


def legend_text(text: str) -> str:
    """Return a text short enough for a legend.

    Example:
        >>> legend_text("Radiographs " * 7)
        'Radiographs Radiographs Radiographs Radiographs Radiographs …'
    """
    return textwrap.shorten(shown_text(text), _LEGEND_CHARACTERS, placeholder=" …") or "…"


def _columns(texts: Sequence[str]) -> int:
    """Return the largest number of legend columns that fit into the figure, filled one by one."""
    for columns in range(min(_MOST_COLUMNS, len(texts)), 1, -1):
        lines = math.ceil(len(texts) / columns)
        width = 0.0
        for start in range(0, len(texts), lines):
            width += max(map(text_width, texts[start : start + lines]))
        if width + _LEGEND_HANDLE * columns <= WIDTH - 2 * _EDGE:
            return columns
    return 1


def new_rows(
    title: str,
    warnings: Sequence[str],
    names: Sequence[str],
    legend: Sequence[str],
    series: int = 0,
) -> tuple["Figure", "Axes"]:
    """Return a figure with rows from the top, each 1 high.

    Args:
        title: Its heading.
        warnings: A line each.
        names: Names of the rows, at least one, for which rows are high enough.
        legend: Texts of the legend, for which room is left.
        series: Number of scores in a row, for which rows are high enough. 0 if it has bars instead.
    """
    step = _ROW
    if series:
        lines = 1 + max(name.count("\n") for name in names)
        step = max(_SERIES * series + _GAP, _LEAST, LINE * lines + 0.06)
    legend_height = _LEGEND_LINE * math.ceil(len(legend) / _columns(legend)) + 0.1
    left = max(map(text_width, names)) + 0.25
    figure, axes = new_figure(
        title, warnings, height=step * len(names), left=left, bottom=AXIS + legend_height
    )
    axes.set_yticks(range(len(names)), labels=list(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    if series:
        axes.grid(axis="x", color=GRID, linewidth=0.5)
        axes.set_axisbelow(True)
    return figure, axes


def draw_score(
    axes: "Axes",
    score: MetricScore,
    row: int,
    position: int,
    series: int,
    look: Look,
) -> None:
    """Draw a score as a point with its interval, or as "n/a".

    Args:
        axes: Axes of :func:`new_rows`.
        score: The score.
        row: Index of the row.
        position: Index of the series. All series together take 0.8 of the row's height.
        series: Number of series.
        look: Look of the series.
    """
    y = row + 0.8 * ((position + 0.5) / series - 0.5)
    if math.isnan(score.value):
        axes.text(0, y, f" {NOT_DEFINED}", va="center", fontsize=6, color=GREY)
        return
    if math.isfinite(score.low) and math.isfinite(score.high):
        ends = [[max(0.0, score.value - score.low)], [max(0.0, score.high - score.value)]]
        axes.errorbar(score.value, y, xerr=ends, fmt="none", ecolor=look.colour, elinewidth=1.2)
    axes.plot([score.value], [y], clip_on=False, **_point(look))


def add_legend(
    figure: "Figure",
    handles: Sequence["Artist"],
    rules: Sequence[str] = (),
    looks: Mapping[str, Look] = MappingProxyType({}),
) -> None:
    """Write a legend at the bottom of a figure of :func:`new_rows`.

    Args:
        figure: The figure.
        handles: Artists with a label of their own, which come after the rules.
        rules: Names of rules.
        looks: Looks of these and other rules, by name.
    """
    from matplotlib.lines import Line2D

    marks: list[Artist] = []
    for rule in rules:
        marks.append(Line2D([], [], label=legend_text(rule), **_point(looks[rule])))
    marks += handles
    columns = _columns([str(mark.get_label()) for mark in marks])
    figure.legend(handles=marks, loc="lower center", ncols=columns, borderaxespad=0.2)


def row_name(name: str, addition: str = "", *, lines: int = 2) -> str:
    r"""Wrap the name of a row.

    Args:
        name: The name, which is cut short if it is too long.
        addition: A text at the end of the name, which is always whole.
        lines: Number of lines that the name may take, without the addition.

    Example:
        >>> row_name("Cardiology", "(n = 12)")
        'Cardiology (n = 12)'
    """
    wrapped = textwrap.wrap(shown_text(name), _NAME_LINE, max_lines=lines, placeholder=" …")
    wrapped = wrapped or ["(empty)"]
    text = "\n".join(wrapped)
    if not addition:
        return text
    fits = lines == 1 or len(wrapped[-1]) + len(addition) < _NAME_LINE
    return f"{text} {addition}" if fits else f"{text}\n{addition}"


def set_score_axis(axes: "Axes", values: Sequence[float], share: bool) -> None:
    """Let the horizontal axis begin at 0 and hold all values, in percent for shares."""
    finite = [0.0, *filter(math.isfinite, values)]
    if share:
        axes.xaxis.set_major_formatter(PERCENT)
        axes.set_xlim(0, min(1.0, math.floor(10 * max(finite) + 1.2) / 10))
    else:
        axes.set_xlim(1.05 * min(finite), 1.05 * max(finite) or 1)


def _point(look: Look) -> dict[str, Any]:
    """Return the arguments of matplotlib that draw a series as points without a line."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": "",
        "markersize": 4,
        "markeredgecolor": "black",
        "markeredgewidth": 0.4,
    }
