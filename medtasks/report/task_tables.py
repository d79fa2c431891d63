"""Tables of one task: scores, baselines, sanity variants, thinking, repeats, published results, pairs, groups."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from medtasks.report.group_tables import class_tables, group_tables
from medtasks.report.published_tables import published_table
from medtasks.report.report_model import Gain, RepeatedTask, TaskReport
from medtasks.report.tables import Cell, Row, Table, cells, name_cell
from medtasks.report.wording import (
    BY_CONSTRUCTION,
    INTERVALS,
    VARIANTS,
    change_text,
    count,
    decided_pairs,
    estimate,
    label,
    measure_text,
    names_by,
    number,
    p_statement,
    p_value,
    pair_rows,
    points,
    quantity,
    questions,
    score_cell,
    score_text,
)
from medtasks.scores.score_model import PairOutcomes, RuleScores
from medtasks.stats.calibration import Calibration, ClassArea, CoveragePoint

_COVERAGE_ROWS = 10
_HOLM = (
    "p, Holm: corrected for all gains of the report, unlike p and the intervals; rules that read the same answers "
    "are one test."
)
_DIRECTIONS = {True: "↑ higher is better", False: "↓ lower is better", None: ""}


def task_tables(task: TaskReport) -> list[Table]:
    """Return all tables of a task.

    Returns:
        The tables in the order of the page. Those that do not apply to the task have no rows.
    """
    tables = [
        scores_table(task),
        baselines_table(task),
        gains_table(task),
        thinking_table(task),
        lengths_table(task),
    ]
    if task.repeats:
        tables.append(repeats_table(task.repeats))
    tables.append(published_table(task))
    tables += class_tables(task.name, task.distinct_rules)
    tables.append(pairs_table(task))
    tables.append(calibration_table(task))
    first = next(iter(task.calibration.values()), None)
    tables.append(class_table(task.name, first.classes if first else ()))
    for column in task.group_sizes:
        tables += group_tables(task, column)
    return tables


def scores_table(task: TaskReport) -> Table:
    """Return all scores of a task, with a row per metric and a column per rule."""
    distinct = task.distinct_rules
    width = max(1, len(distinct))
    rows = [cells("questions", *[questions(task)] * width)]
    constructed = []
    for metric in _metrics_in_rows(task):
        scores = [rule.estimates[metric] for rule in distinct if metric in rule.estimates]
        better = scores[0].higher_is_better if scores else None
        described = task.metrics[metric].description if metric in task.metrics else ""
        name = Cell(metric, code=True, remark=f"{described} {_DIRECTIONS[better]}".strip())
        rows.append(cells(name, *(_cell_of(rule, metric) for rule in distinct)))
        if any(score.by_construction for score in scores):
            constructed.append(metric)
    zeros = (f"{metric}: {BY_CONSTRUCTION}" for metric in sorted(constructed))
    titles = [name_cell(rule.title) for rule in distinct]
    return Table(
        label(task.name, "scores"),
        "Scores.",
        "l" + "r" * width,
        cells("Metric", *(titles or cells("no scores"))),
        rows,
        notes=(INTERVALS, *zeros, *_rule_notes(task)),
    )


def _rule_notes(task: TaskReport) -> list[str]:
    """Describe the rules, name the metrics that have no value under them and why, and add their remarks."""
    notes = []
    for rule in task.rules:
        if rule.rule:
            notes.append(f"{rule.name}: {rule.rule}. {rule.describes}".rstrip(". ") + ".")
    failed = []
    for rule in task.distinct_rules:
        for metric, why in rule.failures.items():
            failed.append((metric, (rule.title, why.rstrip("."))))
    for (title, why), metrics in names_by(failed).items():
        notes.append(f"{metrics} under {title} has no value: {why}.")
    remarks = chain.from_iterable(rule.remarks for rule in task.rules)
    return notes + list(dict.fromkeys(remarks))


def _cell_of(rule: RuleScores, metric: str) -> Cell:
    """Return the score of a metric, with its standard error or why it has no value."""
    score = rule.estimates.get(metric)
    remark = rule.failures.get(metric, "")
    if not remark and score and 0 < score.error < math.inf:
        remark = f"standard error {points(score.error, score.share)}"
    return score_cell(score, remark)


def _metrics_in_rows(task: TaskReport) -> list[str]:
    """Leave out metrics that have no value for the reason of another one, as a sentence names them all."""
    causes = {}
    for metric in task.metric_names:
        causes[metric] = tuple(rule.failures.get(metric, "") for rule in task.rules)
    alike = Counter(causes.values())
    return [metric for metric, why in causes.items() if not all(why) or alike[why] == 1]


def baselines_table(task: TaskReport) -> Table:
    """Return the scores of a task next to those of its baselines, with a row per metric and rule."""
    names = []
    described = []
    tests = []
    for baseline in task.baselines:
        names.append(baseline.name)
        if baseline.describes:
            described.append(f"{baseline.name}: {baseline.describes}")
        for rule_name, (metric, result) in baseline.tests.items():
            share = task.is_share(metric, result.first)
            tests.append(
                f"This run minus {baseline.name}, {metric} ({rule_name}): {change_text(result, share)}, "
                f"{p_statement(result.p)} ({result.test}, on the same questions)."
            )
    return Table(
        label(task.name, "baselines"),
        "Baselines that see no image.",
        "llr" + "r" * len(names),
        cells("Metric", "Rule", "This run", *names),
        [*_baseline_rows(task)],
        notes=(INTERVALS, *tests, *described),
    )


def _baseline_rows(task: TaskReport) -> Iterator[Row]:
    """Yield the scores of this run and of all baselines in each metric that a baseline has, a row per rule."""
    with_baseline = set[str]()
    for baseline in task.baselines:
        with_baseline.update(*baseline.scores.values())
    for metric in filter(with_baseline.__contains__, task.metric_names):
        for rule in task.distinct_rules:
            score = rule.estimates.get(metric)
            if score is None:
                continue
            values = []
            for baseline in task.baselines:
                value = baseline.scores.get(rule.name, {}).get(metric, math.nan)
                values.append(number(value, task.is_share(metric, value)))
            yield cells(name_cell(metric), name_cell(rule.title), score_text(score), *values)


def gains_table(task: TaskReport) -> Table:
    """Return the differences of a task from its variants, with a row per variant, metric and distinct rule."""
    notes = [INTERVALS, _HOLM]
    if any(gain.by_construction for gain in task.gains):
        notes.append(BY_CONSTRUCTION)
    variants = {gain.variant for gain in task.gains}
    for name, meaning in VARIANTS.items():
        if name in variants:
            notes.append(f"{name}: {meaning}.")
    rows = [cells(gain.variant, *row) for gain, row in _gain_rows(task, task.gains)]
    columns = ("Variant", "Rule", "Metric", "Questions", "Task", "Variant", "Difference")
    return Table(
        label(task.name, "gains"),
        "Score minus that of a variant on the same questions.",
        "lllrrrrrr",
        cells(*columns, "p", "p, Holm"),
        rows,
        notes=notes,
    )


def thinking_table(task: TaskReport) -> Table:
    """Return the differences of a thinking variant from its direct form, with a row per metric and distinct rule."""
    gains: Sequence[Gain] = ()
    base = ""
    if task.thinking:
        gains = task.thinking.gains
        base = task.thinking.base
    rows = [row for _, row in _gain_rows(task, gains)]
    return Table(
        label(task.name, "thinking"),
        f"Thinking against the direct form ({base}), on the same questions.",
        "llrrrrrr",
        cells("Rule", "Metric", "Questions", "Thinking", "Direct", "Gain", "p", "p, Holm"),
        rows,
        notes=(INTERVALS, _HOLM),
    )


def _gain_rows(task: TaskReport, gains: Sequence[Gain]) -> Iterator[tuple[Gain, Row]]:
    """Yield each gain with its cells, those of rules that read the same answers in one row."""
    for gain in gains:
        if gain.same_as:
            continue
        rules = [gain.rule]
        for twin in gains:
            same = (twin.variant, twin.metric, twin.same_as)
            if same == (gain.variant, gain.metric, gain.rule):
                rules.append(twin.rule)
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        reduced = number(gain.variant_score, share)
        if gain.by_construction:
            reduced += " by construction"
        yield (
            gain,
            cells(
                name_cell(", ".join(rules)),
                name_cell(gain.metric),
                count(gain.samples),
                number(gain.score, share),
                reduced,
                change_text(gain, share),
                p_value(gain.p),
                p_value(gain.p_holm),
            ),
        )


def lengths_table(task: TaskReport) -> Table:
    """Return the score of a thinking variant by the length of its replies."""
    thinking = task.thinking
    if thinking is None:
        return Table(
            label(task.name, "lengths"), "", "lrr", cells("", "Questions", "Score"), []
        )
    rows = []
    for part in thinking.bins:
        lengths = f"{count(part.least)} to {count(part.most)}"
        rows.append(cells(lengths, count(part.questions), score_text(part.score)))
    notes = [INTERVALS, f"Reasoning never ended: {score_text(thinking.truncated)}."]
    if not math.isnan(thinking.mean):
        unit = "Words of reasoning per reply (tokens were not counted)"
        if thinking.unit == "tokens":
            unit = "Tokens per reply"
        sentence = f"{unit}: mean {thinking.mean:,.0f}, median {thinking.median:,.0f}, longest {thinking.most:,.0f}"
        if thinking.at_limit is not None:
            sentence += f"; {thinking.at_limit:,} of {thinking.answered:,} used up the {thinking.limit:,} new tokens"
        notes.append(f"{sentence}.")
    caption = (
        f"{thinking.bins[0].score.metric} by length of the reply." if thinking.bins else ""
    )
    headings = cells(f"Length, {thinking.unit}", "Questions", "Score")
    return Table(label(task.name, "lengths"), caption, "lrr", headings, rows, notes=notes)


def repeats_table(repeated: RepeatedTask) -> Table:
    """Return mean, spread and majority over the repeats of a task, with a row per rule and metric."""
    rows = []
    counts = []
    for row in repeated.rows:
        counts.append(
            f"{row.name}: {row.samples} samples, {row.ties} ties, {row.failed_replies} failed replies, "
            f"{row.failed_samples} failed samples."
        )
        for score in row.scores:
            defined = [value for value in score.values if not math.isnan(value)] or [math.nan]
            rows.append(
                cells(
                    name_cell(row.name),
                    name_cell(score.metric),
                    estimate(score.mean, score.low, score.high, score.share),
                    points(score.spread, score.share),
                    number(min(defined), score.share),
                    number(max(defined), score.share),
                    score_text(score.majority),
                )
            )
    method = (
        f"Seeds: {', '.join(map(str, repeated.seeds))}. Interval of the mean: over questions and replies, each "
        f"question averaged first. Spread: standard deviation over repeats, of replies to the same questions alone. "
        f"Majority: score of the answer that most repeats gave, without failed replies and replies without an answer; "
        f"another quantity than the mean."
    )
    return Table(
        label(repeated.task, "repeats"),
        f"{repeated.repeats} repeats with other seeds.",
        "llrrrrr",
        cells("Rule", "Metric", "Mean of repeats", "Spread", "Lowest", "Highest", "Majority"),
        rows,
        notes=(INTERVALS, method, *repeated.notes, *counts),
    )


def pairs_table(task: TaskReport) -> Table:
    """Return the outcomes of pairs, with a row per outcome and a column per rule."""
    outcomes = {rule.title: rule.pairs for rule in task.distinct_rules if rule.pairs}
    rows = _pair_outcome_rows(list(outcomes.values())) if outcomes else []
    cut = max((pairs.incomplete for pairs in outcomes.values()), default=0)
    notes = []
    if cut:
        notes.append(
            f"Of {count(cut)} more pairs only one image was asked; they are in no score of pairs."
        )
    return Table(
        label(task.name, "pairs"),
        "Outcomes of pairs.",
        "l" + "r" * len(outcomes),
        cells("Outcome", *map(name_cell, outcomes)),
        rows,
        notes=notes,
    )


def _pair_outcome_rows(outcomes: Sequence[PairOutcomes]) -> list[Row]:
    """Return the rows of the outcomes of one rule or several, at least one."""
    parts = pair_rows(outcomes)
    by_outcome = [numbers for _, _, numbers in parts]
    totals = [*map(sum, zip(*by_outcome, strict=True))]
    rows = []
    for name, meaning, numbers in parts:
        row = [Cell(name, remark=meaning)]
        for part, total in zip(numbers, totals, strict=True):
            share = part / total if total else math.nan
            row.append(Cell(count(part), remark=number(share), bar=(share,)))
        rows.append(tuple(row))
    solved = [decided_pairs(pairs) for pairs in outcomes]
    if any(solved):
        meaning = "Pairs with one image right say nothing of this; guessing gives 50% with two options."
        rows.append(cells(Cell("Solved : both wrong, share solved", remark=meaning), *solved))
    rows.append(cells("All complete pairs", *map(count, totals)))
    return rows


def calibration_table(task: TaskReport) -> Table:
    """Return the calibration of a task's likelihoods, with a row per distinct rule."""
    rows = []
    for names, calibration in task.distinct_calibrations:
        rows.append(
            cells(
                name_cell(", ".join(names)),
                count(calibration.samples),
                measure_text(calibration.accuracy, share=True),
                number(calibration.confidence),
                measure_text(calibration.ece),
                number(calibration.debiased_ece, False),
                measure_text(calibration.brier),
                measure_text(calibration.auroc),
                measure_text(calibration.aurc),
            )
        )
    methods = dict.fromkeys(calibration.note for calibration in task.calibration.values())
    left_out: dict[str, None] = {}
    for calibration in task.calibration.values():
        if calibration.left_out:
            number_left_out = quantity(calibration.left_out, "question")
            left_out[
                f"Left out, as they had no likelihoods that could be read: {number_left_out}."
            ] = None
    measures = ("Accuracy", "Confidence", "ECE", "Debiased ECE", "Brier", "AUROC", "AURC")
    return Table(
        label(task.name, "calibration"),
        "Calibration of the likelihoods.",
        "lrrrrrrrr",
        cells("Rule", "Questions", *measures),
        rows,
        notes=(INTERVALS, *methods, *left_out),
    )


def coverage_rows(calibration: Calibration) -> list[CoveragePoint]:
    """Thin out the curve of accuracy against coverage.

    Returns:
        About ten points from full coverage down, or all of a shorter curve.
    """
    points = calibration.coverage
    if len(points) <= _COVERAGE_ROWS:
        return list(points)
    coverages = [1 - step / _COVERAGE_ROWS for step in range(_COVERAGE_ROWS)]
    nearest = [
        min(points, key=lambda point: abs(point.coverage - share)) for share in coverages
    ]
    return list(dict.fromkeys(nearest))


def class_table(name: str, classes: Sequence[ClassArea]) -> Table:
    """Return the AUROC of each class from likelihoods.

    Args:
        name: Name of the task.
        classes: Areas under the curves. They are the same under all rules of the task.
    """
    rows = [cells(area.name, count(area.samples), measure_text(area.auroc)) for area in classes]
    return Table(
        label(name, "classes"),
        "AUROC of each class against all others, from the likelihoods.",
        "lrr",
        cells("Class", "Questions", "Likelihood AUROC"),
        rows,
        notes=(INTERVALS,),
    )
