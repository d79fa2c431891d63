"""Scores with their intervals, of all samples and of groups of them.

Intervals of the groups of a column are simultaneous (Bonferroni), and each group is tested against all other samples,
corrected for the groups (Holm): some group differs at all where the smallest of these p-values says so. Groups of less
than :data:`LEAST_EFFECTIVE` samples are shown with their own 95 % interval and are not compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medtasks.audit.report.contents import Group
from medtasks.audit.report.contents import Score as ReportedScore
from medtasks.data.selecting import values
from medtasks.families.counts import is_failed, is_unjudged
from medtasks.families.paired_choice import mean_over_answers, mean_over_pairs
from medtasks.metrics.metric import Declaration, Estimate, Score
from medtasks.metrics.pairs import TOTAL, PairCounts, PairedAnswer, answers_by_pair, complete_pairs
from medtasks.stats.intervals import LEVEL, difference_of_shares, interval
from medtasks.stats.paired import holm
from medtasks.tasks.task_file import TaskFile

LEAST_EFFECTIVE = 20  # effective samples of a group that is compared
_MAIN = "accuracy"


@dataclass(frozen=True)
class _Part:
    """One metric of one group, or of all samples."""

    metric: Declaration
    estimate: Estimate
    weight: float  # samples

    @property
    def size(self) -> float:
        """Effective number of samples."""
        return self.weight if self.estimate.effective is None else self.estimate.effective


def by_group(
    task: TaskFile, documents: Sequence[Mapping[str, Any]], scores: Sequence[Score]
) -> dict[str, tuple[Group, ...]]:
    """Return the accuracy of each group of the columns that a task names, by column and value, the largest group first.

    A document with several values counts in each of their groups. There are no groups without accuracy, nor where the
    published code stops. Both lists have shape (samples,); scores are settled (:meth:`TaskFamily.settled`). In place of
    documents, scores with the same columns may group the scores.
    """
    accuracy = next((metric for metric in task.metrics if metric.name == _MAIN), None)
    if accuracy is None or any(score.get("stops") for score in scores):
        return {}

    def part(members: Sequence[Score]) -> _Part:
        # Failed ones are in no group.
        return _Part(accuracy, accuracy.estimate(members), sum(not is_unjudged(score) for score in members))

    total = part([score for score in scores if not is_failed(score)]) if task.breakdown else None
    by_column: dict[str, tuple[Group, ...]] = {}
    for column in task.breakdown:
        groups: dict[str, list[Score]] = {}
        for document, score in zip(documents, scores, strict=True):
            for value in () if is_failed(score) else values(document, column):
                groups.setdefault(value, []).append(score)
        ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        parts = [(value, [part(members)]) for value, members in ordered]
        by_column[column] = _compared(
            [(value, int(parts_of_group[0].weight), parts_of_group) for value, parts_of_group in parts],
            [total] if total else [],
        )
    return by_column


def by_category(answers: Sequence[PairedAnswer], counts: Mapping[str, PairCounts]) -> tuple[Group, ...]:
    """Return scores by medical area; a pair counts once for each of its images there, as in the benchmark."""
    pairs = complete_pairs(answers)

    def parts(name: str | None) -> list[_Part]:
        here = [answer for answer in answers if name is None or name in answer.categories]
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
        right = mean_over_answers(
            "individual_accuracy", lambda answer: answer.correct, units=lambda _: answers_by_pair(here)
        )
        return [
            _Part(solved, solved.estimate(()), sum(images_of.values())),
            _Part(right, right.estimate(()), len(here)),
        ]

    names = sorted(counts.keys() - {TOTAL}, key=lambda name: (-counts[name].images, name))
    return _compared([(name, counts[name].images, parts(name)) for name in names], parts(None))


def _compared(groups: Sequence[tuple[str, int, Sequence[_Part]]], totals: Sequence[_Part]) -> tuple[Group, ...]:
    """Return the groups of a column with their intervals and tests; ``totals`` are of all samples."""
    compared = [all(part.size >= LEAST_EFFECTIVE for part in parts) for *_, parts in groups]
    level = 1 - (1 - LEVEL) / max(1, sum(compared))
    p_values: list[list[float]] = []
    for position, total in enumerate(totals):
        of_groups = [
            _against_others(parts[position], total) if chosen else math.nan
            for (*_, parts), chosen in zip(groups, compared, strict=True)
        ]
        defined = [p for p in of_groups if not math.isnan(p)]
        # Of two groups in all, either one is tested against the other.
        corrected = iter(defined if len(groups) == 2 else holm(defined))
        p_values.append([p if math.isnan(p) else next(corrected) for p in of_groups])
    return tuple(
        Group(
            name,
            questions,
            tuple(with_interval(part.metric, part.estimate, level=level if chosen else LEVEL) for part in parts),
            compared=chosen,
            p_holm=tuple(of_metric[position] for of_metric in p_values),
        )
        for position, ((name, questions, parts), chosen) in enumerate(zip(groups, compared, strict=True))
    )


def _against_others(part: _Part, total: _Part) -> float:
    """Return the p-value of a group's difference from all other samples; NaN without others."""
    others = total.weight - part.weight
    if others <= 0:
        return math.nan
    value = (total.estimate.value * total.weight - part.estimate.value * part.weight) / others
    shares = (part.estimate.value, min(max(value, 0.0), 1.0))
    return difference_of_shares(shares, (part.size, total.size * others / total.weight), part.estimate.degrees)


def with_interval(
    metric: Declaration, estimate: Estimate, *, no_image: bool = False, level: float = LEVEL
) -> ReportedScore:
    """Return the estimate of a metric with its interval.

    A 0 that follows from the lack of images, as set accuracy's where both images of a pair get one prompt, has none.
    """
    by_construction = no_image and metric.zero_if_blind and estimate.value == 0
    if by_construction:
        estimate = replace(estimate, error=math.nan)
    share = metric.is_share(estimate.value)
    ends = estimate.ends or interval(estimate.value, estimate.error, estimate.degrees, share, estimate.effective, level)
    has_error = estimate.clusters is not None
    return ReportedScore(
        *(metric.name, estimate.value, estimate.error, *ends, share, metric.higher_is_better, has_error),
        by_construction=by_construction,
    )
