"""Figures of scores: all tasks, groups of questions, and gains over the sanity variants."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from medtasks.audit.report.contents import Gain, RuleReport, RunReport, Score, TaskReport
from medtasks.audit.report.figures.rows import new_rows, row_name, set_difference_axis, set_score_axis
from medtasks.audit.report.figures.style import GREY, Look, legend_text
from medtasks.audit.report.figures.svg import Drawing, shown_text
from medtasks.audit.report.page.rows import best_baseline, group_columns, group_questions, group_score, is_share
from medtasks.audit.report.page.words import count, number
from medtasks.audit.report.tables.cells import scored, warnings

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

Looks = Mapping[str, Look]
_BARS = 20  # groups; with more of them points take less room
_BASELINES = "baselines, which see no image"


def summary_figure(report: RunReport, looks: Looks) -> Drawing | None:
    """Draw the main metric of every task with its interval under every rule, and all baselines.

    Metrics that are no shares have no place on the same axis; the description names their tasks.
    """
    tasks = [task for task in report.tasks if (main := _main(task)) and main.share]
    if not tasks:
        return None
    title = "Main metric of all tasks"
    rules = list(dict.fromkeys(rule.name for task in tasks for rule in task.rules if rule.scores))
    most = max(len(task.rules) for task in tasks)
    rows = new_rows(title, (), [_task_name(task) for task in tasks], most, [*rules, _BASELINES], dense=True)
    values: list[float] = []
    for row, task in enumerate(tasks):
        levels = _baselines(task)
        rows.axes.scatter(
            levels, [row] * len(levels), marker="|", s=260, color=GREY, linewidth=1.2, zorder=3, clip_on=False
        )
        mains = [(rule.name, rule.scores[0]) for rule in task.rules if rule.scores]
        for position, (rule, score) in enumerate(mains):
            rows.draw(score, row, position, len(mains), looks[rule])
            values += [score.value, score.high]
        values += levels
    set_score_axis(rows.axes, values, share=True)
    rows.axes.set_xlabel("main metric with its 95 % interval")
    rows.finish({rule: looks[rule] for rule in rules}, [_baseline_mark()] if any(map(_baselines, tasks)) else [])
    others = [task.name for task in report.tasks if task not in tasks]
    told = [f"{task.name}: {'; '.join([*warnings(task), _told(task.rules)])}." for task in tasks]
    left_out = [f"Not shown, because their main metric is no share: {', '.join(others)}."] if others else []
    return Drawing(rows.figure, title, " ".join([*told, *left_out]))


def group_figures(task: TaskReport, looks: Looks) -> dict[str, Drawing]:
    """Draw the main metric by group, a figure per column, the group with the most questions on top."""
    drawn = {}
    for column, names in group_columns(task).items():
        rules = [rule for rule in task.rules if rule.groups.get(column)]
        mains = [group.scores[0] for rule in rules for group in rule.groups[column] if group.scores]
        if any(math.isfinite(score.value) for score in mains):
            sizes = {name: group_questions(task, column, name) for name in names}
            ordered = dict(sorted(sizes.items(), key=lambda entry: -entry[1]))
            drawn[column] = _group_figure(task, rules, looks, column, ordered, mains[0])
    return drawn


def _group_figure(
    task: TaskReport, rules: Sequence[RuleReport], looks: Looks, column: str, sizes: Mapping[str, int], main: Score
) -> Drawing:
    metric, dense = main.metric, len(sizes) > _BARS
    title = f"{task.name}: {metric} by {column}"
    level = _best_baseline(task, rules, metric)
    names = [row_name(name, f"(n = {count(size)})", lines=1 if dense else 2) for name, size in sizes.items()]
    legend = [rule.name for rule in rules] + [text for _, text in level]
    rows = new_rows(title, warnings(task), names, len(rules), legend, dense=dense)
    values = [value for value, _ in level]
    told = [f"Dashed line: {text}." for _, text in level]
    for position, rule in enumerate(rules):
        found = {name: group_score(rule, column, name, metric) for name in sizes}
        for row, score in enumerate(found.values()):
            if score:
                rows.draw(score, row, position, len(rules), looks[rule.name])
                values += [score.value, score.low, score.high]
        told.append(f"{rule.name}: " + "; ".join(f"{name} {scored(score)}" for name, score in found.items()) + ".")
    lines = [rows.axes.axvline(value, color=GREY, linewidth=1, linestyle="--", label=text) for value, text in level]
    set_score_axis(rows.axes, values, main.share)
    rows.axes.set_xlabel(f"{shown_text(metric)} with its 95 % interval")
    rows.finish({rule.name: looks[rule.name] for rule in rules}, lines)
    return Drawing(rows.figure, title, " ".join([*warnings(task), *told]))


def gain_figure(task: TaskReport, looks: Looks) -> Drawing | None:
    """Draw how much a task is above its sanity variants, with intervals.

    The metric is the task's main one; where that has no value per sample, the first that has.
    """
    known = [gain for gain in task.gains if gain.rule in looks and math.isfinite(gain.difference)]
    if not known:
        return None
    main, metrics = _main(task), [gain.metric for gain in known]
    metric = main.metric if main and main.metric in metrics else metrics[0]
    gains, share = [gain for gain in known if gain.metric == metric], is_share(task, metric)
    title = f"{task.name}: difference from its sanity variants"
    rules = list(dict.fromkeys(gain.rule for gain in gains))
    variants = list(dict.fromkeys(gain.variant for gain in gains))
    rows = new_rows(title, warnings(task), [row_name(variant) for variant in variants], len(rules), rules)
    for gain in gains:
        score = Score(gain.metric, gain.difference, math.nan, gain.low, gain.high, share, higher_is_better=True)
        rows.draw(score, variants.index(gain.variant), rules.index(gain.rule), len(rules), looks[gain.rule])
    set_difference_axis(rows.axes, [end for gain in gains for end in (gain.difference, gain.low, gain.high)], share)
    unit = "percentage points, with their" if share else "with its"
    rows.axes.set_xlabel(f"{shown_text(metric)} minus that of the variant, {unit} 95 % interval")
    rows.finish({rule: looks[rule] for rule in rules})
    return Drawing(rows.figure, title, " ".join([*warnings(task), *(_told_gain(gain, share) for gain in gains)]))


def _main(task: TaskReport) -> Score | None:
    return next((rule.scores[0] for rule in task.rules if rule.scores), None)


def _baselines(task: TaskReport) -> list[float]:
    """Return what the baselines score at the main metric, under any rule."""
    levels = [
        one.scores.get(rule.name, {}).get(rule.scores[0].metric, math.nan)
        for one in task.baselines
        for rule in task.rules
        if rule.scores
    ]
    return sorted({level for level in levels if math.isfinite(level)})


def _baseline_mark() -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D([], [], color=GREY, marker="|", markersize=10, linestyle="", label=_BASELINES)


def _best_baseline(task: TaskReport, rules: Sequence[RuleReport], metric: str) -> list[tuple[float, str]]:
    """Return what the best baseline scores over all questions under the first rule that knows, and what it is."""
    for rule in rules:
        if rule.scores and rule.scores[0].metric == metric and (best := best_baseline(task, rule)):
            text = f"{best[0].name}, all questions: {number(best[1], is_share(task, metric))}"
            return [(best[1], legend_text(text))]
    return []


def _task_name(task: TaskReport) -> str:
    """Return a task's name with its main metric and what must not be overlooked, a line each."""
    main = _main(task)
    metric = row_name(main.metric, "" if main.higher_is_better else "(lower is better)") if main else ""
    return "\n".join([row_name(task.name), metric, *(text.partition(":")[0] for text in warnings(task))])


def _told(rules: Sequence[RuleReport]) -> str:
    return "; ".join(f"{score.metric} {scored(score)} under {rule.name}" for rule in rules for score in rule.scores[:1])


def _told_gain(gain: Gain, share: bool) -> str:
    return (
        f"{gain.metric} under {gain.rule} is {number(gain.score, share)}, "
        f"{number(gain.variant_score, share)} for {gain.variant}."
    )
