r"""Static figures of a report, by matplotlib, the same ones for the page and for a paper.

Their keys are ``summary``, always the first, and for each task ``TASK/groups/COLUMN``, ``TASK/pairs``, ``TASK/gains``,
``TASK/reliability/RULE`` and ``TASK/coverage/RULE``.

A figure without anything to show has no key. An SVG starts with ``<svg`` (no XML declaration or doctype), carries
``role="img"``, ``<title>`` and ``<desc>``, has neither style sheet nor style attributes, and its ids are prefixed so
that many fit on one page. Figures show scores and names of groups, and nothing of single questions.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medtasks.errors import MedTasksError
from medtasks.report import figure_style as style
from medtasks.report.group_tables import groups_under, small_groups
from medtasks.report.report_model import Gain, RunReport, TaskReport
from medtasks.report.task_tables import coverage_rows
from medtasks.report.wording import (
    count,
    encode_name,
    measure_text,
    number,
    pair_rows,
    score_text,
    with_sign,
)
from medtasks.report.wording import warnings as task_warnings
from medtasks.scores.score_model import Group, MetricScore, RuleScores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BELOW = 0.9  # inches
_SQUARE = {"height": 3.3, "left": 0.9, "right": style.WIDTH - 0.9 - 3.3}
_NARROW = 0.03  # share of the axis; a number has no room in less
_FILL = "#E8E8E8"
_BLUE = style.LOOKS[0].colour
_DENSE = 20  # groups; with more of them names have one line
_BASELINES = "baselines, which see no image"
_OUTCOMES = {
    "Both right": style.LOOKS[2],
    "Swapped": style.LOOKS[5],
    "One invalid": style.Look("#CCCCCC", "", ""),
    "Both invalid": style.Look("#8C8C8C", "xxxx", ""),
}
# Looks of "both answered A", "both answered B" and so on, in the order of the options.
_SAME = (style.LOOKS[0], style.LOOKS[4], style.LOOKS[3], style.LOOKS[1])
# The ground of a number on a bar, so that hatches do not hide it.
_GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}

Looks = Mapping[str, style.Look]
DrawFigure = Callable[[], style.Drawing | None]


def figures(report: RunReport, folder: Path | None = None) -> dict[str, str]:
    """Draw every figure of a report.

    The same report gives the same elements and files.

    Args:
        report: Contents of the report.
        folder: Folder for files, which is made if it is missing; None writes none. Each figure becomes an SVG, and a
            PNG with 200 dots per inch, called after its key: ``mediconfusion.groups.categories.svg``. Any character but
            letters, digits and ``_-`` is written as its code.

    Returns:
        SVG elements for a page, by key.

    Raises:
        MedTasksError: The folder cannot be written to.
    """
    # Functions instead of figures: these are drawn one at a time to save memory.
    looks = style.rule_looks(report)
    draw: dict[str, DrawFigure] = {"summary": partial(summary_figure, report, looks)}
    for task in report.tasks:
        for column in task.group_sizes:
            draw[f"{task.name}/groups/{column}"] = partial(group_figure, task, looks, column)
        draw[f"{task.name}/pairs"] = partial(pair_figure, task)
        draw[f"{task.name}/gains"] = partial(gain_figure, task, looks)
        for rule, calibration in task.calibration.items():
            if calibration.bins:
                draw[f"{task.name}/reliability/{rule}"] = partial(
                    reliability_figure, task, rule
                )
            draw[f"{task.name}/coverage/{rule}"] = partial(coverage_figure, task, rule)
    return svg_elements(draw, folder)


def svg_elements(draw: Mapping[str, DrawFigure], folder: Path | None = None) -> dict[str, str]:
    """Draw figures as SVG elements, and write them into a folder as :func:`figures` does.

    Args:
        draw: Functions that draw a figure, by key. One that returns None has nothing to show and gets no element.
        folder: Folder for the files; None writes none.

    Raises:
        MedTasksError: The folder cannot be written to.
    """
    import matplotlib

    elements = {}
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(style.RC_PARAMS), warnings.catch_warnings():
            # A viewer's font may well have the glyph.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            for key, draw_figure in draw.items():
                drawing = draw_figure()
                if drawing is None:
                    continue
                elements[key] = style.svg_element(drawing, key)
                if folder is not None:
                    name = ".".join(encode_name(part, "-", also="-") for part in key.split("/"))
                    (folder / f"{name}.svg").write_bytes(elements[key].encode())
                    (folder / f"{name}.png").write_bytes(
                        style.file_content(drawing.figure, "png")
                    )
    except OSError as error:
        if folder is None:
            raise
        raise MedTasksError(
            f"cannot write figures into {folder}: {error.strerror or error}; name another folder"
        ) from error
    return elements


def summary_figure(report: RunReport, looks: Looks) -> style.Drawing | None:
    """Draw the main metric of every task, if it is a share, with its interval under every rule, and all baselines.

    Returns:
        The figure, or None if no task has a share as its main metric.
    """
    from matplotlib.lines import Line2D

    tasks, others = _tasks_by_scale(report)
    if not tasks:
        return None
    title = "Main metric of all tasks"
    rules = list(dict.fromkeys(chain.from_iterable(map(_main_scores, tasks))))
    most = max(len(task.rules) for task in tasks)
    figure, axes = style.new_rows(
        title, (), [*map(_summary_name, tasks)], [*rules, _BASELINES], most
    )
    values: list[float] = []
    baselines: list[float] = []
    sentences = []
    for row, task in enumerate(tasks):
        main = _main_scores(task)
        levels = _baseline_levels(task, main)
        axes.scatter(
            levels,
            [row] * len(levels),
            marker="|",
            s=260,
            color=style.GREY,
            linewidth=1.2,
            zorder=3,
            clip_on=False,
        )
        baselines += levels
        texts = [*task_warnings(task)]
        for position, (rule, score) in enumerate(main.items()):
            style.draw_score(axes, score, row, position, len(main), looks[rule])
            values += [score.value, score.high]
            texts.append(f"{score.metric} {score_text(score)} under {rule}")
        sentences.append(f"{task.name}: {'; '.join(texts)}.")
    style.set_score_axis(axes, [*values, *baselines], share=True)
    axes.set_xlabel("main metric with its 95 % interval")
    mark = Line2D(
        [], [], color=style.GREY, marker="|", markersize=10, linestyle="", label=_BASELINES
    )
    style.add_legend(figure, [mark] if baselines else [], rules, looks)
    if others:
        sentences.append(
            f"Not shown, because their main metric is no share: {', '.join(others)}."
        )
    return style.Drawing(figure, title, " ".join(sentences))


def _tasks_by_scale(report: RunReport) -> tuple[list[TaskReport], list[str]]:
    """Return the tasks whose main metric is a share, and the names of the others."""
    shares = []
    others = []
    for task in report.tasks:
        first = next(iter(_main_scores(task).values()), None)
        if first and first.share:
            shares.append(task)
        else:
            others.append(task.name)
    return shares, others


def _main_scores(task: TaskReport) -> dict[str, MetricScore]:
    """Return the main score of a task under each rule that has one, by name of the rule."""
    return {rule.name: rule.scores[0] for rule in task.rules if rule.scores}


def _summary_name(task: TaskReport) -> str:
    """Name a task with its main metric and what must not be overlooked, a line each."""
    main = next(iter(_main_scores(task).values()))
    direction = "(lower is better)" if main.higher_is_better is False else ""
    subjects = [text.partition(":")[0] for text in task_warnings(task)]
    return "\n".join(
        [style.row_name(task.name), style.row_name(main.metric, direction), *subjects]
    )


def _baseline_levels(task: TaskReport, main: Mapping[str, MetricScore]) -> list[float]:
    """Return the different scores of all baselines in ascending order, in the metrics of ``main`` (by rule)."""
    levels = set()
    for baseline in task.baselines:
        for rule, score in main.items():
            levels.add(baseline.scores.get(rule, {}).get(score.metric, math.nan))
    return sorted(filter(math.isfinite, levels))


def group_figure(task: TaskReport, looks: Looks, column: str) -> style.Drawing | None:
    """Draw the main metric by group of a column, the group with the most questions on top.

    Args:
        task: The task.
        looks: Looks of the rules, by name.
        column: Column of the groups.

    Returns:
        The figure, or None if no group has a score.
    """
    rules = [rule for rule in task.rules if rule.groups.get(column)]
    groups = groups_under(rules, column)
    mains = [group.scores[0] for group in groups if group.scores]
    if not any(math.isfinite(score.value) for score in mains):
        return None
    metric = mains[0].metric
    title = f"{task.name}: {metric} by {column}"
    sizes = dict(Counter(task.group_sizes[column]).most_common())
    lines = _reference_lines(task, rules, looks, column, metric)
    rule_names = [rule.name for rule in rules]
    legend = [*rule_names, *(line["label"] for line in lines)]
    figure, axes = style.new_rows(
        title, task_warnings(task), _group_names(sizes, groups), legend, len(rules)
    )
    values, sentences = _draw_groups(
        axes, rules, [(column, name, metric) for name in sizes], looks
    )
    handles = []
    for line in lines:
        handles.append(axes.axvline(**line))
        values.append(line["x"])
        if "linestyle" in line:
            sentences.insert(0, f"Dashed line: {line['label']}.")
        else:
            sentences.append(f"Line: {line['label']}.")
    style.set_score_axis(axes, values, mains[0].share)
    axes.set_xlabel(f"{style.shown_text(metric)} with simultaneous 95 % intervals")
    style.add_legend(figure, handles, rule_names, looks)
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def _reference_lines(
    task: TaskReport,
    rules: Sequence[RuleScores],
    looks: Looks,
    column: str,
    metric: str,
) -> list[dict[str, Any]]:
    """Return the lines across all groups as arguments of ``axvline``.

    They are the score of all questions that groups are compared with, a line per rule, and the best baseline under the
    first rule that has one, dashed.
    """
    lines: list[dict[str, Any]] = []
    for rule in rules:
        for test in rule.column_tests.get(column, ()):
            if test.overall.metric == metric:
                text = f"all questions, {rule.name}: {score_text(test.overall)}"
                line = {"color": looks[rule.name].colour, "linewidth": 1.2, "zorder": 0}
                lines.append(
                    {"x": test.overall.value, "label": style.legend_text(text), **line}
                )
    for rule in rules:
        if (
            rule.scores
            and rule.scores[0].metric == metric
            and (best := task.best_baseline(rule))
        ):
            baseline, value = best
            text = f"{baseline.name}, all questions: {number(value, task.is_share(metric))}"
            line = {"color": style.GREY, "linewidth": 1, "linestyle": "--"}
            lines.append({"x": value, "label": style.legend_text(text), **line})
            break
    return lines


def _draw_groups(
    axes: "Axes",
    rules: Sequence[RuleScores],
    keys: Sequence[tuple[str, str, str]],
    looks: Looks,
) -> tuple[list[float], list[str]]:
    """Draw the scores of groups, by column, name and metric, and return their values and a sentence per rule."""
    values = []
    sentences = []
    for position, rule in enumerate(rules):
        texts = []
        for row, key in enumerate(keys):
            score = rule.group_score(*key)
            texts.append(f"{key[1]} {score_text(score)}")
            if score:
                style.draw_score(axes, score, row, position, len(rules), looks[rule.name])
                values += [score.value, score.low, score.high]
        sentences.append(f"{rule.name}: {'; '.join(texts)}.")
    return values, sentences


def _group_names(sizes: Mapping[str, int], groups: Iterable[Group]) -> list[str]:
    """Return the names of rows: groups with their numbers of questions, and those too small to be compared marked."""
    small = small_groups(groups)
    text_lines = 1 if len(sizes) > _DENSE else 2
    names = []
    for name, size in sizes.items():
        remark = ", not compared" if name in small else ""
        names.append(style.row_name(name, f"(n = {count(size)}{remark})", lines=text_lines))
    return names


def gain_figure(task: TaskReport, looks: Looks) -> style.Drawing | None:
    """Draw gains over sanity variants: of the main metric, or of the next one that is not 0 by construction.

    Args:
        task: The task.
        looks: Looks of the rules, by name. Gains under other rules are not drawn.

    Returns:
        The figure, or None if there are no gains.
    """
    gains = _drawn_gains(task, looks)
    if not gains:
        return None
    metric = gains[0].metric
    share = task.is_share(metric)
    title = f"{task.name}: difference from its variants"
    rules = list(dict.fromkeys(gain.rule for gain in gains))
    variants = list(dict.fromkeys(gain.variant for gain in gains))
    figure, axes = style.new_rows(
        title, task_warnings(task), [*map(style.row_name, variants)], rules, len(rules)
    )
    ends = [-0.02, 0.02]
    sentences = []
    for gain in gains:
        score = MetricScore(
            metric, gain.difference, math.nan, gain.low, gain.high, share, higher_is_better=True
        )
        style.draw_score(
            axes,
            score,
            variants.index(gain.variant),
            rules.index(gain.rule),
            len(rules),
            looks[gain.rule],
        )
        ends += filter(math.isfinite, (gain.difference, gain.low, gain.high))
        sentences.append(
            f"{metric} under {gain.rule} is {number(gain.score, share)}, {number(gain.variant_score, share)} for "
            f"{gain.variant}."
        )
    room = 0.05 * (max(ends) - min(ends))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(min(ends) - room, max(ends) + room)

    def tick_label(value: float, _: float) -> str:
        return with_sign(round(value, 9), share).removesuffix(" pts").removesuffix(".0")

    axes.xaxis.set_major_formatter(tick_label)
    unit = "percentage points, with their" if share else "with its"
    axes.set_xlabel(
        f"{style.shown_text(metric)} minus that of the variant, {unit} 95 % interval"
    )
    style.add_legend(figure, [], rules, looks)
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def _drawn_gains(task: TaskReport, looks: Looks) -> list[Gain]:
    """Return the gains in one metric: the main one if it has any, else the first that is not 0 by construction."""
    defined = [
        gain for gain in task.gains if gain.rule in looks and math.isfinite(gain.difference)
    ]
    if not defined:
        return []
    constructed = {gain.metric for gain in defined if gain.by_construction}
    main = next((rule.scores[0].metric for rule in task.rules if rule.scores), "")

    def rank(gain: Gain) -> int:
        return 2 if gain.metric in constructed else int(gain.metric != main)

    metric = min(defined, key=rank).metric
    return [gain for gain in defined if gain.metric == metric]


def pair_figure(task: TaskReport) -> style.Drawing | None:
    """Draw the outcomes of pairs, a bar per rule, each part with its number.

    Returns:
        The figure, or None for a task without pairs.
    """
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    parts = {}
    for name, _, numbers in pair_rows([*outcomes.values()]):
        if any(numbers):
            parts[name] = numbers
    if not parts:
        return None
    totals = [*map(sum, zip(*parts.values(), strict=True))]
    names = []
    sentences = []
    for position, rule in enumerate(outcomes):
        names.append(style.row_name(rule, f"({count(totals[position])} pairs)"))
        texts = [
            f"{name.lower()} {count(numbers[position])}" for name, numbers in parts.items()
        ]
        sentences.append(f"{rule}: {', '.join(texts)}.")
    title = f"{task.name}: outcomes of pairs"
    figure, axes = style.new_rows(title, task_warnings(task), names, [*parts])
    widest = max(totals)
    starts = [0] * len(totals)  # of the next part of each rule's bar
    same_looks = cycle(_SAME)
    for name, numbers in parts.items():
        look = _OUTCOMES.get(name) or next(same_looks)
        axes.barh(
            range(len(numbers)),
            numbers,
            left=starts,
            height=0.7,
            label=name,
            color=look.colour,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0.6,
        )
        for row, length in enumerate(numbers):
            if length > _NARROW * widest:
                middle = starts[row] + length / 2
                axes.text(middle, row, count(length), ha="center", va="center", bbox=_GROUND)
            starts[row] += length
    axes.set_xlim(0, widest)
    axes.set_xlabel("pairs")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def reliability_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw the reliability diagram: share of right answers and number of answers by confidence."""
    calibration = task.calibration[rule]
    title = f"{task.name}: reliability under {rule}"
    bins = [part for part in calibration.bins if part.samples]
    figure, axes = style.new_figure(
        title, task_warnings(task), bottom=style.AXIS + _BELOW, **_SQUARE
    )
    height = figure.get_size_inches()[1]
    box = axes.get_position()
    below = figure.add_axes(
        (box.x0, style.AXIS / height, box.width, (_BELOW - 0.2) / height), sharex=axes
    )
    sentences = []
    for part in bins:
        center = (part.low + part.high) / 2
        width = 0.94 * (part.high - part.low)
        axes.bar(
            center, part.accuracy, width=width, color=_FILL, edgecolor=_BLUE, linewidth=0.8
        )
        below.bar(center, part.samples, width=width, color=_BLUE)
        sentences.append(
            f"Confidence {number(part.confidence)}: {number(part.accuracy)} right."
        )
    axes.tick_params(labelbottom=False)
    below.set_ylabel("questions")
    below.set_xlabel("confidence: probability of the chosen option")
    axes.plot(
        [0, 1],
        [0, 1],
        color=style.GREY,
        linestyle="--",
        linewidth=1,
        label="perfect calibration",
    )
    axes.plot(
        [part.confidence for part in bins],
        [part.accuracy for part in bins],
        color=_BLUE,
        marker="o",
        markersize=4,
        linewidth=1,
        label="this model",
    )
    axes.set_ylabel("right answers")
    debiased = number(calibration.debiased_ece, False)
    facts = [
        f"{count(calibration.samples)} questions",
        f"expected calibration error\n{measure_text(calibration.ece)}; {debiased} debiased",
        f"Brier score\n{measure_text(calibration.brier)}",
    ]
    sentences.append(calibration.note)
    return style.Drawing(figure, title, _finish_square(axes, task, facts, sentences))


