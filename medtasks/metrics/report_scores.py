"""What a metric of report texts gives."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class ReportScores:
    """Scores of pairs of texts.

    Attributes:
        samples: By key one value per pair, shape (pairs,), in the order of the input, empty texts included.
        totals: By key one value for all pairs. Every key of ``samples`` is here too, as its mean unless the metric says
            otherwise; some keys have no value per pair. NaN for no pairs.
        settings: What the numbers depend on: model, dtype, stemmer, synonyms, idf, ...
    """

    samples: Mapping[str, Sequence[float]]
    totals: Mapping[str, float]
    settings: Mapping[str, str] = field(default_factory=dict)


class ReportMetric(Protocol):
    """Scores hypotheses against references."""

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts.

        Args:
            references: What radiologists wrote, shape (pairs,).
            hypotheses: What a model wrote, shape (pairs,).

        Raises:
            ValueError: The two differ in length.
            WeightsMissing: The metric is a model whose weights are not on this machine.
        """
        ...


def mean(values: Sequence[float]) -> float:
    """Return the mean, the same in whatever order; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan
