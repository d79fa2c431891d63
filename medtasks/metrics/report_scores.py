"""What a metric of report texts gives, and metrics that compare one pair after the other."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class ReportScores:
    """Scores of pairs of texts: by key one value per pair, and one for all pairs, NaN for no pairs.

    Every key of ``samples`` is one of ``totals``, as its mean unless the metric says otherwise; some keys have no value
    per pair.
    """

    samples: Mapping[str, Sequence[float]]  # shape (pairs,), in the order of the input, empty texts included
    totals: Mapping[str, float]
    settings: Mapping[str, str] = field(default_factory=dict)  # what the numbers depend on: model, dtype, stemmer, ...


class ReportMetric(Protocol):
    """Scores hypotheses against references."""

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score what a model wrote against what radiologists wrote, each of shape (pairs,).

        Raises a ValueError where the two differ in length, WeightsMissing for a model that is not on this machine.
        """
        ...


def mean(values: Sequence[float]) -> float:
    """Return the mean, the same in whatever order; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def mean_scores(samples: Mapping[str, Sequence[float]], settings: Mapping[str, str]) -> ReportScores:
    """Return scores whose totals are the means of their values of pairs."""
    return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, settings)


def check_lengths(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Raise a ValueError for texts that do not come in pairs."""
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references and {len(hypotheses)} hypotheses do not come in pairs")


def pair_metric(
    keys: Sequence[str], score: Callable[[str, str], Sequence[float]], settings: Mapping[str, str]
) -> ReportMetric:
    """Return a metric whose totals are means of its values of pairs.

    ``score`` returns those of one pair (reference, hypothesis), in the order of their names, ``keys``.
    """

    def score_pairs(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        rows = [score(*pair) for pair in zip(references, hypotheses, strict=True)]
        return mean_scores({key: [row[place] for row in rows] for place, key in enumerate(keys)}, settings)

    return score_pairs
