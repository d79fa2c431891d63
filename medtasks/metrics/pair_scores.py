"""Metrics that compare one pair of texts after the other."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from medtasks.metrics.report_scores import ReportScores


def check_lengths(references: Sequence[str], hypotheses: Sequence[str]) -> None:
    """Refuse texts that do not come in pairs.

    Raises:
        ValueError: The two differ in length.
    """
    if len(references) != len(hypotheses):
        raise ValueError(f"{len(references)} references and {len(hypotheses)} hypotheses do not come in pairs")


@dataclass(frozen=True)
class PairMetric:
    """A metric whose totals are means of its values of pairs.

    Attributes:
        keys: Names of its values.
        score: Returns the values of one pair (reference, hypothesis), in the order of ``keys``.
        settings: What the numbers depend on.
    """

    keys: tuple[str, ...]
    score: Callable[[str, str], Sequence[float]]
    settings: Mapping[str, str]

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts; see :class:`medtasks.metrics.report_scores.ReportMetric`."""
        check_lengths(references, hypotheses)
        rows = [self.score(*pair) for pair in zip(references, hypotheses, strict=True)]
        samples = {key: [row[position] for row in rows] for position, key in enumerate(self.keys)}
        totals = {key: math.fsum(values) / len(rows) if rows else math.nan for key, values in samples.items()}
        return ReportScores(samples, totals, self.settings)
