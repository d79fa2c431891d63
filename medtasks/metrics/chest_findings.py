"""The 14 conditions of chest X-ray labelers such as CheXbert, and F1 and CHAIR of their labels.

Sources: Smit et al., "CheXbert", EMNLP 2020; ``src/constants.py`` of https://github.com/stanfordmlgroup/CheXbert; and
``F1CheXbert`` of f1chexbert 0.0.2, in the averages of scikit-learn's classification report. A label without positives
on both sides counts 0, and so does, in the average over samples, a report without labels on both sides.

MedHEval publishes two metrics named CHAIR, shares of false statements in a report. In the paper (section "Visual
Factual Hallucination", formula 1) a judge counts correctly and wrongly mentioned components: :func:`component_ratio`.
The repository (``calculate_metrics`` in ``code/evaluation/report_eval/CXRMetric/run_extraction.py`` of
https://github.com/Aofei-Chang/MedHEval at 7f7d980) compares labels of CheXbert: :func:`label_ratios`. Each is a ratio
of two sums over all reports (micro), NaN for a denominator of 0, where the repository prints 0 ("no hallucination").
"""

import enum
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from medtasks.metrics.class_scores import ratio
from medtasks.metrics.metric import mean
from medtasks.metrics.report_metrics import ReportScores
from medtasks.stats.bootstrap import Floats, Integers
from medtasks.stats.exchange import SummedCounts

# In the order of CheXbert's outputs.
CONDITIONS = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    "No Finding",
)
# of many papers
FIVE_CONDITIONS = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
Uncertain = Literal["positive", "negative"]  # treatment of an uncertain finding
_FIVE = list(map(CONDITIONS.index, FIVE_CONDITIONS))
LABEL_CELLS = (
    "true_positives",
    "false_positives",
    "false_negatives",
    "true_negatives",
    "mentions",
    "positives",
)


class Finding(enum.IntEnum):
    """State of a condition in a text, numbered as CheXbert's classes."""

    BLANK = 0
    POSITIVE = 1
    NEGATIVE = 2
    UNCERTAIN = 3


def label_scores(
    references: Sequence[Sequence[int]],
    hypotheses: Sequence[Sequence[int]],
    *,
    uncertain: Uncertain,
    prefix: str,
) -> ReportScores:
    """Score the labels of pairs of reports, with all 14 conditions and with five.

    F1 = 2 * both / (reference + hypothesis), counted in labels that are present. The averages over samples and the
    accuracy have a value per pair.

    Args:
        references: A :class:`Finding` per condition of each reference, shape (pairs, 14).
        hypotheses: A :class:`Finding` per condition of each hypothesis, shape (pairs, 14).
        uncertain: Whether an uncertain finding counts as positive or negative. Blank and negative ones are absent.
        prefix: Start of the keys ``<prefix>_<14 or 5>_<average>_f1``, and of ``<prefix>_5_accuracy``: the share of
            pairs whose five labels all agree.
    """
    present = [Finding.POSITIVE]
    if uncertain == "positive":
        present.append(Finding.UNCERTAIN)
    samples = {}
    totals = {}
    cells = []
    for size, columns in (("14", range(len(CONDITIONS))), ("5", _FIVE)):
        gold = _present_labels(references, columns, present)
        predicted = _present_labels(hypotheses, columns, present)
        both = gold & predicted
        either = gold + predicted
        cells.append(np.concatenate([both, either, gold], axis=1))
        sums = cells[-1].sum(axis=0)
        for key, value in _averaged_f1(f"{prefix}_{size}", sums).items():
            totals[key] = float(value) if len(gold) else math.nan
        agreements = 2 * both.sum(axis=1)
        of_reports = ratio(agreements, either.sum(axis=1)).tolist()
        samples[f"{prefix}_{size}_samples_f1"] = of_reports
        totals[f"{prefix}_{size}_samples_f1"] = mean(of_reports)
    exact = (gold == predicted).all(axis=1).astype(float).tolist()  # of the five
    samples[f"{prefix}_5_accuracy"] = exact
    totals[f"{prefix}_5_accuracy"] = mean(exact)

    def scores(sums: Integers) -> dict[str, Floats]:
        of_14, of_five = np.split(sums, [3 * len(CONDITIONS)], axis=-1)
        return _averaged_f1(f"{prefix}_14", of_14) | _averaged_f1(f"{prefix}_5", of_five)

    counts = SummedCounts(np.concatenate(cells, axis=1), scores)
    return ReportScores(samples, totals, {"uncertain": uncertain}, counts)


