"""Comparing two runs where a metric is no mean over samples."""

from collections.abc import Hashable, Mapping

import numpy as np

from medtasks.audit.run_values import REPEAT, Scores, Values
from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Score
from medtasks.stats.exchange import compare_counts
from medtasks.stats.paired import PairedResult


def compare_together(
    metric: AnyMetric, runs: tuple[Scores, Scores], clusters: Mapping[str, Hashable]
) -> tuple[PairedResult, tuple[Values, Values]]:
    """Compare two runs under a metric of all samples together.

    Args:
        metric: The metric.
        runs: Scores of both runs, with all repeats.
        clusters: The cluster of each sample.

    Returns:
        The result, and pseudo-values of each cluster in both runs.

    Raises:
        NotComparable: The metric does not follow from sums of counts, or has no value.
    """
    selected = {(run, *key): score for run in (0, 1) for key, score in _selected(metric, runs[run]).items()}
    samples = [{sample for number, sample, _ in selected if number == run} for run in (0, 1)]
    repeats = {max((repeat for number, _, repeat in selected if number == run), default=0) for run in (0, 1)}
    places = {sample: place for place, sample in enumerate(sorted(samples[0] & samples[1]))}
    if len(repeats) > 1 or not places:
        raise NotComparable("takes as many repeats of both runs, and a sample with a value in both")
    counts = metric.counts(list(selected.values())) if isinstance(metric, CorpusMetric) else None
    if counts is None:
        raise NotComparable(NO_MEAN)
    score = counts.score_of(metric.name)
    cells = np.zeros((len(places), 2, max(repeats) + 1, counts.cells.shape[1]), dtype=np.int64)
    for (run, sample, repeat), row in zip(selected, counts.cells, strict=True):
        if sample in places:
            cells[places[sample], run, repeat] = row
    if np.isnan(score(cells.sum(axis=0))).any():
        raise NotComparable("has no value in one of the runs")
    result, (*values, units) = compare_counts(cells, [clusters[sample] for sample in places], score)
    first, second = ({str(unit): (unit, value) for unit, value in zip(units, of_run, strict=True)} for of_run in values)
    return result, (first, second)


def _selected(metric: AnyMetric, scores: Scores) -> dict[tuple[str, int], Score]:
    """Return the scores that count in each repeat, by sample and number of the repeat from 0."""
    repeats: dict[int, dict[int, tuple[str, Score]]] = {}
    for key, score in scores.items():
        sample, _, number = key.partition(REPEAT)
        repeats.setdefault(int(number or 1) - 1, {})[id(score)] = (sample, score)
    selected = {}
    for repeat, by_identity in repeats.items():
        for score in metric.selection([score for _, score in by_identity.values()]):
            selected[by_identity[id(score)][0], repeat] = score
    return selected
