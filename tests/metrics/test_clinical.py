"""Clinical numbers of a class: against scikit-learn, published formulas and sandwich errors, and without some cells."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import stdtrit, xlogy
from sklearn.metrics import (
    class_likelihood_ratios,
    confusion_matrix,
    precision_score,
    recall_score,
)

from medtasks.families import classification, closed_questions, kit_questions
from medtasks.metrics.clinical import Decision, at_prevalence, class_numbers
from medtasks.scores.scoring import numbers_by_class
from medtasks.stats.intervals import ratio_of_shares

from ..tables import each_row
from ..task_families import score_of, task_of


def drawn(seed, clusters=60, size=1, sensitivity=0.8, specificity=0.7):
    """Return decisions about clusters of equal size, whose members tend to get the same call."""
    chance = np.random.default_rng(seed)
    decisions = []
    for cluster in range(clusters):
        habit = chance.random()
        for _ in range(size):
            present = chance.random() < 0.4
            luck = habit if chance.random() < 0.5 else chance.random()
            decisions.append(
                Decision(
                    cluster,
                    bool(present),
                    bool(luck < (sensitivity if present else 1 - specificity)),
                )
            )
    return decisions


@pytest.mark.parametrize("seed", range(5))
def test_clinical_numbers_are_those_of_other_packages_or_formulas(
    seed,
):
    decisions = drawn(seed, clusters=150)
    targets, calls = [of.present for of in decisions], [of.called for of in decisions]
    (tn, fp), (fn, tp) = confusion_matrix(targets, calls)
    result = class_numbers("Yes", decisions)
    assert (
        result.present.positive,
        result.present.negative,
        result.absent.positive,
        result.absent.negative,
    ) == (
        tp,
        fn,
        fp,
        tn,
    )
    ratios = class_likelihood_ratios(targets, calls)
    expected = {
        "sensitivity": recall_score(targets, calls),
        "specificity": recall_score(targets, calls, pos_label=False),
        "ppv": precision_score(targets, calls),
        "npv": precision_score(targets, calls, pos_label=False),
        "lr_positive": ratios[0],
        "lr_negative": ratios[1],
    }
    assert {name: number.value for name, number in result.numbers.items()} == pytest.approx(
        expected
    )
    # Wilson's interval with Student's quantile; the ratio's log error of Simel et al., with the divisor n - 1.
    share, n = result.numbers["sensitivity"], tp + fn
    quantile = stdtrit(n - 1, 0.975)
    middle = (tp + quantile**2 / 2) / (n + quantile**2)
    half = quantile * math.sqrt(tp * fn / n + quantile**2 / 4) / (n + quantile**2)
    assert (share.low, share.high) == pytest.approx((middle - half, middle + half), rel=0.01)
    assert share.error == pytest.approx(math.sqrt(tp * fn / n**2 / (n - 1)))
    for name, first, second in (("lr_positive", tp, fp), ("lr_negative", fn, tn)):
        ratio, number = result.numbers[name], len(decisions)
        error = math.sqrt(
            (1 / first - 1 / n + 1 / second - 1 / (tn + fp)) * number / (number - 1)
        )
        assert ratio.error / ratio.value == pytest.approx(error)
        half = stdtrit(min(n, tn + fp) - 1, 0.975) * error
        assert (math.log(ratio.low), math.log(ratio.high)) == pytest.approx(
            (math.log(ratio.value) - half, math.log(ratio.value) + half)
        )


def test_clustered_errors_are_those_of_a_cluster_robust_regression():
    decisions = drawn(3, clusters=40, size=5)
    present = np.array([of.present for of in decisions])
    called = np.array([of.called for of in decisions], dtype=float)
    columns = np.stack([present, ~present], axis=1).astype(float)
    bread = np.linalg.inv(columns.T @ columns)
    shares = bread @ columns.T @ called
    residuals = columns * (called - columns @ shares)[:, None]
    sums = np.array([residuals[5 * n : 5 * n + 5].sum(axis=0) for n in range(40)])
    covariance = bread @ (sums.T @ sums) @ bread * 40 / 39
    gradient = np.array([1 / shares[0], -1 / shares[1]])
    numbers = class_numbers("Yes", decisions).numbers
    ratio = numbers["lr_positive"]
    assert ratio.error / ratio.value == pytest.approx(
        math.sqrt(gradient @ covariance @ gradient)
    )
    independent = class_numbers(
        "Yes", [of._replace(cluster=n) for n, of in enumerate(decisions)]
    ).numbers
    assert (
        numbers["sensitivity"].error > 1.1 * independent["sensitivity"].error
    )  # calls of one cluster are alike
    # Of samples with the class there are more or fewer in a cluster, which the correction depends on.
    assert numbers["sensitivity"].error == pytest.approx(math.sqrt(covariance[0, 0]), rel=0.02)


def test_invalid_replies_are_wrong_and_failed_ones_are_counted_only():
    cells = {
        (True, True): 6,
        (True, False): 2,
        (True, None): 2,
        (False, True): 3,
        (False, False): 12,
        (False, None): 5,
    }
    decisions = [
        Decision((key, n), *key) for key, number in cells.items() for n in range(number)
    ]
    lost = [Decision(n, n < 4, None, failed=True) for n in range(9)]
    result, without = class_numbers("Yes", [*decisions, *lost]), class_numbers("Yes", decisions)
    assert (
        result.present.invalid,
        result.present.failed,
        result.absent.invalid,
        result.absent.failed,
    ) == (2, 4, 5, 5)
    assert result.numbers == without.numbers
    expected = {"sensitivity": 6 / 10, "specificity": 12 / 20, "ppv": 6 / 9, "npv": 12 / 14}
    expected |= {"lr_positive": (6 / 10) / (3 / 20), "lr_negative": (2 / 10) / (12 / 20)}
    assert {name: number.value for name, number in result.numbers.items()} == pytest.approx(
        expected
    )
    adjusted = at_prevalence(result, 0.05).numbers
    assert adjusted["ppv_adjusted"].value == pytest.approx(
        0.05 * 0.6 / (0.05 * 0.6 + 0.95 * 3 / 20)
    )
    assert adjusted["npv_adjusted"].value == pytest.approx(
        0.95 * 0.6 / (0.95 * 0.6 + 0.05 * 0.2)
    )
    for name in ("ppv_adjusted", "npv_adjusted"):
        number = adjusted[name]
        logit = [
            math.log(part / (1 - part)) for part in (number.low, number.value, number.high)
        ]
        assert logit[1] - logit[0] == pytest.approx(
            logit[2] - logit[1]
        )  # symmetric on the logit
        half = stdtrit(9, 0.975) * number.error / (number.value * (1 - number.value))
        assert logit[2] - logit[1] == pytest.approx(half)


@each_row(
    "cells, undefined",
    [
        ({(True, True): 5, (False, False): 5}, {"lr_positive": "no upper bound"}),
        (
            {(True, True): 5, (True, False): 5},
            {
                "specificity": "is without",
                "lr_positive": "is without",
                "lr_negative": "is without",
            },
        ),
        (
            {(False, False): 9},
            dict.fromkeys(("sensitivity", "lr_positive", "lr_negative"), "no answered")
            | {"ppv": "no sample"},
        ),
        (
            {(True, True): 5, (False, True): 5},
            {"npv": "no sample", "lr_negative": "no upper bound"},
        ),
        (
            {(True, None): 5, (False, None): 5},
            dict.fromkeys(("ppv", "npv", "lr_positive", "lr_negative"), "no sample"),
        ),
        (
            {},
            dict.fromkeys(
                ("sensitivity", "specificity", "ppv", "npv", "lr_positive", "lr_negative"),
                "no ",
            ),
        ),
    ],
)
def test_what_is_not_defined_is_nan_with_its_reason(cells, undefined):
    result = at_prevalence(
        class_numbers(
            "Yes", [Decision((k, n), *k) for k, number in cells.items() for n in range(number)]
        ),
        0.1,
    )
    assert {
        name for name, number in result.numbers.items() if not math.isfinite(number.value)
    } == (result.undefined.keys())
    assert {
        name for name in result.undefined if not name.endswith("adjusted")
    } == undefined.keys()
    assert all(part in result.undefined[name] for name, part in undefined.items()), (
        result.undefined
    )


def from_cells(cells, size=1):
    """Return as many decisions as each cell says, in clusters of the same cell."""
    return [
        Decision((key, n // size), *key) for key, number in cells.items() for n in range(number)
    ]


def test_ratios_at_100_percent_have_the_interval_of_koopman():
    """0 of 5 missed and 191 of 195 called negative; statistical audit: LR- 0 [0 to 0.44], NPV at 5 % [97.7 to 100]."""
    cells = {(True, True): 5, (False, True): 4, (False, False): 191}
    numbers = at_prevalence(class_numbers("Yes", from_cells(cells)), 0.05).numbers
    ratio, npv = numbers["lr_negative"], numbers["npv_adjusted"]
    assert (ratio.value, ratio.low, npv.value, npv.high) == (0, 0, 1, 1)
    # The ends of p1 / p0 are those at which the likelihood ratio's score test, maximised by hand, has p = 0.05.
    assert ratio.high == pytest.approx(0.4436, abs=5e-4)
    assert npv.low == pytest.approx(0.95 / (0.95 + 0.05 * ratio.high))
    # All of 20 healthy are called negative: LR+ has no upper end, and the lower one is that of the swapped ratio.
    cells = {(True, True): 5, (True, False): 1, (False, False): 20}
    swapped = {(True, False): 20, (False, True): 5, (False, False): 1}
    result = at_prevalence(class_numbers("Yes", from_cells(cells)), 0.05)
    ratio, ppv = result.numbers["lr_positive"], result.numbers["ppv_adjusted"]
    assert (ratio.value, ratio.high, ppv.value, ppv.high) == (math.inf, math.inf, 1, 1)
    below = class_numbers("Yes", from_cells(swapped)).numbers["lr_positive"]
    assert (below.value, ratio.low) == (0, pytest.approx(1 / below.high))
    assert ppv.low == pytest.approx(0.05 * ratio.low / (0.95 + 0.05 * ratio.low))
    assert "no upper bound" in result.undefined["lr_positive"]
    assert "ppv_adjusted" not in result.undefined
    # Ten patients of three images with the class are worth no more than ten samples.
    clustered = class_numbers(
        "Yes", from_cells({(True, True): 30, (False, False): 90}, size=3)
    ).numbers
    single = class_numbers("Yes", from_cells({(True, True): 10, (False, False): 30})).numbers
    assert clustered["lr_negative"].high > single["lr_negative"].high
    always = class_numbers("Yes", from_cells({(True, True): 10, (False, True): 10})).numbers[
        "lr_positive"
    ]
    assert always.low < 1 == always.value < always.high


@each_row(
    "first, second",
    [((3, 12), (40, 50)), ((0, 5), (191, 195)), ((12, 12), (7, 9)), ((1, 30), (30, 30))],
)
def test_ends_of_a_ratio_are_what_the_score_test_just_does_not_reject(first, second):
    low, high = ratio_of_shares(
        (first[0] / first[1], second[0] / second[1]), (first[1], second[1]), None
    )

    def chi_square(ratio):
        """Pearson's statistic at the likeliest shares whose ratio is the given one, found by a search."""

        def likelihood(share):
            shares = (ratio * share, share)
            return -sum(
                xlogy(right, p) + xlogy(number - right, 1 - p)
                for (right, number), p in zip((first, second), shares, strict=True)
            )

        share = minimize_scalar(
            likelihood, bounds=(0, min(1, 1 / ratio) * (1 - 1e-9)), method="bounded"
        ).x
        return sum(
            (right - number * p) ** 2 / (number * p * (1 - p))
            for (right, number), p in zip((first, second), (ratio * share, share), strict=True)
        )

    assert chi_square(high) == pytest.approx(1.959964**2, rel=1e-3)
    assert chi_square(low) == pytest.approx(1.959964**2, rel=1e-3) if first[0] else low == 0


