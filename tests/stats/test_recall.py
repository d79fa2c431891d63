"""Posterior of balanced accuracy against scipy's distributions, by simulation, and at the edges."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from medtasks.stats import recall
from medtasks.stats.recall import mean_recall_posterior

SHARES, RECALLS = np.array([0.7, 0.15, 0.1, 0.04, 0.01]), np.array([0.9, 0.7, 0.6, 0.5, 0.4])


def test_one_class_is_the_interval_of_jeffreys():
    right = [1.0] * 27 + [0.0] * 13
    error, low, high = mean_recall_posterior(right, ["a"] * 40, range(40))
    exact = beta(27.5, 13.5)
    assert (low, high) == pytest.approx(exact.interval(0.95), abs=0.005)
    assert error == pytest.approx(exact.std(), rel=0.03)


def test_error_of_two_classes_is_that_of_independent_recalls():
    right, targets = [1.0] * 95 + [0.0] * 5 + [1.0, 0.0], [0] * 100 + [1] * 2
    error = mean_recall_posterior(right, targets, range(102))[0]
    assert error == pytest.approx(math.hypot(beta(95.5, 5.5).std(), beta(1.5, 1.5).std()) / 2, rel=0.03)


def test_order_and_names_change_nothing():
    right, targets, clusters = [1, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 2], [0, 0, 1, 2, 3, 3]
    found = mean_recall_posterior(right, targets, clusters)
    order = [4, 2, 5, 0, 3, 1]
    named = [f"patient {clusters[n]}" for n in order]
    assert mean_recall_posterior([right[n] for n in order], ["cba"[targets[n]] for n in order], named) == found


def test_one_cluster_tells_nothing():
    assert all(map(math.isnan, mean_recall_posterior([1.0, 0.0], [0, 1], ["p", "p"])))


@pytest.mark.parametrize(("number", "size"), [(100, 1), (300, 3)])
def test_coverage_with_a_class_of_one_percent(number, size, monkeypatch):
    monkeypatch.setattr(recall, "DRAWS", 1000)
    chance, covered = np.random.default_rng(7), []
    for _ in range(200):
        targets = chance.choice(5, number, p=SHARES)
        shared = np.repeat(chance.random(number // size), size)
        luck = np.where(chance.random(number) < 0.5, shared, chance.random(number))
        right = (luck < RECALLS[targets]).astype(float)
        clusters = np.repeat(np.arange(number // size), size)
        _, low, high = mean_recall_posterior(right.tolist(), targets.tolist(), clusters.tolist())
        covered.append(low <= RECALLS[np.unique(targets)].mean() <= high)
    assert np.mean(covered) >= 0.91
