"""A judge against people's labels: by hand, against scikit-learn, PPI++'s own formula, and clustered errors."""

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, recall_score

from medtasks.stats.judged_share import judged_share
from medtasks.stats.standard_error import Dyad, clustered_error

NONE = math.nan


def replies(seed, number=400, share=0.4, right=0.9, wrong=0.8):
    chance = np.random.default_rng(seed)
    truth = (chance.random(number) < share).astype(float)
    verdicts = np.where(truth == 1, chance.random(number) < right, chance.random(number) > wrong).astype(float)
    return chance, truth, verdicts


def plain(verdicts, labels, weights=None, asked=None, clusters=None):
    number = len(verdicts)
    weights = [1.0] * number if weights is None else weights
    return judged_share(verdicts, labels, weights, asked or [True] * number, clusters or range(number))


def test_by_hand():
    """Judge: 60 right, 40 wrong. Labelled: 10 of the first, 8 right; 5 of the second, 1 right."""
    verdicts = [1.0] * 60 + [0.0] * 40
    labels = [1.0] * 8 + [0.0] * 2 + [NONE] * 50 + [1.0] + [0.0] * 4 + [NONE] * 35
    found = plain(verdicts, labels)
    assert found.labels == 15
    assert found.corrected.value == pytest.approx(0.6 * 0.8 + 0.4 * 0.2)
    assert found.sensitivity.value == pytest.approx(0.48 / 0.56)
    assert found.specificity.value == pytest.approx(0.32 / 0.44)
    assert found.kappa.value == pytest.approx((0.8 - (0.6 * 0.56 + 0.4 * 0.44)) / (1 - (0.6 * 0.56 + 0.4 * 0.44)))
    # With one right and one wrong label more of each verdict: 62 and 42 replies, 9 of 12 and 2 of 7 labels right.
    shares, sizes, labelled = (9 / 12, 2 / 7), (62, 42), (12, 7)
    mean = sum(size * share for size, share in zip(sizes, shares, strict=True)) / 104
    between = sum(size * (share - mean) ** 2 for size, share in zip(sizes, shares, strict=True)) / 104**2
    within = sum((s / 104) ** 2 * p * (1 - p) / n for s, p, n in zip(sizes, shares, labelled, strict=True))
    assert found.corrected.error == pytest.approx(math.sqrt((between + within) * 104 / 103))


def test_all_labelled_is_what_scikit_learn_says():
    _, truth, verdicts = replies(1)
    found = plain(verdicts, truth)
    assert found.sensitivity.value == pytest.approx(recall_score(truth, verdicts))
    assert found.specificity.value == pytest.approx(recall_score(1 - truth, 1 - verdicts))
    assert found.kappa.value == pytest.approx(cohen_kappa_score(truth, verdicts))
    assert found.corrected.value == pytest.approx(truth.mean())
    assert found.corrected.error == pytest.approx(clustered_error(truth.tolist(), range(400)).error, rel=0.02)


def test_drawn_labels_give_the_estimate_of_ppi_plus_plus():
    chance, truth, verdicts = replies(2)
    drawn = chance.permutation(400)[:120]
    labels = np.full(400, NONE)
    labels[drawn] = truth[drawn]
    y, f = truth[drawn], verdicts[drawn]
    tuned = np.cov(y, f)[0, 1] / np.var(f, ddof=1)  # of labelled replies among all, and not of others besides
    found = plain(verdicts, labels)
    assert found.corrected.value == pytest.approx(y.mean() + tuned * (verdicts.mean() - f.mean()))
    variance = np.var(y - tuned * f, ddof=1) / 120 + (np.var(y, ddof=1) - np.var(y - tuned * f, ddof=1)) / 400
    assert found.corrected.error == pytest.approx(math.sqrt(variance), rel=0.05)


def test_weights_undo_a_draw_by_another_verdict():
    _, truth, verdicts = replies(3, number=4000)
    labels, weights = np.full(4000, NONE), np.ones(4000)
    for answer, every in ((1.0, 2), (0.0, 10)):  # twice as dense where people say right: no fair draw without weights
        drawn = np.flatnonzero(truth == answer)[::every]
        labels[drawn], weights[drawn] = truth[drawn], every
    assert plain(verdicts, labels, weights).corrected.value == pytest.approx(truth.mean(), abs=0.02)
    assert plain(verdicts, labels).corrected.value > truth.mean() + 0.2


def test_replies_that_the_judge_did_not_read_count_as_the_rule_says():
    verdicts, labels = [1.0, 1.0, 0.0, 0.0] + [1.0] * 4, [1.0, 0.0, 0.0, 0.0] + [NONE] * 4
    found = plain(verdicts, labels, asked=[True] * 4 + [False] * 4)
    assert found.corrected.value == pytest.approx((2 * 0.5 + 4) / 8)
    assert found.sensitivity.value == 1.0
    assert found.specificity.value == pytest.approx(2 / 3)


def test_errors_are_over_clusters_and_dyads():
    _, truth, verdicts = replies(4, number=100)
    four = [number // 4 for number in range(100)]
    once, repeated = plain(verdicts, truth), plain(np.repeat(verdicts, 4), np.repeat(truth, 4))
    clustered = plain(np.repeat(verdicts, 4), np.repeat(truth, 4), clusters=[n // 4 for n in range(400)])
    for name in ("corrected", "sensitivity", "specificity", "kappa"):
        single, copied, right = (getattr(one, name) for one in (once, repeated, clustered))
        assert copied.error < 0.6 * single.error  # copies taken for samples
        assert right.error == pytest.approx(single.error, rel=0.1)
    pairs = [Dyad(str(one), f"{one} a", f"{one} b") for one in four]
    in_pairs, in_clusters = plain(verdicts, truth, clusters=pairs), plain(verdicts, truth, clusters=four)
    assert in_pairs.corrected.error == pytest.approx(in_clusters.corrected.error, rel=0.1)


def test_a_judge_without_a_seen_mistake_has_an_interval():
    verdicts = [1.0, 0.0] * 50
    found = plain(verdicts, [*verdicts[:40], *[NONE] * 60])
    assert (found.sensitivity.value, found.specificity.value, found.kappa.value) == (1.0, 1.0, 1.0)
    assert 0.75 < found.sensitivity.low < 0.97
    assert found.sensitivity.high == 1.0
    assert found.corrected.error > clustered_error(verdicts, range(100)).error


def test_too_few_labels_are_no_number():
    found = plain([1.0] * 5 + [0.0] * 5, [1.0, 0.0, 1.0, NONE, NONE, 0.0, NONE, NONE, NONE, NONE])
    assert math.isnan(found.corrected.value)
    assert found.labels == 4
