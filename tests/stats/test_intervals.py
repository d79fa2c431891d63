"""Intervals: how often simulated truth lies in them, against independent formulas, and at the edges."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.metrics.metric import evaluate
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import clustered_standard_error, mean_standard_error, two_way_standard_error

DRAWS = 600  # the simulated coverage of a true 95 % has a standard error of 0.9 %


def nominal(covered):
    return 0.92 <= np.mean(covered) <= 0.98


def within(value, ends):
    return ends[0] <= value <= ends[1]


@pytest.mark.parametrize("units", [40, 176, 352])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
def test_coverage_of_independent_answers_without_simulation(units, share):
    """Every number of right answers with its binomial probability."""
    coverage = 0.0
    for right in range(units + 1):
        value = right / units
        ends = interval(value, math.sqrt(value * (1 - value) / (units - 1)), units, share=True)
        coverage += scipy.stats.binom.pmf(right, units, share) * within(share, ends)
    assert nominal([coverage])


@pytest.mark.parametrize("units", [40, 176, 352])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
def test_coverage_of_independent_answers(units, share):
    random = np.random.default_rng(1)
    right = (random.random((DRAWS, units)) < share).astype(float)
    covered = [
        within(share, interval(float(row.mean()), mean_standard_error(row.tolist()), units, share=True))
        for row in right
    ]
    assert nominal(covered)


@pytest.mark.parametrize(("share", "spread", "pictures"), [(0.5, 0.2, 228), (0.8, 0.09, 228), (0.3, 0.1, 100)])
def test_coverage_of_answers_to_pairs_that_share_pictures(share, spread, pictures):
    """Each pair and each picture makes its answers more or less likely right; the mean over both is the truth."""
    random = np.random.default_rng(2)
    pairs = np.repeat(np.arange(176), 2)
    covered = []
    for _ in range(DRAWS):
        picture = random.integers(0, pictures, 352)
        of_pair, of_picture = random.uniform(-spread, spread, 176), random.uniform(-spread, spread, pictures)
        right = (random.random(352) < share + of_pair[pairs] + of_picture[picture]).astype(float)
        error = two_way_standard_error(right.tolist(), pairs.tolist(), picture.tolist())
        covered.append(within(share, interval(float(right.mean()), error, 176, share=True)))
    assert nominal(covered)


@pytest.mark.parametrize("confused", [0.3, 0.7])
def test_coverage_of_set_and_individual_accuracy(confused):
    """Confused pairs have exactly one right answer, so that answers of a pair are negatively correlated."""
    random = np.random.default_rng(3)
    both, pairs = 0.6, [str(pair) for pair in range(176) for _ in range(2)]
    of_answers, of_pairs = confused / 2 + (1 - confused) * both, (1 - confused) * both
    sets, clustered, two_way = [], [], []
    for _ in range(DRAWS):
        first = [random.random() < confused for _ in range(176)]
        said = [("AA" if same else "AB" if random.random() < both else "BA") for same in first]
        letters = [letter for reply in said for letter in reply]
        scores = [
            {"pair_id": pair, "position": place % 2 + 1, "image_id": f"image {place}", "categories": ()}
            | {"target": "AB"[place % 2], "value": letters[place]}
            for place, pair in enumerate(pairs)
        ]
        errors = {name: mean.error for name, mean in evaluate(PAIRED_CHOICE.metrics[:2], scores).items()}
        right = [float(score["value"] == score["target"]) for score in scores]
        solved, share = said.count("AB") / 176, float(np.mean(right))
        sets.append(within(of_pairs, interval(solved, errors["set_accuracy"], 176, share=True)))
        by_pair = clustered_standard_error(right, pairs)
        clustered.append(within(of_answers, interval(share, by_pair, 176, share=True)))
        two_way.append(within(of_answers, interval(share, errors["individual_accuracy"], 176, share=True)))
    assert nominal(sets)
    assert nominal(clustered)
    assert np.mean(two_way) >= 0.92  # its error is never less than that of independent answers


@pytest.mark.parametrize(("right", "wrong"), [(1, 1), (2, 6), (6, 0.7)])
@pytest.mark.parametrize("patients", [40, 176])
def test_coverage_of_shares_clustered_by_patient(patients, right, wrong):
    random = np.random.default_rng(4)
    truth = right / (right + wrong)
    covered = []
    for _ in range(DRAWS):
        number = random.integers(1, 9, patients)
        patient = np.repeat(np.arange(patients), number)
        answers = (random.random(len(patient)) < random.beta(right, wrong, patients)[patient]).astype(float)
        error = clustered_standard_error(answers.tolist(), patient.tolist())
        covered.append(within(truth, interval(float(answers.mean()), error, patients, share=True)))
    assert nominal(covered)


@pytest.mark.parametrize(
    ("share", "truth", "draw"),
    [
        (False, 3.0, lambda random, size: random.normal(3, 2, size)),
        (False, 1.0, lambda random, size: random.exponential(1, size)),
        (True, 0.25, lambda random, size: random.beta(1, 3, size)),
        (True, 0.8, lambda random, size: random.beta(2, 0.5, size)),
    ],
)
@pytest.mark.parametrize("units", [40, 352])
def test_coverage_of_continuous_scores(units, share, truth, draw):
    random = np.random.default_rng(5)
    covered = []
    for row in draw(random, (2 * DRAWS, units)):
        covered.append(within(truth, interval(float(row.mean()), mean_standard_error(row.tolist()), units, share)))
    assert nominal(covered)


@pytest.mark.parametrize(("right", "units"), [(0, 12), (12, 12), (3, 12), (300, 352)])
def test_is_wilsons_interval_with_students_quantile(right, units):
    """Against statsmodels' formula as scipy has it; scipy's quantile is normal, so the size is scaled to it."""
    value = right / units
    error = math.sqrt(value * (1 - value) / units)
    ends = interval(value, error, units, share=True)
    factor = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, units - 1)) ** 2
    size = units * factor
    middle = (value * size + 1.9208) / (size + 3.8415)  # as printed in textbooks, z = 1.96
    half = 1.95996 * math.sqrt(size) / (size + 3.8415) * math.sqrt(value * (1 - value) + 3.8415 / 4 / size)
    assert ends == pytest.approx((max(0, middle - half), min(1, middle + half)), abs=2e-4)


def test_normal_quantile_where_the_units_are_not_known():
    known = scipy.stats.binomtest(30, 100).proportion_ci(0.95, "wilson")
    assert interval(0.3, math.sqrt(0.3 * 0.7 / 100), None, share=True) == pytest.approx((known.low, known.high))
    assert interval(5.0, 1.0, None, share=False) == pytest.approx((5 - 1.95996, 5 + 1.95996), abs=1e-4)


def test_students_interval_of_other_scores():
    values = [3.0, 5.5, 4.0, 7.5, 6.0]
    expected = scipy.stats.t.interval(0.95, 4, np.mean(values), scipy.stats.sem(values))
    assert interval(float(np.mean(values)), mean_standard_error(values), 5, share=False) == pytest.approx(expected)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    ("value", "error", "units"),
    [
        (math.nan, 0.1, 9),
        (0.5, math.nan, 9),
        (0.5, math.inf, 9),
        (0.5, 0.1, 1),
        (0.5, 0.1, 0),
        (math.nan, math.nan, None),
    ],
)
def test_nothing_is_said_without_value_error_or_two_units(value, error, units, share):
    assert all(map(math.isnan, interval(value, error, units, share)))


def test_all_units_agree():
    low, high = interval(1.0, 0.0, 40, share=True)
    assert 0.90 < low < 0.92
    assert high == 1
    assert interval(0.0, 0.0, 40, share=True) == pytest.approx((0, 1 - low))
    assert all(map(math.isnan, interval(1.0, 0.0, None, share=True)))
    assert all(map(math.isnan, interval(3.0, 0.0, 40, share=False)))
    low, high = interval(0.5, 1e-17, 176, share=True)  # always A: exactly one answer of each pair is right
    assert (low, high) == pytest.approx((0.427, 0.573), abs=0.002)


@pytest.mark.parametrize(("value", "error"), [(1.2, 0.1), (-0.1, 0.1), (0.5, -0.1)])
def test_what_is_no_share(value, error):
    with pytest.raises(ValueError, match="expected a share between 0 and 1"):
        interval(value, error, 10, share=True)


@given(st.floats(0, 1), st.floats(0, 0.6), st.none() | st.integers(2, 10_000))
def test_ends_of_a_share_hold_it_and_stay_between_0_and_1(value, error, units):
    low, high = interval(value, error, units, share=True)
    assert (math.isnan(low) and math.isnan(high)) or 0 <= low <= value <= high <= 1


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.3), st.integers(3, 500))
def test_mirrored_shares_have_mirrored_ends(value, error, units):
    low, high = interval(value, error, units, share=True)
    other_low, other_high = interval(1 - value, error, units, share=True)
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low))


@given(st.floats(0.05, 0.95), st.floats(0.01, 0.2), st.integers(3, 500))
def test_fewer_units_and_larger_errors_are_wider(value, error, units):
    def width(error, units):
        low, high = interval(value, error, units, share=True)
        return high - low

    assert width(error, units) >= width(error, units + 1) - 1e-12
    assert width(error * 1.1, units) > width(error, units)
