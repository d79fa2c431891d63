"""Two models under a score of all samples together, such as macro F1, that is a function of summed counts.

If the models are equally good, their replies to the samples of a unit, such as a patient, can be exchanged: the score
is computed again for exchanges of units, in all ways or as many random ones as in :mod:`medtasks.stats.paired`, with
the same seed (Fisher's randomisation test; Yeh, 2000, "More accurate tests for the statistical significance of result
differences", COLING, for F1). The interval is Student's, with the bootstrap error of the difference over whole units.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from medtasks.stats.bootstrap import Floats, Integers, SummedMetrics, values_with_errors
from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import (
    ALPHA,
    DRAWS,
    SEED,
    PairedResult,
    PairedValues,
    compare_paired,
    unit_choices,
)
from medtasks.stats.standard_error import Units, clustered_error

EXCHANGE = "exchange of units"
_TIE = 1e-12  # sums are exact, but a score of them is rounded


@dataclass(frozen=True)
class SummedCounts:
    """Counts of each sample, and the scores that follow from their sums.

    Attributes:
        cells: Shape (samples, cells).
        scores: Scores of sums of cells, by name.
    """

    cells: Integers
    scores: SummedMetrics


def compare_counts(
    counts: Integers,
    units: Units,
    score: Callable[[Integers], Floats],
) -> tuple[PairedResult, PairedValues]:
    """Compare two models under a score of summed counts.

    Args:
        counts: Counts of each sample and model, shape (samples, 2, cells), at least one sample.
        units: The independent unit of each sample, shape (samples,).
        score: Maps sums of shape (..., cells) to scores of shape (...).

    Returns:
        The result, and the jackknife's pseudo-values of each unit, whose means are the scores and whose differences
        have the standard error of the scores' difference.
    """
    names, members = np.unique([str(unit) for unit in units], return_inverse=True)
    shape = (len(names), *counts.shape[1:])
    sums = np.zeros(shape, dtype=np.int64)
    np.add.at(sums, members, counts)
    totals = sums.sum(axis=0)

    def differences(of_models: Integers) -> Floats:
        return np.asarray(np.diff(score(of_models))[..., 0])

    without = score(totals - sums)
    without = np.where(np.isnan(without), score(totals), without)
    influences = without.mean(axis=0) - without
    pseudo = score(totals) + (len(names) - 1) * influences
    values = pseudo[:, 0].tolist(), pseudo[:, 1].tolist(), names.tolist()
    result = compare_paired(*values)

    changes = sums[:, ::-1] - sums
    changes = changes[changes.any(axis=(1, 2))]
    limit = abs(differences(totals)) - _TIE
    extreme = []
    for chosen in unit_choices(len(changes), DRAWS, SEED):
        exchanged = totals + np.tensordot(chosen, changes, 1).astype(np.int64)
        is_smaller = np.abs(differences(exchanged)) < limit
        extreme.append(~is_smaller)  # also undefined ones
    p = float(np.mean(np.concatenate(extreme)))

    def metrics(flat: Integers) -> dict[str, Floats]:
        of_models = flat.reshape(*flat.shape[:-1], *totals.shape)
        return {"difference": differences(of_models)}

    errors = values_with_errors(sums.reshape(len(names), -1), values[2], metrics)
    error = errors["difference_stderr"]
    degrees = clustered_error([0.0] * len(units), units).degrees
    half = t_quantile(1 - ALPHA / 2, degrees) * error if error > _TIE else math.nan
    compared = replace(
        result,
        samples=len(units),
        low=result.difference - half,
        high=result.difference + half,
        test=EXCHANGE,
        p=p,
        mcnemar=None,
    )
    return compared, values
