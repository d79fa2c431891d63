r"""Static figures of a report, by matplotlib, the same ones for the page and for a paper.

Their keys are ``summary``, always the first, and for each task ``TASK/groups/COLUMN``, ``TASK/pairs``, ``TASK/gains``,
``TASK/reliability/RULE`` and ``TASK/coverage/RULE``.

A figure without anything to show has no key. An SVG starts with ``<svg`` (no XML declaration or doctype), carries
``role="img"``, ``<title>`` and ``<desc>``, has neither style sheet nor style attributes, and its ids are prefixed so
that many fit on one page. Figures show scores and names of groups, and nothing of single questions.
"""

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medtasks.errors import MedTasksError
from medtasks.report import figure_style as style
from medtasks.report.report_model import Gain, RunReport, TaskReport
from medtasks.report.task_tables import coverage_rows
from medtasks.report.wording import coded, count, estimate, number, pair_rows, scored, signed
from medtasks.report.wording import warnings as task_warnings
from medtasks.scores.score_model import MetricScore, RuleScores
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
    # All figures with their keys, drawn one at a time to save memory.
    looks = style.rule_looks(report)
    draw: dict[str, Callable[[], style.Drawing | None]] = {
        "summary": partial(summary_figure, report, looks)
    }
    for task in report.tasks:
        for column in task.group_sizes:
            draw[f"{task.name}/groups/{column}"] = partial(group_figure, task, looks, column)
        draw[f"{task.name}/pairs"] = partial(pair_figure, task)
        draw[f"{task.name}/gains"] = partial(gain_figure, task, looks)
        for rule, calibration in task.calibration.items():
            if calibration.bins:
                draw[f"{task.name}/reliability/{rule}"] = partial(reliability_figure, task, rule)
            draw[f"{task.name}/coverage/{rule}"] = partial(coverage_figure, task, rule)
    return svg_elements(draw, folder)


def svg_elements(
    draw: Mapping[str, Callable[[], style.Drawing | None]], folder: Path | None = None
) -> dict[str, str]:
    """Draw figures by key as SVG elements, and write them as :func:`figures` does; None draws nothing."""
    import matplotlib

    elements = {}
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(style.RC_PARAMS), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Glyph .* missing from"
            )  # a viewer's font may well have it
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

    mains: dict[str, dict[str, MetricScore]] = {}  # by task and rule
    tasks = []
    others = []
    for task in report.tasks:
        mains[task.name] = {rule.name: rule.scores[0] for rule in task.rules if rule.scores}
        first = next(iter(mains[task.name].values()), None)
        if first is not None and first.share:
            tasks.append(task)
        else:
            others.append(task.name)
    if not tasks:
        return None
    title = "Main metric of all tasks"
    rules = list(dict.fromkeys(chain.from_iterable(mains[task.name] for task in tasks)))
    most = max(len(task.rules) for task in tasks)
    names = [_summary_name(task, next(iter(mains[task.name].values()))) for task in tasks]
    figure, axes = style.new_rows(title, (), names, [*rules, _BASELINES], most)
    values: list[float] = []
    baselines: list[float] = []
    sentences = []
    for row, task in enumerate(tasks):
        main = mains[task.name]
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
        for position, (rule, score) in enumerate(main.items()):
            style.draw_score(axes, score, row, position, len(main), looks[rule])
            values += [score.value, score.high]
        baselines += levels
        text = "; ".join(
            f"{score.metric} {scored(score)} under {rule}" for rule, score in main.items()
        )
        sentences.append(f"{task.name}: {'; '.join([*task_warnings(task), text])}.")
    style.set_score_axis(axes, [*values, *baselines], share=True)
    axes.set_xlabel("main metric with its 95 % interval")
    mark = Line2D(
        [], [], color=style.GREY, marker="|", markersize=10, linestyle="", label=_BASELINES
    )
    style.add_legend(figure, [mark] if baselines else [], {rule: looks[rule] for rule in rules})
    if others:
        sentences.append(f"Not shown, because their main metric is no share: {', '.join(others)}.")
    return style.Drawing(figure, title, " ".join(sentences))


