"""Accuracies over closed questions, some of which have no score of their own.

MedHEval's released evaluator averages per source of images and type of hallucination, and weights each average by all
its questions, also by those it had to skip. So a skipped question counts like the average one of its cell, which is a
cell of source, type and kind of question. The defensible way is to leave it out. Both are weighted means.
"""

import enum
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from medtasks.stats.standard_error import clustered_standard_error


class Counted(enum.StrEnum):
    """How a question enters the accuracies."""

    SCORED = "scored"
    LEFT_OUT = "left_out"
    AVERAGED = "averaged"  # not scored, but it counts as many times as the average question of its cell


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    """One question with its score.

    Attributes:
        sample: Unique in the set.
        unit: What it shares with questions that are not independent of it: patient or image.
        cell: Source of images, type of hallucination and kind of question.
        counted: How it enters an accuracy.
        values: Scores by name, each between 0 and 1.
    """

    sample: str
    unit: str
    cell: Hashable
    counted: Counted
    values: dict[str, float]


Value = Callable[[ScoredQuestion], float]


def weights(questions: Sequence[ScoredQuestion]) -> list[float]:
    """Return how often each question counts: 0 for one without a score, else 1 and its part of the averaged ones.

    Averaged questions of a cell without any scored one do not count.

    Example:
        >>> cell = [ScoredQuestion(str(n), "u", "c", Counted.SCORED if n else Counted.AVERAGED, {}) for n in range(3)]
        >>> weights(cell)
        [0.0, 1.5, 1.5]
    """
    scored = Counter(question.cell for question in questions if question.counted is Counted.SCORED)
    averaged = Counter(question.cell for question in questions if question.counted is Counted.AVERAGED)
    return [
        1.0 + averaged[question.cell] / scored[question.cell] if question.counted is Counted.SCORED else 0.0
        for question in questions
    ]


def weighted_mean(values: Sequence[float], by: Sequence[float]) -> float:
    """Return the weighted mean, the same in any order; NaN where all weights are 0.

    Example:
        >>> weighted_mean([1.0, 0.0], [3.0, 1.0])
        0.75
    """
    total = math.fsum(by)
    return math.fsum(value * weight for value, weight in zip(values, by, strict=True)) / total if total else math.nan


def weighted_standard_error(values: Sequence[float], by: Sequence[float], units: Sequence[str]) -> float:
    """Return the standard error of the weighted mean with values of one unit not independent.

    The mean is a ratio; its error is that of the weighted deviations from it (Liang and Zeger, 1986, as in
    :func:`~medtasks.stats.standard_error.clustered_standard_error`). Values without weight do not count.

    Args:
        values: Shape (n,).
        by: Weight of each value, not negative, shape (n,).
        units: Unit of each value, shape (n,).

    Returns:
        The error; NaN for fewer than two units with weight.
    """
    mean = weighted_mean(values, by)
    counted = [(value, weight, unit) for value, weight, unit in zip(values, by, units, strict=True) if weight]
    scale = len(counted) / math.fsum(weight for _, weight, _ in counted) if counted else 0.0
    deviations = [(value - mean) * weight * scale for value, weight, _ in counted]
    return clustered_standard_error(deviations, [unit for *_, unit in counted])


def accuracy(questions: Sequence[ScoredQuestion], name: str) -> float:
    """Return the mean of one score over all questions, NaN where none is scored."""
    return weighted_mean([question.values[name] for question in questions], weights(questions))


def accuracy_error(questions: Sequence[ScoredQuestion], name: str) -> float:
    """Return the clustered standard error of :func:`accuracy`; the order of the questions does not change a digit."""
    ordered = sorted(questions, key=lambda question: question.sample)
    return weighted_standard_error(
        [question.values[name] for question in ordered], weights(ordered), [question.unit for question in ordered]
    )
