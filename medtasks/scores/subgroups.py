"""Scores of groups of samples, by the columns that a task or the user names.

Intervals of the groups of a column are simultaneous (Bonferroni), and each group is tested against all other samples,
corrected for the groups (Holm). The smallest of these p-values tests whether any group differs. That is one test per
column and main metric, and these are corrected together (Holm). Groups worth less than
:data:`LEAST_EFFECTIVE` samples are shown with their own 95 % interval and are not compared, nor is a group whose others
are so few. That is decided by the design, the numbers and clusters of samples, never by the replies.

A column of many numbers, such as age, is grouped by quarters of the samples. Scores of a task
(:mod:`medtasks.scores.scoring`) and reports call this. It reads no files and never shows values of credentialed data
that the task does not name.
"""

import bisect
import contextlib
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from typing import Any

from medtasks.data.samples import Document, Documents
from medtasks.data.selecting import values
from medtasks.errors import RepliesError, join_names, near_match
from medtasks.families.counts import is_failed, is_stopped, is_unjudged
from medtasks.families.paired_choice import mean_over_answers, mean_over_pairs, paired_answers
from medtasks.metrics.metric import (
    Declaration,
    Estimate,
    Metric,
    Role,
    Score,
    ScoreList,
    units_by_cluster,
    with_image_clusters,
)
from medtasks.metrics.pairs import PairedAnswer, answers_by_pair, complete_pairs
from medtasks.scores.score_model import ColumnTest, Group, Groups, MetricScore
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


_NO_GAP = (EstimatedValue(math.nan), math.nan)  # with its p-value


@dataclass(frozen=True)
class Subgroups:
    """Groups of a task's samples, and whether they differ, by column."""

    groups: Mapping[str, Groups]
    # One test per main metric. There is none if no group was compared.
    tests: Mapping[str, tuple[ColumnTest, ...]]


@dataclass(frozen=True)
class _Part:
    """One metric of one group, or of all samples."""

    metric: Declaration
    estimate: Estimate
    weight: float  # samples with a value; for scores of pairs, their images
    # From the mean, over the weight, by patient, image or dyad.
    deviations: Mapping[frozenset[Hashable], float]
    pairs: int = 0  # of which each is one unit; 0 if samples are the units

    @property
    def size(self) -> float:
        """Number of independent samples with the same standard error."""
        effective = self.estimate.effective
        return without_noise(self.weight if effective is None else effective)

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


_Parts = Sequence[_Part]
"""Parts of one group or of all samples, one per metric."""


def grouped_by(task: TaskFile, documents: Documents, by: Sequence[str]) -> TaskFile:
    """Return a task that groups its samples by further columns of its documents.

    Args:
        task: The task.
        documents: All its documents, shape (samples,).
        by: Names of the columns, added to those that the task groups by itself.

    Raises:
        RepliesError: The task has nothing to compare, lacks a column, may not show its values, or has too few or too
            many of them.
    """
    if not by:
        return task
    if not task.family.paired and not _group_metrics(task):
        raise RepliesError(
            f"'{task.name}' has no main score of single samples or pairs, so that --by cannot group it"
        )
    hidden = [column for column in by if column not in task.breakdown]
    if hidden and is_private_task(task, documents):
        raise _withheld_column(task, hidden[0])
    for column in by:
        _check_column(task, documents, column)
    return replace(task, breakdown=tuple(dict.fromkeys((*task.breakdown, *by))))


def _check_column(task: TaskFile, documents: Documents, column: str) -> None:
    """Raise RepliesError unless documents have a column, with 1 to :data:`MOST_GROUPS` different values or bands."""
    columns = dict.fromkeys(chain.from_iterable(documents))
    if column not in columns:
        hint = near_match(column, columns) or "."
        raise RepliesError(
            f"'{task.name}' has no column '{column}'{hint} Its columns: {', '.join(columns)}"
        )
    names: set[str] = set()
    bands = number_bands(documents, column)
    for document in documents:
        names.update(group_names(document, column, bands))
    if not 0 < len(names) <= MOST_GROUPS:
        raise RepliesError(
            f"column '{column}' of '{task.name}' has {len(names)} different values, and groups need 1 to "
            f"{MOST_GROUPS}; add a column with bands or kinds to the data"
        )


