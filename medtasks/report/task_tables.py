"""Tables of one task: scores, baselines, sanity variants, thinking, repeats, published results, pairs, groups."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from medtasks.report.group_tables import class_tables, group_tables
from medtasks.report.published_tables import published_table
from medtasks.report.report_model import RepeatedTask, TaskReport
from medtasks.report.tables import Cell, Table, cells, name_cell
from medtasks.report.wording import (
    BY_CONSTRUCTION,
    INTERVALS,
    VARIANTS,
    count,
    counted,
    decided_pairs,
    difference,
    estimate,
    label,
    names_by,
    number,
    p_statement,
    p_value,
    pair_rows,
    points,
    questions,
    score_cell,
    scored,
)
from medtasks.scores.score_model import RuleScores
from medtasks.stats.calibration import Calibration, ClassArea, CoveragePoint

_COVERAGE_ROWS = 10
_DIRECTIONS = {True: "↑ higher is better", False: "↓ lower is better", None: ""}


def task_tables(task: TaskReport) -> list[Table]:
    """Return a task's tables; those that do not apply have no rows."""
    tables = [
        scores_table(task),
        baselines_table(task),
        gains_table(task),
        gains_table(task, thinking=True),
        lengths_table(task),
        *([repeats_table(task.repeats)] if task.repeats else []),
        published_table(task),
        *class_tables(task.name, task.distinct_rules),
        pairs_table(task),
        calibration_table(task),
        class_table(
            task.name, next((calibration.classes for calibration in task.calibration.values()), ())
        ),
    ]
    return [
        *tables,
        *(table for column in task.group_sizes for table in group_tables(task, column)),
    ]


def scores_table(task: TaskReport) -> Table:
    """Return all scores of a task."""
    distinct = task.distinct_rules
    width = max(1, len(distinct))
    rows = [cells("questions", *[questions(task)] * width)]
    constructed = []
    for metric in _metrics_in_rows(task):
        scores = [rule.estimates.get(metric) for rule in distinct]
        better = next((score.higher_is_better for score in scores if score), None)
        described = task.metrics[metric].description if metric in task.metrics else ""
        name = Cell(metric, code=True, remark=f"{described} {_DIRECTIONS[better]}".strip())
        rows.append(cells(name, *(_cell_of(rule, metric) for rule in distinct)))
        if any(score.by_construction for score in filter(None, scores)):
            constructed.append(metric)
    rules = [
        f"{rule.name}: {rule.rule}. {rule.describes}".rstrip(". ") + "."
        for rule in task.rules
        if rule.rule
    ]
    failed = []
    for rule in distinct:
        failed += [(metric, (rule.title, why.rstrip("."))) for metric, why in rule.failures.items()]
    failures = (
        f"{metrics} under {rule} has no value: {why}."
        for (rule, why), metrics in names_by(failed).items()
    )
    remarks = dict.fromkeys(chain.from_iterable(rule.remarks for rule in task.rules))
    titles = [name_cell(rule.title) for rule in distinct]
    headings = cells("Metric", *(titles or cells("no scores")))
    zeros = (f"{metric}: {BY_CONSTRUCTION}" for metric in sorted(constructed))
    notes = (INTERVALS, *zeros, *rules, *failures, *remarks)
    return Table(
        label(task.name, "scores"), "Scores.", "l" + "r" * width, headings, rows, notes=notes
    )


def _cell_of(rule: RuleScores, metric: str) -> Cell:
    """Return the score of a metric, with its standard error or why it has no value."""
    score = rule.estimates.get(metric)
    remark = rule.failures.get(metric, "")
    if not remark and score and 0 < score.error < math.inf:
        remark = f"standard error {points(score.error, score.share)}"
    return score_cell(score, remark)


def _metrics_in_rows(task: TaskReport) -> list[str]:
    """Leave out metrics that have no value for the reason of another one, as a sentence names them all."""
    causes = {
        metric: tuple(rule.failures.get(metric, "") for rule in task.rules)
        for metric in task.metric_names
    }
    alike = Counter(causes.values())
    return [metric for metric, why in causes.items() if not all(why) or alike[why] == 1]


def baselines_table(task: TaskReport) -> Table:
    """Return the scores of a task next to those of its baselines."""
    rows = []
    metrics = {
        metric
        for baseline in task.baselines
        for scores in baseline.scores.values()
        for metric in scores
    }
    for metric in task.metric_names:
        for rule in task.distinct_rules:
            if metric in metrics and (score := rule.estimates.get(metric)):
                values = (
                    baseline.scores.get(rule.name, {}).get(metric, math.nan)
                    for baseline in task.baselines
                )
                texts = (number(value, task.is_share(metric, value)) for value in values)
                rows.append(cells(name_cell(metric), name_cell(rule.title), scored(score), *texts))
    tests = [
        f"This run minus {baseline.name}, {metric} ({rule}): "
        f"{difference(result.difference, result.low, result.high, task.is_share(metric, result.first))}, "
        f"{p_statement(result.p)} ({result.test}, on the same questions)."
        for baseline in task.baselines
        for rule, (metric, result) in baseline.tests.items()
    ]
    columns = "llr" + "r" * len(task.baselines)
    headings = cells("Metric", "Rule", "This run", *(baseline.name for baseline in task.baselines))
    described = (
        f"{baseline.name}: {baseline.describes}"
        for baseline in task.baselines
        if baseline.describes
    )
    notes = (INTERVALS, *tests, *described)
    return Table(
        label(task.name, "baselines"),
        "Baselines that see no image.",
        columns,
        headings,
        rows,
        notes=notes,
    )


