"""How often intervals hold the truth, and how often tests reject it, by simulation; and what intervals cost.

Prints one line per setting, a table for RESULTS.md, and exits with 1 where a limit is not kept:

- set accuracy and confusion on MediConfusion's own graph of images, whose outcomes depend on the images: 93 to 98 %;
- clustered shares over numbers, sizes and alikeness of clusters: at least 91 %;
- paired tests of equal models, and equivalence tests of models that differ by the margin, on shared images: at most 6 %
  of runs reject, of which half a point is chance;
- graded shares and means of repeats, also of few patients: at least 93 %;
- means over classes of which one has 1 %, and AUROCs near 1: at least 93 % (of the classes that occur);
- LR- and NPV, where runs of 100 % sensitivity are frequent: at least 93 %, of fewer than 10 positives 91 %;
- groups of equal samples within patients: at most 6 % of runs reject;
- reports of equal groups and equal variants: at most 5 % name a group or a variant;
- sensitivities, AUROCs, judged scores and macro F1 of two models: at most 6 % of tests of equal models reject, and
  intervals of differences hold them in at least 93 %;
- the score of a judge corrected by people's labels, and its sensitivity and specificity: at least 92 %;
- the intervals of 25,000 samples and of 176 pairs together: at most 1 s.

    python benchmarks/intervals.py DYADIC_JSONL [RUNS_PER_SETTING [PART ...]]

DYADIC_JSONL holds lines with ``pairs`` of image ids; the first has MediConfusion's (golden/statistics/dyadic.jsonl).
Each part of :data:`PARTS` yields its settings; by default all parts run.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medtasks.metrics.class_scores import count_classes, multiclass_metrics, unseen_classes
from medtasks.metrics.clinical import Decision, at_prevalence, class_numbers
from medtasks.metrics.metric import Estimate, Metric, Role
from medtasks.report.differences import corrected_gains
from medtasks.report.report_model import Gain, TaskReport
from medtasks.report.sentences import variant_finding
from medtasks.scores.score_model import RuleScores
from medtasks.scores.subgroups import by_group, with_interval
from medtasks.stats.bootstrap import posterior_ends
from medtasks.stats.calibration import area_values, roc_area
from medtasks.stats.equivalence import equivalence
from medtasks.stats.exchange import compare_counts
from medtasks.stats.intervals import interval
from medtasks.stats.judged_share import judged_share
from medtasks.stats.paired import ALPHA, compare_paired
from medtasks.stats.standard_error import Dyad, MeanError, clustered_error, dyadic_error

Floats = NDArray[np.float64]
Found = tuple[
    str, float, float, float
]  # setting, share of runs, and the least and most that are right

CHANCE = 0.005  # Monte Carlo error allowed on a limit
LATENT = (
    0.0,
    0.2,
    0.4,
    0.8,
)  # part of a pair's latent ability that its two images have; correlations 0 to 0.26
SHARES = (0.05, 0.15, 0.25, 0.5)
CLUSTERS = ((30, 33), (176, 6), (176, 2))
JUDGES = (  # share of right replies, sensitivity, specificity, replies, labels, replies per cluster
    *(
        (0.5, 0.95, 0.95, 2000, 200, 1),
        (0.3, 0.95, 0.9, 2000, 200, 1),
        (0.7, 0.9, 0.8, 2000, 200, 1),
    ),
    *(
        (0.2, 0.95, 0.85, 2000, 200, 1),
        (0.5, 0.99, 0.99, 2000, 200, 1),
        (0.5, 0.9, 0.9, 352, 100, 1),
    ),
    *((0.5, 0.9, 0.9, 2000, 200, 4), (0.5, 0.9, 0.9, 2000, 200, 20)),
)
ALIKE = 0.1  # concentration of patients' shares is its inverse
GRADED = (  # patients, samples each, mean, and concentration of the values of a patient
    *((200, 1, 0.5, 20), (60, 1, 0.9, 2), (30, 5, 0.6, 2)),
    *((4, 30, 0.5, 20), (6, 30, 0.5, 4), (7, 20, 0.8, 4)),  # few patients
)
GROUPS = (  # patients, samples each, part in a group, mean and spread of the patients' logits
    *((40, 5, 0.25, 0.4, 1.0), (40, 5, 0.5, 2.2, 1.0), (60, 3, 0.25, 1.4, 0.5)),
)
RATIOS = (  # positives, negatives, sensitivity, specificity, samples per patient
    *(
        (5, 195, 0.95, 0.95, 1),
        (5, 195, 0.6, 0.95, 1),
        (10, 190, 0.95, 0.9, 1),
        (20, 180, 0.97, 0.95, 1),
    ),
    *((40, 60, 0.95, 0.8, 1), (30, 90, 0.97, 0.9, 3)),
)
VARIATION = (0.0, 1.3, 2.9)  # coefficient of variation of cluster sizes


class Graph:
    """Pairs of images as published, and outcomes that depend on the images."""

    def __init__(self, pairs: list[list[str]]) -> None:
        self.pairs = [(first, second) for first, second in pairs]
        places = {
            image: place
            for place, image in enumerate(sorted({image for pair in pairs for image in pair}))
        }
        self.places = np.array([[places[image] for image in pair] for pair in self.pairs])
        self.images = len(places)
        self.dyads = [Dyad(str(number), *pair) for number, pair in enumerate(self.pairs)]

    def ability(self, random: np.random.Generator, latent: float) -> Floats:
        """Draw standard normal abilities of pairs; those of pairs that share an image correlate by half of latent."""
        of_images = random.standard_normal(self.images)[self.places].sum(axis=1)
        return np.asarray(
            np.sqrt(latent / 2) * of_images
            + np.sqrt(1 - latent) * random.standard_normal(len(self.pairs))
        )


def holds(truth: float, values: Floats, found: MeanError) -> bool:
    """Return whether a share's interval holds the truth."""
    low, high = interval(
        float(values.mean()), found.error, found.degrees, share=True, effective=found.effective
    )
    return low <= truth <= high