def coverage_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw accuracy against coverage: the share of right answers among the most confident ones."""
    calibration = task.calibration[rule]
    title = f"{task.name}: accuracy against coverage under {rule}"
    points = sorted(calibration.coverage, key=lambda point: point.coverage)
    figure, axes = style.new_figure(title, task_warnings(task), bottom=style.AXIS, **_SQUARE)
    level = calibration.accuracy.value
    label = f"all answers: {number(level)} right"
    axes.axhline(level, color=style.GREY, linestyle="--", linewidth=1, label=label)
    axes.plot(
        [point.coverage for point in points],
        [point.accuracy for point in points],
        color=_BLUE,
        linewidth=1.4,
        label="the most confident answers",
        clip_on=False,
    )
    axes.grid(color=style.GRID, linewidth=0.5)
    axes.set_xlabel("coverage: questions answered")
    axes.set_ylabel("right answers among them")
    facts = [
        f"{count(calibration.samples)} questions",
        f"area under the risk-coverage curve\n{measure_text(calibration.aurc)}",
    ]
    sentences = []
    for point in coverage_rows(calibration):
        sentences.append(f"{number(point.coverage)} answered: {number(point.accuracy)} right.")
    sentences.append(calibration.note)
    return style.Drawing(figure, title, _finish_square(axes, task, facts, sentences))


def _finish_square(
    axes: "Axes",
    task: TaskReport,
    facts: Sequence[str],
    sentences: Sequence[str],
) -> str:
    """Set the axes of a figure of shares, write legend and facts next to it, and return its description."""
    axes.xaxis.set_major_formatter(style.PERCENT)
    axes.yaxis.set_major_formatter(style.PERCENT)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.02))
    axes.text(1.05, 0, "\n\n".join(facts), transform=axes.transAxes, va="bottom")
    return " ".join([*task_warnings(task), f"{', '.join(facts)}.", *sentences])
