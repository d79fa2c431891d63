"""Figures of what became of pairs, and of how well likelihoods say how often a model is right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from medtasks.audit.report.contents import TaskReport
from medtasks.audit.report.figures import style
from medtasks.audit.report.figures.score_figures import row_name
from medtasks.audit.report.rows import pair_rows, thinned
from medtasks.audit.report.wording import count, estimate, number, warnings
from medtasks.stats.calibration import Bin, Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ROW, _LEFT, _SQUARE, _BELOW = 0.36, 0.9, 3.3, 0.9  # inches
_NARROW = 0.03  # share of the axis; a number has no room in less
_FILL = "#E8E8E8"
_OUTCOMES = {
    "Both right": style.LOOKS[2],
    "Swapped": style.LOOKS[5],
    "One invalid": style.Look("#CCCCCC", "", ""),
    "Both invalid": style.Look("#8C8C8C", "xxxx", ""),
}
_SAME = (style.LOOKS[0], style.LOOKS[4], style.LOOKS[3], style.LOOKS[1])


def pair_figure(task: TaskReport) -> style.Drawing | None:
    """Draw what became of the pairs, a bar per rule, each outcome with its number."""
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    parts = {name: numbers for name, _, numbers in pair_rows(list(outcomes.values())) if any(numbers)}
    if not parts:
        return None
    title, totals = f"{task.name}: outcomes of pairs", [sum(numbers) for numbers in zip(*parts.values(), strict=True)]
    names = [row_name(rule, f"({count(total)} pairs)") for rule, total in zip(outcomes, totals, strict=True)]
    below = style.AXIS + style.legend_height(list(parts))
    figure, axes = style.new_figure(
        title, warnings(task), height=_ROW * len(names), left=style.name_margin(names), bottom=below
    )
    starts, widest = [0] * len(names), max(totals)
    same = [name for name in parts if name not in _OUTCOMES]  # blue, violet or orange, in order of the options
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}  # so that hatches hide no number
    for name, numbers in parts.items():
        look = _OUTCOMES.get(name) or _SAME[same.index(name) % len(_SAME)]
        bar: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0.6}
        axes.barh(range(len(names)), numbers, left=starts, height=0.7, label=name, **bar)
        for row, (found, start) in enumerate(zip(numbers, starts, strict=True)):
            if found > _NARROW * widest:
                axes.text(start + found / 2, row, count(found), ha="center", va="center", bbox=ground)
        starts = [start + found for start, found in zip(starts, numbers, strict=True)]
    style.name_rows(axes, names)
    axes.set_xlim(0, widest)
    axes.set_xlabel("pairs")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    told = [
        f"{rule}: " + ", ".join(f"{name.lower()} {count(numbers[position])}" for name, numbers in parts.items()) + "."
        for position, rule in enumerate(outcomes)
    ]
    return style.Drawing(figure, title, " ".join([*warnings(task), *told]))


def reliability_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw how often answers of a confidence are right, and how many there are of it."""
    found, title = task.calibration[rule], f"{task.name}: reliability under {rule}"
    filled = [one for one in found.bins if one.samples]
    figure, axes = _square(title, warnings(task), below=_BELOW)
    _draw_bins(figure, axes, filled)
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="perfect calibration")
    confidences, rates = [one.confidence for one in filled], [one.accuracy for one in filled]
    axes.plot(
        confidences, rates, color=style.LOOKS[0].colour, marker="o", markersize=4, linewidth=1, label="this model"
    )
    axes.set_ylabel("right answers")
    facts = [
        f"{count(found.samples)} questions",
        f"expected calibration error\n{_measured(found.ece)}; {number(found.debiased_ece, False)} debiased",
        f"Brier score\n{_measured(found.brier)}",
    ]
    _write_beside(axes, facts)
    told = [f"Confidence {number(one.confidence)}: {number(one.accuracy)} right." for one in filled]
    return style.Drawing(figure, title, " ".join([*warnings(task), f"{', '.join(facts)}.", *told, found.note]))


def coverage_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw what share of the answers is right if only the most confident ones are given."""
    found, title = task.calibration[rule], f"{task.name}: accuracy against coverage under {rule}"
    points = sorted(found.coverage, key=lambda point: point.coverage)
    figure, axes = _square(title, warnings(task))
    coverages, rates = [one.coverage for one in points], [one.accuracy for one in points]
    text = f"all answers: {number(found.accuracy.value)} right"
    axes.axhline(found.accuracy.value, color=style.GREY, linestyle="--", linewidth=1, label=text)
    axes.plot(
        coverages, rates, color=style.LOOKS[0].colour, linewidth=1.4, label="the most confident answers", clip_on=False
    )
    axes.grid(color=style.GRID, linewidth=0.5)
    axes.set_xlabel("coverage: questions answered")
    axes.set_ylabel("right answers among them")
    facts = [f"{count(found.samples)} questions", f"area under the risk-coverage curve\n{_measured(found.aurc)}"]
    _write_beside(axes, facts)
    told = [f"{number(one.coverage)} answered: {number(one.accuracy)} right." for one in thinned(found)]
    return style.Drawing(figure, title, " ".join([*warnings(task), f"{', '.join(facts)}.", *told, found.note]))


def _square(title: str, about: Sequence[str], below: float = 0.0) -> tuple["Figure", "Axes"]:
    """Return a figure with square axes of shares at the left and room for words at the right."""
    figure, axes = style.new_figure(
        title, about, height=_SQUARE, left=_LEFT, right=style.WIDTH - _LEFT - _SQUARE, bottom=style.AXIS + below
    )
    style.in_percent(axes, "xy")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    return figure, axes


def _draw_bins(figure: "Figure", axes: "Axes", filled: Sequence[Bin]) -> None:
    """Draw the share of right answers of each bin, and below how many answers it has."""
    height = figure.get_size_inches()[1]
    box = axes.get_position()
    below = figure.add_axes((box.x0, style.AXIS / height, box.width, (_BELOW - 0.2) / height), sharex=axes)
    for one in filled:
        place, width = (one.low + one.high) / 2, 0.94 * (one.high - one.low)
        axes.bar(place, one.accuracy, width=width, color=_FILL, edgecolor=style.LOOKS[0].colour, linewidth=0.8)
        below.bar(place, one.samples, width=width, color=style.LOOKS[0].colour)
    axes.tick_params(labelbottom=False)
    below.set_ylabel("questions")
    below.set_xlabel("confidence: probability of the chosen option")


def _write_beside(axes: "Axes", facts: Sequence[str]) -> None:
    """Write the legend and some facts to the right of the axes, where they hide nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.02))
    axes.text(1.05, 0, "\n\n".join(facts), transform=axes.transAxes, va="bottom")


def _measured(measure: Measure) -> str:
    return estimate(measure.value, measure.low, measure.high, share=False)