def _withheld_column(task: TaskFile, column: str) -> RepliesError:
    """Return the error of grouping a credentialed task by a column whose values it may not show."""
    allowed = f"by {join_names(task.breakdown)} only" if task.breakdown else "by no column"
    return RepliesError(
        f"'{task.name}' is credentialed and can be grouped {allowed}, because values of '{column}' are text of the "
        "dataset; MEDTASKS_LOG_TEXT with its name allows to show them"
    )


def number_bands(documents: Documents, column: str) -> dict[str, str]:
    """Return the names of groups by the texts of a column's numbers, in ascending order of the numbers.

    Groups are quarters of the values, named by their smallest and largest one. Equal numbers are in the quarter of the
    middle one, so that groups may be fewer or of unequal size. A column of at most :data:`MOST_STEPS` different numbers
    has none.

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
    if len(set(ordered)) <= MOST_STEPS:
        return {}
    names: dict[float, str] = {}
    for band in _quarters(ordered):
        ends = dict.fromkeys(f"{number:.15g}" for number in (band[0], band[-1]))
        names |= dict.fromkeys(band, f"{column} {' to '.join(ends)}")
    return {text: names[numbers[text]] for text in sorted(numbers, key=numbers.__getitem__)}


def _quarters(ordered: Sequence[float]) -> Iterable[list[float]]:
    """Return the different numbers of each quarter of numbers, all in ascending order.

    Equal numbers are in the quarter of the middle one, so that quarters may be fewer than four.
    """
    quarters: dict[int, list[float]] = {}
    for number in sorted(set(ordered)):
        first = bisect.bisect_left(ordered, number)
        end = bisect.bisect_right(ordered, number)
        quarters.setdefault(int(4 * (first + end) / 2 / len(ordered)), []).append(number)
    return quarters.values()


def group_names(document: Document, column: str, bands: Mapping[str, str]) -> list[str]:
    """Return the groups of a document in a column.

    Args:
        document: The document.
        column: Name of the column.
        bands: Its :func:`number_bands`. If it has any, documents without a number are a group of their own.

    Example:
        >>> group_names({"site": ["neck", "chest"]}, "site", {})
        ['neck', 'chest']
        >>> group_names({"age": None}, "age", {"40": "age 40"})
        ['age not given']
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
    """Compare the main scores of groups of samples, by the columns that a task names.

    Groups of numbers are in ascending order, others start with the largest. A document with several values counts in
    each of their groups. There are no groups without a main score of single samples, nor where the published code
    stops.

    Args:
        task: The task.
        documents: Documents, shape (samples,).
        scores: Final scores (:meth:`TaskFamily.final_scores`), shape (samples,).
    """
    metrics = _group_metrics(task)
    if not metrics or not task.breakdown or is_stopped(scores):
        return Subgroups({}, {})
    # Patients of different groups that share an image, too
    joined = with_image_clusters(scores)
    answered = [pair for pair in zip(documents, joined, strict=True) if not is_failed(pair[1])]
    is_drawn = bool(units_by_cluster(scores))
    by_column: dict[str, tuple[Group, ...]] = {}
    totals = _sample_parts(metrics, [score for _, score in answered])
    for column in task.breakdown:
        bands = number_bands(documents, column)
        groups: dict[str, list[Score]] = {}
        for document, score in answered:
            for name in group_names(document, column, bands):
                groups.setdefault(name, []).append(score)
        sizes = {name: len(members) for name, members in groups.items()}
        parts = []
        for name in _in_order(sizes, bands):
            questions = sizes[name] - sum(map(is_unjudged, groups[name]))
            parts.append((name, questions, _sample_parts(metrics, groups[name])))
        by_column[column] = _compare_groups(parts, totals, is_drawn=is_drawn)
    return _with_tests(by_column, totals)


