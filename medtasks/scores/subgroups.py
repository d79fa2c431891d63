"""Scores of groups of samples, by the columns that a task or the user names.

Intervals of the groups of a column are simultaneous (Bonferroni), and each group is tested against all other samples,
corrected for the groups (Holm): some group differs at all where the smallest of these p-values says so. That is one
test per column and main metric, and these are corrected together (Holm). Groups worth less than
:data:`LEAST_EFFECTIVE` samples are shown with their own 95 % interval and are not compared, nor is a group whose others
are so few. That is decided by the design, the numbers and clusters of samples, never by the replies.

A column of many numbers, such as age, is grouped by quarters of the samples.
"""

import bisect
import contextlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from medtasks.data.samples import Document, Documents
from medtasks.data.selecting import values
from medtasks.errors import RepliesError, listed, near_match
from medtasks.families.counts import is_failed, is_unjudged
from medtasks.families.paired_choice import mean_over_answers, mean_over_pairs, paired_answers
from medtasks.metrics.metric import (
    Declaration,
    Estimate,
    Metric,
    Role,
    Score,
    ScoreList,
    clustered,
    units_by_cluster,
)
from medtasks.metrics.pairs import PairedAnswer, answers_by_pair, complete_pairs
from medtasks.scores.score_model import ColumnTest, Group, MetricScore
from medtasks.stats.equivalence import WORKING_CORRELATION
from medtasks.stats.intervals import (
    LEVEL,
    EstimatedValue,
    difference_of_shares,
    difference_of_values,
    interval,
    without_noise,
)
from medtasks.stats.paired import ALPHA, exceeding, holm
from medtasks.stats.standard_error import covariance
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile

CATEGORIES = "categories"
LEAST_EFFECTIVE = 20  # effective samples of a group that is compared
MOST_GROUPS = 60  # a column with more values is no grouping
# A column with more different numbers is a measurement. Scales whose steps have a meaning each are shorter, such as
# pain from 0 to 10, or months.
MOST_STEPS = 12


@dataclass(frozen=True)
class Subgroups:
    """Groups of a task's samples, and whether they differ, by column."""

    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    tests: Mapping[str, tuple[ColumnTest, ...]] = field(default_factory=dict)  # one per main metric


@dataclass(frozen=True)
class _Part:
    """One metric of one group, or of all samples."""

    metric: Declaration
    estimate: Estimate
    weight: float  # samples with a value
    deviations: Mapping[
        frozenset[Hashable], float
    ]  # from the mean, over the weight, by patient, image or dyad
    pairs: int = 0  # of which each is one unit; 0 if samples are the units

    @property
    def size(self) -> float:
        """Number of independent samples with the same standard error."""
        return without_noise(
            self.weight if self.estimate.effective is None else self.estimate.effective
        )

    @property
    def planned_size(self) -> float:
        """Number of independent samples, if those of a cluster have the working correlation.

        Samples per cluster are counted from the degrees of freedom, as clusters are of unequal size.
        """
        degrees = self.estimate.degrees
        if degrees is None or math.isnan(degrees):
            return 0.0
        units = self.pairs or self.weight
        together = max(1.0, units / (degrees + 1))
        return without_noise(units / (1 + WORKING_CORRELATION * (together - 1)))


def grouped_by(task: TaskFile, documents: Documents, by: Sequence[str]) -> TaskFile:
    """Return a task that groups its samples by further columns of its documents.

    RepliesError: it has no such column, or one that is no grouping or may not be shown, or nothing to compare.
    """
    if not by:
        return task
    if not task.family.paired and not _group_metrics(task):
        raise RepliesError(
            f"'{task.name}' has no main score of single samples or pairs, so that --by cannot group it"
        )
    hidden = [column for column in by if column not in task.breakdown]
    if hidden and is_private_task(task, documents):
        allowed = f"by {listed(task.breakdown)} only" if task.breakdown else "by no column"
        raise RepliesError(
            f"'{task.name}' is credentialed and can be grouped {allowed}, because values of '{hidden[0]}' are text "
            "of the dataset; MEDTASKS_LOG_TEXT with its name allows to show them"
        )
    columns = dict.fromkeys(chain.from_iterable(documents))
    for column in by:
        if column not in columns:
            hint = near_match(column, columns) or "."
            raise RepliesError(
                f"'{task.name}' has no column '{column}'{hint} Its columns: {', '.join(columns)}"
            )
        bands = number_bands(documents, column)
        number = len(
            set(chain.from_iterable(group_names(document, column, bands) for document in documents))
        )
        if not 0 < number <= MOST_GROUPS:
            raise RepliesError(
                f"column '{column}' of '{task.name}' has {number} different values, and groups need 1 to {MOST_GROUPS};"
                " add a column with bands or kinds to the data"
            )
    return replace(task, breakdown=tuple(dict.fromkeys((*task.breakdown, *by))))


