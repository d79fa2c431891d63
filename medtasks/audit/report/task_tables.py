"""Tables of one task: scores, baselines, sanity variants, thinking, repeats, published results, pairs, groups."""

import math
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from medtasks.audit.report import rows as report_rows
from medtasks.audit.report.contents import Gain, PublishedScore, RepeatedTask, Score, TaskReport
from medtasks.audit.report.wording import (
    BY_CONSTRUCTION,
    INTERVALS,
    VARIANTS,
    coded,
    count,
    counted,
    difference,
    estimate,
    number,
    p_value,
    points,
    questions,
    scored,
)
from medtasks.audit.tables import NOT_DEFINED, Cell, Table, cells, name_cell
from medtasks.stats.calibration import ClassArea

_GAINS = "p, Holm: corrected for all gains of the report; rules that read the same answers are one test."
_MEASURES = ("ECE", "Debiased ECE", "Brier", "AUROC", "AURC")
_DIRECTIONS = {True: "↑ higher is better", False: "↓ lower is better", None: ""}


def label(*parts: str) -> str:
    """Return a label that differs for different parts.

    Example:
        >>> label("a task", "scores")
        'a-20-task.scores'
    """
    return ".".join(coded(part, end="-") for part in parts)


def score_cell(score: Score | None, remark: str = "", mark: float = math.nan) -> Cell:
    """Return a score with its interval; on the page it has a bar, with a ``mark`` at another value."""
    bar = (score.value, score.low, score.high, mark) if score and score.share else ()
    return Cell(scored(score), remark=remark, bar=bar)


def task_tables(task: TaskReport) -> list[Table]:
    """Return a task's tables; those about something that it does not have are without rows."""
    tables = [
        scores_table(task),
        baselines_table(task),
        gains_table(task),
        thinking_table(task),
        lengths_table(task),
        *([repeats_table(task.repeats)] if task.repeats else []),
        published_table(task),
        pairs_table(task),
        calibration_table(task),
        class_table(task.name, next((one.classes for one in task.calibration.values()), ())),
    ]
    return [*tables, *(table for column in report_rows.group_columns(task) for table in group_tables(task, column))]


def scores_table(task: TaskReport) -> Table:
    """Return all scores of a task."""
    width = max(1, len(task.rules))
    rows, constructed = [], set[str]()
    for metric in report_rows.metrics_of(task):
        scores = [rule.estimates.get(metric) for rule in task.rules]
        better = next((score.higher_is_better for score in scores if score), None)
        described = task.metrics[metric].description if metric in task.metrics else ""
        name = Cell(metric, code=True, remark=f"{described} {_DIRECTIONS[better]}".strip())
        remarks = []
        for rule, score in zip(task.rules, scores, strict=True):
            error = points(score.error, score.share) if score else NOT_DEFINED
            why = report_rows.why_undefined(rule, score)
            remarks.append(why or (f"standard error {error}" if error != NOT_DEFINED else ""))
            constructed |= {metric} if score and score.by_construction else set()
        rows.append(cells(name, *map(score_cell, scores, remarks)))
    rules = [f"{rule.name}: {rule.rule}. {rule.describes}".rstrip(". ") + "." for rule in task.rules]
    causes: dict[tuple[str, str], list[str]] = {}
    for rule in task.rules:
        for metric, why in rule.failures.items():
            causes.setdefault((rule.name, why.rstrip(".")), []).append(metric)
    zeros = (f"{metric}: {BY_CONSTRUCTION}" for metric in sorted(constructed))
    failures = (f"{', '.join(metrics)} under {rule} has no value: {why}." for (rule, why), metrics in causes.items())
    remarks_of_metrics = dict.fromkeys(remark for rule in task.rules for remark in rule.remarks)
    return Table(
        label=label(task.name, "scores"),
        caption="Scores.",
        columns="l" + "r" * width,
        headings=cells("Metric", *(name_cell(rule.name) for rule in task.rules), *["no scores"] * (not task.rules)),
        rows=[cells("questions", *[questions(task)] * width), *rows],
        notes=(INTERVALS, *zeros, *rules, *failures, *remarks_of_metrics),
    )


