"""The error of models against the gap of pairs, as a figure for a page or a paper."""

from pathlib import Path

import numpy as np

from medtasks.audit.report.figures import style
from medtasks.curate.pairs.patterns import ALL, Patterns
from medtasks.errors import MedTasksError

FORMS = ("svg", "png")
_MEAN = "mean of the models"
_HEIGHT, _LEFT = 3.0, 0.7  # inches
_BESIDE = 0.06  # how far intervals of models stand apart, as a share of a bin


def write_gap_figure(path: Path, found: Patterns) -> None:
    """Write the share of unsolved pairs by gap with 95 % intervals, as SVG or PNG by the file's ending.

    Of more than six models only the mean is drawn. MedTasksError: another ending, or a file that cannot be written.
    """
    form = path.suffix.lstrip(".").lower()
    if form not in FORMS:
        raise MedTasksError(
            f"{path} is no figure that can be written; let it end in {' or '.join(f'.{one}' for one in FORMS)}"
        )
    import matplotlib

    with matplotlib.rc_context(style.RC_PARAMS):
        drawing = gap_figure(found)
        content = (
            style.svg_element(drawing, "gap").encode() if form == "svg" else style.file_content(drawing.figure, form)
        )
    try:
        path.write_bytes(content)
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def gap_figure(found: Patterns) -> style.Drawing:
    """Return the figure: a point for each model and bin of pairs, at the mean gap of the bin."""
    series, bins = {letter: f"{one.model}, {one.task}" for letter, one in found.models.items()}, found.bins
    series = series if len(series) <= len(style.LOOKS) else {ALL: _MEAN}
    title = f"{found.name}: does the gap of a pair predict the error?"
    texts = [style.legend_text(text) for text in series.values()]
    below = style.AXIS + style.legend_height(texts)
    figure, axes = style.new_figure(title, (), height=_HEIGHT, left=_LEFT, bottom=below)
    for number, model in enumerate(series):
        points = [one for one in bins if one.model == model]
        gaps = [one.gap for one in points]
        width = (max(gaps) - min(gaps)) / max(1, len(gaps) - 1) if gaps else 0.0
        shift = (number - (len(series) - 1) / 2) * _BESIDE * width
        ends = [[abs(end - one.error) for end in (one.low, one.high)] for one in points]
        axes.errorbar(
            [gap + shift for gap in gaps],
            [one.error for one in points],
            yerr=np.nan_to_num(np.reshape(ends, (-1, 2)).T),
            label=texts[number],
            color=style.LOOKS[number].colour,
            marker=style.LOOKS[number].marker,
            markersize=4,
            linewidth=1,
            elinewidth=0.8,
            capsize=2,
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("gap: similarity to the medical encoder less that to the vision-only one (mean of each bin)")
    axes.set_ylabel("pairs not solved")
    axes.grid(axis="y", color=style.GRID, linewidth=0.5)
    style.in_percent(axes, "y")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    told = [
        f"{series[one.model]}, gap {one.gap:.3f}: {one.error:.0%} of {one.pairs} pairs not solved."
        for one in bins
        if one.model in series
    ]
    return style.Drawing(figure, title, " ".join(told))
