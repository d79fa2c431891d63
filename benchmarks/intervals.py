"""How often intervals hold the truth, and how often tests reject it, by simulation; and what intervals cost.

Prints one line per setting, a table for RESULTS.md, and exits with 1 where a limit is not kept:

- set accuracy and confusion on MediConfusion's own graph of images, whose outcomes depend on the images: 93 to 98 %;
- clustered shares over numbers, sizes and alikeness of clusters: at least 91 %;
- paired tests of equal models, and equivalence tests of models that differ by the margin, on shared images: at most 6 %
  of runs reject, of which half a point is chance;
- reports of equal groups and equal variants: at most 5 % name a group or a variant;
- the score of a judge corrected by people's labels, and its sensitivity and specificity: at least 92 %;
- the intervals of 25,000 samples and of 176 pairs together: at most 1 s.

    python benchmarks/intervals.py DYADIC_JSONL [RUNS_PER_SETTING]

DYADIC_JSONL holds lines with ``pairs`` of image ids; the first has MediConfusion's (golden/statistics/dyadic.jsonl).
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medtasks.audit.report.contents import Gain, RuleScores, TaskReport
from medtasks.audit.report.differences import corrected_gains
from medtasks.audit.report.sentences import variant_finding
from medtasks.audit.subgroups import by_group, with_interval
from medtasks.metrics.metric import Estimate, Metric, Role
from medtasks.stats.equivalence import equivalence
from medtasks.stats.intervals import interval
from medtasks.stats.judged_share import judged_share
from medtasks.stats.paired import ALPHA, compare_paired
from medtasks.stats.standard_error import Dyad, MeanError, clustered_error, dyadic_error

Floats = NDArray[np.float64]
Found = tuple[str, float, float, float]  # setting, share of runs, and the least and most that are right

CHANCE = 0.005  # Monte Carlo error allowed on a limit
LATENT = (0.0, 0.2, 0.4, 0.8)  # part of a pair's latent ability that its two images have; correlations 0 to 0.26
SHARES = (0.05, 0.15, 0.25, 0.5)
CLUSTERS = ((30, 33), (176, 6), (176, 2))
JUDGES = (  # share of right replies, sensitivity, specificity, replies, labels, replies per cluster
    *((0.5, 0.95, 0.95, 2000, 200, 1), (0.3, 0.95, 0.9, 2000, 200, 1), (0.7, 0.9, 0.8, 2000, 200, 1)),
    *((0.2, 0.95, 0.85, 2000, 200, 1), (0.5, 0.99, 0.99, 2000, 200, 1), (0.5, 0.9, 0.9, 352, 100, 1)),
    *((0.5, 0.9, 0.9, 2000, 200, 4), (0.5, 0.9, 0.9, 2000, 200, 20)),
)
VARIATION = (0.0, 1.3, 2.9)  # coefficient of variation of cluster sizes


class Graph:
    """Pairs of images as published, and outcomes that depend on the images."""

    def __init__(self, pairs: list[list[str]]) -> None:
        self.pairs = [(first, second) for first, second in pairs]
        places = {image: place for place, image in enumerate(sorted({image for pair in pairs for image in pair}))}
        self.places = np.array([[places[image] for image in pair] for pair in self.pairs])
        self.images = len(places)
        self.dyads = [Dyad(str(number), *pair) for number, pair in enumerate(self.pairs)]

    def ability(self, random: np.random.Generator, latent: float) -> Floats:
        """Draw standard normal abilities of pairs; those of pairs that share an image correlate by half of latent."""
        of_images = random.standard_normal(self.images)[self.places].sum(axis=1)
        return np.asarray(
            np.sqrt(latent / 2) * of_images + np.sqrt(1 - latent) * random.standard_normal(len(self.pairs))
        )


def holds(truth: float, values: Floats, found: MeanError) -> bool:
    """Return whether a share's interval holds the truth."""
    low, high = interval(float(values.mean()), found.error, found.degrees, share=True, effective=found.effective)
    return low <= truth <= high


