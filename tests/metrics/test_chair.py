"""CHAIR and its companions: formulas with hand-made numbers, zero denominators, order and ranks."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medtasks.extract.labeler import Finding
from medtasks.metrics.chest_findings import LABEL_CELLS, component_ratio, label_cells, label_ratios
from medtasks.stats.bootstrap import values_with_errors

from ..tables import each_row

B, P, N, U = Finding.BLANK, Finding.POSITIVE, Finding.NEGATIVE, Finding.UNCERTAIN
RATIOS = ("chair_label", "label_recall", "label_specificity", "label_accuracy")
COUNTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)
FINDINGS = st.lists(st.tuples(st.sampled_from(Finding), st.sampled_from(Finding)), max_size=14)


def ratios(pairs):
    """The repository's metrics of one report, from (reference, report) pairs."""
    cells = label_cells([true for true, _ in pairs], [said for _, said in pairs])
    return {name: float(value) for name, value in label_ratios(np.array(cells)).items()}


def chair(counts, units, *resamples):
    """CHAIR of reports with so many right and wrong components, and its error."""
    return values_with_errors(np.array(counts), units, lambda cells: {"chair": component_ratio(cells)}, *resamples)


@each_row(
    "reference, report, counted",
    [
        (P, P, {"true_positives", "mentions", "positives"}),
        (P, N, {"false_negatives", "mentions", "positives"}),
        (P, B, {"positives"}),
        (P, U, {"positives"}),
        (N, P, {"false_positives", "mentions"}),
        (N, N, {"true_negatives", "mentions"}),
        (N, B, set()),
        (N, U, set()),
        (B, P, {"mentions"}),
        (B, N, {"mentions"}),
        (B, B, set()),
        (B, U, set()),
        *((U, said, set()) for said in Finding),
    ],
)
def test_every_combination_of_labels(reference, report, counted):
    cells = dict(zip(LABEL_CELLS, label_cells([reference], [report]), strict=True))
    assert cells == {name: int(name in counted) for name in LABEL_CELLS}


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


def test_labels_come_in_pairs():
    with pytest.raises(ValueError, match="shorter"):
        label_cells([P, N], [P])


@given(FINDINGS)
def test_labels_against_the_published_formulas_written_with_nan(pairs):
    value = {B: math.nan, P: 1.0, N: 0.0, U: -1.0}
    true = np.array([value[gold] for gold, _ in pairs])
    said = np.array([value[found] for _, found in pairs])
    true, said = true[true != -1], said[true != -1]
    wrong = ((said == 1) & (true == 0)).sum() + ((said == 0) & (true == 1)).sum()
    right = ((said == 1) & (true == 1)).sum() + ((said == 0) & (true == 0)).sum()
    mentioned, decided = ((said != -1) & ~np.isnan(said)).sum(), wrong + right
    found = ratios(pairs)
    assert found["chair_label"] == pytest.approx(wrong / mentioned if mentioned else math.nan, nan_ok=True)
    assert found["label_accuracy"] == pytest.approx(right / decided if decided else math.nan, nan_ok=True)


def test_components_are_pooled_over_the_corpus():
    # 1 of 2 wrong and 0 of 8: the mean of ratios would be 0.25.
    found = chair([[1, 1], [8, 0]], ["p1", "p2"])
    assert found["chair"] == 0.1
    assert found["chair_stderr"] > 0


def test_nothing_mentioned_is_not_nothing_wrong():
    found = chair([[0, 0], [0, 0]], ["p1", "p2"])
    assert math.isnan(found["chair"])
    assert math.isnan(found["chair_stderr"])


def test_no_reports():
    assert chair([], []) == {}


def test_reports_of_one_patient_are_one_unit():
    counts = [[1, 0], [0, 1]] * 8
    apart = chair(counts, list(range(16)))
    together = chair(counts, [n // 2 for n in range(16)])
    one = chair(counts, ["p"] * 16)
    assert apart["chair"] == together["chair"] == one["chair"] == 0.5
    assert apart["chair_stderr"] == pytest.approx(0.125, rel=0.1)  # sqrt(0.25 / 16)
    assert together["chair_stderr"] == 0  # every patient has one right and one wrong component
    assert math.isnan(one["chair_stderr"])


def test_the_error_is_that_of_a_ratio_of_sums():
    random_numbers = random.Random(5)
    counts = [[random_numbers.randrange(6), random_numbers.randrange(6)] for _ in range(300)]
    found = chair(counts, list(range(300)))
    table = np.array(counts, dtype=float)
    total, ratio = table.sum(), found["chair"]
    linearised = np.sqrt(300 / 299 * ((table[:, 1] - ratio * table.sum(axis=1)) ** 2).sum()) / total
    assert found["chair_stderr"] == pytest.approx(linearised, rel=0.08)


@settings(max_examples=30)
@given(COUNTS, st.randoms(use_true_random=False))
def test_order_and_split_over_ranks_change_nothing(counts, shuffler):
    units = [f"p{number // 2}" for number in range(len(counts))]
    reports = list(zip(counts, units, strict=True))
    shuffled = shuffler.sample(reports, len(reports))
    ranks = list(itertools.chain(reports[::2], reports[1::2]))
    scored = [chair([c for c, _ in part], [u for _, u in part], 20) for part in (reports, shuffled, ranks)]
    assert repr(scored[0]) == repr(scored[1]) == repr(scored[2])