def gains_table(task: TaskReport, *, thinking: bool = False) -> Table:
    """Return the differences of a task from its variants, or of a thinking variant from its direct form."""
    gains = task.gains if not thinking else task.thinking.gains if task.thinking else ()
    rows = []
    for gain in (gain for gain in gains if not gain.same_as):
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        of_test = (gain.variant, gain.metric, gain.rule)
        alike = [
            twin.rule for twin in gains if (twin.variant, twin.metric, twin.same_as) == of_test
        ]
        names = (
            name_cell(", ".join([gain.rule, *alike])),
            name_cell(gain.metric),
            count(gain.samples),
        )
        reduced = f"{number(gain.variant_score, share)}{' by construction' * gain.by_construction}"
        gained = difference(gain.difference, gain.low, gain.high, share)
        numbers = (
            number(gain.score, share),
            reduced,
            gained,
            p_value(gain.p),
            p_value(gain.p_holm),
        )
        rows.append(cells(*[gain.variant] * (not thinking), *names, *numbers))
    corrected = (
        "p, Holm: corrected for all gains of the report, unlike p and the intervals; rules that read the same answers "
        "are one test."
    )
    if thinking:
        headings = cells(
            "Rule", "Metric", "Questions", "Thinking", "Direct", "Gain", "p", "p, Holm"
        )
        base = task.thinking.base if task.thinking else ""
        caption = f"Thinking against the direct form ({base}), on the same questions."
        return Table(
            label(task.name, "thinking"),
            caption,
            "llrrrrrr",
            headings,
            rows,
            notes=(INTERVALS, corrected),
        )
    variants = {gain.variant for gain in gains}
    zero = [BY_CONSTRUCTION] if any(gain.by_construction for gain in gains) else []
    notes = (
        INTERVALS,
        corrected,
        *zero,
        *(f"{name}: {what}." for name, what in VARIANTS.items() if name in variants),
    )
    headings = cells(
        "Variant", "Rule", "Metric", "Questions", "Task", "Variant", "Difference", "p", "p, Holm"
    )
    caption = "Score minus that of a variant on the same questions."
    return Table(label(task.name, "gains"), caption, "lllrrrrrr", headings, rows, notes=notes)


def lengths_table(task: TaskReport) -> Table:
    """Return the score of a thinking variant by the length of its replies."""
    thinking = task.thinking
    if thinking is None:
        return Table(label(task.name, "lengths"), "", "lrr", cells("", "Questions", "Score"), [])
    rows = [
        cells(
            f"{count(part.least)} to {count(part.most)}", count(part.questions), scored(part.score)
        )
        for part in thinking.bins
    ]
    sentences = [f"Reasoning never ended: {scored(thinking.truncated)}."]
    if not math.isnan(thinking.mean):
        words = "Words of reasoning per reply (tokens were not counted)"
        unit = "Tokens per reply" if thinking.unit == "tokens" else words
        lengths = f"{unit}: mean {thinking.mean:,.0f}, median {thinking.median:,.0f}, longest {thinking.most:,.0f}"
        if thinking.at_limit is not None:
            at_limit = f"{thinking.at_limit:,} of {thinking.answered:,}"
            lengths = f"{lengths}; {at_limit} used up the {thinking.limit:,} new tokens"
        sentences.append(f"{lengths}.")
    caption = f"{thinking.bins[0].score.metric} by length of the reply." if thinking.bins else ""
    headings = cells(f"Length, {thinking.unit}", "Questions", "Score")
    return Table(
        label(task.name, "lengths"), caption, "lrr", headings, rows, notes=(INTERVALS, *sentences)
    )