def _summary_name(task: TaskReport, main: MetricScore) -> str:
    """Name a task with its main metric and what must not be overlooked, a line each."""
    direction = "(lower is better)" if main.higher_is_better is False else ""
    subjects = [text.partition(":")[0] for text in task_warnings(task)]
    return "\n".join([style.row_name(task.name), style.row_name(main.metric, direction), *subjects])


def _baseline_levels(task: TaskReport, main: Mapping[str, MetricScore]) -> list[float]:
    """Return the values of all baselines at the main metric of each rule, ascending."""
    levels = set()
    for baseline in task.baselines:
        for rule, score in main.items():
            levels.add(baseline.scores.get(rule, {}).get(score.metric, math.nan))
    return sorted(filter(math.isfinite, levels))


def group_figure(task: TaskReport, looks: Looks, column: str) -> style.Drawing | None:
    """Draw the main metric by group of a column, the group with the most questions on top."""
    rules = [rule for rule in task.rules if rule.groups.get(column)]
    groups = list(chain.from_iterable(rule.groups[column] for rule in rules))
    mains = [group.scores[0] for group in groups if group.scores]
    if not any(math.isfinite(score.value) for score in mains):
        return None
    metric = mains[0].metric
    title = f"{task.name}: {metric} by {column}"
    sizes = dict(sorted(task.group_sizes[column].items(), key=lambda entry: -entry[1]))
    small = {group.name for group in groups if not (group.compared or group.drawn)}
    baseline = _best_level(task, rules, metric)
    overall = _overall_scores(rules, column, metric)
    wholes = {
        name: style.legend_text(f"all questions, {name}: {scored(score)}")
        for name, score in overall.items()
    }
    rule_looks = {rule.name: looks[rule.name] for rule in rules}
    legend = [*rule_looks, *wholes.values(), *baseline]
    figure, axes = style.new_rows(
        title, task_warnings(task), _group_names(sizes, small), legend, len(rules)
    )
    values, sentences = _draw_groups(axes, rules, [(column, name, metric) for name in sizes], looks)
    lines = []
    for name, text in wholes.items():
        value = overall[name].value
        lines.append(
            axes.axvline(value, label=text, color=looks[name].colour, linewidth=1.2, zorder=0)
        )
        sentences.append(f"Line: {text}.")
        values.append(value)
    for text, value in baseline.items():
        lines.append(axes.axvline(value, label=text, color=style.GREY, linewidth=1, linestyle="--"))
        sentences.insert(0, f"Dashed line: {text}.")
        values.append(value)
    style.set_score_axis(axes, values, mains[0].share)
    axes.set_xlabel(f"{style.shown_text(metric)} with simultaneous 95 % intervals")
    style.add_legend(figure, lines, rule_looks)
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def _draw_groups(
    axes: "Axes", rules: Sequence[RuleScores], keys: Sequence[tuple[str, str, str]], looks: Looks
) -> tuple[list[float], list[str]]:
    """Draw the scores of groups, by column, name and metric, and return their values and a sentence per rule."""
    values = []
    sentences = []
    for position, rule in enumerate(rules):
        texts = []
        for row, key in enumerate(keys):
            score = rule.group_score(*key)
            texts.append(f"{key[1]} {scored(score)}")
            if score:
                style.draw_score(axes, score, row, position, len(rules), looks[rule.name])
                values += [score.value, score.low, score.high]
        sentences.append(f"{rule.name}: {'; '.join(texts)}.")
    return values, sentences


def _best_level(task: TaskReport, rules: Sequence[RuleScores], metric: str) -> dict[str, float]:
    """Return the value of the best baseline by its label, under the first rule that has one; empty without."""
    for rule in rules:
        if rule.scores and rule.scores[0].metric == metric and (best := task.best_baseline(rule)):
            baseline, value = best
            text = f"{baseline.name}, all questions: {number(value, task.is_share(metric))}"
            return {style.legend_text(text): value}
    return {}