def _sample_parts(metrics: Sequence[Metric[Any]], members: ScoreList) -> list[_Part]:
    """Return one part per metric, from the scores of a group or of all samples."""
    parts = []
    for metric in metrics:
        weight = len(metric.values(members))
        parts.append(
            _Part(metric, metric.estimate(members), weight, metric.deviations(members))
        )
    return parts


def by_category(
    task: TaskFile,
    documents: Documents,
    scores: ScoreList,
    columns: Sequence[str],
) -> Subgroups:
    """Compare set accuracy and individual accuracy by medical area, or by other columns of the images.

    A pair counts once for each of its images in a group, as in the benchmark. Groups of a random draw are not tested.

    Args:
        task: A task of pairs.
        documents: Documents, or scores that hold the columns, shape (samples,).
        scores: Final scores, shape (samples,).
        columns: :data:`CATEGORIES` for medical areas, which the scores hold, or columns of the documents.
    """
    by_column: dict[str, tuple[Group, ...]] = {}
    totals: list[_Part] = []
    is_drawn = bool(units_by_cluster(scores))
    for column in columns:
        bands: dict[str, str] = {}
        grouped = scores
        if column != CATEGORIES:
            bands = number_bands(documents, column)
            grouped = []
            for document, score in zip(documents, scores, strict=True):
                names = group_names(document, column, bands)
                grouped.append({**score, CATEGORIES: names})
        answers = paired_answers(task.metrics[0].selection(grouped))
        sizes = Counter(chain.from_iterable(answer.categories for answer in answers))
        totals = _pair_parts(answers, None, scores)
        parts = []
        for name in _in_order(sizes, bands):
            parts.append((name, sizes[name], _pair_parts(answers, name, scores)))
        by_column[column] = _compare_groups(parts, totals, is_drawn=is_drawn)
    return _with_tests(by_column, totals)


def _pair_parts(
    answers: Sequence[PairedAnswer],
    category: str | None,
    scores: ScoreList,
) -> list[_Part]:
    """Return the scores of pairs and of single images in a category, or in all if it is None.

    A pair weighs as much as it has images in the category: 0, 1 or 2.

    Args:
        answers: One per image of a pair.
        category: Name of the category.
        scores: Of the whole run. No value is taken from them, only whether samples were drawn from a larger set.

    Returns:
        Set accuracy over complete pairs, and accuracy over single images.
    """

    def is_inside(image: PairedAnswer) -> bool:
        return category is None or category in image.categories

    images = list(filter(is_inside, answers))
    pairs = complete_pairs(answers)
    weights = {}
    for pair in pairs:
        weights[pair] = sum(map(is_inside, (pair.first, pair.second)))
    solved = mean_over_pairs(
        "set_accuracy",
        lambda pair: float(pair.both_correct),
        units=lambda _: pairs,
        weights=lambda units: [float(weights[pair]) for pair in units],
    )
    by_pair = answers_by_pair(images)
    correct = mean_over_answers(
        "individual_accuracy", lambda answer: answer.correct, units=lambda _: by_pair
    )
    return [
        _Part(
            solved,
            solved.estimate(scores),
            weight=sum(weights.values()),
            deviations=solved.deviations(scores),
            pairs=sum(map(bool, weights.values())),
        ),
        _Part(
            correct,
            correct.estimate(scores),
            weight=len(images),
            deviations=correct.deviations(scores),
            pairs=len(by_pair),
        ),
    ]


