"""Calibration of a model's likelihoods: whether its confidence matches its accuracy, and the area under ROC curves.

Confidence is the largest probability. If options share it, the answer counts as the expected one of a random choice
among them, so that no order of options helps.

- *Expected calibration error*: mean distance between confidence and accuracy in 15 bins of equal width, weighted by
  their samples (Guo et al., 2017, "On Calibration of Modern Neural Networks", equation 3). The *debiased* value
  subtracts the effect of noise, as squares: ``sqrt(ece^2 - noise^2)``, 0 at least, where ``noise`` is the mean error of
  bootstrap draws whose true error is 0.
- *Brier score*: squared distance between the probabilities of all options and the target, summed over options (Brier,
  1950): 0 at best, 2 at worst. With two options it is twice scikit-learn's.
- *AURC*, area under the risk-coverage curve: mean over samples of the share of wrong answers among those of at least
  the same confidence (Geifman, Uziel and El-Yaniv, 2019); 0 at best. Equal confidences enter together.
- *AUROC of correctness*: probability that a right answer has a larger confidence than a wrong one (:func:`roc_area`).

Scores that are no probabilities, as of texts of different length, have accuracy and the last two only.

Intervals are over units such as patients or pairs: for accuracy that of scores (:mod:`medtasks.stats.intervals`), for
Brier score and AURC the middle 95 % of bootstrap draws, for the calibration error see below. Units are
drawn whole, with replacement (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). They
are sorted by content first, and the seed is fixed: the result depends on the multiset of units alone, not on the order
of samples or ranks.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from medtasks.stats.bootstrap import (
    RESAMPLES,
    SEED,
    Floats,
    Integers,
    block_sizes,
    unit_numbers,
)
from medtasks.stats.intervals import (
    LEVEL,
    UNDEFINED_ENDS,
    Ends,
    EstimatedValue,
    Pair,
    bisect,
    interval,
    t_quantile,
)
from medtasks.stats.standard_error import Units, clustered_error

Prediction = tuple[float, float, float]
"""Confidence, correctness of the answer (0 to 1), and its Brier score."""

BINS = 15
_LARGEST_DRAW = 2_000_000  # weights held at once: 16 MB
_ON_AN_EDGE = 1e-9  # in widths of a bin: 3 / 15 is an edge, whatever its digits
_ENDS = (0.025, 0.975)
CURVE_POINTS = 200  # most points of a coverage curve; of more, those nearest to equal steps of coverage are kept
_ROUNDING = 12  # digits; further ones of equal probabilities may depend on the order of a sum
_SUM_TOLERANCE = 1e-6
_NO_SPREAD = 1e-12


@dataclass(frozen=True)
class PredictionTable:
    """Sorted samples, as in :data:`Prediction`, with their units, numbered from 0. Shapes are (samples,)."""

    confidence: Floats
    right: Floats
    squares: Floats
    unit: Integers

    @classmethod
    def of(cls, samples: Sequence[Prediction], units: Units) -> "PredictionTable":
        """Sort samples, at least one, by unit, and units by their samples."""
        members: dict[Hashable, list[Prediction]] = defaultdict(list)
        for sample, unit in zip(samples, units, strict=True):
            members[unit].append(sample)
        ordered = sorted(sorted(group) for group in members.values())
        table = np.array([*itertools.chain(*ordered)], dtype=np.float64)
        sizes = [len(group) for group in ordered]
        numbers = np.repeat(np.arange(len(ordered)), sizes)
        return cls(table[:, 0], table[:, 1], table[:, 2], numbers)

    def by_confidence(self) -> tuple[Integers, Integers]:
        """Return the order from the most confident sample down, and the last position of each distinct confidence."""
        order = np.argsort(-self.confidence, kind="stable")
        falling = self.confidence[order]
        is_last = np.append(falling[1:] != falling[:-1], True)
        return order, np.flatnonzero(is_last)

    def gaps(self) -> Floats:
        """Return accuracy minus confidence of each sample in the column of its bin, shape (samples, bins)."""
        gaps = np.zeros((len(self.unit), BINS))
        samples = np.arange(len(self.unit))
        gaps[samples, bin_of(self.confidence)] = self.right - self.confidence
        return gaps


def bin_of(confidence: Floats) -> Integers:
    """Return the bin of each confidence. A bin has its upper edge, and the first one also 0.

    Example:
        >>> bin_of(np.array([0.0, 0.2, 0.5, 1.0])).tolist()
        [0, 2, 7, 14]
    """
    upper_edges = np.ceil(confidence * BINS - _ON_AN_EDGE).astype(np.int64)
    return np.clip(upper_edges - 1, 0, BINS - 1)


@dataclass(frozen=True)
class Measure:
    """A measure with its 95 % interval. Undefined ends are NaN."""

    value: float
    low: float
    high: float


_UNDEFINED = Measure(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Bin:
    """Samples of similar confidence, above ``low`` (but for 0) and up to ``high``, and their means, NaN if empty."""

    low: float
    high: float
    samples: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class CoveragePoint:
    """Accuracy of a model that answers only a share of questions, those of at least some confidence."""

    coverage: float
    accuracy: float
    confidence: float


@dataclass(frozen=True)
class ClassArea:
    """Area under the ROC curve of the probability of one class against all others."""

    name: str
    samples: int  # of the class
    auroc: Measure


@dataclass(frozen=True)
class Calibration:
    """Calibration of one set of likelihoods.

    Attributes:
        samples: Number of samples with likelihoods that can be read, and a target.
        left_out: Number of the others.
        accuracy: Share of right answers. A tie among n options with the target counts 1 / n.
        confidence: Mean probability of the chosen option. Like the next four undefined without probabilities.
        bins: Reliability diagram, by rising confidence. Empty without probabilities.
        coverage: Points of the coverage curve, from full coverage down, at most CURVE_POINTS.
        auroc: Area under the ROC curve of correctness by confidence.
        note: Origin of the probabilities, one sentence.
        classes: Areas of the classes. Empty unless all samples have the same options, and the caller adds them.
    """

    samples: int
    left_out: int
    accuracy: Measure
    confidence: float
    ece: Measure
    debiased_ece: float
    brier: Measure
    bins: tuple[Bin, ...]
    coverage: tuple[CoveragePoint, ...]
    aurc: Measure
    auroc: Measure
    note: str
    classes: tuple[ClassArea, ...] = ()


def calibration(
    probabilities: Sequence[Sequence[float]],
    targets: Sequence[int],
    units: Units,
    note: str,
    left_out: int,
    are_probabilities: bool = True,
) -> Calibration:
    """Return the calibration of a model's probabilities, which does not depend on the order of the samples.

    Measures are NaN without samples.

    Args:
        probabilities: Probabilities of each sample's options, which sum to 1. Samples may have different numbers of
            options.
        targets: Index of each sample's right option, shape (samples,).
        units: Independent unit of each sample, such as its patient.
        note: Origin of the probabilities, one sentence.
        left_out: Number of samples without likelihoods or target.
        are_probabilities: Whether the values are probabilities of a model. Otherwise they were only made to sum to 1,
            and accuracy, coverage, AURC and AUROC alone are defined.

    Raises:
        ValueError: Values of a sample are not between 0 and 1 or do not sum to 1, or a target is no index of them.

    Example:
        >>> measured = calibration([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]], [0, 0, 1, 1], range(4), "", 0)
        >>> measured.accuracy.value, measured.confidence, round(measured.ece.value, 3), round(measured.brier.value, 3)
        (0.75, 0.75, 0.3, 0.25)
    """
    rows = []
    for row, target in zip(probabilities, targets, strict=True):
        rows.append(_answer(row, target))
    if not rows:
        bins = _bins(np.array([]), np.array([])) if are_probabilities else ()
        measures = (_UNDEFINED, math.nan, _UNDEFINED, math.nan, _UNDEFINED)
        return Calibration(0, left_out, *measures, bins, (), _UNDEFINED, _UNDEFINED, note)
    answers = PredictionTable.of(rows, units)
    accuracy = _mean(answers.right)
    brier = _mean(answers.squares)
    error = clustered_error(answers.right.tolist(), answers.unit.tolist())
    accuracy_ends = interval(accuracy, error.error, error.degrees, True, error.effective)
    gaps = answers.gaps().sum(axis=0)
    ece = float(np.abs(gaps).sum() / len(rows))
    once_each = np.ones((1, len(rows)))
    aurc = float(_areas(answers, once_each)[0])
    debiased, ece_ends, brier_ends, aurc_ends = _resample(answers, ece)
    auroc = roc_area(answers.confidence.tolist(), answers.right.tolist(), answers.unit.tolist())
    return Calibration(
        samples=len(rows),
        left_out=left_out,
        accuracy=Measure(accuracy, *accuracy_ends),
        confidence=_mean(answers.confidence) if are_probabilities else math.nan,
        ece=Measure(ece, *ece_ends) if are_probabilities else _UNDEFINED,
        debiased_ece=debiased if are_probabilities else math.nan,
        brier=Measure(brier, *brier_ends) if are_probabilities else _UNDEFINED,
        bins=_bins(answers.confidence, answers.right) if are_probabilities else (),
        coverage=_curve(answers),
        aurc=Measure(aurc, *aurc_ends),
        auroc=Measure(auroc.value, auroc.low, auroc.high),
        note=note,
    )


def _answer(row: Sequence[float], target: int) -> Prediction:
    """Return confidence, correctness and Brier score of one sample.

    Args:
        row: Probability of each option.
        target: Index of the right option.

    Raises:
        ValueError: Values are not between 0 and 1 or do not sum to 1, or the target is no index of an option.
    """
    # NaN fails these comparisons, too.
    are_shares = all(0 <= value <= 1 for value in row)
    if not (are_shares and abs(math.fsum(row) - 1) <= _SUM_TOLERANCE):
        raise ValueError(
            f"expected probabilities of options that sum to 1, but got {list(row)}"
        )
    if not 0 <= target < len(row):
        raise ValueError(
            f"expected the index of one of {len(row)} options as target, but got {target}"
        )
    rounded = [round(value, _ROUNDING) for value in row]
    confidence = max(rounded)
    right = 1 / rounded.count(confidence) if rounded[target] == confidence else 0.0
    brier = math.fsum((value - (index == target)) ** 2 for index, value in enumerate(row))
    return confidence, right, brier


def _bins(confidence: Floats, right: Floats) -> tuple[Bin, ...]:
    """Return all bins of the reliability diagram, by rising confidence.

    Args:
        confidence: Shape (samples,), may be empty.
        right: Correctness of each answer, 0 to 1, shape (samples,).
    """
    of_bin = bin_of(confidence)
    bins = []
    for index in range(BINS):
        inside = of_bin == index
        low = index / BINS
        high = (index + 1) / BINS
        means = (_mean(confidence[inside]), _mean(right[inside]))
        bins.append(Bin(low, high, int(inside.sum()), *means))
    return tuple(bins)


def _curve(answers: PredictionTable) -> tuple[CoveragePoint, ...]:
    """Return the points of the coverage curve, from full coverage down.

    There is one for each distinct confidence. If these are too many, those nearest to equal steps of coverage are kept.
    """
    order, last = answers.by_confidence()
    entered = last + 1
    coverage = entered / len(order)
    accuracy = np.cumsum(answers.right[order])[last] / entered
    confidence = answers.confidence[order[last]]
    columns = (coverage.tolist(), accuracy.tolist(), confidence.tolist())
    points = list(itertools.starmap(CoveragePoint, zip(*columns, strict=True)))
    if len(points) > CURVE_POINTS:
        steps = np.linspace(entered[0], entered[-1], CURVE_POINTS)
        nearest = np.unique(np.searchsorted(entered, steps))
        points = [points[index] for index in nearest]
    return tuple(reversed(points))


def _mean(values: Floats) -> float:
    """Return the mean, the same in any order, NaN without values."""
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan


def _resample(answers: PredictionTable, ece: float) -> tuple[float, Ends, Ends, Ends]:
    """Draw units, and return the debiased error and 95 % intervals of calibration error, Brier score and AURC.

    All are NaN for fewer than two units, and the ends of a measure if all draws of it are equal.

    Noise only adds to a sum of distances: the calibration error is too large on average, each draw adds noise once
    more, and the middle of the draws never covers the truth of a well calibrated model. Hence three steps:

    1. Draws are shifted down by the difference of their mean and the value.
    2. The basic interval, which mirrors the draws at the value, is joined: near 0 it reaches lower, else higher.
    3. If the value is at most the 97.5 % quantile of noise alone, the lower end is 0: perfect calibration is possible.

    Simulated coverage of the true (binned) error is 92 to 98 % for 100 or more units, about 90 % for 60. The value lies
    between the ends.
    """
    units = int(answers.unit[-1]) + 1
    samples = len(answers.unit)
    if units < 2:
        return math.nan, UNDEFINED_ENDS, UNDEFINED_ENDS, UNDEFINED_ENDS
    columns = np.column_stack([answers.gaps(), answers.squares, np.ones(samples)])
    starts = np.searchsorted(answers.unit, np.arange(units))
    of_unit = np.add.reduceat(columns, starts, axis=0)
    whole = of_unit.sum(axis=0)[:BINS] / samples
    random = np.random.default_rng(SEED)
    parts = []
    for resamples in block_sizes(RESAMPLES, samples, _LARGEST_DRAW):
        members = random.integers(0, units, size=(resamples, units))
        # Numbered on from draw to draw, so that one count serves all.
        members += np.arange(resamples)[:, np.newaxis] * units
        counts = np.bincount(members.ravel(), minlength=resamples * units)
        times = counts.reshape(resamples, units).astype(np.float64)
        sums = times @ of_unit
        means = sums[:, :-1] / sums[:, -1:]
        gaps = means[:, :BINS]
        brier = means[:, BINS]
        areas = _areas(answers, times[:, answers.unit])
        errors = np.abs(gaps).sum(axis=1)
        # The distance to the gaps of all samples is the error as if the true gaps were 0, that is, noise.
        noise = np.abs(gaps - whole).sum(axis=1)
        parts.append((errors, noise, brier, areas))
    drawn = [np.concatenate(part) for part in zip(*parts, strict=True)]
    errors, noise, *_ = drawn
    middle: list[Ends] = []
    for values in drawn:
        low, high = np.quantile(values, _ENDS)
        if np.ptp(values) < 1e-12:
            low = high = math.nan
        middle.append((float(low), float(high)))
    low, high = middle[0]
    if not math.isnan(low):
        excess = float(errors.mean()) - ece
        lower = min(low - excess, 2 * ece - high, ece)
        upper = max(high - excess, 2 * ece - low, ece)
        is_noise = ece <= np.quantile(noise, _ENDS[1])
        low = 0.0 if is_noise else max(0.0, lower)
        high = min(1.0, upper)
    without_noise = ece**2 - float(noise.mean()) ** 2
    debiased = math.sqrt(max(0.0, without_noise))
    return debiased, (low, high), middle[2], middle[3]


def _areas(answers: PredictionTable, weights: Floats) -> Floats:
    """Return the area under the risk-coverage curve for each row of weights, shape (rows,).

    Args:
        answers: The samples.
        weights: How often each sample was drawn, shape (rows, samples).
    """
    order, last = answers.by_confidence()
    weights = weights[:, order]
    entered = np.cumsum(weights, axis=1)[:, last]
    wrong_weights = weights * (1 - answers.right[order])
    wrong = np.cumsum(wrong_weights, axis=1)[:, last]
    # Before the first drawn sample, nothing is wrong either.
    risk = wrong / np.maximum(entered, 1)
    steps = np.diff(entered, axis=1, prepend=0)
    sums = (steps * risk).sum(axis=1)
    return np.asarray(sums / entered[:, -1])


def roc_area(
    scores: Sequence[float],
    positive: Sequence[float],
    clusters: Units,
) -> EstimatedValue:
    """Return the area under the ROC curve of scores, whatever the order of the samples.

    The area is the probability that a positive sample has a larger score than a negative one; ties count one half. The
    area is NaN without positives or without negatives. Its error and its interval are NaN if either group is of fewer
    than two clusters.

    The error is that of DeLong, DeLong and Clarke-Pearson (1988), Biometrics 44, for clusters that of Obuchowski
    (1997), Biometrics 53. The interval is :func:`_area_ends`, with Satterthwaite's degrees of freedom for both groups.

    Args:
        scores: Shape (samples,).
        positive: 1 for a positive sample and 0 for a negative one. A value between counts as that share of each.
        clusters: Cluster of each sample, such as its patient.

    Example:
        >>> roc_area([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], range(4)).value
        0.75
    """
    order = sorted(range(len(scores)), key=lambda index: (scores[index], positive[index]))
    weights = np.array(positive, dtype=np.float64)[order]
    totals = math.fsum(weights), math.fsum(1 - weights)
    if not all(totals):
        return EstimatedValue(math.nan)
    area, components = _area_components([scores[index] for index in order], weights)
    members = unit_numbers(clusters)[order]
    groups = []
    for of_class in (weights, 1 - weights):
        groups.append(np.unique(members[of_class > 0]).size)
    if min(groups) < 2:
        return EstimatedValue(area)
    sums = [np.bincount(members, component) for component in components]
    variances = []
    parts = []
    for size, total in zip(groups, sums, strict=True):
        variance = size / (size - 1) * math.fsum(total**2)
        variances.append(variance)
        parts.append(variance**2 / (size - 1))
    number = len(set(clusters))
    shared = number / (number - 1) * math.fsum(sums[0] * sums[1])
    error = math.sqrt(max(0.0, sum(variances) + 2 * shared))
    if error < _NO_SPREAD:
        smaller = min(groups)
        return EstimatedValue(area, 0.0, *interval(area, 0.0, smaller - 1, True, smaller))
    degrees = sum(variances) ** 2 / sum(parts)
    return EstimatedValue(area, error, *_area_ends(area, error, totals, degrees))


def _area_ends(area: float, error: float, totals: Pair, degrees: float) -> Ends:
    """Return the ends of the interval of an area under the ROC curve.

    The ends are the areas from which the observed one is as far as Student's quantile of their own errors. The error of
    Hanley and McNeil (1982), Radiology 143, is scaled to the observed one (Newcombe, 2006, Statistics in Medicine 25,
    part 2, method 5), so that it grows away from 1. Near 1 the observed error rests on few samples in the wrong order
    and is too small in most runs: if it is less than Hanley's and McNeil's, the variance is the mean of both.

    Args:
        area: The observed area.
        error: Its standard error, above 0.
        totals: Numbers of positive and of negative samples.
        degrees: Degrees of freedom of the error.
    """
    positives, negatives = totals

    def variance(true: float) -> float:
        """Return the variance by Hanley and McNeil of an area whose true value is ``true``."""
        of_positives = (positives - 1) * (true / (2 - true) - true**2)
        of_negatives = (negatives - 1) * (2 * true**2 / (1 + true) - true**2)
        return (true * (1 - true) + of_positives + of_negatives) / (positives * negatives)

    scale = error**2 / variance(area)
    quantile = t_quantile(LEVEL / 2 + 0.5, degrees)
    largest = quantile**2 * max(scale, (1 + scale) / 2)

    def is_inside(true: float) -> bool:
        """Return whether the observed area is likely if the true one is ``true``."""
        return (true - area) ** 2 <= largest * variance(true)

    low, _ = bisect(is_inside, area, 0.0)
    high, _ = bisect(is_inside, area, 1.0)
    return low, high


def _area_components(
    scores: Sequence[float], positive: Floats
) -> tuple[float, tuple[Floats, Floats]]:
    """Return the area under the ROC curve, and by how much each sample moves it, as a positive and as a negative.

    Args:
        scores: Shape (samples,).
        positive: Share of each sample that counts as positive, 0 to 1, shape (samples,).
    """
    _, values = np.unique(scores, return_inverse=True)

    def weight_below(weights: Floats) -> Floats:
        """Return for each sample the weight of all with a smaller value, and half of those with the same."""
        of_value = np.bincount(values, weights)
        return np.asarray((np.cumsum(of_value) - of_value / 2)[values])

    negative = 1 - positive
    positives = math.fsum(positive)
    negatives = math.fsum(negative)
    below = weight_below(negative) / negatives
    above = 1 - weight_below(positive) / positives
    area = math.fsum(positive * below) / positives
    as_positive = positive * (below - area) / positives
    as_negative = negative * (above - area) / negatives
    return area, (as_positive, as_negative)


def area_values(
    scores: Sequence[float],
    positive: Sequence[float],
    clusters: Units,
) -> list[float]:
    """Return values of single samples whose mean is the area under the ROC curve.

    The values are the placements of DeLong, DeLong and Clarke-Pearson (1988), scaled so that the standard error of the
    mean difference of two models is that of their areas, for clusters nearly that of Obuchowski (1997). Empty with
    fewer than two clusters of positives or of negatives.

    Args:
        scores: Shape (samples,).
        positive: 1 for a positive sample and 0 for a negative one, as of :func:`roc_area`.
        clusters: Cluster of each sample, such as its patient.
    """
    weights = np.array(positive, dtype=np.float64)
    number = len(set(clusters))
    sizes = [len({*itertools.compress(clusters, weights == share)}) for share in (1, 0)]
    if min(sizes) < 2:
        return []
    area, components = _area_components(scores, weights)
    moves = np.zeros(len(weights))
    for component, size in zip(components, sizes, strict=True):
        scale = size / (size - 1) * (number - 1) / number
        moves += component * math.sqrt(scale)
    values: list[float] = (area + len(weights) * moves).tolist()
    return values
