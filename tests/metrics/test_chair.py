"""CHAIR and its companions: formulas with hand-made numbers, zero denominators, order and ranks."""

import itertools
import math

import numpy as np
import pytest

from medtasks.extract.labeler import Finding
from medtasks.metrics.chest_findings import (
    LABEL_CELLS,
    component_ratio,
    label_cells,
    label_ratios,
)

from ..tables import each_row

B, P, N, U = Finding.BLANK, Finding.POSITIVE, Finding.NEGATIVE, Finding.UNCERTAIN
RATIOS = ("chair_label", "label_recall", "label_specificity", "label_accuracy")


def ratios(pairs):
    """The repository's metrics of one report, from (reference, report) pairs."""
    cells = label_cells([true for true, _ in pairs], [said for _, said in pairs])
    return {name: float(value) for name, value in label_ratios(np.array(cells)).items()}


def test_every_combination_of_labels():
    mentioned, missed = {"mentions"}, {"positives"}
    counted = {
        (P, P): {"true_positives", "mentions", "positives"},
        (P, N): {"false_negatives", "mentions", "positives"},
        **{(P, said): missed for said in (B, U)},
        (N, P): {"false_positives", "mentions"},
        (N, N): {"true_negatives", "mentions"},
        **{(B, said): mentioned for said in (P, N)},
    }
    for pair in itertools.product(Finding, repeat=2):
        cells = dict(zip(LABEL_CELLS, label_cells(*([label] for label in pair)), strict=True))
        assert cells == {name: int(name in counted.get(pair, ())) for name in LABEL_CELLS}, pair


def test_the_repository_s_formulas():
    # TP 2, FP 1, FN 1, TN 1; a finding the reference passes over; one that the report leaves open; an uncertain one.
    pairs = [(P, P), (P, P), (N, P), (P, N), (N, N), (B, P), (P, U), (P, B), (U, P), (B, B)]
    assert ratios(pairs) == {
        "chair_label": (1 + 1) / 6,
        "label_recall": 2 / 5,
        "label_specificity": 1 / 2,
        "label_accuracy": 3 / 5,
    }


@each_row(
    "pairs, undefined",
    [
        ([], set(RATIOS)),
        ([(U, P), (U, N)], set(RATIOS)),
        ([(B, P)], {"label_recall", "label_specificity", "label_accuracy"}),
        ([(P, B)], {"chair_label", "label_specificity", "label_accuracy"}),
        ([(N, N)], {"label_recall"}),
    ],
)
def test_a_ratio_without_a_lower_number_is_undefined(pairs, undefined):
    assert {name for name, value in ratios(pairs).items() if math.isnan(value)} == undefined
    assert component_ratio(np.array([[0, 0], [9, 1]])).tolist() == [
        pytest.approx(math.nan, nan_ok=True),
        0.1,
    ]