def _compare_groups(
    groups: Sequence[tuple[str, int, _Parts]],
    totals: _Parts,
    *,
    is_drawn: bool,
) -> Groups:
    """Return the groups of a column with their intervals, gaps to the others and tests.

    Groups of a draw are not tested: they are estimates with intervals of their own.

    Args:
        groups: Name, number of questions and one part per metric.
        totals: All samples, one part per metric.
        is_drawn: Whether samples are a draw from a benchmark.
    """
    compared = [not is_drawn and _is_large(parts) for *_, parts in groups]
    level = 1 - (1 - LEVEL) / max(1, sum(compared))
    tests = []
    for position, total in enumerate(totals):
        of_metric = [parts[position] for *_, parts in groups]
        tests.append(_gaps(of_metric, compared, total, level))
    tested = []
    for index, (name, questions, parts) in enumerate(groups):
        of_group = level if compared[index] else LEVEL
        scores = [with_interval(part.metric, part.estimate, level=of_group) for part in parts]
        gaps, p_values = zip(*[of_metric[index] for of_metric in tests], strict=True)
        tested.append(
            Group(
                name,
                questions,
                tuple(scores),
                compared=compared[index],
                drawn=is_drawn,
                p_holm=p_values,
                gaps=gaps,
            )
        )
    return tuple(tested)


def _is_large(parts: _Parts) -> bool:
    """Return whether a group is large enough to be compared by each metric that has a value."""
    sizes = [part.planned_size for part in parts if part.weight]
    return min(sizes, default=0.0) >= LEAST_EFFECTIVE


def _gaps(
    parts: Sequence[_Part],
    compared: Sequence[bool],
    total: _Part,
    level: float,
) -> list[tuple[EstimatedValue, float]]:
    """Return the gap of each group to the others and its p-value, corrected for the groups.

    Both are NaN for a group that is not compared. Of two groups in all, either one is tested against the other: one
    gap, at the level of a single one.
    """
    are_two = len(parts) == 2
    gaps = [_NO_GAP] * len(parts)
    for index in compress(range(len(parts)), compared):
        gaps[index] = _difference(parts[index], total, LEVEL if are_two else level)
    if not are_two:
        return _with_corrected_p(gaps)
    # Of groups that are all samples there is one test, seen from both sides.
    if all(compared) and sum(part.weight for part in parts) == total.weight:
        first, p = gaps[0]
        gaps[1] = EstimatedValue(-first.value, first.error, -first.high, -first.low), p
    return gaps


def _with_corrected_p(
    gaps: Sequence[tuple[EstimatedValue, float]],
) -> list[tuple[EstimatedValue, float]]:
    """Return gaps with p-values corrected for their number (Holm). One that is NaN stays so, and is not counted."""
    corrected = iter(holm([p for _, p in gaps if not math.isnan(p)]))
    return [(gap, p if math.isnan(p) else next(corrected)) for gap, p in gaps]


def _difference(part: _Part, total: _Part, level: float) -> tuple[EstimatedValue, float]:
    """Return the gap of a group to all other samples with its interval, and the p-value of its test.

    Both are NaN if no sample of the group has a value, or the others are too few. Samples outside are taken to be worth
    as much each as all are on average.
    """
    weight = total.weight - part.weight
    if not part.weight:
        return _NO_GAP
    if without_noise(total.planned_size * weight / total.weight) < LEAST_EFFECTIVE:
        return _NO_GAP
    degrees = part.estimate.degrees
    size = total.size * weight / total.weight
    value = (total.estimate.value * total.weight - part.estimate.value * part.weight) / weight
    is_share = part.metric.is_share(part.estimate.value, total.estimate.value)
    if is_share:
        value = min(max(value, 0.0), 1.0)
        error = math.sqrt(value * (1 - value) / size)
        others = Estimate(value, error, degrees=degrees, effective=size)
    else:
        error = total.estimate.error * math.sqrt(total.weight / weight)
        others = Estimate(value, error, degrees=degrees)
    correlation = _correlation(part, total)
    sides = []
    for estimate in (part.estimate, others):
        score = with_interval(part.metric, estimate, level=level)
        sides.append(EstimatedValue(score.value, score.error, score.low, score.high))
    gap = difference_of_values(sides[0], sides[1], correlation)
    if is_share:
        shares = (part.estimate.value, value)
        return gap, difference_of_shares(shares, (part.size, size), degrees, correlation)
    error = gap.error if gap.error > 0 else math.nan
    return gap, min(1.0, 2 * exceeding(abs(gap.value) / error, degrees or math.inf))


