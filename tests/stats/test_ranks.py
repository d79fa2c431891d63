"""Rank intervals: who may be first, by paired tests of all pairs."""

import numpy as np
import pytest

from medtasks.stats.paired import mcnemar
from medtasks.stats.ranks import rank_intervals
from medtasks.stats.standard_error import Dyad


def right(number, of=100):
    """A model that is right on the first samples."""
    return [1.0] * number + [0.0] * (of - number)


def test_a_model_is_behind_those_that_are_significantly_better_after_holm():
    values = np.array([right(90), right(80), right(79), right(20)])
    assert rank_intervals(values, range(100)) == [(1, 1), (2, 3), (2, 3), (4, 4)]
    assert rank_intervals(1 - values, range(100), higher_is_better=False) == [
        (1, 1),
        (2, 3),
        (2, 3),
        (4, 4),
    ]
    # Seven differing samples are significant alone, and no more among the six tests of four equal models.
    assert mcnemar(0, 7) < 0.05 < 6 * mcnemar(0, 7)
    assert rank_intervals(np.array([right(90), right(83)]), range(100)) == [(1, 1), (2, 2)]
    assert (
        rank_intervals(np.array([right(90), right(83), right(83), right(83)]), range(100))
        == [(1, 4)] * 4
    )


def test_models_are_compared_on_the_samples_that_both_have():
    values = np.array([right(100), right(60)])
    assert rank_intervals(values, range(100)) == [(1, 1), (2, 2)]
    values[1, 60:] = np.nan
    assert rank_intervals(values, range(100)) == [(1, 2), (1, 2)]
    values[1] = np.nan
    assert rank_intervals(values, range(100)) == [(1, 2), (1, 2)]


def test_gains_and_losses_that_cancel_within_every_patient_show_no_difference():
    first = np.array([1.0, 0.5] * 20)
    second = np.array([0.5, 1.0] * 20)

    ranks = rank_intervals(np.stack([first, second]), [f"patient {n // 2}" for n in range(40)])

    assert ranks == [(1, 2), (1, 2)]


def test_samples_of_one_unit_are_no_independent_evidence():
    values = np.array([right(100), right(50)])
    assert rank_intervals(values, [f"patient {sample // 25}" for sample in range(100)]) == [
        (1, 2),
        (1, 2),
    ]
    assert rank_intervals(values, [f"patient {sample // 2}" for sample in range(100)]) == [
        (1, 1),
        (2, 2),
    ]
    shared = [Dyad(str(sample), "one image", f"image {sample}") for sample in range(100)]
    assert rank_intervals(values, shared) == [(1, 2), (1, 2)]
    apart = [Dyad(str(sample), f"first {sample}", f"second {sample}") for sample in range(100)]
    assert rank_intervals(values, apart) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("size", [1, 4])
def test_true_ranks_lie_inside(size):
    random = np.random.default_rng(20261129)
    chances = np.array([0.4, 0.5, 0.5, 0.6])
    inside = 0
    for _ in range(40):
        ease = random.normal(size=(1, 60, 1)) * 0.3
        of_unit = random.normal(size=(4, 60, 1)) * 0.3
        draws = random.random((4, 60, size)) < chances[:, None, None] + 0.3 * np.tanh(
            ease + of_unit
        )
        ranks = rank_intervals(
            draws.reshape(4, -1).astype(float), [str(n // size) for n in range(60 * size)]
        )
        inside += (
            ranks[3][0] <= 1
            and ranks[0][1] >= 4
            and all(low <= 2 and high >= 3 for low, high in ranks[1:3])
        )
    assert inside >= 38
