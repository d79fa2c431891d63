r"""Static figures of a report, by matplotlib, the same ones for the page and for a paper.

Their keys are ``summary``, always the first, and for each task ``TASK/groups/COLUMN``, ``TASK/pairs``, ``TASK/gains``,
``TASK/reliability/RULE`` and ``TASK/coverage/RULE``.

A figure without anything to show has no key. An SVG starts with ``<svg`` (no XML declaration or doctype), carries
``role="img"``, ``<title>`` and ``<desc>``, has neither style sheet nor style attributes, and its ids are prefixed so
that many fit on one page. Figures show scores and names of groups, and nothing of single questions.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medtasks.errors import MedTasksError
from medtasks.report import figure_style as style
from medtasks.report.report_model import RunReport, TaskReport
from medtasks.report.task_tables import coverage_rows
from medtasks.report.wording import coded, count, estimate, number, pair_rows, scored, signed
from medtasks.report.wording import warnings as task_warnings
from medtasks.scores.score_model import MetricScore
from medtasks.stats.calibration import Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BELOW = 0.9  # inches
_SQUARE = {"height": 3.3, "left": 0.9, "right": style.WIDTH - 0.9 - 3.3}
_NARROW = 0.03  # share of the axis; a number has no room in less
_FILL, _BLUE = "#E8E8E8", style.LOOKS[0].colour
_DENSE = 20  # groups; with more of them names have one line
_BASELINES = "baselines, which see no image"
_OUTCOMES = {
    "Both right": style.LOOKS[2],
    "Swapped": style.LOOKS[5],
    "One invalid": style.Look("#CCCCCC", "", ""),
    "Both invalid": style.Look("#8C8C8C", "xxxx", ""),
}
_SAME = (style.LOOKS[0], style.LOOKS[4], style.LOOKS[3], style.LOOKS[1])


Looks = Mapping[str, style.Look]


def figures(report: RunReport, folder: Path | None = None) -> dict[str, str]:
    """Return every figure of a report as an SVG element for a page, by key; write all into a folder, if one is named.

    Files are SVG, and PNG with 200 dots per inch, called after the keys: ``mediconfusion.groups.categories.svg``. What
    is no letter, digit or one of ``_-`` in a name is written as its code. The same report gives the same files. The
    folder is made if it is not there. MedTasksError: it cannot be written to.
    """
    import matplotlib

    # All figures with their keys, drawn one at a time to save memory.
    looks = style.rule_looks(report)
    draw: dict[str, Callable[[], style.Drawing | None]] = {"summary": partial(summary_figure, report, looks)}
    for task in report.tasks:
        for column in task.group_sizes:
            draw[f"{task.name}/groups/{column}"] = partial(group_figure, task, looks, column)
        draw[f"{task.name}/pairs"] = partial(pair_figure, task)
        draw[f"{task.name}/gains"] = partial(gain_figure, task, looks)
        for rule, calibration in task.calibration.items():
            if calibration.bins:
                draw[f"{task.name}/reliability/{rule}"] = partial(reliability_figure, task, rule)
            draw[f"{task.name}/coverage/{rule}"] = partial(coverage_figure, task, rule)
    elements = {}
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(style.RC_PARAMS), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a viewer's font may well have it
            for key, drawn in draw.items():
                drawing = drawn()
                if drawing is None:
                    continue
                elements[key] = style.svg_element(drawing, key)
                if folder is not None:
                    name = ".".join(coded(part, "-", also="-") for part in key.split("/"))
                    (folder / f"{name}.svg").write_bytes(elements[key].encode())
                    (folder / f"{name}.png").write_bytes(style.file_content(drawing.figure, "png"))
    except OSError as error:
        if folder is None:
            raise
        raise MedTasksError(
            f"cannot write figures into {folder}: {error.strerror or error}; name another folder"
        ) from error
    return elements


def summary_figure(report: RunReport, looks: Looks) -> style.Drawing | None:
    """Draw the main metric of every task, if it is a share, with its interval under every rule, and all baselines."""
    from matplotlib.lines import Line2D

    mains = {task.name: [(rule.name, rule.scores[0]) for rule in task.rules if rule.scores] for task in report.tasks}
    tasks = [task for task in report.tasks if mains[task.name] and mains[task.name][0][1].share]
    if not tasks:
        return None
    title = "Main metric of all tasks"
    rules = list(dict.fromkeys(rule.name for task in tasks for rule in task.rules if rule.scores))
    most = max(len(task.rules) for task in tasks)
    names = []  # with the main metric and what must not be overlooked, a line each
    for task in tasks:
        main = mains[task.name][0][1]
        metric = style.row_name(main.metric, "(lower is better)" if main.higher_is_better is False else "")
        about = [text.partition(":")[0] for text in task_warnings(task)]
        names.append("\n".join([style.row_name(task.name), metric, *about]))
    figure, axes = style.new_rows(title, (), names, [*rules, _BASELINES], most)
    values: list[float] = []
    baselines: list[float] = []
    sentences = []
    for row, task in enumerate(tasks):
        of_baselines = (
            baseline.scores.get(rule, {}).get(score.metric, math.nan)
            for baseline in task.baselines
            for rule, score in mains[task.name]
        )
        levels = sorted({level for level in of_baselines if math.isfinite(level)})
        axes.scatter(
            levels, [row] * len(levels), marker="|", s=260, color=style.GREY, linewidth=1.2, zorder=3, clip_on=False
        )
        for position, (rule, score) in enumerate(mains[task.name]):
            style.draw_score(axes, score, row, position, len(mains[task.name]), looks[rule])
            values += [score.value, score.high]
        baselines += levels
        text = "; ".join(f"{score.metric} {scored(score)} under {rule}" for rule, score in mains[task.name])
        sentences.append(f"{task.name}: {'; '.join([*task_warnings(task), text])}.")
    style.set_score_axis(axes, [*values, *baselines], share=True)
    axes.set_xlabel("main metric with its 95 % interval")
    mark = Line2D([], [], color=style.GREY, marker="|", markersize=10, linestyle="", label=_BASELINES)
    style.add_legend(figure, [mark] if baselines else [], {rule: looks[rule] for rule in rules})
    others = [task.name for task in report.tasks if task not in tasks]
    left_out = [f"Not shown, because their main metric is no share: {', '.join(others)}."] if others else []
    return style.Drawing(figure, title, " ".join([*sentences, *left_out]))


def group_figure(task: TaskReport, looks: Looks, column: str) -> style.Drawing | None:
    """Draw the main metric by group of a column, the group with the most questions on top."""
    rules = [rule for rule in task.rules if rule.groups.get(column)]
    mains = [group.scores[0] for rule in rules for group in rule.groups[column] if group.scores]
    if not any(math.isfinite(score.value) for score in mains):
        return None
    sizes = dict(sorted(task.group_sizes[column].items(), key=lambda entry: -entry[1]))
    metric = mains[0].metric
    title = f"{task.name}: {metric} by {column}"
    level: list[tuple[float, str]] = []  # of the best baseline, under the first rule that has one
    for rule in rules:
        if not level and rule.scores and rule.scores[0].metric == metric and (best := task.best_baseline(rule)):
            text = f"{best[0].name}, all questions: {number(best[1], task.is_share(metric))}"
            level = [(best[1], style.legend_text(text))]
    text_lines = 1 if len(sizes) > _DENSE else 2
    small = {group.name for rule in rules for group in rule.groups[column] if not group.compared}
    names = [
        style.row_name(name, f"(n = {count(size)}{', not compared' * (name in small)})", lines=text_lines)
        for name, size in sizes.items()
    ]
    overall = {
        rule.name: test.overall
        for rule in rules
        for test in rule.column_tests.get(column, ())
        if test.overall.metric == metric
    }
    wholes = {name: style.legend_text(f"all questions, {name}: {scored(score)}") for name, score in overall.items()}
    legend = [rule.name for rule in rules] + [*wholes.values(), *(text for _, text in level)]
    figure, axes = style.new_rows(title, task_warnings(task), names, legend, len(rules))
    values = [*(value for value, _ in level), *(score.value for score in overall.values())]
    sentences = [f"Dashed line: {text}." for _, text in level]
    for position, rule in enumerate(rules):
        scores = {name: rule.group_score(column, name, metric) for name in sizes}
        for row, score in enumerate(scores.values()):
            if score:
                style.draw_score(axes, score, row, position, len(rules), looks[rule.name])
                values += [score.value, score.low, score.high]
        texts = "; ".join(f"{name} {scored(score)}" for name, score in scores.items())
        sentences.append(f"{rule.name}: {texts}.")
    grey: dict[str, Any] = {"color": style.GREY, "linewidth": 1, "linestyle": "--"}
    lines = [
        axes.axvline(overall[name].value, label=text, color=looks[name].colour, linewidth=1.2, zorder=0)
        for name, text in wholes.items()
    ]
    lines += [axes.axvline(value, label=text, **grey) for value, text in level]
    sentences += [f"Line: {text}." for text in wholes.values()]
    style.set_score_axis(axes, values, mains[0].share)
    axes.set_xlabel(f"{style.shown_text(metric)} with simultaneous 95 % intervals")
    style.add_legend(figure, lines, {rule.name: looks[rule.name] for rule in rules})
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def gain_figure(task: TaskReport, looks: Looks) -> style.Drawing | None:
    """Draw gains over sanity variants: of the main metric, or of the next one that is not 0 by construction."""
    from matplotlib.ticker import FuncFormatter

    defined = [gain for gain in task.gains if gain.rule in looks and math.isfinite(gain.difference)]
    if not defined:
        return None
    constructed = {gain.metric for gain in defined if gain.by_construction}
    metrics = [gain.metric for gain in defined if gain.metric not in constructed] or [defined[0].metric]
    main = next((rule.scores[0].metric for rule in task.rules if rule.scores), "")
    metric = main if main in metrics else metrics[0]
    gains, share = [gain for gain in defined if gain.metric == metric], task.is_share(metric)
    title = f"{task.name}: difference from its variants"
    rules = list(dict.fromkeys(gain.rule for gain in gains))
    variants = list(dict.fromkeys(gain.variant for gain in gains))
    figure, axes = style.new_rows(title, task_warnings(task), [*map(style.row_name, variants)], rules, len(rules))
    for gain in gains:
        score = MetricScore(gain.metric, gain.difference, math.nan, gain.low, gain.high, share, higher_is_better=True)
        row, position = variants.index(gain.variant), rules.index(gain.rule)
        style.draw_score(axes, score, row, position, len(rules), looks[gain.rule])
    ends = [end for gain in gains for end in (gain.difference, gain.low, gain.high) if math.isfinite(end)]
    low, high = min([-0.02, *ends]), max([0.02, *ends])
    room = 0.05 * (high - low)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(low - room, high + room)
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: signed(round(value, 9), share).removesuffix(" pts").removesuffix(".0"))
    )
    unit = "percentage points, with their" if share else "with its"
    axes.set_xlabel(f"{style.shown_text(metric)} minus that of the variant, {unit} 95 % interval")
    style.add_legend(figure, [], {rule: looks[rule] for rule in rules})
    sentences = [
        f"{gain.metric} under {gain.rule} is {number(gain.score, share)}, "
        f"{number(gain.variant_score, share)} for {gain.variant}."
        for gain in gains
    ]
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def pair_figure(task: TaskReport) -> style.Drawing | None:
    """Draw the outcomes of pairs, a bar per rule, each part with its number."""
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    parts = {name: numbers for name, _, numbers in pair_rows(list(outcomes.values())) if any(numbers)}
    if not parts:
        return None
    title, totals = f"{task.name}: outcomes of pairs", [sum(numbers) for numbers in zip(*parts.values(), strict=True)]
    names = [style.row_name(rule, f"({count(total)} pairs)") for rule, total in zip(outcomes, totals, strict=True)]
    figure, axes = style.new_rows(title, task_warnings(task), names, list(parts))
    starts, widest = [0] * len(names), max(totals)
    same = [name for name in parts if name not in _OUTCOMES]  # blue, violet or orange, in order of the options
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85}  # so that hatches hide no number
    for name, numbers in parts.items():
        look = _OUTCOMES.get(name) or _SAME[same.index(name) % len(_SAME)]
        bar: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0.6}
        axes.barh(range(len(names)), numbers, left=starts, height=0.7, label=name, **bar)
        for row, (length, start) in enumerate(zip(numbers, starts, strict=True)):
            if length > _NARROW * widest:
                axes.text(start + length / 2, row, count(length), ha="center", va="center", bbox=ground)
        starts = [start + length for start, length in zip(starts, numbers, strict=True)]
    axes.set_xlim(0, widest)
    axes.set_xlabel("pairs")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    sentences = [
        f"{rule}: " + ", ".join(f"{name.lower()} {count(numbers[position])}" for name, numbers in parts.items()) + "."
        for position, rule in enumerate(outcomes)
    ]
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def reliability_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw the reliability diagram: share of right answers and number of answers by confidence."""
    measured, title = task.calibration[rule], f"{task.name}: reliability under {rule}"
    filled = [part for part in measured.bins if part.samples]
    figure, axes = style.new_figure(title, task_warnings(task), bottom=style.AXIS + _BELOW, **_SQUARE)
    height, box = figure.get_size_inches()[1], axes.get_position()
    below = figure.add_axes((box.x0, style.AXIS / height, box.width, (_BELOW - 0.2) / height), sharex=axes)
    for part in filled:
        center, width = (part.low + part.high) / 2, 0.94 * (part.high - part.low)
        axes.bar(center, part.accuracy, width=width, color=_FILL, edgecolor=_BLUE, linewidth=0.8)
        below.bar(center, part.samples, width=width, color=_BLUE)
    axes.tick_params(labelbottom=False)
    below.set_ylabel("questions")
    below.set_xlabel("confidence: probability of the chosen option")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="perfect calibration")
    confidences, rates = [part.confidence for part in filled], [part.accuracy for part in filled]
    axes.plot(confidences, rates, color=_BLUE, marker="o", markersize=4, linewidth=1, label="this model")
    axes.set_ylabel("right answers")
    facts = [
        f"{count(measured.samples)} questions",
        f"expected calibration error\n{_measured(measured.ece)}; {number(measured.debiased_ece, False)} debiased",
        f"Brier score\n{_measured(measured.brier)}",
    ]
    sentences = [f"Confidence {number(part.confidence)}: {number(part.accuracy)} right." for part in filled]
    return style.Drawing(figure, title, _finish_square(axes, task, facts, [*sentences, measured.note]))


