"""Comparisons that may stop early: type I error, coverage, questions and power, by simulation.

Models that are equal, or differ by the planned difference or twice that, are compared at four looks with the product's
own p-value, on growing parts of whole clusters in a random order, in 16 settings of pairs on MediConfusion's own graph
of images (as in ``intervals.py``, part "tests") and 6 settings of clusters of unequal size. The planned difference is
the one that a single test of all samples finds with 80 %. Prints one line per setting and exits with 1 where a limit is
not kept:

- equal models are told apart at some look in at most 6 % of runs;
- the repeated interval at the last look taken holds the true difference in at least 93 %;
- at twice the planned difference, at most 60 % of the questions are asked on average, in the mean over the settings.

    python benchmarks/looks.py DYADIC_JSONL [RUNS_PER_SETTING [pairs | clusters]]

DYADIC_JSONL is that of ``intervals.py``. Models that differ take a quarter of the runs.
"""

import json
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
from intervals import CLUSTERS, LATENT, SHARES, Floats, Graph

from medtasks.data.looks import Look, look_sizes
from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import ALPHA, POWER, compare_paired, draws_at, sign_flip_test
from medtasks.stats.sequential import Boundaries, boundaries
from medtasks.stats.standard_error import connected_components, mean_error

LOOKS = 4
ORDERS = 25  # different orders of the clusters
CHANCE = 0.005  # Monte Carlo error allowed on a limit
ALIKE = (0.1, 0.4)  # correlation within clusters
VARIATION = 1.3  # coefficient of variation of cluster sizes

Draw = Callable[[float], tuple[Floats, Floats]]
"""Draws the values of two models whose shares differ by some difference."""


@dataclass(frozen=True)
class Setting:
    """Samples of one kind, shape (samples,), and how values are drawn."""

    name: str
    units: Sequence[Hashable]  # of the test
    clusters: Sequence[Hashable]  # that no look cuts
    draw: Draw


@dataclass
class Rates:
    """Rates of runs with one true difference."""

    stopped: float = 0.0  # told apart at some look
    single: float = 0.0  # told apart by one test of all samples
    held: float = 0.0  # the repeated interval holds the true difference
    share: float = 0.0  # of the questions


def pair_settings(graph: Graph) -> Iterator[Setting]:
    """Yield settings of pairs that share images."""
    random = np.random.default_rng(1)

    def draw(latent: float, share: float, difference: float) -> tuple[Floats, Floats]:
        edges = (NormalDist().inv_cdf(share), NormalDist().inv_cdf(share + difference))
        first, second = ((graph.ability(random, latent) < edge).astype(float) for edge in edges)
        return first, second

    components = connected_components(graph.pairs)
    for latent in LATENT:
        for share in SHARES:
            name = f"pairs, {share:.0%}, latent {latent}"
            yield Setting(name, graph.dyads, components, partial(draw, latent, share))


def cluster_settings() -> Iterator[Setting]:
    """Yield settings of clusters with log-normal sizes; a cluster is easy or hard for both models."""
    random = np.random.default_rng(2)
    spread = float(np.sqrt(np.log1p(VARIATION**2)))

    def draw(alike: float, clusters: Sequence[int], difference: float) -> tuple[Floats, Floats]:
        members = np.asarray(clusters)
        number = int(members.max()) + 1
        values = []
        for share in (0.5 - difference / 2, 0.5 + difference / 2):
            chances = random.beta(
                share * (1 / alike - 1), (1 - share) * (1 / alike - 1), number
            )
            values.append((random.random(len(members)) < chances[members]).astype(float))
        return values[0], values[1]

    for number, size in CLUSTERS:
        for alike in ALIKE:
            drawn = size * np.exp(spread * random.standard_normal(number) - spread**2 / 2)
            sizes = np.maximum(1, np.round(drawn).astype(int))
            clusters = np.repeat(np.arange(number), sizes).tolist()
            name = f"{number} clusters of {size}, correlation {alike}"
            yield Setting(name, clusters, clusters, partial(draw, alike, clusters))


