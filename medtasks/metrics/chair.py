"""CHAIR and its companions: shares of what a report says that are not so, summed over all reports.

MedHEval publishes two metrics under one name. The paper (section "Visual Factual Hallucination", formula 1) lets a
judge count the components that a report mentions rightly and wrongly; :func:`component_ratio`. The repository
(``calculate_metrics`` in ``code/evaluation/report_eval/CXRMetric/run_extraction.py`` of
https://github.com/Aofei-Chang/MedHEval at 7f7d980) compares labels of CheXbert; :func:`label_ratios`.

Every value is a ratio of two sums over all reports (micro), between 0 and 1. Where the lower sum is 0 nothing can be
said and the value is NaN; the repository prints 0 there, which would read as "no hallucination".
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from medtasks.metrics.neural.chexbert.labels import Finding
from medtasks.stats.bootstrap import RESAMPLES, Floats, Integers, bootstrap_standard_errors, sum_by_unit

LABEL_CELLS = ("true_positives", "false_positives", "false_negatives", "true_negatives", "mentions", "positives")

Ratios = Callable[[Integers], Mapping[str, Floats]]


def label_cells(reference: Sequence[Finding], report: Sequence[Finding]) -> tuple[int, ...]:
    """Count how a report's labels agree with those of its reference.

    A condition of which the reference is uncertain is left out. One that the reference does not speak of stays: if the
    report calls it present or absent, that is a mention, and neither right nor wrong.

    Args:
        reference: What the reference says of each condition, shape (conditions,).
        report: What the report says, shape (conditions,).

    Returns:
        The counts named in :data:`LABEL_CELLS`: both present; report present, reference absent; report absent,
        reference present; both absent; report present or absent; reference present.

    Raises:
        ValueError: The two differ in length.

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
    """Return the repository's metrics from summed counts.

    Args:
        cells: Sums of :func:`label_cells`, shape (..., 6).

    Returns:
        Each with shape (...), NaN where its lower number is 0:
        ``chair_label``, (FP + FN) / mentions; ``label_recall``, TP / positives, where a finding that the report passes
        over or leaves open is missed; ``label_specificity``, TN / (TN + FP); and ``label_accuracy``,
        (TP + TN) / (TP + TN + FP + FN), both over what report and reference decide.

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
    """Return the paper's CHAIR of one aspect from summed counts.

    Args:
        cells: Numbers of rightly and of wrongly mentioned components, shape (..., 2).

    Returns:
        Wrong ones over all mentioned ones, shape (...); NaN where nothing is mentioned.

    Example:
        >>> float(component_ratio(np.array([3, 1])))
        0.25
    """
    recalled, wrong = np.moveaxis(cells, -1, 0)
    return _ratio(wrong, recalled + wrong)


def ratios_with_errors(
    cells: Sequence[Sequence[int]], units: Sequence[Hashable], ratios: Ratios, resamples: int = RESAMPLES
) -> dict[str, float]:
    """Compute ratios of sums and their standard errors.

    Args:
        cells: Counts of each report, shape (reports, counts).
        units: What was sampled, such as the patient, of each report; shape (reports,).
        ratios: From summed counts to values, such as :func:`label_ratios`.
        resamples: Draws of the bootstrap over units.

    Returns:
        Each value by name, and its standard error as ``<name>_stderr``, the same in any order of the reports. Nothing
        for no reports; an error is NaN for fewer than two units.

    Example:
        >>> found = ratios_with_errors([[3, 1], [1, 1]], ["p1", "p1"], lambda sums: {"chair": component_ratio(sums)})
        >>> round(found["chair"], 3), found["chair_stderr"]
        (0.333, nan)
    """
    if not cells:
        return {}
    table: NDArray[np.int64] = np.asarray(cells, dtype=np.int64)

    def statistic(sums: Integers) -> Floats:
        return np.stack(list(ratios(sums).values()), axis=-1)

    values = ratios(table.sum(axis=0))
    errors = bootstrap_standard_errors(sum_by_unit(table, units), statistic, resamples)
    named = {f"{name}_stderr": float(error) for name, error in zip(values, errors, strict=True)}
    return {**{name: float(value) for name, value in values.items()}, **named}


def _ratio(upper: Integers, lower: Integers) -> Floats:
    return np.where(lower > 0, upper / np.maximum(lower, 1), np.nan)
