"""Standard errors, against formulas written out as loops and against the bootstrap."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.stats.standard_error import clustered_standard_error, mean_standard_error, two_way_standard_error

VALUES = st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=2, max_size=30)


def sandwich(values, clusters):
    """Liang and Zeger's variance of a mean as a double loop over pairs of values of one cluster."""
    mean, total = sum(values) / len(values), 0.0
    for i, first in enumerate(values):
        for j, second in enumerate(values):
            if clusters[i] == clusters[j]:
                total += (first - mean) * (second - mean)
    groups = len(set(clusters))
    return groups / (groups - 1) * total / len(values) ** 2


def simulated(seed, groups=60, size=5, spread=1.5):
    """Right and wrong answers whose chance differs from cluster to cluster."""
    random = np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-spread * random.standard_normal(groups)))
    clusters = np.repeat(np.arange(groups), random.integers(1, size + 1, groups))
    return (random.random(len(clusters)) < chance[clusters]).astype(float), clusters


@given(data=st.data(), values=VALUES)
def test_clustered_is_the_sandwich(data, values):
    clusters = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    if len(set(clusters)) < 2:
        assert math.isnan(clustered_standard_error(values, clusters))
    else:
        expected = math.sqrt(max(sandwich(values, clusters), 0))
        assert clustered_standard_error(values, clusters) == pytest.approx(expected, abs=1e-7)


@given(values=VALUES)
def test_singletons_give_the_simple_error(values):
    mean = sum(values) / len(values)
    expected = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
    assert mean_standard_error(values) == pytest.approx(expected)
    names = [("image", n) for n in range(len(values))]
    assert clustered_standard_error(values, names) == pytest.approx(expected)
    assert two_way_standard_error(values, names, range(len(values))) == pytest.approx(expected)


@given(data=st.data(), values=VALUES, seed=st.randoms(use_true_random=False))
def test_order_and_names_of_clusters_do_not_matter(data, values, seed):
    draw = st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values))
    rows = list(zip(values, data.draw(draw), data.draw(draw), strict=True))
    expected = two_way_standard_error(*zip(*rows, strict=True))
    seed.shuffle(rows)
    renamed = [(value, f"pair {first}", -second) for value, first, second in rows]
    assert two_way_standard_error(*zip(*renamed, strict=True)) == pytest.approx(expected, nan_ok=True, abs=1e-12)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_have_no_error(values):
    assert math.isnan(mean_standard_error(values))
    assert math.isnan(clustered_standard_error(values, ["a"] * len(values)))


def test_one_cluster_has_no_error():
    assert math.isnan(clustered_standard_error([0.0, 1.0, 1.0], ["a", "a", "a"]))
    assert math.isnan(two_way_standard_error([0.0, 1.0, 1.0], ["a", "a", "a"], [1, 2, 3]))
    assert math.isnan(two_way_standard_error([0.0, 1.0, 1.0], [1, 2, 3], ["a", "a", "a"]))


def test_one_cluster_per_value():
    with pytest.raises(ValueError, match="2 for 3"):
        clustered_standard_error([0.0, 1.0, 1.0], ["a", "b"])


def test_equal_values_have_error_zero():
    assert clustered_standard_error([1.0] * 4, "aabb") == mean_standard_error([1.0] * 4) == 0


def test_repeating_every_answer_does_not_shrink_the_error():
    values = [0.0, 1.0, 1.0, 0.0, 1.0]
    assert clustered_standard_error(values * 10, list(range(5)) * 10) == pytest.approx(mean_standard_error(values))


@pytest.mark.parametrize("seed", range(3))
def test_clustered_agrees_with_the_bootstrap_over_clusters(seed):
    values, clusters = simulated(seed)
    random = np.random.default_rng(seed)
    sums, sizes = np.bincount(clusters, weights=values), np.bincount(clusters)
    drawn = random.integers(0, len(sums), (4000, len(sums)))
    bootstrap = (sums[drawn].sum(1) / sizes[drawn].sum(1)).std(ddof=1)
    error = clustered_standard_error(values.tolist(), clusters.tolist())
    assert error == pytest.approx(bootstrap, rel=0.1)
    assert error > 1.15 * mean_standard_error(values.tolist())


def test_two_way_is_the_sum_of_both_less_their_intersection():
    random = np.random.default_rng(0)
    first, second = np.repeat(np.arange(40), 5), np.tile(np.arange(20), 10)
    values = random.normal(size=40)[first] + random.normal(size=20)[second]
    both = list(zip(first, second, strict=True))
    expected = sandwich(values, first) + sandwich(values, second) - sandwich(values, both)
    assert expected > max(sandwich(values, first), sandwich(values, second))
    assert two_way_standard_error(values, first.tolist(), second.tolist()) == pytest.approx(math.sqrt(expected))


def test_two_way_falls_back_to_the_larger_one_way_error():
    values = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]  # one right and one wrong answer in each pair: no variance between pairs
    pairs, images = [1, 1, 2, 2, 3, 3], [1, 2, 3, 4, 5, 6]
    assert sandwich(values, pairs) == 0
    assert two_way_standard_error(values, pairs, images) == pytest.approx(math.sqrt(sandwich(values, images)))
    values, images = [1.0, 0.0, 0.0, 1.0], [1, 2, 1, 2]
    assert two_way_standard_error(values, [1, 1, 2, 2], images) == 0