def _correlation(part: _Part, total: _Part) -> float:
    """Return the correlation of the means of a group and of all other samples, which may share patients or images.

    It is 0 if one of the means does not vary.
    """
    share = part.weight / total.weight
    others = {}
    for unit, deviation in total.deviations.items():
        others[unit] = (deviation - share * part.deviations.get(unit, 0.0)) / (1 - share)
    variance = covariance(part.deviations, part.deviations)
    variance_of_others = covariance(others, others)
    if not min(variance, variance_of_others) > 0:
        return 0.0
    correlation = covariance(part.deviations, others) / math.sqrt(variance * variance_of_others)
    return min(max(correlation, -1.0), 1.0)


def _with_tests(by_column: Mapping[str, Groups], totals: _Parts) -> Subgroups:
    """Add one test per column and main metric to groups by column, corrected for all of these tests.

    Only a test that rejects after this correction names a group: the one with the smallest p-value. There is no test
    where no group was compared.
    """
    overall = [with_interval(total.metric, total.estimate) for total in totals]
    tests: dict[tuple[str, int], ColumnTest] = {}
    for column, groups in by_column.items():
        for position, score in enumerate(overall):
            first = _most_different(groups, position, score.higher_is_better)
            if first is not None:
                tests[column, position] = ColumnTest(score, first.name, first.p_holm[position])
    by_name: dict[str, tuple[ColumnTest, ...]] = dict.fromkeys(by_column, ())
    corrected = holm([test.p for test in tests.values()])
    for ((column, _), test), p in zip(tests.items(), corrected, strict=True):
        different = test.different if p < ALPHA else ""
        by_name[column] += (replace(test, different=different, p_holm=p),)
    return Subgroups(by_column, by_name)


def _most_different(
    groups: Sequence[Group], position: int, higher_is_better: bool | None
) -> Group | None:
    """Return the group with the smallest p-value under a metric, or None if none was tested.

    Of two groups, which have one test, the worse one comes first.
    """
    sign = -1 if higher_is_better is False else 1
    tested = [group for group in groups if not math.isnan(group.p_holm[position])]
    return min(
        tested,
        key=lambda group: (group.p_holm[position], sign * group.gaps[position].value),
        default=None,
    )


def with_interval(
    metric: Declaration,
    estimate: Estimate,
    *,
    no_image: bool = False,
    level: float = LEVEL,
) -> MetricScore:
    """Return the estimate of a metric with its interval.

    Args:
        metric: The metric.
        estimate: Its value, with its standard error and degrees of freedom.
        no_image: Whether prompts hold no image. A 0 that follows from that, as set accuracy's where both images of a
            pair get one prompt, has no interval.
        level: Confidence level of the interval.
    """
    by_construction = no_image and metric.zero_if_blind and estimate.value == 0
    if by_construction:
        estimate = replace(estimate, error=math.nan)
    share = metric.is_share(estimate.value)
    ends = estimate.ends or interval(
        estimate.value, estimate.error, estimate.degrees, share, estimate.effective, level
    )
    return MetricScore(
        metric.name,
        estimate.value,
        estimate.error,
        *ends,
        share,
        metric.higher_is_better,
        has_error=estimate.clusters is not None,
        by_construction=by_construction,
        clusters=estimate.clusters,
        unit=estimate.unit,
        components=estimate.components,
        most_shared=estimate.most_shared,
    )