def decided(family, document, *replies, rule):
    return [family.decisions(score_of(family, document, reply, rule)) for reply in replies]


CLOSED = {
    "question": "Is there a mass?",
    "answer": "yes",
    "gold": "Yes",
    "kind": "binary",
    "choices": "",
    "options": ["Yes", "No"],
}
REPLIES = ("Yes", "No.", "I cannot tell.", None)
CALLS = [True, False, None, None]


@each_row(
    "family, document, rule, calls",
    [
        (
            closed_questions.CLOSED_QUESTIONS,
            {**CLOSED, "answer": "A", "source": "", "hallucination": ""},
            "medheval_strict",
            CALLS,
        ),
        (kit_questions.FAMILY, {**CLOSED, "answer": "Yes"}, "robust_kit_vqa", CALLS),
        (
            kit_questions.FAMILY,
            {**CLOSED, "answer": "no"},
            "medevalkit_vqa_fixed",
            [True, False, False, None],
        ),
        (kit_questions.OPEN_QUESTIONS, CLOSED, "robust_vqa", CALLS),
        (kit_questions.FAMILY, {**CLOSED, "answer": "the liver"}, "robust_kit_vqa", None),
    ],
)
def test_yes_no_replies_call_what_their_rule_calls_right(family, document, rule, calls):
    decisions = decided(family, {**document, "doc_id": "1"}, *REPLIES, rule=rule)
    is_yes = document["answer"].lower() in ("yes", "a")
    assert decisions == (
        [{}] * 4 if calls is None else [{"Yes": (is_yes, call)} for call in calls]
    )


def test_classes_have_the_texts_of_the_options_if_all_samples_share_them():
    family, task = classification.MULTI_LABEL, task_of("multilabel", {})
    documents = [
        {"doc_id": str(n), "options": ["mass", "edema"], "labels": [n % 2, 1]} for n in range(6)
    ]
    replies = ["mass and edema", "Edema.", "No finding.", None, "I cannot tell.", "mass"]
    scores = [
        score_of(family, document, reply, "robust_labels")
        for document, reply in zip(documents, replies, strict=True)
    ]
    mass, edema = numbers_by_class(task, documents, scores)
    assert (mass.name, edema.name) == ("mass", "edema")
    assert Counter(
        (
            mass.present.positive,
            mass.present.negative,
            mass.present.invalid,
            mass.present.failed,
        )
    ) == Counter((1, 1, 0, 1))
    assert (edema.present.positive, edema.present.failed, edema.absent.positive) == (2, 1, 0)
    documents[0] = {**documents[0], "options": ["mass", "oedema"]}
    assert [of_class.name for of_class in numbers_by_class(task, documents, scores)] == [
        "A",
        "B",
    ]