def share(runs: int, trial: Callable[[], bool]) -> float:
    """Return the share of runs in which a trial succeeds."""
    return float(np.mean([trial() for _ in range(runs)]))


def pairs_covered(graph: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of set accuracy, a share of all pairs, and of confusion, one of pairs with valid replies."""
    random = np.random.default_rng(1)
    for latent in LATENT:
        for share in SHARES:
            covered: dict[str, list[bool]] = {"set accuracy": [], "confusion, 10 % invalid": []}
            for _ in range(runs):
                values = (graph.ability(random, latent) < NormalDist().inv_cdf(share)).astype(
                    float
                )
                covered["set accuracy"].append(
                    holds(share, values, dyadic_error(values.tolist(), graph.pairs))
                )
                valid = np.flatnonzero(random.random(len(values)) < 0.9)
                some = dyadic_error(
                    values[valid].tolist(), [graph.pairs[place] for place in valid]
                )
                covered["confusion, 10 % invalid"].append(holds(share, values[valid], some))
            for name, held in covered.items():
                yield f"{name} {share:.0%}, latent {latent}", float(np.mean(held)), 0.93, 0.98


def clusters_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of clustered shares, with log-normal sizes and beta-binomial outcomes."""
    random = np.random.default_rng(2)
    for number, size in CLUSTERS:
        for alike in (0.1, 0.4):
            for share in (0.5, 0.9, 0.98):
                for variation in VARIATION:
                    spread = np.sqrt(np.log1p(variation**2))
                    held = []
                    for _ in range(runs):
                        drawn = size * np.exp(
                            spread * random.standard_normal(number) - spread**2 / 2
                        )
                        sizes = np.maximum(1, np.round(drawn).astype(int))
                        chance = random.beta(
                            share * (1 / alike - 1), (1 - share) * (1 / alike - 1), number
                        )
                        cluster = np.repeat(np.arange(number), sizes)
                        values = (random.random(len(cluster)) < chance[cluster]).astype(float)
                        held.append(
                            holds(
                                share,
                                values,
                                clustered_error(values.tolist(), cluster.tolist()),
                            )
                        )
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
                both = [
                    (graph.ability(random, latent) < edge).astype(float).tolist()
                    for _ in range(2)
                ]
                rejected.append(compare_paired(both[0], both[1], graph.dyads).p < ALPHA)
            yield (
                f"equal models, {share:.0%}, latent {latent}",
                float(np.mean(rejected)),
                0.0,
                0.06,
            )
        for margin in (0.05, 0.1):
            for lost in (0.0, 0.05):
                shown = []
                for _ in range(runs):
                    ability = graph.ability(random, latent)
                    gains = ability < NormalDist().inv_cdf(margin + lost)
                    losses = (
                        ability > NormalDist().inv_cdf(1 - lost)
                        if lost
                        else np.zeros(len(ability), dtype=bool)
                    )
                    second = np.where(gains, 1.0, np.where(losses, 0.0, 1.0)).tolist()
                    first = np.where(gains, 0.0, 1.0).tolist()
                    shown.append(equivalence(first, second, graph.dyads, margin).is_equivalent)
                name = f"margin {margin:.0%} true, {lost:.0%} lost, latent {latent}"
                yield name, float(np.mean(shown)), 0.0, 0.06


def judges_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of corrected scores and of a judge's sensitivity and specificity.

    As many replies of each verdict are labelled; right replies are beta-binomial in clusters, correlation 0.2.
    """
    random = np.random.default_rng(5)
    for share, sensitivity, specificity, number, labels, size in JUDGES:
        truths = {"corrected": share, "sensitivity": sensitivity, "specificity": specificity}
        held: dict[str, list[bool]] = {name: [] for name in truths}
        cluster = np.arange(number) // size
        for _ in range(runs):
            chance = (
                random.beta(share * 4, (1 - share) * 4, number)[cluster] if size > 1 else share
            )
            right = random.random(number) < chance
            verdict = random.random(number) < np.where(right, sensitivity, 1 - specificity)
            told, weights = np.full(number, np.nan), np.ones(number)
            for members in (np.flatnonzero(verdict), np.flatnonzero(~verdict)):
                drawn = random.choice(members, min(len(members), labels // 2), replace=False)
                told[drawn], weights[drawn] = right[drawn], len(members) / len(drawn)
            found = judged_share(
                verdict.astype(float).tolist(),
                told.tolist(),
                weights.tolist(),
                [True] * number,
                cluster.tolist(),
            )
            for name, truth in truths.items():
                held[name].append(
                    getattr(found, name).low <= truth <= getattr(found, name).high
                )
        for name, inside in held.items():
            how = f"share {share:.0%}, {sensitivity:.0%} and {specificity:.0%}, {labels} of {number} labelled"
            yield f"{name}: {how}, clusters of {size}", float(np.mean(inside)), 0.92, 1.0


def graded_mean_held(
    random: np.random.Generator,
    patients: int,
    size: int,
    mean: float,
    concentration: float,
    repeats: int,
) -> bool:
    """Return whether the interval of a mean of shares, or of repeats with these chances, holds the truth."""
    skills = random.beta(mean / ALIKE, (1 - mean) / ALIKE, patients)
    chances = np.clip(np.repeat(skills, size), 1e-6, 1 - 1e-6)
    values = random.beta(chances * concentration, (1 - chances) * concentration)
    if repeats:
        values = random.binomial(repeats, values) / repeats
    return holds(
        mean,
        values,
        clustered_error(values.tolist(), np.repeat(np.arange(patients), size).tolist()),
    )


def graded_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of means of values between 0 and 1, and of repeats, by patients of equal size."""
    random = np.random.default_rng(6)
    for setting in GRADED:
        patients, size, mean, concentration = setting
        for name, repeats in (("graded shares", 0), ("mean of 5 repeats", 5)):
            rate = share(runs, partial(graded_mean_held, random, *setting, repeats))
            yield (
                f"{name} of {mean}, {patients} patients of {size}, concentration {concentration}",
                rate,
                0.93,
                1.0,
            )


def classes_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of means over five classes, one of 1 %, in the population of the classes that occur."""
    random = np.random.default_rng(7)
    shares, recalls = (
        np.array([0.7, 0.15, 0.1, 0.04, 0.01]),
        np.array([0.9, 0.7, 0.6, 0.5, 0.4]),
    )
    joint = shares[:, np.newaxis] * (1 - recalls)[:, np.newaxis] / 4 * np.ones((5, 5))
    np.fill_diagonal(joint, shares * recalls)
    f1 = 2 * np.diag(joint) / (joint.sum(axis=0) + joint.sum(axis=1))
    areas = (recalls + 1 - (joint.sum(axis=0) - np.diag(joint)) / (1 - shares)) / 2
    for number, size in ((100, 1), (300, 1), (1000, 1), (300, 3)):
        clusters = np.repeat(np.arange(number // size), size).tolist()
        covered: dict[str, list[bool]] = {
            "macro_f1": [],
            "balanced_accuracy": [],
            "present_class_auroc": [],
        }
        for _ in range(runs):
            targets = random.choice(5, number, p=shares)
            shared = np.repeat(random.random(number // size), size)
            luck = np.where(random.random(number) < 0.5, shared, random.random(number))
            wrong = (targets + random.integers(1, 5, number)) % 5
            values = np.where(luck < recalls[targets], targets, wrong)
            cells = count_classes(targets.tolist(), values.tolist(), 5)
            unseen = unseen_classes(targets.tolist(), values.tolist(), 5)
            ends = posterior_ends(cells, clusters, multiclass_metrics, *unseen)
            present, used = np.unique(targets), np.unique([*targets, *values])
            truths = {
                "macro_f1": f1[used],
                "balanced_accuracy": recalls[present],
                "present_class_auroc": areas[present],
            }
            point = multiclass_metrics(cells.sum(axis=0))
            for name, truth in truths.items():
                low, high = ends[name]
                covered[name].append(
                    min(low, float(point[name]))
                    <= truth.mean()
                    <= max(high, float(point[name]))
                )
        for name, held in covered.items():
            yield (
                f"{name}, {number} samples, {size} per patient",
                float(np.mean(held)),
                0.93,
                1.0,
            )


def area_held(
    random: np.random.Generator, positives: int, negatives: int, truth: float, spread: int
) -> bool:
    """Return whether the interval of an AUROC of normal scores holds the truth."""
    distance = NormalDist().inv_cdf(truth) * float(np.hypot(spread, 1))
    scores = [*random.normal(distance, spread, positives), *random.normal(size=negatives)]
    area = roc_area(scores, [1.0] * positives + [0.0] * negatives, range(len(scores)))
    return area.low <= truth <= area.high


def areas_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of AUROCs of normal scores, whose spread is that of negatives or twice as large."""
    random = np.random.default_rng(8)
    for positives, negatives in ((20, 100), (30, 170), (50, 50)):
        for truth in (0.8, 0.97, 0.99):
            for spread in (1, 2):
                rate = share(
                    runs, partial(area_held, random, positives, negatives, truth, spread)
                )
                yield (
                    f"AUROC {truth}, {positives} and {negatives}, spread {spread}",
                    rate,
                    0.93,
                    1.0,
                )


def ratio_held(
    random: np.random.Generator,
    positives: int,
    negatives: int,
    sensitivity: float,
    specificity: float,
    size: int,
) -> bool:
    """Return whether the intervals of LR- and of NPV at 5 % hold the truth, which they do together."""
    decisions = []
    for present, number, rate in (
        (True, positives, sensitivity),
        (False, negatives, specificity),
    ):
        chance = np.full(number, rate)
        if size > 1:
            chance = np.repeat(
                random.beta(rate / ALIKE, (1 - rate) / ALIKE, number // size), size
            )
        for place, is_right in enumerate(random.random(number) < chance):
            decisions.append(
                Decision((present, place // size), present, bool(is_right) == present)
            )
    numbers = at_prevalence(class_numbers("Yes", decisions), 0.05).numbers
    truth = (1 - sensitivity) / specificity
    after = 1 / (1 + truth * 0.05 / 0.95)
    held = numbers["lr_negative"].low <= truth <= numbers["lr_negative"].high
    assert held == (numbers["npv_adjusted"].low <= after <= numbers["npv_adjusted"].high)
    return held


def ratios_covered(_: Graph, runs: int) -> Iterator[Found]:
    """Yield the coverage of LR- and NPV where many runs miss no sample."""
    random = np.random.default_rng(9)
    for setting in RATIOS:
        positives, negatives, sensitivity, specificity, size = setting
        name = f"LR- and NPV, {positives} and {negatives}, {size} per patient, {sensitivity:.0%} and {specificity:.0%}"
        yield (
            name,
            share(runs, partial(ratio_held, random, *setting)),
            0.93 if positives >= 10 else 0.91,
            1.0,
        )


def groups_rejecting(graph: Graph, runs: int) -> Iterator[Found]:
    """Yield how often equal groups within patients are called different."""
    random = np.random.default_rng(10)
    accuracy = Metric("accuracy", role=Role.MAIN, of=lambda score: score["value"])
    family = SimpleNamespace(compared_only=(), compared_in_groups=())
    task: Any = SimpleNamespace(metrics=[accuracy], breakdown=("site",), family=family)
    for patients, size, part, edge, spread in GROUPS:
        rejected = []
        for _ in range(runs):
            skill = np.repeat(random.normal(edge, spread, patients), size)
            right = random.random(len(skill)) < 1 / (1 + np.exp(-skill))
            documents = [{"site": "ab"[int(is_b)]} for is_b in random.random(len(skill)) < part]
            scores = [
                {
                    "cluster_id": f"patient {place // size}",
                    "value": float(value),
                    "reason": "ok",
                }
                for place, value in enumerate(right)
            ]
            tests = by_group(task, documents, scores).tests["site"]
            rejected.append(any(test.p_holm < ALPHA for test in tests))
        name = f"equal groups, {patients} patients of {size}, part {part}, logit {edge}"
        yield name, float(np.mean(rejected)), 0.0, 0.06


def reports_naming(_: Graph, runs: int) -> Iterator[Found]:
    """Yield how often a report names a group, or a variant as harder, although none differs.

    200 samples of 80 patients in three columns of 2 to 5 groups, and three variants with two metrics each.
    """
    random = np.random.default_rng(11)
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
        documents = [
            {name: str(of_patient[patient]) for name, of_patient in groups.items()}
            for patient in patients
        ]
        right = (random.random(200) < skill[patients]).astype(float)
        scores: list[dict[str, Any]] = [
            {"cluster_id": f"patient-{patient}", "value": value, "reason": "ok"}
            for patient, value in zip(patients, right.tolist(), strict=True)
        ]
        tests = by_group(task, documents, scores).tests
        named["group"].append(
            any(test.different for of_column in tests.values() for test in of_column)
        )
        gains = []
        for variant in ("abstain", "nota", "degraded"):
            for name in ("accuracy", "other"):
                other = (random.random(200) < skill[patients]).astype(float)
                paired = (other.tolist(), right.tolist(), patients.tolist())
                result = compare_paired(*paired)
                numbers = (
                    result.second,
                    result.first,
                    result.difference,
                    result.low,
                    result.high,
                    result.p,
                )
                gains.append(
                    Gain(
                        variant,
                        variant,
                        "robust",
                        name,
                        *numbers,
                        samples=200,
                        test=(result, paired),
                    )
                )
        (report,) = corrected_gains([TaskReport("task", "", rules=(rule,), gains=tuple(gains))])
        named["variant"].append("hardest variant" in variant_finding(report, rule))
    either = [group or variant for group, variant in zip(*named.values(), strict=True)]
    for name, happened in {**named, "group or variant": either}.items():
        yield f"null reports that name a {name}", float(np.mean(happened)), 0.0, 0.05


def paired_rates(
    runs: int,
    trial: Callable[[float], tuple[float, float, float]],
    gaps: tuple[float, float],
    name: str,
) -> Iterator[Found]:
    """Yield how often a paired test of equal models rejects, and how often the interval of a difference holds it.

    Args:
        runs: Number of runs.
        trial: Returns the p-value and the ends of the interval for models with some gap between them.
        gaps: What the trial takes, and the difference that it makes.
        name: Of the setting.
    """
    gap, difference = gaps
    equal = [trial(0.0) for _ in range(runs)]
    apart = [trial(gap) for _ in range(runs)]
    yield (
        f"{name}: equal models rejected",
        float(np.mean([p < ALPHA for p, *_ in equal])),
        0.0,
        0.06,
    )
    held = [low <= difference <= high for _, low, high in apart]
    yield (
        f"{name}: interval of a difference of {difference:.0%}",
        float(np.mean(held)),
        0.93,
        1.0,
    )


def paired_shares_trial(
    random: np.random.Generator, patients: int, size: int, rate: float, gap: float
) -> tuple[float, float, float]:
    """Compare two models on samples that have a disease, some of which are hard for both."""
    skill = np.repeat(random.normal(0, 0.7, patients), size) + random.normal(
        0, 0.7, patients * size
    )
    spread = float(np.sqrt(0.7**2 * 2 + 1))
    right = [
        (NormalDist().inv_cdf(share) * spread + skill + random.normal(size=len(skill)) > 0)
        .astype(float)
        .tolist()
        for share in (rate, rate + gap)
    ]
    result = compare_paired(right[0], right[1], np.repeat(np.arange(patients), size).tolist())
    return result.p, result.low, result.high


def paired_sensitivities(_: Graph, runs: int) -> Iterator[Found]:
    """Yield rates of tests and intervals of paired sensitivities: only samples with the disease count."""
    random = np.random.default_rng(12)
    for patients, size, rate in ((30, 1, 0.8), (100, 1, 0.9), (20, 3, 0.7), (60, 3, 0.8)):
        trial = partial(paired_shares_trial, random, patients, size, rate)
        yield from paired_rates(
            runs,
            trial,
            (0.08, 0.08),
            f"sensitivity {rate:.0%}, {patients} patients, {size} samples each",
        )


def paired_areas_trial(
    random: np.random.Generator,
    positives: int,
    negatives: int,
    size: int,
    area: float,
    gap: float,
) -> tuple[float, float, float]:
    """Compare the AUROCs of two models whose normal scores share half of their variance."""
    positive = np.repeat([1.0, 0.0], [positives, negatives])
    patients = np.arange(len(positive)) // size
    shared = random.normal(size=patients.max() + 1)[patients] * np.sqrt(0.25)
    shared += random.normal(size=len(positive)) * np.sqrt(0.25)
    scores = [
        shared
        + random.normal(size=len(positive)) * np.sqrt(0.5)
        + NormalDist().inv_cdf(of_model) * np.sqrt(2) * positive
        for of_model in (area, area + gap)
    ]
    units = patients.tolist()
    values = [area_values(of_model.tolist(), positive.tolist(), units) for of_model in scores]
    smaller = min(len(np.unique(patients[positive == of])) for of in (0, 1))
    result = compare_paired(values[0], values[1], units, smaller=smaller)
    return result.p, result.low, result.high


def paired_areas(_: Graph, runs: int) -> Iterator[Found]:
    """Yield rates of tests and intervals of paired AUROCs."""
    random = np.random.default_rng(13)
    for setting in ((20, 100, 1, 0.8), (30, 170, 1, 0.9), (50, 50, 1, 0.7), (60, 120, 3, 0.8)):
        positives, negatives, size, area = setting
        name = f"AUROC {area}, {positives} and {negatives}, {size} per patient"
        yield from paired_rates(
            runs, partial(paired_areas_trial, random, *setting), (0.06, 0.06), name
        )


def judged_trial(
    random: np.random.Generator,
    number: int,
    labels: int,
    size: int,
    specificities: tuple[float, float],
    gap: float,
) -> tuple[float, float, float]:
    """Compare two models by an uneven judge's verdicts, corrected by labels of as many replies of each verdict."""
    patients = np.arange(number) // size
    skill = random.beta(2, 2, patients.max() + 1)[patients] * 0.8
    values = []
    for offset, specificity in zip((0.1, 0.1 + gap), specificities, strict=True):
        right = random.random(number) < skill + offset
        verdict = random.random(number) < np.where(right, 0.95, 1 - specificity)
        told, weights = np.full(number, np.nan), np.ones(number)
        for members in (np.flatnonzero(verdict), np.flatnonzero(~verdict)):
            drawn = random.choice(members, min(len(members), labels // 2), replace=False)
            told[drawn], weights[drawn] = right[drawn], len(members) / len(drawn)
        judge = judged_share(
            verdict.astype(float).tolist(),
            told.tolist(),
            weights.tolist(),
            [True] * number,
            patients.tolist(),
        )
        values.append(judge.replies)
    result = compare_paired(values[0], values[1], patients.tolist())
    return result.p, result.low, result.high


def judged_differences(_: Graph, runs: int) -> Iterator[Found]:
    """Yield rates of tests and intervals of judged differences with people's labels."""
    random = np.random.default_rng(14)
    settings = (
        *((500, 100, 1, (0.95, 0.85)), (2000, 200, 1, (0.95, 0.85))),
        *((500, 100, 5, (0.95, 0.85)), (500, 100, 1, (0.9, 0.9))),
    )
    for setting in settings:
        number, labels, size, (first, second) = setting
        name = f"judged, {labels} of {number} labelled, {size} per patient, specificities {first:.0%} and {second:.0%}"
        yield from paired_rates(runs, partial(judged_trial, random, *setting), (0.1, 0.1), name)


def counts_trial(
    random: np.random.Generator, patients: int, size: int, rate: float, gap: float
) -> tuple[float, float, float]:
    """Compare the macro F1 of two models, on three balanced classes where it is the accuracy."""
    number = patients * size
    targets = np.arange(number) % 3
    skill = np.repeat(random.normal(0, 0.5, patients), size) + random.normal(0, 0.5, number)
    spread = float(np.sqrt(0.5**2 * 2 + 1))
    counts = []
    for share in (rate, rate + gap):
        right = NormalDist().inv_cdf(share) * spread + skill + random.normal(size=number) > 0
        answers = np.where(right, targets, (targets + random.integers(1, 3, number)) % 3)
        counts.append(count_classes(targets.tolist(), answers.tolist(), 3))
    units = np.repeat(np.arange(patients), size).tolist()
    result, _ = compare_counts(
        np.stack(counts, axis=1), units, lambda sums: multiclass_metrics(sums)["macro_f1"]
    )
    return result.p, result.low, result.high


def exchanged_counts(_: Graph, runs: int) -> Iterator[Found]:
    """Yield rates of tests and intervals of macro F1."""
    random = np.random.default_rng(15)
    for patients, size in ((60, 1), (40, 3)):
        name = f"macro F1, {patients} patients, {size} samples each"
        yield from paired_rates(
            runs, partial(counts_trial, random, patients, size, 0.7), (0.1, 0.1), name
        )


def seconds(graph: Graph) -> float:
    """Return what the intervals of 25,000 samples of 4,000 patients and of all pairs take."""
    random = np.random.default_rng(4)
    values, patients = (
        random.integers(0, 2, 25_000).astype(float),
        random.integers(0, 4_000, 25_000).tolist(),
    )
    solved = random.integers(0, 2, len(graph.pairs)).astype(float)
    began = time.perf_counter()
    holds(0.5, values, clustered_error(values.tolist(), patients))
    holds(0.5, solved, dyadic_error(solved.tolist(), graph.pairs))
    return time.perf_counter() - began


PARTS: dict[str, Callable[[Graph, int], Iterator[Found]]] = {
    "pairs": pairs_covered,
    "clusters": clusters_covered,
    "tests": tests_rejecting,
    "judges": judges_covered,
    "graded": graded_covered,
    "classes": classes_covered,
    "areas": areas_covered,
    "ratios": ratios_covered,
    "groups": groups_rejecting,
    "reports": reports_naming,
    "sensitivities": paired_sensitivities,
    "paired areas": paired_areas,
    "judged differences": judged_differences,
    "counts": exchanged_counts,
}


def main(path: str, runs: int = 1000, *names: str) -> int:
    """Simulate some parts, by default all, and print them; return the exit status."""
    with Path(path).open(encoding="utf-8") as lines:
        case: dict[str, Any] = json.loads(next(lines))
    graph, broken = Graph(case["pairs"]), 0
    for name in names or PARTS:
        rates = []
        for setting, rate, least, most in PARTS[name](graph, runs):
            wrong = not least - CHANCE <= rate <= most + CHANCE
            broken += wrong
            rates.append(rate)
            print(
                f"{rate:6.1%}  {setting}{'   NOT within limits' if wrong else ''}", flush=True
            )
        print(
            f"| {name} | {len(rates)} settings of {runs} runs | {min(rates):.1%} to {max(rates):.1%} |",
            flush=True,
        )
    taken = seconds(graph)
    print(f"intervals of 25,000 samples and of {len(graph.pairs)} pairs: {taken:.2f} s")
    return int(broken > 0 or taken > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:3]), *sys.argv[3:]))