def _overall_scores(
    rules: Sequence[RuleScores], column: str, metric: str
) -> dict[str, MetricScore]:
    """Return the score of all questions that groups are compared with, by rule."""
    overall = {}
    for rule in rules:
        for test in rule.column_tests.get(column, ()):
            if test.overall.metric == metric:
                overall[rule.name] = test.overall
    return overall


def _group_names(sizes: Mapping[str, int], small: Collection[str]) -> list[str]:
    text_lines = 1 if len(sizes) > _DENSE else 2
    names = []
    for name, size in sizes.items():
        remark = ", not compared" if name in small else ""
        names.append(style.row_name(name, f"(n = {count(size)}{remark})", lines=text_lines))
    return names


def gain_figure(task: TaskReport, looks: Looks) -> style.Drawing | None:
    """Draw gains over sanity variants: of the main metric, or of the next one that is not 0 by construction."""
    from matplotlib.ticker import FuncFormatter

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
        row = variants.index(gain.variant)
        style.draw_score(axes, score, row, rules.index(gain.rule), len(rules), looks[gain.rule])
        ends += filter(math.isfinite, (gain.difference, gain.low, gain.high))
        scores = (
            f"{number(gain.score, share)}, {number(gain.variant_score, share)} for {gain.variant}"
        )
        sentences.append(f"{metric} under {gain.rule} is {scores}.")
    room = 0.05 * (max(ends) - min(ends))
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(min(ends) - room, max(ends) + room)
    axes.xaxis.set_major_formatter(
        FuncFormatter(
            lambda value, _: signed(round(value, 9), share).removesuffix(" pts").removesuffix(".0")
        )
    )
    unit = "percentage points, with their" if share else "with its"
    axes.set_xlabel(f"{style.shown_text(metric)} minus that of the variant, {unit} 95 % interval")
    style.add_legend(figure, [], {rule: looks[rule] for rule in rules})
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def _drawn_gains(task: TaskReport, looks: Looks) -> list[Gain]:
    """Return the gains in one metric: the main one if it has any, else the first that is not 0 by construction."""
    defined = [gain for gain in task.gains if gain.rule in looks and math.isfinite(gain.difference)]
    constructed = {gain.metric for gain in defined if gain.by_construction}
    main = next((rule.scores[0].metric for rule in task.rules if rule.scores), "")

    def rank(gain: Gain) -> int:
        return 2 if gain.metric in constructed else int(gain.metric != main)

    metrics = [gain.metric for gain in sorted(defined, key=rank)]
    return [gain for gain in defined if gain.metric == metrics[0]]


def pair_figure(task: TaskReport) -> style.Drawing | None:
    """Draw the outcomes of pairs, a bar per rule, each part with its number."""
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    parts = {
        name: numbers for name, _, numbers in pair_rows(list(outcomes.values())) if any(numbers)
    }
    if not parts:
        return None
    title, totals = (
        f"{task.name}: outcomes of pairs",
        [sum(numbers) for numbers in zip(*parts.values(), strict=True)],
    )
    names = [
        style.row_name(rule, f"({count(total)} pairs)")
        for rule, total in zip(outcomes, totals, strict=True)
    ]
    figure, axes = style.new_rows(title, task_warnings(task), names, list(parts))
    starts, widest = [0] * len(names), max(totals)
    same = [
        name for name in parts if name not in _OUTCOMES
    ]  # blue, violet or orange, in order of the options
    ground = {
        "facecolor": "white",
        "edgecolor": "none",
        "pad": 1,
        "alpha": 0.85,
    }  # so that hatches hide no number
    for name, numbers in parts.items():
        look = _OUTCOMES.get(name) or _SAME[same.index(name) % len(_SAME)]
        bar: dict[str, Any] = {
            "color": look.colour,
            "hatch": look.hatch,
            "edgecolor": "white",
            "linewidth": 0.6,
        }
        axes.barh(range(len(names)), numbers, left=starts, height=0.7, label=name, **bar)
        for row, (length, start) in enumerate(zip(numbers, starts, strict=True)):
            if length > _NARROW * widest:
                axes.text(
                    start + length / 2, row, count(length), ha="center", va="center", bbox=ground
                )
        starts = [start + length for start, length in zip(starts, numbers, strict=True)]
    axes.set_xlim(0, widest)
    axes.set_xlabel("pairs")
    style.add_legend(figure, axes.get_legend_handles_labels()[0])
    sentences = [
        f"{rule}: "
        + ", ".join(f"{name.lower()} {count(numbers[position])}" for name, numbers in parts.items())
        + "."
        for position, rule in enumerate(outcomes)
    ]
    return style.Drawing(figure, title, " ".join([*task_warnings(task), *sentences]))