def number_bands(documents: Documents, column: str) -> dict[str, str]:
    """Return the group of each number in a column, the smallest first.

    A column of at most :data:`MOST_STEPS` different numbers has none. Groups are quarters of the values, named by their
    smallest and largest one. Equal numbers are in the quarter of the middle one, so that groups may be fewer or of
    unequal size.

    Example:
        >>> bands = number_bands([{"age": age} for age in (*range(40, 60), 40, 40, 40, 40, 40)], "age")
        >>> list(dict.fromkeys(bands.values()))
        ['age 40', 'age 41 to 46', 'age 47 to 53', 'age 54 to 59']
    """
    numbers: dict[str, float] = {}
    ordered: list[float] = []
    for document in documents:
        for text in values(document, column):
            with contextlib.suppress(ValueError):
                number = float(text)
                if math.isfinite(number):
                    numbers[text] = number
                    ordered.append(number)
    ordered.sort()
    distinct = sorted(set(ordered))
    if len(distinct) <= MOST_STEPS:
        return {}
    quarters: dict[int, list[float]] = {}
    for number in distinct:
        middle = (bisect.bisect_left(ordered, number) + bisect.bisect_right(ordered, number)) / 2
        quarters.setdefault(int(4 * middle / len(ordered)), []).append(number)
    names: dict[float, str] = {}
    for band in quarters.values():
        ends = dict.fromkeys(f"{number:.15g}" for number in (band[0], band[-1]))
        names |= dict.fromkeys(band, f"{column} {' to '.join(ends)}")
    return {text: names[numbers[text]] for text in sorted(numbers, key=numbers.__getitem__)}


def group_names(document: Document, column: str, bands: Mapping[str, str]) -> list[str]:
    """Return the groups of a document in a column with these :func:`number_bands`.

    In a column of numbers, those without one are a group of their own.
    """
    names = values(document, column)
    if not bands:
        return names
    present = [name for name in names if name.strip().lower() not in ("", "nan")]
    return sorted({bands.get(name, name) for name in present}) or [f"{column} not given"]


def _in_order(sizes: Mapping[str, int], bands: Mapping[str, str]) -> list[str]:
    """Return the names of groups: bands in ascending order, then the others, the largest first."""
    by_size = sorted(sizes, key=lambda name: (-sizes[name], name))
    return list(dict.fromkeys(name for name in (*bands.values(), *by_size) if name in sizes))


def _group_metrics(task: TaskFile) -> list[Metric[Any]]:
    """Return the metrics by which groups are compared: main ones that are means over samples."""
    declared = (*task.metrics, *task.family.compared_only)
    main = [metric for metric in declared if isinstance(metric, Metric) and metric.is_compared]
    return [metric for metric in main if metric.role is Role.MAIN] or [
        *task.family.compared_in_groups
    ]


def by_group(task: TaskFile, documents: Documents, scores: ScoreList) -> Subgroups:
    """Return main scores by group of the columns that a task names, the largest group first, of numbers the smallest.

    A document with several values counts in each of their groups. There are no groups without a main score of single
    samples, nor where the published code stops. Both lists have shape (samples,); scores are settled
    (:meth:`TaskFamily.settled`).
    """
    metrics = _group_metrics(task)
    if not metrics or not task.breakdown or any(score.get("stops") for score in scores):
        return Subgroups()

    def parts(members: Sequence[Score]) -> list[_Part]:
        return [
            _Part(
                metric,
                metric.estimate(members),
                len(metric.values(members)),
                metric.deviations(members),
            )
            for metric in metrics
        ]

    joined = clustered(scores)  # patients of different groups that share an image, too
    answered = [
        (document, score)
        for document, score in zip(documents, joined, strict=True)
        if not is_failed(score)
    ]
    is_drawn = bool(units_by_cluster(scores))
    by_column: dict[str, tuple[Group, ...]] = {}
    totals = parts([score for _, score in answered])
    for column in task.breakdown:
        groups: dict[str, list[Score]] = {}
        bands = number_bands(documents, column)
        for document, score in answered:
            for name in group_names(document, column, bands):
                groups.setdefault(name, []).append(score)
        of_column = [
            (name, sum(not is_unjudged(score) for score in groups[name]), parts(groups[name]))
            for name in _in_order({name: len(members) for name, members in groups.items()}, bands)
        ]
        by_column[column] = _compared(of_column, totals, is_drawn=is_drawn)
    return Subgroups(by_column, _column_tests(by_column, totals))


