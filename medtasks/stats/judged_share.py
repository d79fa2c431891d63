"""Share of right answers from a judge's verdicts on all replies and people's labels of some, and the judge's errors.

The corrected share is that of PPI++ (Angelopoulos, Duchi and Zrnic, 2023, arXiv 2311.01453), tuned to the smallest
error. For verdicts of two values that is post-stratification: each verdict's share of right answers among the labelled
replies, weighted by how often the judge gives that verdict. Labelled replies may be drawn with different probabilities,
for example as many of each verdict: weights are the inverse of these (Fisch et al., 2024, arXiv 2406.04291).

Sensitivity, specificity and Cohen's kappa (1960) are functions of the same means, with errors by the delta method. All
errors are over clusters of replies, and contain the drawing of questions and of labels. They are computed with one
right and one wrong label added to each verdict (Agresti and Caffo, 2000, The American Statistician 54): a few labels
without a mistake of the judge do not show that it makes none.

Simulated coverage of 95 % intervals is in ``benchmarks/RESULTS.md`` (``benchmarks/intervals.py``).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medtasks.stats.bootstrap import Floats
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import Dyad, mean_error

_VERDICTS = (0.0, 1.0)


@dataclass(frozen=True)
class EstimatedValue:
    """A value with its 95 % interval; NaN is what is not defined."""

    value: float
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class JudgedShare:
    """Figures of a judge whose verdicts people checked."""

    labels: int
    sensitivity: EstimatedValue  # share of replies that people call right which the judge calls right
    specificity: EstimatedValue  # share of replies that people call wrong which the judge calls wrong
    kappa: EstimatedValue
    corrected: EstimatedValue  # share of all replies that are right


def judged_share(
    verdicts: Sequence[float],
    labels: Sequence[float],
    weights: Sequence[float],
    asked: Sequence[bool],
    clusters: Sequence[Hashable],
) -> JudgedShare:
    """Return the share of right replies and the quality of the verdicts, 1 for right and 0 for wrong.

    ``labels`` are NaN for replies without one; ``weights`` count where there is one. A reply about which the judge was
    not ``asked`` has the verdict of a rule, which is taken for true. All have shape (replies,). Everything is NaN where
    a verdict of the judge has fewer than two labelled replies.

    Example:
        >>> verdicts, labels = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0] + [float("nan")] * 2 + [0, 1] * 2
        >>> found = judged_share(verdicts, labels, [1.0] * 10, [True] * 10, range(10))
        >>> round(found.corrected.value, 3), round(found.sensitivity.value, 3)  # 0.6 * 0.75 + 0.4 * 0.5, 0.45 / 0.65
        (0.65, 0.692)
    """
    said, told, weight, is_asked = (np.asarray(one, dtype=np.float64) for one in (verdicts, labels, weights, asked))
    known = (is_asked == 1) & ~np.isnan(told)
    of_verdict = [(verdict, (is_asked == 1) & (said == verdict)) for verdict in _VERDICTS]
    if any(members.any() and (members & known).sum() < 2 for _, members in of_verdict) or not known.any():
        nothing = EstimatedValue(*[math.nan] * 4)
        return JudgedShare(int(known.sum()), nothing, nothing, nothing, nothing)
    added = [(verdict, label) for verdict, members in of_verdict if members.any() for label in _VERDICTS]
    usual = {verdict: weight[members & known].mean() for verdict, members in of_verdict if members.any()}
    larger = _Replies(
        np.append(said, [verdict for verdict, _ in added]),
        np.append(np.where(known, told, np.nan), [label for _, label in added]),
        np.append(weight, [usual[verdict] for verdict, _ in added]),
        np.append(is_asked, np.ones(len(added))) == 1,
    )
    in_dyads = any(isinstance(cluster, Dyad) for cluster in clusters)
    names = [f"added label {number}" for number in range(len(added))]
    units = [*clusters, *(Dyad(name, name, name) if in_dyads else ("added", name) for name in names)]
    degrees = len({cluster for cluster, one in zip(clusters, known, strict=True) if one}) - 1.0
    values = _Replies(said, np.where(known, told, np.nan), weight, is_asked == 1).figures()
    found = {}
    for name, (smoothed, linear, members) in larger.figures().items():
        error = mean_error(linear.tolist(), [unit for unit, one in zip(units, members, strict=True) if one])
        value, is_share = values[name][0], name != "kappa"
        size = smoothed * (1 - smoothed) / error.error**2 if error.error > 0 else math.nan
        low, high = interval(value, error.error, min(degrees, error.degrees), is_share, size if is_share else None)
        found[name] = EstimatedValue(value, error.error, max(low, -1.0), min(high, 1.0))
    return JudgedShare(int(known.sum()), **found)


@dataclass(frozen=True)
class _Replies:
    """Verdicts, labels, weights and whether the judge was asked, shape (replies,)."""

    verdicts: Floats
    labels: Floats
    weights: Floats
    asked: NDArray[np.bool_]

    def figures(self) -> dict[str, tuple[float, Floats, NDArray[np.bool_]]]:
        """Return each figure's value, its linearised values and the replies that these are of.

        The error of the mean of linearised values is that of the figure.
        """
        right = self.verdicts.copy()  # an estimate of the label without bias, for every reply
        for verdict in _VERDICTS:
            members = self.asked & (self.verdicts == verdict)
            labelled = members & ~np.isnan(self.labels)
            if labelled.any():
                total = self.weights[labelled].sum()
                share = float(self.weights[labelled] @ self.labels[labelled] / total)
                scale = self.weights[labelled] * (members.sum() / total)
                right[members] = share
                right[labelled] += scale * (self.labels[labelled] - share)
        both, by_people, by_judge = (right * self.verdicts)[self.asked], right[self.asked], self.verdicts[self.asked]
        a, b, c = both.mean(), by_people.mean(), by_judge.mean()
        chance = b + c - 2 * b * c
        with np.errstate(invalid="ignore", divide="ignore"):
            neither, wrong = 1 - b - c + a, 1 - b
            kappa = 2 * (a - b * c) / chance
            slopes = 2 / chance, (-2 * c - kappa * (1 - 2 * c)) / chance, (-2 * b - kappa * (1 - 2 * b)) / chance
            sensitivity = (both - a / b * by_people) / b
            specificity = (1 - by_people - by_judge + both - neither / wrong * (1 - by_people)) / wrong
            of_kappa = slopes[0] * both + slopes[1] * by_people + slopes[2] * by_judge
        return {
            "sensitivity": (float(a / b), sensitivity, self.asked),
            "specificity": (float(neither / wrong), specificity, self.asked),
            "kappa": (float(kappa), of_kappa, self.asked),
            "corrected": (float(right.mean()), right, np.ones(len(right), dtype=bool)),
        }
