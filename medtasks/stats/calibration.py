"""Do a model's likelihoods say how often it is right?

Confidence is the largest probability. Options that share it are not told apart: the answer counts as the expected one
of a random choice among them, so that no order of options helps. ``Calibration.accuracy`` therefore differs from the
accuracy of a rule that takes the first, the last or none of tied options, and only by these ties.

- *Expected calibration error*: mean distance between confidence and accuracy in 15 bins of equal width, weighted by
  their samples (Guo et al., 2017, "On Calibration of Modern Neural Networks", equation 3). A value of 0 means that
  confidences are right on average, not that they are useful.
- *Brier score*: squared distance between the probabilities of all options and the target, summed over options (Brier,
  1950): 0 at best, 2 at worst, ``1 - 1 / k`` for k equal probabilities. With two options it is twice scikit-learn's.
- *AURC*, area under the risk-coverage curve: mean over samples of the share of wrong answers among those of at least
  the same confidence (Geifman, Uziel and El-Yaniv, 2019); 0 at best, smaller is better. Equal confidences enter
  together.

Intervals are over units such as patients or pairs. That of accuracy is the one of scores
(:mod:`medtasks.stats.intervals`), those of Brier score and AURC are the middle 95 % of bootstrap draws. The calibration
error of few samples is too large: a perfectly calibrated model with 352 answers has about 0.06 where 0 is true, and
bootstrap draws are larger still, see :func:`medtasks.stats.calibration_bootstrap.error_interval` for what is done.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medtasks.stats import calibration_bootstrap
from medtasks.stats.calibration_bootstrap import BINS, Answers
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import clustered_standard_error

CURVE_POINTS = 200  # the most of a coverage curve; of more, those nearest to equal steps of coverage are kept
_ROUNDING = 12  # digits; equal probabilities may differ behind them by the order of a sum
_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Measure:
    """A measure with its 95 % interval; ends are NaN where the samples do not tell."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """Samples of similar confidence, above ``low`` (but for 0) and up to ``high``, and their means; NaN if empty."""

    low: float
    high: float
    samples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class CoveragePoint:
    """The accuracy of a model that only answers a share of questions, from some least confidence up."""

    coverage: float
    accuracy: float
    confidence: float


@dataclass(frozen=True)
class Calibration:
    """Calibration of one set of likelihoods."""

    samples: int  # with likelihoods that can be read, and a target
    left_out: int
    accuracy: Measure  # a tie among n options with the target counts 1 / n
    confidence: float  # mean probability of the chosen option
    ece: Measure
    brier: Measure
    bins: tuple[Bin, ...]  # reliability diagram
    coverage: tuple[CoveragePoint, ...]  # from full coverage down; at most CURVE_POINTS
    aurc: Measure
    note: str  # what the probabilities are, one sentence


def calibration(
    probabilities: Sequence[Sequence[float]],
    targets: Sequence[int],
    units: Sequence[Hashable],
    note: str,
    left_out: int,
) -> Calibration:
    """Return the calibration of a model's probabilities; the result does not depend on the order of the samples.

    Those of a sample's options sum to 1; their number may differ between samples. ``targets`` are indices of the right
    option, ``units`` what is independent, such as the patient, both of shape (samples,). Measures are NaN without
    samples, their intervals also with a single unit.

    Example:
        >>> measured = calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 0, 1, 1], range(4), "", 0)
        >>> measured.accuracy.value, measured.confidence, round(measured.ece.value, 3), round(measured.brier.value, 3)
        (0.75, 0.75, 0.3, 0.25)
    """
    if not len(probabilities) == len(targets) == len(units):
        raise ValueError(
            f"expected as many keys and units as samples, but got {len(probabilities)}, {len(targets)} and {len(units)}"
        )
    rows = [_answer(row, target) for row, target in zip(probabilities, targets, strict=True)]
    if not rows:
        nothing, empty = Measure(math.nan, math.nan, math.nan), np.array([], dtype=float)
        return Calibration(0, left_out, nothing, math.nan, nothing, nothing, _bins(empty, empty), (), nothing, note)
    answers = Answers.of(rows, units)
    drawn = calibration_bootstrap.draws(answers)
    accuracy, brier = _mean(answers.right), _mean(answers.squares)
    error = clustered_standard_error(answers.right.tolist(), answers.unit.tolist())
    ece, aurc = answers.calibration_error(), answers.risk_coverage_area()
    return Calibration(
        samples=len(rows),
        left_out=left_out,
        accuracy=Measure(accuracy, *interval(accuracy, error, answers.units, share=True)),
        confidence=_mean(answers.confidence),
        ece=Measure(ece, *calibration_bootstrap.error_interval(ece, drawn)),
        brier=Measure(brier, *calibration_bootstrap.percentiles(drawn.brier)),
        bins=_bins(answers.confidence, answers.right),
        coverage=_curve(answers),
        aurc=Measure(aurc, *calibration_bootstrap.percentiles(drawn.aurc)),
        note=note,
    )


def _answer(row: Sequence[float], target: int) -> calibration_bootstrap.Sample:
    # Also NaN fails these comparisons.
    if not (all(0 <= value <= 1 for value in row) and abs(math.fsum(row) - 1) <= _SUM_TOLERANCE):
        raise ValueError(f"expected probabilities of options that sum to 1, but got {list(row)}")
    if not 0 <= target < len(row):
        raise ValueError(f"expected the index of one of {len(row)} options as key, but got {target}")
    rounded = [round(value, _ROUNDING) for value in row]
    confidence = max(rounded)
    right = 1 / rounded.count(confidence) if rounded[target] == confidence else 0.0
    return confidence, right, math.fsum((value - (index == target)) ** 2 for index, value in enumerate(row))


def _bins(confidence: NDArray[np.float64], right: NDArray[np.float64]) -> tuple[Bin, ...]:
    of_bin = calibration_bootstrap.bin_of(confidence)
    bins = []
    for index in range(BINS):
        inside = of_bin == index
        means = (_mean(confidence[inside]), _mean(right[inside])) if inside.any() else (math.nan, math.nan)
        bins.append(Bin(index / BINS, (index + 1) / BINS, int(inside.sum()), *means))
    return tuple(bins)


def _curve(answers: Answers) -> tuple[CoveragePoint, ...]:
    """Return the points at which equal confidences have entered together, thinned out to equal steps of coverage."""
    order, last = answers.by_confidence()
    entered, right = last + 1, np.cumsum(answers.right[order])[last]
    points = [
        CoveragePoint(float(number / len(order)), float(hits / number), float(answers.confidence[order[end]]))
        for number, hits, end in zip(entered, right, last, strict=True)
    ]
    if len(points) > CURVE_POINTS:
        steps = np.linspace(entered[0], entered[-1], CURVE_POINTS)
        points = [points[index] for index in np.unique(np.searchsorted(entered, steps))]
    return tuple(reversed(points))


def _mean(values: NDArray[np.float64]) -> float:
    return math.fsum(values.tolist()) / len(values)