def by_category(
    task: TaskFile, documents: Documents, scores: ScoreList, columns: Sequence[str] = (CATEGORIES,)
) -> Subgroups:
    """Return scores of pairs by medical area, or by other columns of their images.

    A pair counts once for each of its images in a group, as in the benchmark. Both lists have shape (samples,).
    """
    by_column, totals = dict[str, tuple[Group, ...]](), list[_Part]()
    is_drawn = bool(units_by_cluster(scores))
    for column in columns:
        bands = {} if column == CATEGORIES else number_bands(documents, column)
        grouped = [
            score
            if column == CATEGORIES
            else {**score, CATEGORIES: group_names(document, column, bands)}
            for document, score in zip(documents, scores, strict=True)
        ]
        answers = paired_answers(task.metrics[0].selection(grouped))
        sizes: dict[str, int] = {}
        for answer in answers:
            for name in answer.categories:
                sizes[name] = sizes.get(name, 0) + 1
        totals = _pair_parts(answers, None, scores)
        names = _in_order(sizes, bands)
        by_column[column] = _compared(
            [(name, sizes[name], _pair_parts(answers, name, scores)) for name in names],
            totals,
            is_drawn=is_drawn,
        )
    return Subgroups(by_column, _column_tests(by_column, totals))


def _pair_parts(
    answers: Sequence[PairedAnswer], name: str | None, scores: ScoreList
) -> list[_Part]:
    """Return the scores of pairs and of single images, of those in a group or of all; ``scores`` tell of a draw."""
    here = [answer for answer in answers if name is None or name in answer.categories]
    pairs = complete_pairs(answers)
    images_of = {
        pair: sum(name is None or name in answer.categories for answer in (pair.first, pair.second))
        for pair in pairs
    }
    solved = mean_over_pairs(
        "set_accuracy",
        lambda pair: float(pair.solved),
        units=lambda _: pairs,
        weights=lambda units: [float(images_of[pair]) for pair in units],
    )
    by_pair = answers_by_pair(here)
    right = mean_over_answers(
        "individual_accuracy", lambda answer: answer.correct, units=lambda _: by_pair
    )
    return [
        _Part(
            solved,
            solved.estimate(scores),
            sum(images_of.values()),
            solved.deviations(scores),
            sum(map(bool, images_of.values())),
        ),
        _Part(right, right.estimate(scores), len(here), right.deviations(scores), len(by_pair)),
    ]


def _compared(
    groups: Sequence[tuple[str, int, Sequence[_Part]]], totals: Sequence[_Part], *, is_drawn: bool
) -> tuple[Group, ...]:
    """Return the groups of a column with their intervals, gaps to the others and tests; ``totals`` are of all.

    Groups of a draw are not tested: they are estimates with intervals of their own.
    """
    compared = [
        not is_drawn
        and any(part.weight for part in parts)
        and all(part.planned_size >= LEAST_EFFECTIVE for part in parts if part.weight)
        for *_, parts in groups
    ]
    level = 1 - (1 - LEVEL) / max(1, sum(compared))
    tests = []
    for position, total in enumerate(totals):
        parts = [
            of_group[position] if chosen else None
            for (*_, of_group), chosen in zip(groups, compared, strict=True)
        ]
        tests.append(_gaps(parts, total, level))
    return tuple(
        Group(
            name,
            questions,
            tuple(
                with_interval(part.metric, part.estimate, level=level if chosen else LEVEL)
                for part in parts
            ),
            compared=chosen,
            drawn=is_drawn,
            p_holm=tuple(p for _, p in of_group),
            gaps=tuple(gap for gap, _ in of_group),
        )
        for (name, questions, parts), chosen, of_group in zip(
            groups, compared, zip(*tests, strict=True), strict=True
        )
    )


def _gaps(
    parts: Sequence[_Part | None], total: _Part, level: float
) -> list[tuple[EstimatedValue, float]]:
    """Return the gap of each group to the others and its p-value, corrected for the groups; NaN if not compared.

    Of two groups in all, either one is tested against the other: one gap, at the level of a single one.
    """
    are_two = len(parts) == 2
    gaps = [
        _difference(part, total, LEVEL if are_two else level)
        if part
        else (EstimatedValue(math.nan), math.nan)
        for part in parts
    ]
    if not are_two:
        corrected = iter(holm([p for _, p in gaps if not math.isnan(p)]))
        return [(gap, p if math.isnan(p) else next(corrected)) for gap, p in gaps]
    if (
        all(parts) and sum(part.weight for part in parts if part) == total.weight
    ):  # one test, seen from both sides
        gap, p = gaps[0]
        gaps[1] = EstimatedValue(-gap.value, gap.error, -gap.high, -gap.low), p
    return gaps