def planned_difference(setting: Setting) -> float:
    """Return the difference that one test of all samples finds with 80 %, from simulated standard errors."""
    difference = 0.05
    for _ in range(4):
        sizes = []
        for _ in range(40):
            first, second = setting.draw(difference)
            found = mean_error((second - first).tolist(), setting.units)
            quantiles = t_quantile(1 - ALPHA / 2, found.degrees) + t_quantile(
                POWER, found.degrees
            )
            sizes.append(quantiles * found.error)
        difference = min(0.45, float(np.mean(sizes)))
    return difference


@cache
def levels_of(shares: tuple[float, ...]) -> Boundaries:
    """Return the limits at looks with these shares of the samples."""
    return boundaries(shares)


def look_rows(setting: Setting, seed: int) -> list[list[int]]:
    """Return the rows of each look in the order of a seed."""
    sizes = look_sizes(setting.clusters, seed, LOOKS, len(setting.clusters))
    looks = [Look(index, len(sizes), seed, size) for index, size in enumerate(sizes, 1)]
    return [look.rows(setting.clusters) for look in looks]


def p_value(
    values: tuple[Floats, Floats], units: Sequence[Hashable], rows: Sequence[int], level: float
) -> float:
    """Return the p-value of the product's comparison of some rows, without its interval at a small level."""
    first, second = (of_model[rows].tolist() for of_model in values)
    of_rows = [units[row] for row in rows]
    if not isinstance(units[0], int):
        return compare_paired(first, second, of_rows, level=level).p
    differences = [after - before for before, after in zip(first, second, strict=True)]
    p = sign_flip_test(differences, of_rows)
    if p > 4 * level:  # more draws would change it little
        return p
    return sign_flip_test(differences, of_rows, draws_at(level, len(set(of_rows))))


def simulate(setting: Setting, difference: float, runs: int) -> Rates:
    """Return the rates of comparisons with a true difference."""
    rates = Rates()
    orders = [look_rows(setting, seed) for seed in range(ORDERS)]
    for run in range(runs):
        looks = orders[run % ORDERS]
        values = setting.draw(difference)
        total = len(looks[-1])
        levels = levels_of(tuple(len(rows) / total for rows in looks)).levels
        for rows, level in zip(looks, levels, strict=True):
            p = p_value(values, setting.units, rows, level)
            if p <= level or rows is looks[-1]:
                rates.stopped += (p <= level) / runs
                rates.share += len(rows) / total / runs
                break
        first, second = (of_model[rows].tolist() for of_model in values)
        result = compare_paired(
            first, second, [setting.units[row] for row in rows], level=level
        )
        # Without an interval nothing is excluded.
        rates.held += (not (difference < result.low or difference > result.high)) / runs
        rates.single += (p_value(values, setting.units, range(total), ALPHA) <= ALPHA) / runs
    return rates


def main(path: str, runs: int = 1000, part: str = "") -> int:
    """Simulate all settings and print them; return the exit status."""
    with Path(path).open(encoding="utf-8") as lines:
        graph = Graph(json.loads(next(lines))["pairs"])
    broken = 0
    shares = []
    settings = [] if part == "clusters" else list(pair_settings(graph))
    settings += [] if part == "pairs" else cluster_settings()
    for setting in settings:
        planned = planned_difference(setting)
        equal = simulate(setting, 0.0, runs)
        once, twice = (simulate(setting, factor * planned, runs // 4) for factor in (1, 2))
        held = min(equal.held, (once.held + twice.held) / 2)
        is_wrong = equal.stopped > 0.06 + CHANCE or held < 0.93 - CHANCE
        broken += is_wrong
        shares.append(twice.share)
        print(
            f"| {setting.name} | {planned:.1%} | {equal.stopped:.1%} | {equal.single:.1%} | {held:.1%} "
            f"| {once.stopped:.0%} | {once.single:.0%} | {equal.share:.0%}, "
            f"{once.share:.0%}, {twice.share:.0%} |{' NOT within limits' if is_wrong else ''}",
            flush=True,
        )
    mean = float(np.mean(shares))
    print(
        f"{runs} runs per setting; questions at twice the planned difference: {mean:.0%} on average"
    )
    return int(broken > 0 or mean > 0.6)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:3]), *sys.argv[3:]))
