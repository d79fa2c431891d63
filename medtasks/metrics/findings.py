"""The 14 conditions that a labeler such as CheXbert reads from a text, what it can say of each, and F1 of pairs.

Sources: Smit et al., "CheXbert", EMNLP 2020; ``src/constants.py`` of https://github.com/stanfordmlgroup/CheXbert; and
``F1CheXbert`` of f1chexbert 0.0.2, in the averages of scikit-learn's classification report. A label that is neither in
the references nor in the hypotheses counts 0, and so does, in the average over samples, a report without a label on
both sides.
"""

import enum
import math
from collections.abc import Sequence
from typing import Literal

from medtasks.metrics.classification import count_labels, ratio
from medtasks.metrics.report_scores import ReportScores, mean

CONDITIONS = (
    *("Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation"),
    *("Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices"),
    "No Finding",
)
"""The 14 conditions in the order of CheXbert's outputs."""

FIVE_CONDITIONS = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""The five that papers report beside the 14, in the same order."""


class Finding(enum.IntEnum):
    """What a text says of a condition, numbered as CheXbert's classes."""

    BLANK = 0
    POSITIVE = 1
    NEGATIVE = 2
    UNCERTAIN = 3


Uncertain = Literal["positive", "negative"]  # what an uncertain finding counts as

AVERAGES = ("micro", "macro", "weighted", "samples")
_FIVE = tuple(CONDITIONS.index(name) for name in FIVE_CONDITIONS)


def f1_averages(gold: Sequence[Sequence[int]], predicted: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return F1 by average, from 1 or 0 per label of each side, shape (reports, labels), at least one report.

    ``micro``: over all decisions. ``macro``: mean over labels. ``weighted``: mean over labels, weighted by reports that
    have them. ``samples``: mean over reports.
    """
    by_label = count_labels(gold, predicted, len(gold[0])).total()
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
    pairs = list(zip(gold, predicted, strict=True))
    return [2 * sum(map(min, *rows)) / max(sum(map(sum, rows)), 1) for rows in pairs]


def label_scores(
    references: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[int]], *, uncertain: Uncertain, prefix: str
) -> ReportScores:
    """Score the labels of pairs of reports, a :class:`Finding` per condition, with all 14 conditions and with five.

    Uncertain findings count as ``uncertain`` says; blank and negative ones are absent in both ways. Keys are
    ``<prefix>_<14 or 5>_<average>_f1``, and ``<prefix>_5_accuracy``: the share of pairs whose five labels all agree.
    The averages over samples and the accuracy have a value per pair.
    """
    named = {Finding.POSITIVE, Finding.UNCERTAIN} if uncertain == "positive" else {Finding.POSITIVE}
    samples: dict[str, Sequence[float]] = {}
    totals: dict[str, float] = {}
    for size, columns in (("14", range(len(CONDITIONS))), ("5", _FIVE)):
        gold, predicted = (
            [[int(classes[column] in named) for column in columns] for classes in side]
            for side in (references, hypotheses)
        )
        averages = f1_averages(gold, predicted) if gold else dict.fromkeys(AVERAGES, math.nan)
        totals |= {f"{prefix}_{size}_{average}_f1": averages[average] for average in AVERAGES}
        samples[f"{prefix}_{size}_samples_f1"] = f1_of_reports(gold, predicted)
    exact = [float(first == second) for first, second in zip(gold, predicted, strict=True)]  # of the five
    samples[f"{prefix}_5_accuracy"] = exact
    totals[f"{prefix}_5_accuracy"] = mean(exact)
    return ReportScores(samples, totals, {"uncertain": uncertain})