def _difference(part: _Part, total: _Part, level: float) -> tuple[EstimatedValue, float]:
    """Return the gap of a group to all other samples with its interval, and the p-value of its test.

    Both are NaN if the others are too few. Samples outside are taken to be worth as much each as all are on average.
    """
    weight, degrees = total.weight - part.weight, part.estimate.degrees
    if (
        not part.weight
        or without_noise(total.planned_size * weight / total.weight) < LEAST_EFFECTIVE
    ):
        return EstimatedValue(math.nan), math.nan
    size = total.size * weight / total.weight
    value = (total.estimate.value * total.weight - part.estimate.value * part.weight) / weight
    if is_share := part.metric.is_share(part.estimate.value, total.estimate.value):
        value = min(max(value, 0.0), 1.0)
        others = Estimate(
            value, math.sqrt(value * (1 - value) / size), degrees=degrees, effective=size
        )
    else:
        others = Estimate(
            value, total.estimate.error * math.sqrt(total.weight / weight), degrees=degrees
        )
    correlation = _correlation(part, total)
    scores = [
        with_interval(part.metric, estimate, level=level) for estimate in (part.estimate, others)
    ]
    group, rest = (
        EstimatedValue(score.value, score.error, score.low, score.high) for score in scores
    )
    gap = difference_of_values(group, rest, correlation)
    if is_share:
        return gap, difference_of_shares(
            (part.estimate.value, value), (part.size, size), degrees, correlation
        )
    error = gap.error if gap.error > 0 else math.nan
    return gap, min(1.0, 2 * exceeding(abs(gap.value) / error, degrees or math.inf))


def _correlation(part: _Part, total: _Part) -> float:
    """Return the correlation of the means of a group and of all other samples, which may share patients or images."""
    share = part.weight / total.weight
    others = {
        unit: (deviation - share * part.deviations.get(unit, 0.0)) / (1 - share)
        for unit, deviation in total.deviations.items()
    }
    variances = covariance(part.deviations, part.deviations), covariance(others, others)
    if not min(variances) > 0:
        return 0.0
    correlation = covariance(part.deviations, others) / math.sqrt(variances[0] * variances[1])
    return min(max(correlation, -1.0), 1.0)


def _column_tests(
    by_column: Mapping[str, tuple[Group, ...]], totals: Sequence[_Part]
) -> dict[str, tuple[ColumnTest, ...]]:
    """Return one test per column and main metric, corrected for all of them.

    Only a test that rejects after this correction names a group: the one with the smallest p-value.
    """
    overall = [with_interval(total.metric, total.estimate) for total in totals]
    tests: dict[tuple[str, int], ColumnTest] = {}
    for column, groups in by_column.items():
        for position, score in enumerate(overall):
            tested = [group for group in groups if not math.isnan(group.p_holm[position])]
            if not tested:
                continue
            # Of two groups, which have one test, the worse one comes first.
            sign = -1 if score.higher_is_better is False else 1
            first = min(
                tested,
                key=lambda group: (group.p_holm[position], sign * group.gaps[position].value),
            )
            tests[column, position] = ColumnTest(score, first.name, first.p_holm[position])
    corrected = holm([test.p for test in tests.values()])
    by_name: dict[str, list[ColumnTest]] = {column: [] for column in by_column}
    for ((column, _), test), p in zip(tests.items(), corrected, strict=True):
        by_name[column].append(
            replace(test, different=test.different if p < ALPHA else "", p_holm=p)
        )
    return {column: tuple(of_column) for column, of_column in by_name.items()}


def with_interval(
    metric: Declaration, estimate: Estimate, *, no_image: bool = False, level: float = LEVEL
) -> MetricScore:
    """Return the estimate of a metric with its interval.

    A 0 that follows from the lack of images, as set accuracy's where both images of a pair get one prompt, has none.
    """
    by_construction = no_image and metric.zero_if_blind and estimate.value == 0
    if by_construction:
        estimate = replace(estimate, error=math.nan)
    share = metric.is_share(estimate.value)
    ends = estimate.ends or interval(
        estimate.value, estimate.error, estimate.degrees, share, estimate.effective, level
    )
    has_error = estimate.clusters is not None
    return MetricScore(
        *(
            metric.name,
            estimate.value,
            estimate.error,
            *ends,
            share,
            metric.higher_is_better,
            has_error,
        ),
        by_construction=by_construction,
        clusters=estimate.clusters,
        unit=estimate.unit,
        components=estimate.components,
        most_shared=estimate.most_shared,
    )
