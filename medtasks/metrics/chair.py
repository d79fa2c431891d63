"""CHAIR and its companions: shares of what a report says that are not so, summed over all reports.

MedHEval publishes two metrics under one name. The paper (section "Visual Factual Hallucination", formula 1) lets a
judge count the components that a report mentions rightly and wrongly; :func:`component_ratio`. The repository
(``calculate_metrics`` in ``code/evaluation/report_eval/CXRMetric/run_extraction.py`` of
https://github.com/Aofei-Chang/MedHEval at 7f7d980) compares labels of CheXbert; :func:`label_ratios`.

Every value is a ratio of two sums over all reports (micro), between 0 and 1. Where the lower sum is 0 nothing can be
said and the value is NaN; the repository prints 0 there, which would read as "no hallucination".
"""

from collections.abc import Sequence

import numpy as np

from medtasks.metrics.findings import Finding
from medtasks.stats.bootstrap import Floats, Integers

LABEL_CELLS = ("true_positives", "false_positives", "false_negatives", "true_negatives", "mentions", "positives")


def label_cells(reference: Sequence[Finding], report: Sequence[Finding]) -> tuple[int, ...]:
    """Count how a report's labels agree with those of its reference.

    A condition of which the reference is uncertain is left out. One that the reference does not speak of stays: if the
    report calls it present or absent, that is a mention, and neither right nor wrong.

    The counts are :data:`LABEL_CELLS`: both present; report present, reference absent; report absent, reference
    present; both absent; report present or absent; reference present.

    Example:
        >>> label_cells([Finding.POSITIVE, Finding.BLANK], [Finding.NEGATIVE, Finding.POSITIVE])
        (0, 0, 1, 0, 2, 1)
    """
    pairs = [pair for pair in zip(reference, report, strict=True) if pair[0] != Finding.UNCERTAIN]
    present, absent = Finding.POSITIVE, Finding.NEGATIVE
    return (
        pairs.count((present, present)),
        pairs.count((absent, present)),
        pairs.count((present, absent)),
        pairs.count((absent, absent)),
        sum(said in (present, absent) for _, said in pairs),
        sum(true == present for true, _ in pairs),
    )


def label_ratios(cells: Integers) -> dict[str, Floats]:
    """Return the repository's metrics, shape (...), from sums of :func:`label_cells`, shape (..., 6).

    NaN where the lower number is 0: ``chair_label``, (FP + FN) / mentions; ``label_recall``, TP / positives, where a
    finding that the report passes over or leaves open is missed; ``label_specificity``, TN / (TN + FP); and
    ``label_accuracy``, (TP + TN) / (TP + TN + FP + FN), both over what report and reference decide.

    Example:
        >>> {name: float(value) for name, value in label_ratios(np.array([1, 1, 0, 3, 8, 4])).items()}
        {'chair_label': 0.125, 'label_recall': 0.25, 'label_specificity': 0.75, 'label_accuracy': 0.8}
    """
    tp, fp, fn, tn, mentions, positives = np.moveaxis(cells, -1, 0)
    return {
        "chair_label": _ratio(fp + fn, mentions),
        "label_recall": _ratio(tp, positives),
        "label_specificity": _ratio(tn, tn + fp),
        "label_accuracy": _ratio(tp + tn, tp + tn + fp + fn),
    }


def component_ratio(cells: Integers) -> Floats:
    """Return the paper's CHAIR of one aspect: wrongly mentioned components over all mentioned ones, shape (...).

    ``cells`` are the numbers of rightly and of wrongly mentioned ones, shape (..., 2); NaN where nothing is mentioned.

    Example:
        >>> float(component_ratio(np.array([3, 1])))
        0.25
    """
    recalled, wrong = np.moveaxis(cells, -1, 0)
    return _ratio(wrong, recalled + wrong)


def _ratio(upper: Integers, lower: Integers) -> Floats:
    return np.where(lower > 0, upper / np.maximum(lower, 1), np.nan)
