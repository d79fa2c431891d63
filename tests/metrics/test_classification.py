"""Classification metrics against scikit-learn, torchmetrics, published numbers and the recorded reference."""

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score, roc_auc_score

from medtasks.metrics.class_scores import (
    count_classes,
    count_labels,
    multiclass_metrics,
    multilabel_metrics,
)

from ..tables import each_row

CLASSES = 5
# Answers that leave classes out, in the key, in the predictions or in both.
ANSWERS = st.sets(st.integers(0, CLASSES - 1), min_size=1).flatmap(
    lambda used: st.lists(
        st.tuples(st.sampled_from(sorted(used)), st.integers(0, CLASSES - 1)),
        min_size=1,
        max_size=30,
    )
)
FIVE_BITS = st.tuples(*[st.integers(0, 1)] * CLASSES)
ROWS = st.tuples(FIVE_BITS, FIVE_BITS).flatmap(
    # A label can be given to no image, to some and to every image.
    lambda masks: st.lists(
        st.tuples(FIVE_BITS, FIVE_BITS).map(
            lambda row: tuple(
                tuple(
                    bit & low | high & low for bit, low, high in zip(bits, *masks, strict=True)
                )
                for bits in row
            )
        ),
        min_size=1,
        max_size=20,
    )
)


def of_classes(gold, predicted, classes=CLASSES):
    total = count_classes(gold, predicted, classes).sum(axis=0)
    return {name: float(v) for name, v in multiclass_metrics(total).items()}


def of_labels(gold, predicted):
    total = count_labels(gold, predicted, len(gold[0])).sum(axis=0)
    return {name: float(v) for name, v in multilabel_metrics(total).items()}


@each_row("kind", ["multiclass", "multilabel"])
def test_golden_multimedeval_classification(golden, kind):
    lines = (
        (golden / "multimedeval_classification.jsonl").read_text(encoding="utf-8").splitlines()
    )
    cases = [case for case in map(json.loads, lines) if case["kind"] == kind]
    assert cases
    for case in cases:
        if kind == "multiclass":
            ours = of_classes(case["gold"], case["pred"], case["classes"])
        else:
            ours = of_labels(case["gold"], case["pred"])
        theirs = (case["auc_macro"], case["f1_macro"], case["accuracy_macro"])
        assert (ours["macro_auroc"], ours["macro_f1"], ours["macro_accuracy"]) == pytest.approx(
            theirs, rel=0, abs=1e-6
        )


@given(answers=ANSWERS)
def test_one_class_is_scikit_learn_where_definitions_agree(answers):
    gold, predicted = (np.array(column) for column in zip(*answers, strict=True))
    ours = of_classes(gold.tolist(), predicted.tolist())
    used = sorted({*gold, *predicted})
    present = [c for c in range(CLASSES) if 0 < (gold == c).sum() < len(gold)]
    areas = [roc_auc_score(gold == c, predicted == c) for c in present]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # scikit-learn warns of classes that only predictions have
        assert ours["balanced_accuracy"] == pytest.approx(
            balanced_accuracy_score(gold, predicted)
        )
    assert ours["macro_f1"] == pytest.approx(f1_score(gold, predicted, average="macro"))
    assert ours["macro_accuracy"] == pytest.approx(
        recall_score(gold, predicted, labels=used, average="macro", zero_division=0)
    )
    assert ours["macro_auroc"] == pytest.approx(sum(areas) / CLASSES)
    assert ours["present_class_auroc"] == pytest.approx(
        np.mean(areas) if areas else math.nan, nan_ok=True
    )


@given(rows=ROWS)
def test_several_labels_are_scikit_learn_where_definitions_agree(rows):
    gold, predicted = (np.array(column) for column in zip(*rows, strict=True))
    ours = of_labels(gold.tolist(), predicted.tolist())
    given_to_some = [c for c in range(CLASSES) if 0 < gold[:, c].sum() < len(gold)]
    areas = [roc_auc_score(gold[:, c], predicted[:, c]) for c in given_to_some]
    f1 = f1_score(gold, predicted, average=None, zero_division=0)
    held = gold.any(axis=0)
    assert ours["macro_f1"] == pytest.approx(f1.mean())
    assert ours["macro_accuracy"] == pytest.approx((gold == predicted).mean())
    assert ours["macro_auroc"] == pytest.approx(sum(areas) / CLASSES)
    assert ours["present_label_f1"] == pytest.approx(
        f1[held].mean() if held.any() else math.nan, nan_ok=True
    )
    assert ours["present_label_auroc"] == pytest.approx(
        np.mean(areas) if areas else math.nan, nan_ok=True
    )


def test_an_invalid_reply_misses_its_class_and_is_no_false_positive():
    counts = count_classes([0, 0, 1, 1], [0, None, 1, None], 3).sum(axis=0)
    # TP, FP, FN and TN of each class, and the number of samples
    assert counts.tolist() == [*(1, 1, 0), *(0, 0, 0), *(1, 1, 0), *(2, 2, 4), 4]
    ours = multiclass_metrics(counts)
    both = multiclass_metrics(np.stack([counts, 2 * counts]))  # many tables at once
    assert {name: values.tolist() for name, values in both.items()} == {
        name: [v, v] for name, v in ours.items()
    }
    assert ours["balanced_accuracy"] == 0.5
    assert ours["macro_f1"] == pytest.approx(2 / 3)
    assert ours["present_class_auroc"] == 0.75


def test_an_invalid_reply_is_wrong_for_every_label():
    gold = [[1, 0, 0], [0, 0, 1]]
    counts = count_labels(gold, [None, [0, 0, 1]], 3).sum(axis=0)
    assert counts.tolist() == [*(0, 0, 1), *(0, 0, 0), *(1, 0, 0), *(1, 1, 0), 2]  # as above
    assert multilabel_metrics(counts)["macro_accuracy"] == pytest.approx((1 + 1 + 1) / 6)
    assert set(of_labels(gold, [None, None]).values()) == {0.0}
    assert all(
        map(math.isnan, multiclass_metrics(count_classes([], [], 3).sum(axis=0)).values())
    )
    assert all(
        map(math.isnan, multilabel_metrics(count_labels([], [], 3).sum(axis=0)).values())
    )
