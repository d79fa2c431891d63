"""Comparing two runs where a metric is no mean over samples.

Comparisons and boards call this for metrics that follow from sums of counts, such as F1.
"""

import math
from itertools import count

import numpy as np

from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, CorpusMetric, with_image_clusters
from medtasks.scores.run_values import REPEAT, BothScores, ScoresById, Values
from medtasks.stats.exchange import compare_counts
from medtasks.stats.paired import PairedResult


def compare_together(
    metric: AnyMetric, runs: BothScores
) -> tuple[PairedResult, tuple[Values, Values]]:
    """Compare two runs under a metric of all samples together.

    Args:
        metric: The metric.
        runs: Scores of both runs.

    Returns:
        The result, and pseudo-values of each cluster in both runs.

    Raises:
        NotComparable: The metric does not follow from sums of counts or has no value in one of the runs, or the runs
            have several repeats or no sample in common.
    """
    first, second = (_counted_scores(metric, scores) for scores in runs)
    shared = sorted(first.keys() & second.keys())
    if not shared or any(REPEAT in sample for sample in [*first, *second]):
        raise NotComparable(
            "takes one repeat of each run, with a sample that has a value in both"
        )
    counts = None
    if isinstance(metric, CorpusMetric):
        counts = metric.counts([*first.values(), *second.values()])
    if counts is None:
        raise NotComparable(NO_MEAN)
    row_in_first = dict(zip(first, count(), strict=False))
    row_in_second = dict(zip(second, count(len(first)), strict=False))
    rows = np.array([(row_in_first[sample], row_in_second[sample]) for sample in shared])
    shared_scores = with_image_clusters([first[sample] for sample in shared])
    clusters = [score["cluster_id"] for score in shared_scores]
    result, (*values, units) = compare_counts(
        counts.cells[rows], clusters, lambda sums: counts.scores(sums)[metric.name]
    )
    if math.isnan(result.difference):
        raise NotComparable("has no value in one of the runs")
    names = list(map(str, units))
    before, after = (
        dict(zip(names, zip(units, run, strict=True), strict=True)) for run in values
    )
    return result, (before, after)


def _counted_scores(metric: AnyMetric, scores: ScoresById) -> ScoresById:
    """Return the scores that a metric counts, in its order."""
    ids = {id(score): sample for sample, score in scores.items()}
    return {ids[id(score)]: score for score in metric.selection(list(scores.values()))}
