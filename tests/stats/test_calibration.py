"""Calibration and AUROC, and a judge against people's labels: plain loops, scikit-learn, PPI++, simulation, edges."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, cohen_kappa_score, recall_score, roc_auc_score

from medtasks.stats.calibration import (
    CURVE_POINTS,
    PredictionTable,
    _areas,
    calibration,
    roc_area,
)
from medtasks.stats.judged_share import judged_share
from medtasks.stats.standard_error import Dyad, clustered_error

from ..tables import each_row


def model(seed, samples=300, options=4, sharpness=1.0):
    """Probabilities and keys of a model whose probabilities are right, or too sure of itself."""
    chance = np.random.default_rng(seed)
    true = chance.dirichlet([0.7] * options, samples)
    keys = [int(chance.choice(options, p=row)) for row in true]
    said = true**sharpness
    return (said / said.sum(axis=1, keepdims=True)).tolist(), keys


def measured(probabilities, keys, units=None, left_out=0):
    return calibration(
        probabilities, keys, range(len(keys)) if units is None else units, "note", left_out
    )


def looped_error(probabilities, keys):
    """Guo et al., equation 3, one sample after the other; bins (low, high]."""
    bins = [[] for _ in range(15)]
    for row, key in zip(probabilities, keys, strict=True):
        confidence = max(row)
        place = next(index for index in range(15) if confidence <= (index + 1) / 15 + 1e-12)
        bins[place].append((confidence, row.index(confidence) == key))
    return sum(abs(sum(c for c, _ in held) - sum(r for _, r in held)) for held in bins) / len(
        keys
    )


def looped_area(probabilities, keys):
    """The mean over coverages of the share of wrong answers among the most confident; no ties."""
    ordered = sorted(zip(probabilities, keys, strict=True), key=lambda item: -max(item[0]))
    wrong = [row.index(max(row)) != key for row, key in ordered]
    return sum(sum(wrong[: number + 1]) / (number + 1) for number in range(len(wrong))) / len(
        wrong
    )


@each_row("options, sharpness", [(2, 0.5), (5, 1.0), (2, 3.0)])
def test_against_loops(options, sharpness):
    probabilities, keys = model(1, options=options, sharpness=sharpness)
    found = measured(probabilities, keys)
    assert found.ece.value == pytest.approx(looped_error(probabilities, keys))
    assert found.aurc.value == pytest.approx(looped_area(probabilities, keys))
    right = [row.index(max(row)) == key for row, key in zip(probabilities, keys, strict=True)]
    assert found.auroc.value == pytest.approx(
        roc_auc_score(right, [max(row) for row in probabilities])
    )
    assert found.auroc.low < found.auroc.value < found.auroc.high
    assert found.accuracy.value == np.mean(right)
    assert found.confidence == pytest.approx(np.mean([max(row) for row in probabilities]))
    # Scores that are no probabilities have discrimination only.
    of_texts = calibration(
        probabilities, keys, range(len(keys)), "note", 0, are_probabilities=False
    )
    undefined = (
        of_texts.ece.value,
        of_texts.brier.value,
        of_texts.debiased_ece,
        of_texts.confidence,
    )
    assert (all(map(math.isnan, undefined)), of_texts.bins) == (True, ())
    same = ("accuracy", "aurc", "auroc", "coverage")
    assert [getattr(of_texts, name) for name in same] == [getattr(found, name) for name in same]


def test_brier_score_against_scikit_learn_and_of_equal_probabilities():
    probabilities, keys = model(3, options=2)
    expected = brier_score_loss(keys, [row[1] for row in probabilities])
    assert measured(probabilities, keys).brier.value == pytest.approx(2 * expected)
    for options in (2, 3, 5):
        found = measured([[1 / options] * options] * 4, [0, 1, 0, 1])
        assert found.brier.value == pytest.approx(1 - 1 / options)
        assert (found.ece.value, found.aurc.value, len(found.coverage)) == (
            *(
                pytest.approx(abs(1 / options - found.accuracy.value)),
                pytest.approx(1 - 1 / options),
            ),
            1,
        )


def test_bins_have_their_upper_edge():
    found = measured(
        [[0.6, 0.4], [0.6 + 1e-6, 0.4 - 1e-6], [1.0, 0.0], [3 * 0.2, 1 - 3 * 0.2]], [0, 0, 0, 1]
    )
    filled = {index: one for index, one in enumerate(found.bins) if one.samples}
    assert {index: one.samples for index, one in filled.items()} == {
        8: 2,
        9: 1,
        14: 1,
    }  # 3 * 0.2 is above 0.6
    assert filled[8].accuracy == 0.5
    assert (filled[8].low, filled[8].high) == pytest.approx((8 / 15, 9 / 15))
    assert [one.low for one in found.bins[1:]] == [one.high for one in found.bins[:-1]]
    assert math.isnan(found.bins[0].confidence)
    assert math.isnan(found.bins[0].accuracy)
    for options in (3, 5):  # chance is on an edge
        found = measured([[1 / options] * options], [0])
        assert [one.samples for one in found.bins].index(1) == 15 // options - 1


def test_ties_different_numbers_of_options_and_coverage():
    for key, expected in (
        (0, 0.5),
        (1, 0.5),
        (2, 0.0),
    ):  # a tie counts as a random choice among its options
        assert measured([[0.4, 0.4, 0.2]], [key]).accuracy.value == expected
        assert measured([[0.1 + 0.2, 0.3, 0.4 - 1e-17]], [key]).accuracy.value == float(
            key == 2
        )
    found = measured([[0.9, 0.1], [0.5, 0.25, 0.25], [0.2] * 5], [0, 1, 4])
    assert found.accuracy.value == pytest.approx((1 + 0 + 0.2) / 3)
    assert found.brier.value == pytest.approx(
        (0.01 + 0.01 + 0.25 + 0.5625 + 0.0625 + 0.64 + 4 * 0.04) / 3
    )
    # Coverage runs down from all, and equal confidences enter together.
    found = measured([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.6, 0.4]], [0, 0, 1, 1])
    points = [(point.coverage, point.accuracy, point.confidence) for point in found.coverage]
    assert points == [(1.0, 0.5, 0.6), (0.75, pytest.approx(2 / 3), 0.7), (0.25, 1.0, 0.9)]
    assert found.aurc.value == pytest.approx((0 + 2 * 1 / 3 + 0.5) / 4)


def test_a_long_curve_is_thinned_out():
    probabilities, keys = model(5, samples=3000)
    points = measured(probabilities, keys).coverage
    ordered = sorted((max(row) for row in probabilities), reverse=True)
    assert 0.9 * CURVE_POINTS < len(points) <= CURVE_POINTS
    assert points[0].coverage == 1
    assert points[-1].confidence == pytest.approx(ordered[0])
    assert all(before.coverage > after.coverage for before, after in itertools.pairwise(points))
    assert (
        max(before.coverage - after.coverage for before, after in itertools.pairwise(points))
        < 0.01
    )
    for point in points:
        assert point.confidence == pytest.approx(ordered[round(point.coverage * 3000) - 1])


def test_perfect_wrong_one_unit_and_nothing():
    right, wrong = (measured([[1.0, 0.0]] * 30, [key] * 30) for key in (0, 1))
    assert [
        measure.value for measure in (right.accuracy, right.ece, right.brier, right.aurc)
    ] == [
        1,
        0,
        0,
        0,
    ]
    assert 0.85 < right.accuracy.low < 0.9 < right.accuracy.high == 1
    assert [
        measure.value for measure in (wrong.accuracy, wrong.ece, wrong.brier, wrong.aurc)
    ] == [
        0,
        1,
        2,
        1,
    ]
    for found in (right, wrong):  # all units agree: nothing is known of the spread
        for measure in (found.ece, found.brier, found.aurc):
            assert math.isnan(measure.low)
            assert math.isnan(measure.high)
    found = measured(*model(6, samples=5), units=["patient"] * 5)
    assert (found.samples, math.isnan(found.debiased_ece)) == (5, True)
    for measure in (found.accuracy, found.ece, found.brier, found.aurc):
        assert [
            math.isnan(number) for number in (measure.value, measure.low, measure.high)
        ] == [
            False,
            True,
            True,
        ]
    found = measured([], [], left_out=7)
    assert (found.samples, found.left_out, found.coverage, len(found.bins)) == (0, 7, (), 15)
    assert all(map(math.isnan, (found.accuracy.value, found.ece.low, found.confidence)))
    for row, key, message in (
        ([0.5, 0.6], 0, "sum to 1"),
        ([1.5, -0.5], 0, "sum to 1"),
        ([math.nan, 1.0], 0, "sum to 1"),
        ([0.5, 0.5], 2, "index of one of 2 options"),
        ([0.5, 0.5], -1, "index of one of 2 options"),
    ):
        with pytest.raises(ValueError, match=message):
            measured([row], [key])


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(2, 40), st.randoms(use_true_random=False))
def test_order_and_names_of_units_change_nothing(seed, samples, shuffled):
    probabilities, keys = model(seed, samples=samples)
    units = [number // 3 for number in range(samples)]
    rows = list(
        zip(probabilities, keys, [f"patient {9 - unit}" for unit in units], strict=True)
    )
    shuffled.shuffle(rows)
    assert repr(measured(*zip(*rows, strict=True))) == repr(
        measured(probabilities, keys, units)
    )


def test_drawn_areas_are_those_of_repeated_samples():
    """A weight is the same as that many samples of equal confidence."""
    answers = PredictionTable.of(
        [(0.9, 1.0, 0), (0.8, 0.0, 0), (0.7, 1.0, 0), (0.6, 0.0, 0)], "abcd"
    )
    weights = np.array(
        [2.0, 0.0, 1.0, 1.0]
    )  # samples are in order of confidence, from the least
    repeated = [([0.6, 0.4], 1), ([0.6, 0.4], 1), ([0.8, 0.2], 1), ([0.9, 0.1], 0)]
    expected = measured(*zip(*repeated, strict=True)).aurc.value
    assert _areas(answers, weights[np.newaxis])[0] == pytest.approx(expected)


def simulated(draws, samples, cluster, fall):
    """Intervals of models whose answers are right with their confidence minus ``fall``, in clusters that agree."""
    chance = np.random.default_rng(9)
    for _ in range(draws):
        confidence = np.repeat(0.5 + 0.5 * chance.beta(2, 2, samples // cluster), cluster)
        luck = np.where(
            chance.random(samples) < 0.5,
            np.repeat(chance.random(samples // cluster), cluster),
            chance.random(samples),
        )
        keys = (luck >= confidence - fall).astype(int)
        rows = np.stack([confidence, 1 - confidence], axis=1).tolist()
        yield measured(
            rows, keys.tolist(), np.repeat(np.arange(samples // cluster), cluster).tolist()
        )


@each_row("fall, cluster", [(0.0, 1), (0.05, 2), (0.2, 1)])
def test_coverage(monkeypatch, fall, cluster):
    monkeypatch.setattr("medtasks.stats.calibration.RESAMPLES", 200)
    found = list(simulated(110, 352, cluster, fall))
    spread = 0.05  # variance of the confidence: a beta distribution on half of the line
    confidence, square = 0.75, 0.75**2 + spread / 4
    truth = {
        "accuracy": confidence - fall,
        # E[2 (c - y)^2] with P(y) = c - fall
        "brier": 2 * (confidence - square + fall * (2 * confidence - 1)),
        "ece": fall,  # the same in every bin
    }
    for name, value in truth.items():
        covered = [
            measure.low <= value <= measure.high
            for measure in (getattr(one, name) for one in found)
        ]
        assert 0.9 <= np.mean(covered) <= 0.99, name
    assert all(one.ece.low <= one.ece.value <= one.ece.high for one in found)
    debiased = np.mean([one.debiased_ece for one in found])
    if fall == 0:
        assert debiased < 0.5 * np.mean([one.ece.value for one in found])
    if fall == 0.2:
        assert debiased == pytest.approx(0.2, abs=0.02)


def drawn_scores(seed, number=80, digits=1):
    chance = np.random.default_rng(seed)
    positive = (chance.random(number) < 0.3).astype(float)
    return np.round(chance.normal(size=number) + positive, digits).tolist(), positive.tolist()


def looped_area_error(scores, positive, clusters):
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
    s11 = (
        total
        / (total - 1)
        * sum(of_case.get(one, 0.0) * of_control.get(one, 0.0) for one in set(clusters))
    )
    return math.sqrt(s10 / m + s01 / n + 2 * s11 / (m * n))


@each_row("seed, digits", [(0, 1), (1, 9), (2, 1)])
def test_against_scikit_learn_and_loops(seed, digits):
    scores, positive = drawn_scores(seed, digits=digits)
    for clusters in (list(range(80)), [n // 4 for n in range(80)], [n % 7 for n in range(80)]):
        found = roc_area(scores, positive, clusters)
        assert found.value == pytest.approx(roc_auc_score(positive, scores))
        assert found.error == pytest.approx(looped_area_error(scores, positive, clusters))
        assert found.low < found.value < found.high


def hanley_mcneil(area, positives, negatives):
    """Variance of Hanley and McNeil (1982), formula 2; 0.0321 squared for 0.9 with 50 and 50."""
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    total = (
        area * (1 - area) + (positives - 1) * (q1 - area**2) + (negatives - 1) * (q2 - area**2)
    )
    return total / (positives * negatives)


def test_ends_of_an_area_are_those_from_which_it_is_as_far_as_students_quantile():
    assert math.sqrt(hanley_mcneil(0.9, 50, 50)) == pytest.approx(0.0321, abs=5e-5)
    for shift, spread, larger in ((0.3, 2, True), (2.5, 1, False)):
        chance = np.random.default_rng(3)
        positive = np.repeat([1.0, 0.0], [20, 60])
        scores = chance.normal(size=80) * np.where(positive, spread, 1) + shift * positive
        found = roc_area(scores.tolist(), positive.tolist(), range(80))
        scale = found.error**2 / hanley_mcneil(found.value, 20, 60)
        assert (scale > 1) == larger
        scale = scale if larger else (scale + 1) / 2
        distances = [
            (found.value - end) / math.sqrt(scale * hanley_mcneil(end, 20, 60))
            for end in (found.low, found.high)
        ]
        assert distances[0] == pytest.approx(-distances[1])
        assert 2.0 < distances[0] < 2.1  # Student's quantile with 19 to 78 degrees of freedom


@each_row(
    "positives, negatives, truth, spread",
    [(20, 100, 0.97, 1), (30, 170, 0.97, 2), (50, 50, 0.99, 1)],
)
def test_coverage_of_areas_near_1(positives, negatives, truth, spread):
    """Normal scores, for which the interval of DeLong's error on any scale covers 74 to 93 %."""
    chance, covered = np.random.default_rng(11), []
    positive = [1.0] * positives + [0.0] * negatives
    distance = NormalDist().inv_cdf(truth) * math.hypot(spread, 1)
    for _ in range(200):
        scores = [*chance.normal(distance, spread, positives), *chance.normal(size=negatives)]
        found = roc_area(scores, positive, range(len(positive)))
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.93


