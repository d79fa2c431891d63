"""Rank intervals by simulation: in how many boards each model's true ranks, and those of all models, lie inside.

Models answer the same samples of the same units, some units and samples are easier for all of them.
"""

import argparse

import numpy as np

from medtasks.stats.ranks import rank_intervals

_EQUAL = (0.5,) * 6
_STEPS = (0.50, 0.52, 0.54, 0.56, 0.58, 0.60)
_MIXED = (0.4, 0.5, 0.5, 0.5, 0.6, 0.6)
# Chances of the models, units, samples per unit.
SCENES = (
    (_EQUAL, 200, 1),
    (_MIXED, 200, 1),
    (_EQUAL, 60, 5),
    (_STEPS, 60, 5),
    (_MIXED, 60, 5),
    (_EQUAL, 20, 10),
)
_SHARED, _OF_UNIT = (
    0.3,
    0.3,
)  # parts of the variance of how easy a sample is: for all models, and of one model's unit


def true_ranks(chances: tuple[float, ...]) -> list[tuple[int, int]]:
    """Return the first and last rank of each model; equal ones share theirs."""
    ranks = []
    for chance in chances:
        better = sum(other > chance for other in chances)
        worse = sum(other < chance for other in chances)
        ranks.append((better + 1, len(chances) - worse))
    return ranks


def simulate(
    chances: tuple[float, ...], units: int, size: int, boards: int, seed: int
) -> tuple[float, float]:
    """Return the shares of intervals, and of whole boards, that hold the true ranks."""
    from scipy.stats import norm

    random = np.random.default_rng(seed)
    limits = norm.ppf(1 - np.array(chances))[:, None, None]
    names = [str(sample // size) for sample in range(units * size)]
    truth = true_ranks(chances)
    inside = []
    for _ in range(boards):
        ease = np.sqrt(_SHARED) * random.normal(size=(1, units, 1))
        of_unit = np.sqrt(_OF_UNIT) * random.normal(size=(len(chances), units, 1))
        noise = np.sqrt(1 - _SHARED - _OF_UNIT) * random.normal(
            size=(len(chances), units, size)
        )
        right = (ease + of_unit + noise > limits).astype(float).reshape(len(chances), -1)
        found = rank_intervals(right, names)
        holds = [
            low <= first and last <= high
            for (low, high), (first, last) in zip(found, truth, strict=True)
        ]
        inside.append(holds)
    return float(np.mean(inside)), float(np.mean(np.all(inside, axis=1)))


def main() -> None:
    """Simulate all scenes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=400)
    boards = parser.parse_args().boards
    print("models units samples  intervals  boards")
    for number, (chances, units, size) in enumerate(SCENES):
        single, whole = simulate(chances, units, size, boards, number)
        print(
            f"{len(chances):6} {units:5} {units * size:7}  {single:9.1%}  {whole:6.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
