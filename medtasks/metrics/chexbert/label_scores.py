"""F1 of CheXbert's labels over all reports, in the averages of scikit-learn's classification report.

Source: ``F1CheXbert`` of f1chexbert 0.0.2. A label that is neither in the references nor in the hypotheses counts 0,
and so does, in the average over samples, a report without a label on both sides.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from medtasks.metrics.chexbert.conditions import CONDITIONS, FIVE_CONDITIONS, positives
from medtasks.metrics.class_counts import count_labels, ratio
from medtasks.metrics.report_scores import ReportScores, mean

Uncertain = Literal["positive", "negative"]

AVERAGES = ("micro", "macro", "weighted", "samples")
_FIVE = tuple(CONDITIONS.index(name) for name in FIVE_CONDITIONS)


def f1_averages(gold: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return F1 by average.

    Args:
        gold: 1 or 0 per label, shape (reports, labels), at least one report.
        predicted: The same of the other side.

    Returns:
        ``micro``: over all decisions. ``macro``: mean over labels. ``weighted``: mean over labels, weighted by reports
        that have them. ``samples``: mean over reports.

    Raises:
        ValueError: Shapes differ, or a value is not 0 or 1.

    Example:
        >>> f1_averages([[1, 0], [1, 1]], [[1, 0], [0, 1]])["weighted"]
        0.7777777777777777
    """
    by_report = count_labels(gold, predicted, len(gold[0]))
    by_label = by_report.total()
    doubled = 2 * by_label.true_positives.sum()
    decided = doubled + by_label.false_positives.sum() + by_label.false_negatives.sum()
    weighted = math.fsum((by_label.f1 * by_label.positives).tolist())
    return {
        "micro": float(ratio(doubled, decided)),
        "macro": mean(by_label.f1.tolist()),
        "weighted": weighted / max(int(by_label.positives.sum()), 1),
        "samples": mean(f1_of_reports(gold, predicted)),
    }


def f1_of_reports(gold: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]]) -> list[float]:
    """Return F1 over the labels of each report, shape (reports,); 0 for one without any label on both sides."""
    shared = [2 * sum(map(min, *rows)) for rows in zip(gold, predicted, strict=True)]
    named = [sum(map(sum, rows)) for rows in zip(gold, predicted, strict=True)]
    return [both / max(count, 1) for both, count in zip(shared, named, strict=True)]


def label_scores(
    references: Sequence[Sequence[int]],
    hypotheses: Sequence[Sequence[int]],
    *,
    uncertain: Uncertain,
    prefix: str,
) -> ReportScores:
    """Score the labels of pairs of reports, with all 14 conditions and with five.

    Args:
        references: A :class:`~medtasks.metrics.chexbert.conditions.Finding` per condition, shape (pairs, 14).
        hypotheses: The same of the other side.
        uncertain: What an uncertain finding counts as. Blank and negative ones are absent in both ways.
        prefix: Beginning of the keys.

    Returns:
        ``<prefix>_<14 or 5>_<average>_f1``, and ``<prefix>_5_accuracy``: the share of pairs whose five labels all
        agree. The averages over samples and the accuracy have a value per pair.
    """
    gold, predicted = (
        [positives(classes, uncertain_is_positive=uncertain == "positive") for classes in side]
        for side in (references, hypotheses)
    )
    samples: dict[str, Sequence[float]] = {}
    totals: dict[str, float] = {}
    for size, columns in (("14", tuple(range(len(CONDITIONS)))), ("5", _FIVE)):
        key, guess = ([[row[column] for column in columns] for row in side] for side in (gold, predicted))
        found: Mapping[str, float] = f1_averages(key, guess) if key else dict.fromkeys(AVERAGES, mean([]))
        totals |= {f"{prefix}_{size}_{average}_f1": found[average] for average in AVERAGES}
        samples[f"{prefix}_{size}_samples_f1"] = f1_of_reports(key, guess)
    exact = [float(all(a[column] == b[column] for column in _FIVE)) for a, b in zip(gold, predicted, strict=True)]
    samples[f"{prefix}_5_accuracy"] = exact
    totals[f"{prefix}_5_accuracy"] = mean(exact)
    return ReportScores(samples, totals, {"uncertain": uncertain})