def test_shares_order_and_names_and_what_is_not_defined():
    halves = roc_area([0.9, 0.7, 0.7, 0.4, 0.2], [1, 0.5, 0.5, 1, 0], range(5))
    doubled = [
        (s, p, w)
        for s, share in ((0.9, 1), (0.7, 0.5), (0.7, 0.5), (0.4, 1), (0.2, 0))
        for p, w in ((1, share), (0, 1 - share))
    ]
    value, target, weight = zip(*doubled, strict=True)
    assert halves.value == pytest.approx(roc_auc_score(target, value, sample_weight=weight))
    scores, positive = drawn_scores(3)
    clusters = [n // 3 for n in range(80)]
    order = np.random.default_rng(1).permutation(80)
    mixed = roc_area(
        *zip(*((scores[n], positive[n], f"patient {clusters[n]}") for n in order), strict=True)
    )
    found = roc_area(scores, positive, clusters)
    assert mixed.value == found.value
    assert (mixed.error, mixed.low, mixed.high) == pytest.approx(
        (found.error, found.low, found.high), rel=1e-12
    )
    assert math.isnan(roc_area([0.1, 0.2], [1, 1], [0, 1]).value)
    assert math.isnan(roc_area([], [], []).value)
    single = roc_area([0.1, 0.2, 0.3], [0, 0, 1], range(3))
    assert (single.value, math.isnan(single.error)) == (1, True)
    found = roc_area([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 0, 1, 1], range(5))
    assert (found.value, found.high) == (1, 1)
    assert found.low < 0.5  # two positives show little


NONE = math.nan


def replies(seed, number=400, share=0.4, right=0.9, wrong=0.8):
    chance = np.random.default_rng(seed)
    truth = (chance.random(number) < share).astype(float)
    verdicts = np.where(
        truth == 1, chance.random(number) < right, chance.random(number) > wrong
    ).astype(float)
    return chance, truth, verdicts


def plain(verdicts, labels, weights=None, asked=None, clusters=None):
    number = len(verdicts)
    weights = [1.0] * number if weights is None else weights
    return judged_share(
        verdicts, labels, weights, asked or [True] * number, clusters or range(number)
    )


def test_by_hand():
    """Judge: 60 right, 40 wrong. Labelled: 10 of the first, 8 right; 5 of the second, 1 right."""
    verdicts = [1.0] * 60 + [0.0] * 40
    labels = [1.0] * 8 + [0.0] * 2 + [NONE] * 50 + [1.0] + [0.0] * 4 + [NONE] * 35
    found = plain(verdicts, labels)
    assert found.labels == 15
    assert found.corrected.value == pytest.approx(0.6 * 0.8 + 0.4 * 0.2)
    assert found.sensitivity.value == pytest.approx(0.48 / 0.56)
    assert found.specificity.value == pytest.approx(0.32 / 0.44)
    assert found.kappa.value == pytest.approx(
        (0.8 - (0.6 * 0.56 + 0.4 * 0.44)) / (1 - (0.6 * 0.56 + 0.4 * 0.44))
    )
    # With one right and one wrong label more of each verdict: 62 and 42 replies, 9 of 12 and 2 of 7 labels right.
    shares, sizes, labelled = (9 / 12, 2 / 7), (62, 42), (12, 7)
    mean = sum(size * share for size, share in zip(sizes, shares, strict=True)) / 104
    between = (
        sum(size * (share - mean) ** 2 for size, share in zip(sizes, shares, strict=True))
        / 104**2
    )
    within = sum(
        (s / 104) ** 2 * p * (1 - p) / n
        for s, p, n in zip(sizes, shares, labelled, strict=True)
    )
    assert found.corrected.error == pytest.approx(math.sqrt((between + within) * 104 / 103))


def test_all_labelled_is_what_scikit_learn_says():
    _, truth, verdicts = replies(1)
    found = plain(verdicts, truth)
    assert found.sensitivity.value == pytest.approx(recall_score(truth, verdicts))
    assert found.specificity.value == pytest.approx(recall_score(1 - truth, 1 - verdicts))
    assert found.kappa.value == pytest.approx(cohen_kappa_score(truth, verdicts))
    assert found.corrected.value == pytest.approx(truth.mean())
    assert found.corrected.error == pytest.approx(
        clustered_error(truth.tolist(), range(400)).error, rel=0.02
    )


def test_drawn_labels_give_the_estimate_of_ppi_plus_plus():
    chance, truth, verdicts = replies(2)
    drawn = chance.permutation(400)[:120]
    labels = np.full(400, NONE)
    labels[drawn] = truth[drawn]
    y, f = truth[drawn], verdicts[drawn]
    tuned = np.cov(y, f)[0, 1] / np.var(
        f, ddof=1
    )  # of labelled replies among all, and not of others besides
    found = plain(verdicts, labels)
    assert found.corrected.value == pytest.approx(
        y.mean() + tuned * (verdicts.mean() - f.mean())
    )
    variance = (
        np.var(y - tuned * f, ddof=1) / 120
        + (np.var(y, ddof=1) - np.var(y - tuned * f, ddof=1)) / 400
    )
    assert found.corrected.error == pytest.approx(math.sqrt(variance), rel=0.05)


def test_weights_undo_a_draw_by_another_verdict():
    _, truth, verdicts = replies(3, number=4000)
    labels, weights = np.full(4000, NONE), np.ones(4000)
    for answer, every in (
        (1.0, 2),
        (0.0, 10),
    ):  # twice as dense where people say right: no fair draw without weights
        drawn = np.flatnonzero(truth == answer)[::every]
        labels[drawn], weights[drawn] = truth[drawn], every
    assert plain(verdicts, labels, weights).corrected.value == pytest.approx(
        truth.mean(), abs=0.02
    )
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
    clustered = plain(
        np.repeat(verdicts, 4), np.repeat(truth, 4), clusters=[n // 4 for n in range(400)]
    )
    for name in ("corrected", "sensitivity", "specificity", "kappa"):
        single, copied, right = (getattr(one, name) for one in (once, repeated, clustered))
        assert copied.error < 0.6 * single.error  # copies taken for samples
        assert right.error == pytest.approx(single.error, rel=0.1)
    pairs = [Dyad(str(one), f"{one} a", f"{one} b") for one in four]
    in_pairs, in_clusters = (
        plain(verdicts, truth, clusters=pairs),
        plain(verdicts, truth, clusters=four),
    )
    assert in_pairs.corrected.error == pytest.approx(in_clusters.corrected.error, rel=0.1)


def test_a_judge_without_a_seen_mistake_has_an_interval():
    verdicts = [1.0, 0.0] * 50
    found = plain(verdicts, [*verdicts[:40], *[NONE] * 60])
    assert (found.sensitivity.value, found.specificity.value, found.kappa.value) == (
        1.0,
        1.0,
        1.0,
    )
    assert 0.75 < found.sensitivity.low < 0.97
    assert found.sensitivity.high == 1.0
    assert found.corrected.error > clustered_error(verdicts, range(100)).error


def test_too_few_labels_are_no_number():
    found = plain(
        [1.0] * 5 + [0.0] * 5,
        [1.0, 0.0, 1.0, NONE, NONE, 0.0, NONE, NONE, NONE, NONE],
    )
    assert math.isnan(found.corrected.value)
    assert found.labels == 4
