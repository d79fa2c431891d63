"""Comparing two runs where a metric is no mean over samples."""

import math

import numpy as np

from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, CorpusMetric, clustered
from medtasks.scores.run_values import REPEAT, ScoresById, Values
from medtasks.stats.exchange import compare_counts
from medtasks.stats.paired import PairedResult


def compare_together(
    metric: AnyMetric, runs: tuple[ScoresById, ScoresById]
) -> tuple[PairedResult, tuple[Values, Values]]:
    """Compare two runs under a metric of all samples together.

    Args:
        metric: The metric.
        runs: Scores of both runs.

    Returns:
        The result, and pseudo-values of each cluster in both runs.

    Raises:
        NotComparable: The metric does not follow from sums of counts, or has no value.
    """
    first, second = (_selected(metric, scores) for scores in runs)
    places = {sample: place for place, sample in enumerate(sorted(first.keys() & second.keys()))}
    if not places or any(REPEAT in sample for sample in [*first, *second]):
        raise NotComparable("takes one repeat of each run, with a sample that has a value in both")
    counts = (
        metric.counts([*first.values(), *second.values()])
        if isinstance(metric, CorpusMetric)
        else None
    )
    if counts is None:
        raise NotComparable(NO_MEAN)
    cells = np.zeros((len(places), 2, counts.cells.shape[1]), dtype=np.int64)
    for number, (sample, row) in enumerate(zip([*first, *second], counts.cells, strict=True)):
        if sample in places:
            cells[places[sample], int(number >= len(first))] = row
    clusters = [score["cluster_id"] for score in clustered([first[sample] for sample in places])]
    result, (*values, units) = compare_counts(
        cells, clusters, lambda sums: counts.scores(sums)[metric.name]
    )
    if math.isnan(result.difference):
        raise NotComparable("has no value in one of the runs")
    before, after = (
        {str(unit): (unit, value) for unit, value in zip(units, of_run, strict=True)}
        for of_run in values
    )
    return result, (before, after)


def _selected(metric: AnyMetric, scores: ScoresById) -> ScoresById:
    """Return the scores that count."""
    ids = {id(score): sample for sample, score in scores.items()}
    return {ids[id(score)]: score for score in metric.selection(list(scores.values()))}