def coverage_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw accuracy against coverage: the share of right answers among the most confident ones."""
    measured, title = task.calibration[rule], f"{task.name}: accuracy against coverage under {rule}"
    points = sorted(measured.coverage, key=lambda point: point.coverage)
    figure, axes = style.new_figure(title, task_warnings(task), bottom=style.AXIS, **_SQUARE)
    coverages, rates = [point.coverage for point in points], [point.accuracy for point in points]
    text = f"all answers: {number(measured.accuracy.value)} right"
    axes.axhline(measured.accuracy.value, color=style.GREY, linestyle="--", linewidth=1, label=text)
    axes.plot(coverages, rates, color=_BLUE, linewidth=1.4, label="the most confident answers", clip_on=False)
    axes.grid(color=style.GRID, linewidth=0.5)
    axes.set_xlabel("coverage: questions answered")
    axes.set_ylabel("right answers among them")
    facts = [f"{count(measured.samples)} questions", f"area under the risk-coverage curve\n{_measured(measured.aurc)}"]
    shown = coverage_rows(measured)
    sentences = [f"{number(point.coverage)} answered: {number(point.accuracy)} right." for point in shown]
    return style.Drawing(figure, title, _finish_square(axes, task, facts, [*sentences, measured.note]))


def _finish_square(axes: "Axes", task: TaskReport, facts: Sequence[str], sentences: Sequence[str]) -> str:
    """Set the axes of a figure of shares, write legend and facts next to it, and return its description."""
    axes.xaxis.set_major_formatter(style.PERCENT)
    axes.yaxis.set_major_formatter(style.PERCENT)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.02))
    axes.text(1.05, 0, "\n\n".join(facts), transform=axes.transAxes, va="bottom")
    return " ".join([*task_warnings(task), f"{', '.join(facts)}.", *sentences])


def _measured(measure: Measure) -> str:
    return estimate(measure.value, measure.low, measure.high, share=False)
