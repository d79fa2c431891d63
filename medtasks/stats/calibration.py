"""Do a model's likelihoods say how often it is right?"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """A measure with its 95 % interval; ends are NaN where the samples do not tell."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """Samples of similar confidence.

    Attributes:
        low: Lower edge of the confidence, excluded but for 0.
        high: Upper edge, included.
        samples: How many.
        confidence: Their mean confidence; NaN if empty.
        accuracy: Share of right answers; NaN if empty.
    """

    low: float
    high: float
    samples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class CoveragePoint:
    """What a model that only answers when it is confident would score.

    Attributes:
        coverage: Share of questions answered.
        accuracy: Share of right answers among them.
        confidence: The least confidence answered.
    """

    coverage: float
    accuracy: float
    confidence: float


@dataclass(frozen=True)
class Calibration:
    """Calibration of one set of likelihoods.

    Attributes:
        samples: How many samples have likelihoods that can be read.
        left_out: How many have not.
        accuracy: Share of right answers.
        confidence: Mean probability of the chosen option.
        ece: Expected calibration error.
        brier: Multi-class Brier score.
        bins: Reliability diagram.
        coverage: Accuracy against coverage, from full coverage down.
        aurc: Area under the risk-coverage curve.
        note: What the probabilities are, one sentence.
    """

    samples: int
    left_out: int
    accuracy: Measure
    confidence: float
    ece: Measure
    brier: Measure
    bins: tuple[Bin, ...]
    coverage: tuple[CoveragePoint, ...]
    aurc: Measure
    note: str