def pairs_covered(graph: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of set accuracy, a share of all pairs, and of confusion, one of pairs with valid replies."""
    random = np.random.default_rng(1)
    for latent in LATENT:
        for share in SHARES:
            covered: dict[str, list[bool]] = {"set accuracy": [], "confusion, 10 % invalid": []}
            for _ in range(runs):
                values = (graph.ability(random, latent) < NormalDist().inv_cdf(share)).astype(float)
                covered["set accuracy"].append(holds(share, values, dyadic_error(values.tolist(), graph.pairs)))
                valid = np.flatnonzero(random.random(len(values)) < 0.9)
                some = dyadic_error(values[valid].tolist(), [graph.pairs[place] for place in valid])
                covered["confusion, 10 % invalid"].append(holds(share, values[valid], some))
            for name, held in covered.items():
                yield f"{name} {share:.0%}, latent {latent}", float(np.mean(held)), 0.93, 0.98


def clusters_covered(runs: int) -> Iterator[Found]:
    """Yield the coverage of clustered shares, with log-normal sizes and beta-binomial outcomes."""
    random = np.random.default_rng(2)
    for number, size in CLUSTERS:
        for alike in (0.1, 0.4):
            for share in (0.5, 0.9, 0.98):
                for variation in VARIATION:
                    spread = np.sqrt(np.log1p(variation**2))
                    held = []
                    for _ in range(runs):
                        drawn = size * np.exp(spread * random.standard_normal(number) - spread**2 / 2)
                        sizes = np.maximum(1, np.round(drawn).astype(int))
                        chance = random.beta(share * (1 / alike - 1), (1 - share) * (1 / alike - 1), number)
                        cluster = np.repeat(np.arange(number), sizes)
                        values = (random.random(len(cluster)) < chance[cluster]).astype(float)
                        held.append(holds(share, values, clustered_error(values.tolist(), cluster.tolist())))
                    name = f"{number} clusters of {size}, correlation {alike}, share {share:.0%}, CV {variation}"
                    yield name, float(np.mean(held)), 0.91, 1.0


def tests_rejecting(graph: Graph, runs: int) -> Iterator[Found]:
    """Yield how often equal models are called different, and models that differ by the margin equivalent."""
    random = np.random.default_rng(3)
    for latent in LATENT:
        for share in SHARES:
            edge = NormalDist().inv_cdf(share)
            rejected = []
            for _ in range(runs):
                both = [(graph.ability(random, latent) < edge).astype(float).tolist() for _ in range(2)]
                rejected.append(compare_paired(both[0], both[1], graph.dyads).p < ALPHA)
            yield f"equal models, {share:.0%}, latent {latent}", float(np.mean(rejected)), 0.0, 0.06
        for margin in (0.05, 0.1):
            for lost in (0.0, 0.05):
                shown = []
                for _ in range(runs):
                    ability = graph.ability(random, latent)
                    gains = ability < NormalDist().inv_cdf(margin + lost)
                    losses = ability > NormalDist().inv_cdf(1 - lost) if lost else np.zeros(len(ability), dtype=bool)
                    second = np.where(gains, 1.0, np.where(losses, 0.0, 1.0)).tolist()
                    first = np.where(gains, 0.0, 1.0).tolist()
                    shown.append(equivalence(first, second, graph.dyads, margin).shown)
                name = f"margin {margin:.0%} true, {lost:.0%} lost, latent {latent}"
                yield name, float(np.mean(shown)), 0.0, 0.06


def judges_covered(runs: int) -> Iterator[Found]:
    """Yield the coverage of corrected scores and of a judge's sensitivity and specificity.

    As many replies of each verdict are labelled; right replies are beta-binomial in clusters, correlation 0.2.
    """
    random = np.random.default_rng(5)
    for share, sensitivity, specificity, number, labels, size in JUDGES:
        truths = {"corrected": share, "sensitivity": sensitivity, "specificity": specificity}
        held: dict[str, list[bool]] = {name: [] for name in truths}
        cluster = np.arange(number) // size
        for _ in range(runs):
            chance = random.beta(share * 4, (1 - share) * 4, number)[cluster] if size > 1 else share
            right = random.random(number) < chance
            verdict = random.random(number) < np.where(right, sensitivity, 1 - specificity)
            told, weights = np.full(number, np.nan), np.ones(number)
            for members in (np.flatnonzero(verdict), np.flatnonzero(~verdict)):
                drawn = random.choice(members, min(len(members), labels // 2), replace=False)
                told[drawn], weights[drawn] = right[drawn], len(members) / len(drawn)
            found = judged_share(
                verdict.astype(float).tolist(), told.tolist(), weights.tolist(), [True] * number, cluster.tolist()
            )
            for name, truth in truths.items():
                held[name].append(getattr(found, name).low <= truth <= getattr(found, name).high)
        for name, inside in held.items():
            how = f"share {share:.0%}, {sensitivity:.0%} and {specificity:.0%}, {labels} of {number} labelled"
            yield f"{name}: {how}, clusters of {size}", float(np.mean(inside)), 0.92, 1.0


def reports_naming(runs: int) -> Iterator[Found]:
    """Yield how often a report names a group, or a variant as harder, although none differs.

    200 samples of 80 patients in three columns of 2 to 5 groups, and three variants with two metrics each.
    """
    random = np.random.default_rng(6)
    columns = {"sex": 2, "site": 3, "age": 5}
    metric = Metric("accuracy", role=Role.MAIN, of=lambda score: score["value"])
    family = SimpleNamespace(compared_only=(), compared_in_groups=())
    task: Any = SimpleNamespace(metrics=[metric], breakdown=tuple(columns), family=family)
    rule = RuleScores("robust", "", "", (with_interval(metric, Estimate(0.6)),))
    named: dict[str, list[bool]] = {"group": [], "variant": []}
    for _ in range(runs):
        patients = random.integers(0, 80, 200)
        skill = random.beta(3, 2, 80)
        groups = {name: random.integers(0, number, 80) for name, number in columns.items()}
        documents = [{name: str(of_patient[patient]) for name, of_patient in groups.items()} for patient in patients]
        right = (random.random(200) < skill[patients]).astype(float)
        scores: list[dict[str, Any]] = [
            {"cluster_id": f"patient-{patient}", "value": value, "reason": "ok"}
            for patient, value in zip(patients, right.tolist(), strict=True)
        ]
        tests = by_group(task, documents, scores).tests
        named["group"].append(any(test.different for of_column in tests.values() for test in of_column))
        gains = []
        for variant in ("abstain", "nota", "degraded"):
            for name in ("accuracy", "other"):
                other = (random.random(200) < skill[patients]).astype(float)
                paired = (other.tolist(), right.tolist(), patients.tolist())
                result = compare_paired(*paired)
                numbers = (result.second, result.first, result.difference, result.low, result.high, result.p)
                gains.append(Gain(variant, variant, "robust", name, *numbers, samples=200, test=(result, paired)))
        (report,) = corrected_gains([TaskReport("task", "", rules=(rule,), gains=tuple(gains))])
        named["variant"].append("hardest variant" in variant_finding(report, rule))
    either = [group or variant for group, variant in zip(*named.values(), strict=True)]
    for name, happened in {**named, "group or variant": either}.items():
        yield f"null reports that name a {name}", float(np.mean(happened)), 0.0, 0.05


def seconds(graph: Graph) -> float:
    """Return what the intervals of 25,000 samples of 4,000 patients and of all pairs take."""
    random = np.random.default_rng(4)
    values, patients = random.integers(0, 2, 25_000).astype(float), random.integers(0, 4_000, 25_000).tolist()
    solved = random.integers(0, 2, len(graph.pairs)).astype(float)
    began = time.perf_counter()
    holds(0.5, values, clustered_error(values.tolist(), patients))
    holds(0.5, solved, dyadic_error(solved.tolist(), graph.pairs))
    return time.perf_counter() - began


def main(path: str, runs: int = 1000) -> int:
    """Simulate everything and print it; return the exit status."""
    with Path(path).open(encoding="utf-8") as lines:
        case: dict[str, Any] = json.loads(next(lines))
    graph, broken = Graph(case["pairs"]), 0
    parts = {
        "pairs that share images": pairs_covered(graph, runs),
        "clustered shares": clusters_covered(runs),
        "tests on shared images": tests_rejecting(graph, runs),
        "judges with people's labels": judges_covered(runs),
        "null reports": reports_naming(min(runs, 300)),
    }
    for name, part in parts.items():
        rates = []
        for setting, rate, least, most in part:
            wrong = not least - CHANCE <= rate <= most + CHANCE
            broken += wrong
            rates.append(rate)
            print(f"{rate:6.1%}  {setting}{'   NOT within limits' if wrong else ''}", flush=True)
        print(f"| {name} | {len(rates)} settings of {runs} runs | {min(rates):.1%} to {max(rates):.1%} |", flush=True)
    taken = seconds(graph)
    print(f"intervals of 25,000 samples and of {len(graph.pairs)} pairs: {taken:.2f} s")
    return int(broken > 0 or taken > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