def _present_labels(
    reports: Sequence[Sequence[int]],
    columns: Sequence[int],
    present: Sequence[Finding],
) -> Integers:
    """Return 1 for each condition that is present, shape (reports, columns)."""
    findings = np.reshape(reports, (-1, len(CONDITIONS)))[:, columns]
    return np.isin(findings, present).astype(np.int64)


def _averaged_f1(prefix: str, cells: Integers) -> dict[str, Floats]:
    """Return F1 over all decisions, over labels, and over labels weighted by their reports, shape (...).

    ``cells`` are sums over reports of agreements, of both sides and of targets by label, shape (..., 3 * labels).
    """
    both, either, positives = np.split(cells, 3, axis=-1)
    f1 = ratio(2 * both, either)
    return {
        f"{prefix}_micro_f1": ratio(2 * both.sum(axis=-1), either.sum(axis=-1)),
        f"{prefix}_macro_f1": f1.mean(axis=-1),
        f"{prefix}_weighted_f1": ratio((f1 * positives).sum(axis=-1), positives.sum(axis=-1)),
    }


def label_cells(
    reference: Sequence[Finding],
    report: Sequence[Finding],
) -> tuple[int, ...]:
    """Count agreements of a report's labels with those of its reference.

    Conditions with an uncertain reference are left out. For a condition that is blank in the reference, the report's
    statement is a mention, and neither right nor wrong.

    Args:
        reference: Finding of each condition in the reference, shape (conditions,).
        report: Finding of each condition in the report, in the same order.

    Returns:
        :data:`LABEL_CELLS`: both present; report present, reference absent; report absent, reference present; both
        absent; report present or absent; reference present.

    Example:
        >>> label_cells([Finding.POSITIVE, Finding.BLANK], [Finding.POSITIVE, Finding.NEGATIVE])
        (1, 0, 0, 0, 2, 1)
    """
    pairs = [
        pair for pair in zip(reference, report, strict=True) if pair[0] != Finding.UNCERTAIN
    ]
    present = Finding.POSITIVE
    absent = Finding.NEGATIVE
    return (
        pairs.count((present, present)),
        pairs.count((absent, present)),
        pairs.count((present, absent)),
        pairs.count((absent, absent)),
        sum(label in (present, absent) for _, label in pairs),
        sum(label == present for label, _ in pairs),
    )


def label_ratios(cells: Integers) -> dict[str, Floats]:
    """Return the repository's metrics by name.

    ``chair_label`` is (FP + FN) / mentions, ``label_recall`` is TP / positives, in which blank and uncertain labels of
    the report are misses, ``label_specificity`` is TN / (TN + FP), and ``label_accuracy`` (TP + TN) / (all four).

    Args:
        cells: Sums of :func:`label_cells`, shape (..., 6).

    Returns:
        Values of shape (...), NaN for a denominator of 0.
    """
    tp, fp, fn, tn, mentions, positives = np.moveaxis(cells, -1, 0)
    return {
        "chair_label": ratio(fp + fn, mentions, np.nan),
        "label_recall": ratio(tp, positives, np.nan),
        "label_specificity": ratio(tn, tn + fp, np.nan),
        "label_accuracy": ratio(tp + tn, tp + tn + fp + fn, np.nan),
    }


def component_ratio(cells: Integers) -> Floats:
    """Return the paper's CHAIR of one aspect: wrongly mentioned components over all mentioned ones.

    Args:
        cells: Numbers of correctly and wrongly mentioned components, shape (..., 2).

    Returns:
        Values of shape (...), NaN without mentions.

    Example:
        >>> float(component_ratio(np.array([3, 1])))
        0.25
    """
    recalled, wrong = np.moveaxis(cells, -1, 0)
    return ratio(wrong, recalled + wrong, np.nan)