def reliability_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw the reliability diagram: share of right answers and number of answers by confidence."""
    measured, title = task.calibration[rule], f"{task.name}: reliability under {rule}"
    filled = [part for part in measured.bins if part.samples]
    figure, axes = style.new_figure(
        title, task_warnings(task), bottom=style.AXIS + _BELOW, **_SQUARE
    )
    height, box = figure.get_size_inches()[1], axes.get_position()
    below = figure.add_axes(
        (box.x0, style.AXIS / height, box.width, (_BELOW - 0.2) / height), sharex=axes
    )
    for part in filled:
        center, width = (part.low + part.high) / 2, 0.94 * (part.high - part.low)
        axes.bar(center, part.accuracy, width=width, color=_FILL, edgecolor=_BLUE, linewidth=0.8)
        below.bar(center, part.samples, width=width, color=_BLUE)
    axes.tick_params(labelbottom=False)
    below.set_ylabel("questions")
    below.set_xlabel("confidence: probability of the chosen option")
    axes.plot(
        [0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="perfect calibration"
    )
    confidences, rates = [part.confidence for part in filled], [part.accuracy for part in filled]
    axes.plot(
        confidences, rates, color=_BLUE, marker="o", markersize=4, linewidth=1, label="this model"
    )
    axes.set_ylabel("right answers")
    facts = [
        f"{count(measured.samples)} questions",
        f"expected calibration error\n{_measured(measured.ece)}; {number(measured.debiased_ece, False)} debiased",
        f"Brier score\n{_measured(measured.brier)}",
    ]
    sentences = [
        f"Confidence {number(part.confidence)}: {number(part.accuracy)} right." for part in filled
    ]
    return style.Drawing(
        figure, title, _finish_square(axes, task, facts, [*sentences, measured.note])
    )


def coverage_figure(task: TaskReport, rule: str) -> style.Drawing:
    """Draw accuracy against coverage: the share of right answers among the most confident ones."""
    measured, title = task.calibration[rule], f"{task.name}: accuracy against coverage under {rule}"
    points = sorted(measured.coverage, key=lambda point: point.coverage)
    figure, axes = style.new_figure(title, task_warnings(task), bottom=style.AXIS, **_SQUARE)
    coverages, rates = [point.coverage for point in points], [point.accuracy for point in points]
    text = f"all answers: {number(measured.accuracy.value)} right"
    axes.axhline(measured.accuracy.value, color=style.GREY, linestyle="--", linewidth=1, label=text)
    axes.plot(
        coverages,
        rates,
        color=_BLUE,
        linewidth=1.4,
        label="the most confident answers",
        clip_on=False,
    )
    axes.grid(color=style.GRID, linewidth=0.5)
    axes.set_xlabel("coverage: questions answered")
    axes.set_ylabel("right answers among them")
    facts = [
        f"{count(measured.samples)} questions",
        f"area under the risk-coverage curve\n{_measured(measured.aurc)}",
    ]
    shown = coverage_rows(measured)
    sentences = [
        f"{number(point.coverage)} answered: {number(point.accuracy)} right." for point in shown
    ]
    return style.Drawing(
        figure, title, _finish_square(axes, task, facts, [*sentences, measured.note])
    )


def _finish_square(
    axes: "Axes", task: TaskReport, facts: Sequence[str], sentences: Sequence[str]
) -> str:
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
