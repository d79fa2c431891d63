"""Standard errors, intervals and a posterior, against matrices, loops over drawn units, formulas and simulation."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from medtasks.metrics.class_scores import count_classes, multiclass_metrics, unseen_classes
from medtasks.stats import bootstrap
from medtasks.stats.bootstrap import posterior_ends, values_with_errors
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import (
    Dyad,
    clustered_error,
    connected_components,
    covariance,
    dyadic_error,
    joined_clusters,
    mean_error,
    mean_standard_error,
    separate_units,
)

from ..tables import each_row
from . import error_matrices

VALUES = st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=2, max_size=30)


@given(data=st.data(), values=VALUES, weighted=st.booleans())
def test_clustered_is_what_matrices_give(data, values, weighted):
    clusters = data.draw(
        st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values))
    )
    weights = [1.0 + place % 3 for place in range(len(values))] if weighted else None
    found = clustered_error(values, clusters, weights)
    error, degrees = error_matrices.clustered(values, clusters, weights)
    assert found.error == pytest.approx(error, nan_ok=True, abs=1e-7)
    assert found.degrees == pytest.approx(degrees, nan_ok=True)
    assert found.clusters == len(set(clusters))


@given(data=st.data(), values=VALUES, weighted=st.booleans())
def test_dyadic_is_what_matrices_give(data, values, weighted):
    members = st.tuples(st.integers(0, 12), st.integers(0, 12))
    pairs = data.draw(st.lists(members, min_size=len(values), max_size=len(values)))
    weights = [1.0 + place % 2 for place in range(len(values))] if weighted else None
    found = dyadic_error(values, pairs, weights)
    error, degrees = error_matrices.dyadic(values, pairs, weights)
    assert found.error == pytest.approx(error, nan_ok=True, abs=1e-7)
    assert found.degrees == pytest.approx(degrees, nan_ok=True)


@given(data=st.data(), values=VALUES, seed=st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(data, values, seed):
    draw = st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values))
    rows = list(zip(values, data.draw(draw), data.draw(draw), strict=True))

    def errors(rows):
        kept = [value for value, *_ in rows]
        return clustered_error(kept, [one for _, one, _ in rows]), dyadic_error(
            kept, [both for _, *both in rows]
        )

    before = errors(rows)
    seed.shuffle(rows)
    assert repr(errors(rows)) == repr(before)
    renamed = errors(
        [(value, f"image {second}", f"image {first}") for value, first, second in rows]
    )
    assert renamed[1].error == pytest.approx(before[1].error, nan_ok=True, abs=1e-12)


@given(data=st.data(), values=VALUES)
def test_samples_of_dyads_are_taken_together(data, values):
    """Two answers to a pair of images count as their mean, twice."""
    number = data.draw(st.integers(1, len(values)))
    dyads = [
        Dyad(f"p{place % number}", f"i{place % number}", f"i{place % number * 7 % 5}")
        for place in range(len(values))
    ]
    means = [values[place::number] for place in range(number)]
    pairs = [(dyad.first, dyad.second) for dyad in dyads[:number]]
    expected = dyadic_error(
        [sum(held) / len(held) for held in means], pairs, [float(len(held)) for held in means]
    )
    assert mean_error(values, dyads).error == pytest.approx(
        expected.error, nan_ok=True, abs=1e-12
    )


def test_dyads_that_share_nothing_are_independent_units():
    apart = [Dyad("p1", "a", "b"), Dyad("p2", "c", "d"), Dyad("p1", "a", "b")]
    assert separate_units(apart) == ["p1", "p2", "p1"]
    sharing = [*apart, Dyad("p3", "d", "e")]
    assert separate_units(sharing) == sharing
    assert separate_units(["x", "y"]) == ["x", "y"]


def test_shares_between_0_and_1_may_be_worth_more_samples_than_there_are():
    """Twenty shares of .4 and .6: p (1 - p) is 0.25, and the variance of the mean 0.01 / 19."""
    graded = clustered_error([0.4, 0.6] * 10, range(20))
    assert graded.effective == pytest.approx(0.25 * 19 / 0.01)
    ends = interval(0.5, graded.error, graded.degrees, share=True, effective=graded.effective)
    student = scipy.stats.t.interval(0.95, 19, 0.5, math.sqrt(0.01 / 19))
    assert ends == pytest.approx(
        student, abs=0.0003
    )  # Wilson's interval of so many samples is symmetric
    # Six patients, whose shares all differ from 0 and 1, show how they vary; one of six that is not right does not.
    patients = [number // 2 for number in range(12)]
    assert (
        clustered_error(
            [0.4, 0.6, 0.5, 0.5, 0.6, 0.4, 0.3, 0.5, 0.7, 0.5, 0.6, 0.6], patients
        ).effective
        > 30
    )
    assert clustered_error([1.0] * 11 + [0.9], patients).effective == 6
    assert clustered_error([0.0, 1.0] * 6, patients).effective == 6, "0 and 1 as before"


def test_edges():
    assert mean_standard_error([1.0, 2.0, 4.0, 4.0]) == pytest.approx(0.75)
    for values in ([], [1.0]):
        assert math.isnan(mean_standard_error(values))
        assert math.isnan(clustered_error(values, ["a"] * len(values)).error)
    assert math.isnan(clustered_error([0.0, 1.0, 1.0], ["a", "a", "a"]).error)
    assert math.isnan(dyadic_error([0.0, 1.0, 1.0], [("a", "b"), ("a", "c"), ("d", "a")]).error)
    assert clustered_error([1.0] * 4, "aabb").error == mean_standard_error([1.0] * 4) == 0
    with pytest.raises(ValueError, match="2 for 3"):
        clustered_error([0.0, 1.0, 1.0], ["a", "b"])


@each_row(
    "units",
    [
        [{"p1"}, {"p2"}, {"p3"}, {"p4"}],
        [{"a", "b"}, {"b", "c"}, {"d"}, {"a", "e"}],
        [{"a", "b"}, {"c", "d"}, {"a", "c"}, {"b", "d"}],
    ],
)
def test_covariance_sums_products_of_units_that_share_a_member(units):
    units = [frozenset(unit) for unit in units]
    first, second = [0.5, -0.25, 0.125, 1.0], [2.0, 0.5, -1.0, 4.0]
    expected = sum(
        a * b
        for u, a in zip(units, first, strict=True)
        for v, b in zip(units, second, strict=True)
        if u & v
    )
    found = covariance(
        dict(zip(units, first, strict=True)), dict(zip(units, second, strict=True))
    )
    assert found == pytest.approx(expected)


def test_samples_that_share_something_are_joined():
    assert joined_clusters(["p2", "p1", "p3", "p3"], ["atlas", "atlas", "x-ray", None]) == [
        "p1",
        "p1",
        "p3",
        "p3",
    ]
    assert joined_clusters(["p2", "p1"], [None, None]) == ["p2", "p1"]
    assert connected_components([["a"], ["b"], ["a", "c"], ["c"], []]) == [0, 1, 0, 0, 4]


TABLES = st.integers(1, 4).flatmap(
    lambda cells: st.lists(st.tuples(*[st.integers(0, 3)] * cells), min_size=2, max_size=30)
)


def errors_of(table, metrics, resamples=1000, units=None):
    """The standard errors of metrics, by default of one row per unit."""
    units = range(len(table)) if units is None else units
    found = values_with_errors(np.array(table), units, metrics, resamples)
    return [value for name, value in found.items() if name.endswith("_stderr")]


@given(table=TABLES, shuffle=st.randoms(use_true_random=False))
def test_the_order_of_units_and_their_parts_do_not_matter_to_the_last_digit(table, shuffle):
    def metrics(sums):
        return {"total": np.sqrt(sums.sum(axis=-1) + 1.0)}

    expected = errors_of(table, metrics, 50)
    parts = [
        (unit, row)
        for unit, total in enumerate(table)
        for row in (total, (1,) * len(total), (-1,) * len(total))
    ]
    shuffle.shuffle(table)
    assert errors_of(table, metrics, 50) == expected
    shuffle.shuffle(parts)
    assert (
        errors_of(
            [row for _, row in parts], metrics, 50, [f"patient {unit}" for unit, _ in parts]
        )
        == expected
    )


def test_the_error_is_the_deviation_over_the_draws():
    seen = []

    def metrics(sums):
        seen.append(sums / 7)
        return {"first": sums[..., 0] / 7, "second": sums[..., 1] / 7}

    errors = errors_of([[n, n**2] for n in range(9)], metrics, 5)
    *_, drawn = seen
    assert all(np.ravel(whole).tolist() == [36 / 7, 204 / 7] for whole in seen[:-1])
    assert drawn.shape == (5, 2)
    assert errors == pytest.approx(drawn.std(axis=0, ddof=1))


def test_draws_without_a_value_are_left_out():
    """Two units of ten have positives; a resample without them has no recall."""
    units = np.array([[1, 1]] + [[0, 1]] + [[0, 0]] * 8)

    def recall(sums):
        return {
            "recall": np.where(
                sums[..., 1] > 0, sums[..., 0] / np.maximum(sums[..., 1], 1), np.nan
            )
        }

    (error,) = errors_of(units, recall, 3000)
    random = np.random.default_rng(0)
    drawn = [
        float(recall(units[random.integers(0, 10, 10)].sum(axis=0))["recall"])
        for _ in range(3000)
    ]
    assert 200 < np.isnan(drawn).sum() < 500
    assert error == pytest.approx(np.nanstd(drawn, ddof=1), rel=0.05)


def test_equal_units_have_error_zero_and_an_undefined_metric_none():
    def metrics(sums):
        # The last is undefined for the whole, even where it is defined in resamples.
        last = np.where(sums[..., 1] == 10, np.nan, sums[..., 1] / 3)
        return {
            "equal": sums[..., 0] / 7,
            "none": np.full(sums.shape[:-1], np.nan),
            "not of all": last,
        }

    table = [[1, n] for n in range(5)]
    assert errors_of(table, metrics) == pytest.approx([0.0, math.nan, math.nan], nan_ok=True)
    assert errors_of(table, metrics, units="ppppp") == pytest.approx(
        [math.nan] * 3, nan_ok=True
    )
    assert values_with_errors(np.empty((0, 2)), [], metrics) == {}


SHARES, RECALLS = np.array([0.7, 0.15, 0.1, 0.04, 0.01]), np.array([0.9, 0.7, 0.6, 0.5, 0.4])


def class_ends(targets, values, clusters):
    """Return the ends of the posteriors of metrics of five classes."""
    cells = count_classes(targets, values, 5)
    return posterior_ends(
        cells, clusters, multiclass_metrics, *unseen_classes(targets, values, 5)
    )


def test_posteriors_are_the_intervals_of_jeffreys_whatever_order_and_names():
    low, high = class_ends([0] * 400, [0] * 270 + [None] * 130, range(400))["balanced_accuracy"]
    assert (low, high) == pytest.approx(beta(270.5, 130.5).interval(0.95), abs=0.005)
    # The recalls of two classes are independent, and a class of two images says little.
    targets, values = [0] * 400 + [1] * 2, [0] * 380 + [1] * 20 + [1, 0]
    low, high = class_ends(targets, values, range(402))["balanced_accuracy"]
    chance = np.random.default_rng(1)
    drawn = (chance.beta(380.5, 20.5, 20_000) + chance.beta(1.5, 1.5, 20_000)) / 2
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.02)
    rows = list(
        zip(
            [0, 0, 1, 1, 0, 2, 1, 0],
            [0, 1, 1, None, 0, 2, 2, 0],
            [0, 0, 1, 2, 3, 3, 4, 5],
            strict=True,
        )
    )
    renamed = [
        (target, value, f"patient {patient}") for target, value, patient in rows[4:] + rows[:4]
    ]
    assert class_ends(*zip(*renamed, strict=True)) == class_ends(*zip(*rows, strict=True))
    assert class_ends([0, 1, 1], [0, 1, 0], [0, 1, 1]) == {}, "two patients show no spread"


def test_a_posterior_of_few_patients_is_as_wide_as_students_interval():
    """Eight patients of 250 images, whose share of right answers differs; both classes in equal parts."""
    chance = np.random.default_rng(2)
    patients, targets = np.repeat(np.arange(8), 250), np.tile([0, 1], 1000)
    right = chance.random(2000) < chance.uniform(0.5, 0.9, 8)[patients]
    low, high = class_ends(
        targets.tolist(), np.where(right, targets, 1 - targets).tolist(), patients.tolist()
    )["macro_accuracy"]
    student = scipy.stats.t.interval(
        0.95, 7, right.mean(), scipy.stats.sem(right.reshape(8, 250).mean(axis=1))
    )
    assert (low, high) == pytest.approx(student, abs=0.03)
    assert high - low > 0.1


@pytest.mark.parametrize(("number", "size"), [(100, 1), (300, 3)])
def test_coverage_of_posteriors_with_a_class_of_one_percent(number, size, monkeypatch):
    monkeypatch.setattr(bootstrap, "RESAMPLES", 300)
    chance, covered = np.random.default_rng(7), []
    joint = SHARES[:, np.newaxis] * (
        np.diag(RECALLS) + (1 - np.diag(np.ones(5))) * (1 - RECALLS)[:, np.newaxis] / 4
    )
    f1 = 2 * np.diag(joint) / (joint.sum(axis=0) + joint.sum(axis=1))
    clusters = np.repeat(np.arange(number // size), size).tolist()
    for _ in range(200):
        targets = chance.choice(5, number, p=SHARES)
        shared = np.repeat(chance.random(number // size), size)
        luck = np.where(chance.random(number) < 0.5, shared, chance.random(number))
        wrong = (targets + chance.integers(1, 5, number)) % 5
        values = np.where(luck < RECALLS[targets], targets, wrong)
        ends = class_ends(targets.tolist(), values.tolist(), clusters)
        truths = {
            "balanced_accuracy": RECALLS[np.unique(targets)].mean(),
            "macro_f1": f1.mean(),
        }
        covered.append(
            [ends[name][0] <= truth <= ends[name][1] for name, truth in truths.items()]
        )
    assert np.mean(covered, axis=0).min() >= 0.91


@each_row("right, wrong, patients", [(1, 1, 176), (2, 6, 40), (6, 0.7, 40)])
def test_coverage_of_shares_clustered_by_patient(patients, right, wrong):
    random = np.random.default_rng(4)
    truth = right / (right + wrong)
    covered = []
    for _ in range(600):  # the simulated coverage of a true 95 % has a standard error of 0.9 %
        number = random.integers(1, 9, patients)
        patient = np.repeat(np.arange(patients), number)
        answers = (
            random.random(len(patient)) < random.beta(right, wrong, patients)[patient]
        ).astype(float)
        found = clustered_error(answers.tolist(), patient.tolist())
        low, high = interval(
            float(answers.mean()),
            found.error,
            found.degrees,
            share=True,
            effective=found.effective,
        )
        covered.append(low <= truth <= high)
    assert 0.92 <= np.mean(covered) <= 0.98


@each_row("right, units", [(0, 12), (12, 12), (3, 12), (300, 352)])
def test_is_wilsons_interval_with_students_quantile(right, units):
    """Against statsmodels' formula as scipy has it; scipy's quantile is normal, so the size is scaled to it."""
    value = right / units
    error = math.sqrt(value * (1 - value) / units)
    ends = interval(value, error, units - 1, share=True, effective=None if error > 0 else units)
    factor = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, units - 1)) ** 2
    size = units * factor
    middle = (value * size + 1.9208) / (size + 3.8415)  # as printed in textbooks, z = 1.96
    half = (
        1.95996
        * math.sqrt(size)
        / (size + 3.8415)
        * math.sqrt(value * (1 - value) + 3.8415 / 4 / size)
    )
    assert ends == pytest.approx((max(0, middle - half), min(1, middle + half)), abs=2e-4)


def test_normal_quantile_without_known_units_and_students_interval_of_other_scores():
    known = scipy.stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
    assert interval(0.3, math.sqrt(0.3 * 0.7 / 100), None, share=True) == pytest.approx(
        (known.low, known.high)
    )
    assert interval(5.0, 1.0, None, share=False) == pytest.approx(
        (5 - 1.95996, 5 + 1.95996), abs=1e-4
    )
    values = [3.0, 5.5, 4.0, 7.5, 6.0]
    expected = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
    assert interval(
        float(np.mean(values)), mean_standard_error(values), 4, share=False
    ) == pytest.approx(expected)


def test_nothing_is_said_without_value_error_or_two_units_nor_of_what_is_no_share():
    nan = math.nan
    nothing = [
        (nan, 0.1, 9),
        (0.5, nan, 9),
        (0.5, math.inf, 9),
        (0.5, 0.1, nan),
        (0.5, 0.1, 0),
        (nan, nan, None),
    ]
    for value, error, units in nothing:
        for share in (True, False):
            assert all(map(math.isnan, interval(value, error, units, share)))
    for value, error in ((1.2, 0.1), (-0.1, 0.1), (0.5, -0.1)):
        with pytest.raises(ValueError, match="expected a share between 0 and 1"):
            interval(value, error, 10, share=True)


def test_all_units_agree():
    low, high = interval(1.0, 0.0, 39, share=True, effective=40)
    assert 0.90 < low < 0.92
    assert high == 1
    assert interval(0.0, 0.0, 39, share=True, effective=40) == pytest.approx((0, 1 - low))
    assert all(map(math.isnan, interval(1.0, 0.0, 39, share=True)))
    assert all(map(math.isnan, interval(3.0, 0.0, 39, share=False, effective=40)))
    low, high = interval(
        0.5, 1e-17, 175, share=True, effective=176
    )  # always A: one answer of each pair is right
    assert (low, high) == pytest.approx((0.427, 0.573), abs=0.002)


@given(st.floats(0, 1), st.floats(0, 0.6), st.none() | st.integers(2, 10_000))
def test_ends_of_a_share_hold_it_and_stay_between_0_and_1(value, error, units):
    low, high = interval(value, error, units, share=True)
    assert (math.isnan(low) and math.isnan(high)) or 0 <= low <= value <= high <= 1
