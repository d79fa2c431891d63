"""Standard errors, against formulas written out with whole matrices and against the bootstrap."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.stats.standard_error import (
    Dyad,
    clustered_error,
    connected_components,
    dyadic_error,
    joined_clusters,
    mean_error,
    mean_standard_error,
    separate_units,
)

from . import error_matrices

VALUES = st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=2, max_size=30)


@given(data=st.data(), values=VALUES, weighted=st.booleans())
def test_clustered_is_what_matrices_give(data, values, weighted):
    clusters = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
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
        return clustered_error(kept, [one for _, one, _ in rows]), dyadic_error(kept, [both for _, *both in rows])

    before = errors(rows)
    seed.shuffle(rows)
    assert repr(errors(rows)) == repr(before)
    renamed = errors([(value, f"image {second}", f"image {first}") for value, first, second in rows])
    assert renamed[1].error == pytest.approx(before[1].error, nan_ok=True, abs=1e-12)


@given(data=st.data(), values=VALUES)
def test_samples_of_dyads_are_taken_together(data, values):
    """Two answers to a pair of images count as their mean, twice."""
    number = data.draw(st.integers(1, len(values)))
    dyads = [
        Dyad(f"p{place % number}", f"i{place % number}", f"i{place % number * 7 % 5}") for place in range(len(values))
    ]
    means = [values[place::number] for place in range(number)]
    pairs = [(dyad.first, dyad.second) for dyad in dyads[:number]]
    expected = dyadic_error([sum(held) / len(held) for held in means], pairs, [float(len(held)) for held in means])
    assert mean_error(values, dyads).error == pytest.approx(expected.error, nan_ok=True, abs=1e-12)


def test_dyads_that_share_nothing_are_independent_units():
    apart = [Dyad("p1", "a", "b"), Dyad("p2", "c", "d"), Dyad("p1", "a", "b")]
    assert separate_units(apart) == ["p1", "p2", "p1"]
    sharing = [*apart, Dyad("p3", "d", "e")]
    assert separate_units(sharing) == sharing
    assert separate_units(["x", "y"]) == ["x", "y"]


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


def test_samples_that_share_something_are_joined():
    assert joined_clusters(["p2", "p1", "p3", "p3"], ["atlas", "atlas", "x-ray", None]) == ["p1", "p1", "p3", "p3"]
    assert joined_clusters(["p2", "p1"], [None, None]) == ["p2", "p1"]
    assert connected_components([["a"], ["b"], ["a", "c"], ["c"], []]) == [0, 1, 0, 0, 4]
