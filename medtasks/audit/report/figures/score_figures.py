"""Figures of scores in rows: all tasks, groups of questions, and gains over the sanity variants.

A row has its name at the left, and a point with its interval for every rule.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medtasks.audit.report.contents import RuleScores, RunReport, Score, TaskReport
from medtasks.audit.report.figures import style
from medtasks.audit.report.wording import count, number, scored, signed, warnings
from medtasks.audit.tables import NOT_DEFINED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SERIES, _GAP, _LEAST = 0.055, 0.055, 0.22  # inches
_NAME_LINE = 34  # characters
_DENSE = 20  # groups; with more of them names have one line
_BASELINES = "baselines, which see no image"
Looks = Mapping[str, style.Look]


@dataclass(frozen=True)
class FigureRows:
    """A figure with a row per name, each 1 high, the first one at 0."""

    figure: "Figure"
    axes: "Axes"

    def draw(self, score: Score, row: int, position: int, series: int, look: style.Look) -> None:
        """Draw a score as a point with its interval, as one of several series of a row, which take 0.8 of it."""
        y = row + 0.8 * ((position + 0.5) / series - 0.5)
        if math.isnan(score.value):
            self.axes.text(0, y, f" {NOT_DEFINED}", va="center", fontsize=6, color=style.GREY)
            return
        if math.isfinite(score.low) and math.isfinite(score.high):
            ends = [[max(0.0, score.value - score.low)], [max(0.0, score.high - score.value)]]
            self.axes.errorbar(score.value, y, xerr=ends, fmt="none", ecolor=look.colour, elinewidth=1.2)
        self.axes.plot([score.value], [y], clip_on=False, **_point(look))

    def finish(self, rules: Mapping[str, style.Look], others: Sequence["Artist"] = ()) -> None:
        """Write the legend of the rules and of everything else that was drawn."""
        from matplotlib.lines import Line2D

        points = [Line2D([], [], label=style.legend_text(rule), **_point(look)) for rule, look in rules.items()]
        style.add_legend(self.figure, [*points, *others])


def new_rows(
    title: str, warnings: Sequence[str], names: Sequence[str], series: int, legend: Sequence[str]
) -> FigureRows:
    """Return a figure with a row per name (at least one), high enough for its series and its lines of text."""
    lines = 1 + max(name.count("\n") for name in names)
    step = max(_SERIES * series + _GAP, _LEAST, style.LINE * lines + 0.06)
    below = style.AXIS + style.legend_height(legend)
    figure, axes = style.new_figure(
        title, warnings, height=step * len(names), left=style.name_margin(names), bottom=below
    )
    style.name_rows(axes, names)
    axes.grid(axis="x", color=style.GRID, linewidth=0.5)
    axes.set_axisbelow(True)
    return FigureRows(figure, axes)


def row_name(name: str, addition: str = "", *, lines: int = 2) -> str:
    """Return the name of a row on at most some lines, with an addition at its end.

    Example:
        >>> row_name("Cerebral", "(n = 79)")
        'Cerebral (n = 79)'
    """
    wrapped = textwrap.wrap(style.shown_text(name), _NAME_LINE, max_lines=lines, placeholder=" …") or ["(empty)"]
    fits = lines == 1 or len(wrapped[-1]) + len(addition) < _NAME_LINE
    return "\n".join(wrapped) + (" " if fits else "\n") * bool(addition) + addition


def set_score_axis(axes: "Axes", values: Sequence[float], share: bool) -> None:
    """Let the horizontal axis begin at 0 and hold all values, in percent for shares."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if share:
        style.in_percent(axes, "x")
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


def _point(look: style.Look) -> dict[str, Any]:
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": "",
        "markersize": 4,
        "markeredgecolor": "black",
        "markeredgewidth": 0.4,
    }


def summary_figure(report: RunReport, looks: Looks) -> style.Drawing | None:
    """Draw the main metric of every task with its interval under every rule, and all baselines.

    Metrics that are no shares have no place on the same axis; the description names their tasks.
    """
    from matplotlib.lines import Line2D

    tasks = [task for task in report.tasks if (main := _main(task)) and main.share]
    if not tasks:
        return None
    title = "Main metric of all tasks"
    rules = list(dict.fromkeys(rule.name for task in tasks for rule in task.rules if rule.scores))
    most = max(len(task.rules) for task in tasks)
    names = []  # with the main metric and what must not be overlooked, a line each
    for task in tasks:
        main = _main(task)
        metric = row_name(main.metric, "(lower is better)" if main.higher_is_better is False else "") if main else ""
        names.append("\n".join([row_name(task.name), metric, *(text.partition(":")[0] for text in warnings(task))]))
    rows = new_rows(title, (), names, most, [*rules, _BASELINES])
    values: list[float] = []
    sentences = []
    for row, task in enumerate(tasks):
        levels = _baselines(task)
        rows.axes.scatter(
            levels, [row] * len(levels), marker="|", s=260, color=style.GREY, linewidth=1.2, zorder=3, clip_on=False
        )
        mains = [(rule.name, rule.scores[0]) for rule in task.rules if rule.scores]
        for position, (rule, score) in enumerate(mains):
            rows.draw(score, row, position, len(mains), looks[rule])
            values += [score.value, score.high]
        values += levels
        text = "; ".join(f"{score.metric} {scored(score)} under {rule}" for rule, score in mains)
        sentences.append(f"{task.name}: {'; '.join([*warnings(task), text])}.")
    set_score_axis(rows.axes, values, share=True)
    rows.axes.set_xlabel("main metric with its 95 % interval")
    mark = Line2D([], [], color=style.GREY, marker="|", markersize=10, linestyle="", label=_BASELINES)
    rows.finish({rule: looks[rule] for rule in rules}, [mark] if any(map(_baselines, tasks)) else [])
    others = [task.name for task in report.tasks if task not in tasks]
    left_out = [f"Not shown, because their main metric is no share: {', '.join(others)}."] if others else []
    return style.Drawing(rows.figure, title, " ".join([*sentences, *left_out]))