def baselines_table(task: TaskReport) -> Table:
    """Return the scores of a task next to those of its baselines."""
    rows = []
    known = {metric for one in task.baselines for scores in one.scores.values() for metric in scores}
    for metric in report_rows.metrics_of(task):
        for rule in task.rules:
            if metric in known and (score := rule.estimates.get(metric)):
                values = (one.scores.get(rule.name, {}).get(metric, float("nan")) for one in task.baselines)
                shown = (number(value, report_rows.is_share(task, metric, value)) for value in values)
                rows.append(cells(name_cell(metric), name_cell(rule.name), scored(score), *shown))
    tests = [
        f"This run minus {one.name}, {metric} ({rule}): "
        f"{difference(found.difference, found.low, found.high, report_rows.is_share(task, metric, found.first))}, "
        f"p = {p_value(found.p)} ({found.test}, on the same questions)."
        for one in task.baselines
        for rule, (metric, found) in one.tests.items()
    ]
    return Table(
        label=label(task.name, "baselines"),
        caption="Baselines that see no image.",
        columns="llr" + "r" * len(task.baselines),
        headings=cells("Metric", "Rule", "This run", *(one.name for one in task.baselines)),
        rows=rows,
        notes=(INTERVALS, *tests, *(f"{one.name}: {one.describes}" for one in task.baselines if one.describes)),
    )


def _gain_rows(task: TaskReport, gains: Sequence[Gain]) -> Iterator[tuple[Gain, tuple[Cell, ...]]]:
    """Yield each test of gains with its row: rules, metric, questions, scores, difference, p-values."""
    for gain in gains:
        if not gain.same_as:
            share = report_rows.is_share(task, gain.metric, gain.score, gain.variant_score)
            of_test = (gain.task, gain.metric, gain.rule)
            alike = [one.rule for one in gains if (one.task, one.metric, one.same_as) == of_test]
            names = (name_cell(", ".join([gain.rule, *alike])), name_cell(gain.metric))
            zero = f"{number(gain.variant_score, share)} by construction"
            values = (number(gain.score, share), zero if gain.by_construction else number(gain.variant_score, share))
            gained = difference(gain.difference, gain.low, gain.high, share)
            shown = (*values, gained, p_value(gain.p), p_value(gain.p_holm))
            yield gain, cells(*names, count(gain.samples), *shown)


def gains_table(task: TaskReport) -> Table:
    """Return the differences of a task from its sanity variants."""
    variants = {gain.variant for gain in task.gains}
    zero = [BY_CONSTRUCTION] if any(gain.by_construction for gain in task.gains) else []
    return Table(
        label=label(task.name, "gains"),
        caption="Score minus that of a sanity variant on the same questions.",
        columns="lllrrrrrr",
        headings=cells("Variant", "Rule", "Metric", "Questions", "Task", "Variant", "Difference", "p", "p, Holm"),
        rows=[(Cell(gain.variant), *shown) for gain, shown in _gain_rows(task, task.gains)],
        notes=(INTERVALS, _GAINS, *zero, *(f"{name}: {what}." for name, what in VARIANTS.items() if name in variants)),
    )


def thinking_table(task: TaskReport) -> Table:
    """Return the differences of a thinking variant from its direct form."""
    found = task.thinking
    return Table(
        label=label(task.name, "thinking"),
        caption=f"Thinking against the direct form ({found.base if found else ''}), on the same questions.",
        columns="llrrrrrr",
        headings=cells("Rule", "Metric", "Questions", "Thinking", "Direct", "Gain", "p", "p, Holm"),
        rows=[shown for _, shown in _gain_rows(task, found.gains if found else ())],
        notes=(INTERVALS, _GAINS),
    )


