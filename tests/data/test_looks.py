"""Looks are growing parts of whole clusters in a random order."""

import itertools

import numpy as np
import pytest

from medtasks.data.looks import Look, look_sizes
from medtasks.errors import MedTasksError


def clusters(number, seed=0):
    """Rows of clusters of 1 to 5 rows, scattered."""
    sizes = np.random.default_rng(seed).integers(1, 6, number)
    rows = np.repeat(np.arange(number), sizes)
    return np.random.default_rng(seed).permutation(rows).tolist()


def looks(of_rows, seed, count, rows):
    sizes = look_sizes(of_rows, seed, count, rows)
    return [Look(index, len(sizes), seed, size) for index, size in enumerate(sizes, 1)]


def test_parts_are_equal_whole_and_within_each_other():
    of_rows = clusters(120)
    parts = [look.rows(of_rows) for look in looks(of_rows, 7, 4, len(of_rows))]
    assert parts[-1] == list(range(len(of_rows)))
    for index, part in enumerate(parts, 1):
        assert abs(len(part) - len(of_rows) * index / 4) <= 2.5
        assert part == sorted(part)
        inside = {of_rows[row] for row in part}
        assert len(part) == sum(cluster in inside for cluster in of_rows)
    assert all(set(part) < set(other) for part, other in itertools.pairwise(parts))


def test_the_order_is_that_of_the_seed_and_no_range_of_rows():
    of_rows = list(range(400))
    first, second = (looks(of_rows, seed, 2, 400)[0].rows(of_rows) for seed in (0, 1))
    assert len(first) == len(second) == 200
    assert 70 < len(set(first) & set(second)) < 130
    assert 70 < sum(row < 200 for row in first) < 130
    # Recorded: plans in files keep their order on every machine.
    assert looks(range(8), 0, 4, 8)[1].rows(range(8)) == [1, 2, 4, 6]


def test_a_part_of_the_data_is_planned_and_a_large_cluster_costs_looks():
    of_rows = clusters(120)
    assert look_sizes(of_rows, 0, 4, 100)[-1] == pytest.approx(100, abs=2.5)
    assert len(look_sizes([0] * 90 + list(range(1, 11)), 0, 4, 100)) < 4
    assert look_sizes([0] * 10, 0, 4, 10) == [10]


def test_other_data_are_refused():
    of_rows = clusters(120)
    (first, *_) = looks(of_rows, 7, 4, len(of_rows))
    with pytest.raises(MedTasksError, match="look 1 of 4 does not end between two clusters"):
        first.rows([0] * len(of_rows))
    assert Look.parse(str(first)) == first
