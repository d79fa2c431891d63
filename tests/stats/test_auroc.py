"""AUROC and its error against scikit-learn, DeLong's and Obuchowski's formulas as plain loops, and by simulation."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from medtasks.stats.calibration import roc_area

from ..tables import each_row


def samples(seed, number=80, digits=1):
    chance = np.random.default_rng(seed)
    positive = (chance.random(number) < 0.3).astype(float)
    return np.round(chance.normal(size=number) + positive, digits).tolist(), positive.tolist()


def looped_error(scores, positive, clusters):
    """Obuchowski (1997), placement values summed by cluster, one pair of samples after the other."""
    kernel = lambda high, low: 1.0 if high > low else 0.5 if high == low else 0.0  # noqa: E731
    cases = [(s, c) for s, p, c in zip(scores, positive, clusters, strict=True) if p]
    controls = [(s, c) for s, p, c in zip(scores, positive, clusters, strict=True) if not p]
    area = np.mean([kernel(case, control) for case, _ in cases for control, _ in controls])
    of_case, of_control = {}, {}
    for score, cluster in cases:
        placement = np.mean([kernel(score, control) for control, _ in controls])
        of_case[cluster] = of_case.get(cluster, 0.0) + placement - area
    for score, cluster in controls:
        placement = np.mean([kernel(case, score) for case, _ in cases])
        of_control[cluster] = of_control.get(cluster, 0.0) + placement - area
    m, n, total = len(cases), len(controls), len(set(clusters))
    s10, s01 = (
        len(held) / ((len(held) - 1) * size) * sum(value**2 for value in held.values())
        for held, size in ((of_case, m), (of_control, n))
    )
    s11 = total / (total - 1) * sum(of_case.get(one, 0.0) * of_control.get(one, 0.0) for one in set(clusters))
    return math.sqrt(s10 / m + s01 / n + 2 * s11 / (m * n))


@each_row("seed, digits", [(0, 1), (1, 9), (2, 1)])
def test_against_scikit_learn_and_loops(seed, digits):
    scores, positive = samples(seed, digits=digits)
    for clusters in (list(range(80)), [n // 4 for n in range(80)], [n % 7 for n in range(80)]):
        found = roc_area(scores, positive, clusters)
        assert found.value == pytest.approx(roc_auc_score(positive, scores))
        assert found.error == pytest.approx(looped_error(scores, positive, clusters))
        assert found.low < found.value < found.high


def test_a_share_counts_on_both_sides():
    scores = [0.9, 0.7, 0.7, 0.4, 0.2]
    halves = roc_area(scores, [1, 0.5, 0.5, 1, 0], range(5))
    doubled = [(s, p, w) for s, p in zip(scores, [1, 0.5, 0.5, 1, 0], strict=True) for p, w in ((1, p), (0, 1 - p))]
    value, target, weight = zip(*doubled, strict=True)
    assert halves.value == pytest.approx(roc_auc_score(target, value, sample_weight=weight))


def test_order_and_names_of_clusters_change_nothing():
    scores, positive = samples(3)
    clusters = [n // 3 for n in range(80)]
    order = np.random.default_rng(1).permutation(80)
    mixed = roc_area(
        [scores[n] for n in order], [positive[n] for n in order], [f"patient {clusters[n]}" for n in order]
    )
    found = roc_area(scores, positive, clusters)
    assert mixed.value == found.value
    assert (mixed.error, mixed.low, mixed.high) == pytest.approx((found.error, found.low, found.high), rel=1e-12)


def test_what_is_not_defined_and_a_perfect_ranking():
    assert math.isnan(roc_area([0.1, 0.2], [1, 1], [0, 1]).value)
    assert math.isnan(roc_area([], [], []).value)
    one = roc_area([0.1, 0.2, 0.3], [0, 0, 1], range(3))
    assert one.value == 1
    assert math.isnan(one.error)
    found = roc_area([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 0, 1, 1], range(5))
    assert (found.value, found.high) == (1, 1)
    assert found.low < 0.5  # two positives show little


@each_row("size", [1, 4])
def test_coverage(size):
    chance, covered = np.random.default_rng(size), []
    for _ in range(400):
        positive = chance.random(160) < 0.3
        shared = np.repeat(chance.normal(size=160 // size), size)  # a patient's images are alike
        scores = positive * 1.0 + math.sqrt(0.5) * (shared + chance.normal(size=160))
        found = roc_area(scores.tolist(), positive.tolist(), np.repeat(np.arange(160 // size), size).tolist())
        covered.append(found.low <= 0.7602 <= found.high)  # Phi(1 / sqrt(2))
    assert 0.92 <= np.mean(covered) <= 0.98