def lengths_table(task: TaskReport) -> Table:
    """Return the score of a thinking variant by the length of its replies."""
    found = task.thinking
    rows = [
        cells(f"{count(one.least)} to {count(one.most)}", count(one.questions), scored(one.score))
        for one in (found.bins if found else ())
    ]
    said = [f"Reasoning never ended: {scored(found.truncated)}.", report_rows.said_of_lengths(found)] if found else []
    return Table(
        label=label(task.name, "lengths"),
        caption=f"{found.bins[0].score.metric} by length of the reply." if found and found.bins else "",
        columns="lrr",
        headings=cells(f"Length, {found.unit}" if found else "", "Questions", "Score"),
        rows=rows,
        notes=(INTERVALS, *said),
    )


def repeats_table(repeated: RepeatedTask) -> Table:
    """Return mean, spread and majority over the repeats of a task."""
    rows = []
    for row in repeated.rows:
        for one in row.scores:
            known = [value for value in one.values if not math.isnan(value)] or [math.nan]
            ends = (number(min(known), one.share), number(max(known), one.share))
            whole = Score(one.metric, one.mean, one.error, one.low, one.high, one.share, higher_is_better=None)
            numbers = (scored(whole), points(one.spread, one.share), *ends)
            rows.append(cells(name_cell(row.name), name_cell(one.metric), *numbers, scored(one.majority)))
    return Table(
        label=label(repeated.task, "repeats"),
        caption=f"{repeated.repeats} repeats with other seeds.",
        columns="llrrrrr",
        headings=cells("Rule", "Metric", "Mean of repeats", "Spread", "Lowest", "Highest", "Majority"),
        rows=rows,
        notes=(
            INTERVALS,
            f"Seeds: {', '.join(map(str, repeated.seeds))}. Interval of the mean: over questions and replies, "
            f"each question averaged first. Spread: standard deviation over repeats, of replies to the same questions "
            f"alone. Majority: score of the answer that most repeats gave, without failed replies and replies without "
            f"an answer; another quantity than the mean.",
            *repeated.notes,
            *(
                f"{row.name}: {row.samples} samples, {row.ties} ties, {row.failed_replies} failed replies, "
                f"{row.failed_samples} failed samples."
                for row in repeated.rows
            ),
        ),
    )


def published_table(task: TaskReport) -> Table:
    """Set published results, a row per model and source, below those of this run."""
    metrics = [metric for metric in report_rows.metrics_of(task) if any(one.metric == metric for one in task.published)]
    remarks = list(dict.fromkeys(one.remark for one in task.published if one.remark))
    known = {(one.model, one.source, one.metric): one for one in task.published}
    ours = [
        cells(f"This run, {rule.name}", *(score_cell(rule.estimates.get(metric)) for metric in metrics))
        for rule in task.rules
    ]
    theirs = [
        cells(
            f"{model} (this model)" if same else model,
            *(_as_printed(task, known.get((model, source, metric)), remarks) for metric in metrics),
        )
        for model, source, same in dict.fromkeys((one.model, one.source, one.same_model) for one in task.published)
    ]
    sources = "; ".join(dict.fromkeys(one.source for one in task.published))
    return Table(
        label=label(task.name, "published"),
        caption=f"Published results ({sources}) and this run.",
        columns="l" + "r" * len(metrics),
        headings=cells("Model", *map(name_cell, metrics)),
        rows=[*ours, *theirs] if metrics else [],
        notes=tuple(remarks),
        split=len(ours),
    )


def _as_printed(task: TaskReport, score: PublishedScore | None, remarks: Sequence[str]) -> Cell:
    """Return a published score with as many digits as were printed, in percent where ours is."""
    if score is None:
        return Cell("")
    marks = (remarks.index(score.remark) + 1,) if score.remark else ()
    if not report_rows.is_share(task, score.metric, score.value):
        return Cell(score.printed, marks=marks)
    digits = len(score.printed.partition(".")[2])
    in_percent = abs(float(score.printed) - score.value) > 1e-9 or digits <= 2
    shown = f"{100 * score.value:.{digits if in_percent else digits - 2}f}%"
    return Cell(shown, marks=marks, bar=(score.value,))