def repeats_table(repeated: RepeatedTask) -> Table:
    """Return mean, spread and majority over the repeats of a task."""
    rows = []
    for row in repeated.rows:
        for score in row.scores:
            defined = [value for value in score.values if not math.isnan(value)] or [math.nan]
            ends = (number(min(defined), score.share), number(max(defined), score.share))
            mean = estimate(score.mean, score.low, score.high, score.share)
            numbers = (mean, points(score.spread, score.share), *ends)
            rows.append(
                cells(
                    name_cell(row.name), name_cell(score.metric), *numbers, scored(score.majority)
                )
            )
    method = (
        f"Seeds: {', '.join(map(str, repeated.seeds))}. Interval of the mean: over questions and replies, each "
        f"question averaged first. Spread: standard deviation over repeats, of replies to the same questions alone. "
        f"Majority: score of the answer that most repeats gave, without failed replies and replies without an answer; "
        f"another quantity than the mean."
    )
    counts = (
        f"{row.name}: {row.samples} samples, {row.ties} ties, {row.failed_replies} failed replies, "
        f"{row.failed_samples} failed samples."
        for row in repeated.rows
    )
    headings = cells("Rule", "Metric", "Mean of repeats", "Spread", "Lowest", "Highest", "Majority")
    caption, notes = (
        f"{repeated.repeats} repeats with other seeds.",
        (INTERVALS, method, *repeated.notes, *counts),
    )
    return Table(label(repeated.task, "repeats"), caption, "llrrrrr", headings, rows, notes=notes)


def pairs_table(task: TaskReport) -> Table:
    """Return the outcomes of pairs."""
    outcomes = {rule.title: rule.pairs for rule in task.distinct_rules if rule.pairs}
    parts = pair_rows(list(outcomes.values()))
    totals = [
        sum(numbers[position] for _, _, numbers in parts) for position in range(len(outcomes))
    ]
    rows = []
    for name, meaning, numbers in parts:
        row = [Cell(name, remark=meaning)]
        for part, total in zip(numbers, totals, strict=True):
            share = part / total if total else math.nan
            row.append(Cell(count(part), remark=number(share), bar=(share,)))
        rows.append(tuple(row))
    solved = [decided_pairs(pairs) for pairs in outcomes.values()]
    if any(solved):
        meaning = (
            "Pairs with one image right say nothing of this; guessing gives 50% with two options."
        )
        rows.append(cells(Cell("Solved : both wrong, share solved", remark=meaning), *solved))
    rows = [*rows, cells("All complete pairs", *map(count, totals))] if outcomes else []
    cut = max((pairs.incomplete for pairs in outcomes.values()), default=0)
    notes = (
        (f"Of {count(cut)} more pairs only one image was asked; they are in no score of pairs.",)
        if cut
        else ()
    )
    columns, headings = "l" + "r" * len(outcomes), cells("Outcome", *map(name_cell, outcomes))
    return Table(
        label(task.name, "pairs"), "Outcomes of pairs.", columns, headings, rows, notes=notes
    )


def calibration_table(task: TaskReport) -> Table:
    """Return the calibration of a task's likelihoods."""
    rows = []
    for names, calibration in task.distinct_calibrations:
        ece, *others = (
            estimate(measure.value, measure.low, measure.high, False)
            for measure in (calibration.ece, calibration.brier, calibration.auroc, calibration.aurc)
        )
        accuracy = estimate(
            calibration.accuracy.value, calibration.accuracy.low, calibration.accuracy.high, True
        )
        measures = (
            accuracy,
            number(calibration.confidence),
            ece,
            number(calibration.debiased_ece, False),
            *others,
        )
        rows.append(cells(name_cell(", ".join(names)), count(calibration.samples), *measures))
    methods = dict.fromkeys(calibration.note for calibration in task.calibration.values())
    left_out = dict.fromkeys(
        f"Left out, as they had no likelihoods that could be read: {counted(calibration.left_out, 'question')}."
        for calibration in task.calibration.values()
        if calibration.left_out
    )
    headings = cells(
        "Rule",
        "Questions",
        "Accuracy",
        "Confidence",
        "ECE",
        "Debiased ECE",
        "Brier",
        "AUROC",
        "AURC",
    )
    caption, notes = "Calibration of the likelihoods.", (INTERVALS, *methods, *left_out)
    return Table(label(task.name, "calibration"), caption, "lrrrrrrrr", headings, rows, notes=notes)


def coverage_rows(calibration: Calibration) -> list[CoveragePoint]:
    """Return about ten points of accuracy against coverage, from full coverage down."""
    points = calibration.coverage
    if len(points) <= _COVERAGE_ROWS:
        return list(points)
    coverages = [1 - step / _COVERAGE_ROWS for step in range(_COVERAGE_ROWS)]
    nearest = [min(points, key=lambda point: abs(point.coverage - share)) for share in coverages]
    return list(dict.fromkeys(nearest))


def class_table(name: str, classes: Sequence[ClassArea]) -> Table:
    """Return the AUROC of each class from the likelihoods of a task, which are the same under all rules."""
    rows = [
        cells(
            area.name,
            count(area.samples),
            estimate(area.auroc.value, area.auroc.low, area.auroc.high, False),
        )
        for area in classes
    ]
    caption = "AUROC of each class against all others, from the likelihoods."
    headings = cells("Class", "Questions", "Likelihood AUROC")
    return Table(label(name, "classes"), caption, "lrr", headings, rows, notes=(INTERVALS,))