def group_figures(task: TaskReport, looks: Looks) -> dict[str, style.Drawing]:
    """Draw the main metric by group, a figure per column, the group with the most questions on top."""
    drawn = {}
    for column, names in task.group_names.items():
        rules = [rule for rule in task.rules if rule.groups.get(column)]
        mains = [group.scores[0] for rule in rules for group in rule.groups[column] if group.scores]
        if any(math.isfinite(score.value) for score in mains):
            sizes = {name: task.group_size(column, name) for name in names}
            ordered = dict(sorted(sizes.items(), key=lambda entry: -entry[1]))
            drawn[column] = _group_figure(task, rules, looks, column, ordered, mains[0])
    return drawn


def _group_figure(
    task: TaskReport, rules: Sequence[RuleScores], looks: Looks, column: str, sizes: Mapping[str, int], main: Score
) -> style.Drawing:
    metric = main.metric
    title = f"{task.name}: {metric} by {column}"
    level: list[tuple[float, str]] = []  # of the best baseline, under the first rule that has one
    for rule in rules:
        if not level and rule.scores and rule.scores[0].metric == metric and (best := task.best_baseline(rule)):
            text = f"{best[0].name}, all questions: {number(best[1], task.is_share(metric))}"
            level = [(best[1], style.legend_text(text))]
    names = [
        row_name(name, f"(n = {count(size)})", lines=1 if len(sizes) > _DENSE else 2) for name, size in sizes.items()
    ]
    legend = [rule.name for rule in rules] + [text for _, text in level]
    rows = new_rows(title, warnings(task), names, len(rules), legend)
    values = [value for value, _ in level]
    sentences = [f"Dashed line: {text}." for _, text in level]
    for position, rule in enumerate(rules):
        scores = {name: rule.group_score(column, name, metric) for name in sizes}
        for row, score in enumerate(scores.values()):
            if score:
                rows.draw(score, row, position, len(rules), looks[rule.name])
                values += [score.value, score.low, score.high]
        sentences.append(
            f"{rule.name}: " + "; ".join(f"{name} {scored(score)}" for name, score in scores.items()) + "."
        )
    lines = [
        rows.axes.axvline(value, color=style.GREY, linewidth=1, linestyle="--", label=text) for value, text in level
    ]
    set_score_axis(rows.axes, values, main.share)
    rows.axes.set_xlabel(f"{style.shown_text(metric)} with simultaneous 95 % intervals")
    rows.finish({rule.name: looks[rule.name] for rule in rules}, lines)
    return style.Drawing(rows.figure, title, " ".join([*warnings(task), *sentences]))


def gain_figure(task: TaskReport, looks: Looks) -> style.Drawing | None:
    """Draw the gains of a task over its sanity variants, with intervals.

    The metric is the task's main one; if that has no value per sample or is 0 by construction, the next one.
    """
    defined = [gain for gain in task.gains if gain.rule in looks and math.isfinite(gain.difference)]
    if not defined:
        return None
    constructed = {gain.metric for gain in defined if gain.by_construction}
    main, metrics = _main(task), [gain.metric for gain in defined if gain.metric not in constructed]
    metrics = metrics or [defined[0].metric]
    metric = main.metric if main and main.metric in metrics else metrics[0]
    gains, share = [gain for gain in defined if gain.metric == metric], task.is_share(metric)
    title = f"{task.name}: difference from its sanity variants"
    rules = list(dict.fromkeys(gain.rule for gain in gains))
    variants = list(dict.fromkeys(gain.variant for gain in gains))
    rows = new_rows(title, warnings(task), [row_name(variant) for variant in variants], len(rules), rules)
    for gain in gains:
        score = Score(gain.metric, gain.difference, math.nan, gain.low, gain.high, share, higher_is_better=True)
        rows.draw(score, variants.index(gain.variant), rules.index(gain.rule), len(rules), looks[gain.rule])
    set_difference_axis(rows.axes, [end for gain in gains for end in (gain.difference, gain.low, gain.high)], share)
    unit = "percentage points, with their" if share else "with its"
    rows.axes.set_xlabel(f"{style.shown_text(metric)} minus that of the variant, {unit} 95 % interval")
    rows.finish({rule: looks[rule] for rule in rules})
    sentences = [
        f"{gain.metric} under {gain.rule} is {number(gain.score, share)}, "
        f"{number(gain.variant_score, share)} for {gain.variant}."
        for gain in gains
    ]
    return style.Drawing(rows.figure, title, " ".join([*warnings(task), *sentences]))


def _main(task: TaskReport) -> Score | None:
    return next((rule.scores[0] for rule in task.rules if rule.scores), None)


def _baselines(task: TaskReport) -> list[float]:
    """Return the baselines' values of the main metric, under any rule."""
    levels = [
        baseline.scores.get(rule.name, {}).get(rule.scores[0].metric, math.nan)
        for baseline in task.baselines
        for rule in task.rules
        if rule.scores
    ]
    return sorted({level for level in levels if math.isfinite(level)})