def pairs_table(task: TaskReport) -> Table:
    """Return the outcomes of pairs."""
    outcomes = {rule.name: rule.pairs for rule in task.rules if rule.pairs}
    totals = [one.complete for one in outcomes.values()]
    rows = []
    for name, meaning, numbers in report_rows.pair_rows(list(outcomes.values())):
        shares = [part / total if total else math.nan for part, total in zip(numbers, totals, strict=True)]
        counted = [
            Cell(count(part), remark=number(share), bar=(share,)) for part, share in zip(numbers, shares, strict=True)
        ]
        rows.append(cells(Cell(name, remark=meaning), *counted))
    solved = [report_rows.decided(one) for one in outcomes.values()]
    if any(solved):
        meaning = "Pairs with one image right say nothing of this; guessing gives 50% with two options."
        rows.append(cells(Cell("Solved : both wrong, share solved", remark=meaning), *solved))
    cut = max((one.incomplete for one in outcomes.values()), default=0)
    return Table(
        label=label(task.name, "pairs"),
        caption="What became of the pairs.",
        columns="l" + "r" * len(outcomes),
        headings=cells("Outcome", *map(name_cell, outcomes)),
        rows=[*rows, cells("All complete pairs", *map(count, totals))] if outcomes else [],
        notes=(f"Of {count(cut)} more pairs only one image was asked; they are in no score of pairs.",) if cut else (),
    )


def calibration_table(task: TaskReport) -> Table:
    """Return the calibration of a task's likelihoods."""
    rows = []
    for name, one in task.calibration.items():
        ece, brier, auroc, aurc = (
            estimate(measure.value, measure.low, measure.high, False)
            for measure in (one.ece, one.brier, one.auroc, one.aurc)
        )
        measures = (ece, number(one.debiased_ece, False), brier, auroc, aurc)
        accuracy = estimate(one.accuracy.value, one.accuracy.low, one.accuracy.high, True)
        rows.append(cells(name_cell(name), count(one.samples), accuracy, number(one.confidence), *measures))
    return Table(
        label=label(task.name, "calibration"),
        caption="Calibration of the likelihoods.",
        columns="lrrrrrrrr",
        headings=cells("Rule", "Questions", "Accuracy", "Confidence", *_MEASURES),
        rows=rows,
        notes=(
            INTERVALS,
            *dict.fromkeys(one.note for one in task.calibration.values()),
            *dict.fromkeys(
                f"Left out, as they had no likelihoods that could be read: {counted(one.left_out, 'question')}."
                for one in task.calibration.values()
                if one.left_out
            ),
        ),
    )


def class_table(name: str, classes: Sequence[ClassArea]) -> Table:
    """Return the AUROC of each class from the likelihoods of a task, which are the same under all rules."""
    return Table(
        label=label(name, "classes"),
        caption="AUROC of each class against all others, from the likelihoods.",
        columns="lrr",
        headings=cells("Class", "Questions", "Likelihood AUROC"),
        rows=[
            cells(one.name, count(one.samples), estimate(one.auroc.value, one.auroc.low, one.auroc.high, False))
            for one in classes
        ],
        notes=(INTERVALS,),
    )


def group_tables(task: TaskReport, column: str) -> Iterator[Table]:
    """Yield the scores by the groups of a column, a table per metric."""
    rules = [rule for rule in task.rules if column in rule.groups]
    for metric in report_rows.group_metrics(task, column):
        rows = []
        for name in report_rows.group_columns(task)[column]:
            asked = {"task": task.name, "column": column, "group": name}
            remark = "" if report_rows.is_compared(rules, column, name) else "too few to compare"
            group = Cell(name, remark=remark, link=urlencode(asked, errors="replace") if task.items else "")
            scores = (score_cell(report_rows.group_score(rule, column, name, metric)) for rule in rules)
            rows.append(cells(group, count(report_rows.group_questions(task, column, name)), *scores))
        yield Table(
            label=label(task.name, column, metric),
            caption=f"{metric} by {column}.",
            columns="lr" + "r" * len(rules),
            headings=cells(column, "Questions", *(name_cell(rule.name) for rule in rules)),
            rows=rows,
            notes=report_rows.said_of_groups(rules, column, metric),
        )
