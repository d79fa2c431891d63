"""Share of right answers from a judge's verdicts on all replies and people's labels of some, and the judge's errors.

The corrected share is that of PPI++ (Angelopoulos, Duchi and Zrnic, 2023, arXiv 2311.01453), tuned to the smallest
error. For verdicts of two values that is post-stratification: each verdict's share of right answers among the labelled
replies, weighted by the verdict's frequency. Labelled replies may be drawn with different probabilities, for example
equally many of each verdict: weights are the inverse of these (Fisch et al., 2024, arXiv 2406.04291).

Sensitivity, specificity and Cohen's kappa (1960) are functions of the same means, with errors by the delta method. All
errors are over clusters of replies, and include the sampling of questions and of labels. They are computed with one
right and one wrong label added to each verdict (Agresti and Caffo, 2000, The American Statistician 54): a few labels
without a mistake of the judge do not show that it makes none.

Simulated coverage of 95 % intervals is in ``benchmarks/RESULTS.md`` (``benchmarks/intervals.py``).
"""

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from medtasks.stats.bootstrap import Booleans, Floats
from medtasks.stats.intervals import EstimatedValue, interval
from medtasks.stats.standard_error import Dyad, Units, mean_error


@dataclass(frozen=True)
class JudgedShare:
    """Quality of a judge whose verdicts people checked, and the corrected share.

    Attributes:
        labels: Number of labels.
        sensitivity: Share of replies that people call right which the judge calls right.
        specificity: Share of replies that people call wrong which the judge calls wrong.
        kappa: Cohen's kappa of judge and people.
        corrected: Share of all replies that are right.
        replies: Unbiased estimate of the label of each reply. Their mean is ``corrected``. Empty if that is undefined.
    """

    labels: int
    sensitivity: EstimatedValue
    specificity: EstimatedValue
    kappa: EstimatedValue
    corrected: EstimatedValue
    replies: tuple[float, ...] = ()


def judged_share(
    verdicts: Sequence[float],
    labels: Sequence[float],
    weights: Sequence[float],
    asked: Sequence[bool],
    clusters: Units,
) -> JudgedShare:
    """Return the share of right replies and the quality of the verdicts, 1 for right and 0 for wrong.

    Everything is NaN if a verdict of the judge has fewer than two labelled replies.

    Args:
        verdicts: Shape (replies,), as all arguments.
        labels: What people say. NaN for replies without a label.
        weights: Inverse of the probability with which a label was drawn. Those of other replies do not count.
        asked: Whether the judge was asked. Otherwise the verdict is that of a rule, which is taken for true.
        clusters: Cluster or dyad of each reply.
    """
    verdict = np.asarray(verdicts, dtype=np.float64)
    label = np.asarray(labels, dtype=np.float64)
    weight = np.asarray(weights, dtype=np.float64)
    is_asked = np.asarray(asked, dtype=bool)
    label = np.where(is_asked, label, np.nan)
    has_label = ~np.isnan(label)
    used = [value for value in (0.0, 1.0) if value in verdict[is_asked]]
    labelled_verdicts = verdict[has_label]
    if not used or any((labelled_verdicts == value).sum() < 2 for value in used):
        nothing = EstimatedValue(math.nan)
        return JudgedShare(int(has_label.sum()), nothing, nothing, nothing, nothing)
    # One right and one wrong label for each verdict.
    added_verdicts, added_labels = zip(*itertools.product(used, (0.0, 1.0)), strict=True)
    added = len(added_verdicts)
    added_weights = [weight[has_label & (verdict == value)].mean() for value in added_verdicts]
    larger = _figures(
        np.append(verdict, added_verdicts),
        np.append(label, added_labels),
        np.append(weight, added_weights),
        np.append(is_asked, np.ones(added, dtype=bool)),
    )
    units = [*clusters, *_added_units(clusters, added)]
    degrees = len({*itertools.compress(clusters, has_label)}) - 1.0
    estimates = {}
    figures = _figures(verdict, label, weight, is_asked)
    for name, (value, _) in figures.items():
        smoothed, influences = larger[name]
        error = mean_error(influences.tolist(), units)
        is_share = name != "kappa"
        size = None
        if is_share and error.error > 0:
            size = smoothed * (1 - smoothed) / error.error**2
        low, high = interval(value, error.error, min(degrees, error.degrees), is_share, size)
        estimates[name] = EstimatedValue(value, error.error, max(low, -1.0), min(high, 1.0))
    replies = tuple(figures["corrected"][1].tolist())
    return JudgedShare(int(has_label.sum()), **estimates, replies=replies)


def _added_units(clusters: Units, number: int) -> list[Hashable]:
    """Return a unit of its own for each added label, a dyad if the replies' units are dyads."""
    names = [f"added label {index}" for index in range(number)]
    if any(isinstance(cluster, Dyad) for cluster in clusters):
        return [Dyad(name, name, name) for name in names]
    return [("added", name) for name in names]


def _figures(
    verdict: Floats,
    label: Floats,
    weight: Floats,
    is_asked: Booleans,
) -> dict[str, tuple[float, Floats]]:
    """Return each figure by name, and its influence values, whose mean has the error of the figure.

    Args:
        verdict: 1 for right and 0 for wrong, shape (replies,), as all arguments.
        label: What people say, 1 for right and 0 for wrong, NaN for replies without a label.
        weight: Inverse of the probability with which a label was drawn.
        is_asked: Whether the verdict is the judge's.

    Returns:
        A figure is NaN or infinite where its denominator is 0. Influence values have the shape (replies,).
    """
    right = verdict.copy()  # an unbiased estimate of each reply's label
    for value in (0.0, 1.0):
        members = is_asked & (verdict == value)
        labelled = members & ~np.isnan(label)
        if labelled.any():
            share = np.average(label[labelled], weights=weight[labelled])
            right[members] = share
            scale = weight[labelled] * members.sum() / weight[labelled].sum()
            right[labelled] += scale * (label[labelled] - share)
    columns = np.stack([right * verdict, right, verdict])
    means = columns[:, is_asked].mean(axis=1)
    by_both, by_people, by_judge = means
    wrong = 1 - by_people
    chance = by_people + by_judge - 2 * by_people * by_judge
    with np.errstate(invalid="ignore", divide="ignore"):
        sensitivity = by_both / by_people
        specificity = (wrong - by_judge + by_both) / wrong
        kappa = 2 * (by_both - by_people * by_judge) / chance
        # Slopes of each figure by the three means.
        of_sensitivity = np.array((1 / by_people, -by_both / by_people**2, 0.0))
        of_specificity = np.array((1 / wrong, (by_both - by_judge) / wrong**2, -1 / wrong))
        by_kappa_judge = -2 * by_judge - kappa * (1 - 2 * by_judge)
        by_kappa_people = -2 * by_people - kappa * (1 - 2 * by_people)
        of_kappa = np.array((2, by_kappa_judge, by_kappa_people)) / chance
        deviations = (columns - means[:, np.newaxis]) * (is_asked / is_asked.mean())
        return {
            "sensitivity": (float(sensitivity), of_sensitivity @ deviations),
            "specificity": (float(specificity), of_specificity @ deviations),
            "kappa": (float(kappa), of_kappa @ deviations),
            "corrected": (float(right.mean()), right),
        }
