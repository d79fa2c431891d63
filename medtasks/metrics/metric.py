"""A metric is declared once: its value, error, groups, values of single samples and tests follow from the declaration.

A *score* is the flat record of one sample that its task family makes of the reply (:mod:`medtasks.families`). A
:class:`Metric` is a mean over samples, or over what several samples make together, such as a pair. A
:class:`CorpusMetric` is what only all scores together give. Nothing here depends on the order of the scores.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from medtasks.stats.standard_error import clustered_error, dyadic_error, joined_clusters

Score = dict[str, Any]
Scores = Sequence[Score]
Selection = Callable[[Scores], Scores]
U = TypeVar("U")
R = TypeVar("R", bound=Hashable)


class Role(Enum):
    """What a metric is for, where runs are compared."""

    MAIN = auto()  # how good the answers are as a whole
    PART = auto()  # one side of that
    RATE = auto()  # of unusable replies: compared only where it is asked for, since each more test weakens all others
    ASIDE = auto()  # never compared


class Scale(Enum):
    """Range of a metric's values, which decides how they are printed and which interval they get."""

    SHARE = auto()  # between 0 and 1, printed in percent
    COUNT = auto()  # whole numbers
    RAW = auto()  # anything else


STDERR = "_stderr"  # ending of the name under which a metric's standard error stands in the harness's results


@dataclass(frozen=True)
class Estimate:
    """Value of a metric for some scores, where a whole number is a count, and its standard error.

    NaN is what is not defined. ``clusters`` is the number of independent ones of which the error is; None without an
    error. ``degrees`` of freedom and the ``effective`` number of independent answers are those of the interval
    (:func:`medtasks.stats.intervals.interval`), None where they are not known. ``ends`` are those of an interval that
    does not follow from the error.
    """

    value: float
    error: float = math.nan
    clusters: int | None = None
    degrees: float | None = None
    effective: float | None = None
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Declaration:
    """Properties that every metric declares."""

    name: str  # in results; no part of another name in the same task
    higher_is_better: bool | None = True  # None where neither is, as of a count
    selection: Selection = list  # which scores count; by default all that are handed over
    has_error: bool = True
    role: Role = Role.PART
    zero_if_blind: bool = False  # whether it is 0 by construction for a deterministic model that gets no image
    of_questions: bool = False  # whether it says something about the questions, whatever the replies
    warning: Callable[[Scores], str] | None = None  # what a user has to know of them, one sentence; empty if nothing
    remark: Callable[[Scores], str] | None = field(default=None, kw_only=True)  # sentence below a table of scores
    scale: Scale = field(default=Scale.SHARE, kw_only=True)
    description: str = field(default="", kw_only=True)  # one sentence

    @property
    def is_compared(self) -> bool:
        """Whether runs can be compared by it."""
        return self.has_error and self.role is not Role.ASIDE

    def is_share(self, *values: float) -> bool:
        """Whether values of this metric are fractions; published code that counts an answer twice exceeds 1."""
        return self.scale is Scale.SHARE and not any(value < 0 or value > 1 for value in values)


def cluster_of(score: Mapping[str, Any]) -> Hashable:
    """Return what a score is not independent of: its patient or image."""
    return cast(Hashable, score["cluster_id"])


PATIENT_IMAGE = "patient_image"
"""Field of scores whose cluster is a patient: the image, by which several patients may be connected."""


def clustered(scores: Scores) -> Scores:
    """Return scores in which patients that share an image have one cluster."""
    if not any(PATIENT_IMAGE in score for score in scores):
        return scores
    own = [str(score.get("cluster_id")) for score in scores]
    shared = [
        score.get(PATIENT_IMAGE) if cluster.startswith("patient-") else None
        for score, cluster in zip(scores, own, strict=True)
    ]
    clusters = joined_clusters(own, shared)
    return [{**score, "cluster_id": cluster} for score, cluster in zip(scores, clusters, strict=True)]


@dataclass(frozen=True)
class Metric(Declaration, Generic[U]):
    """A mean over samples, or over units that several samples make together; by default each score is one.

    ``clusters`` are what a unit shares with others that are not independent of it; two make it a dyad, as a pair is
    of its images, which other dyads may share in either place. ``weights`` tell how often each unit counts.
    """

    of: Callable[[U], float | None] = field(kw_only=True)  # None where the metric says nothing about a unit
    units: Callable[[Scores], Sequence[U]] = field(default=cast(Any, list), kw_only=True)
    clusters: tuple[Callable[[U], Hashable], ...] = field(default=cast(Any, (cluster_of,)), kw_only=True)
    weights: Callable[[Sequence[U]], Sequence[float]] | None = field(default=None, kw_only=True)

    def values(self, scores: Scores) -> list[tuple[U, float]]:
        """Return the units that have a value, with it."""
        return [(unit, value) for unit in self.units(self.selection(scores)) if (value := self.of(unit)) is not None]

    def estimate(self, scores: Scores) -> Estimate:
        """Return value and standard error."""
        units = self.units(clustered(self.selection(scores)))
        weights = [1.0] * len(units) if self.weights is None else self.weights(units)
        valued = [
            (value, weight, unit)
            for unit, weight in zip(units, weights, strict=True)
            if (value := self.of(unit)) is not None and weight
        ]
        values, by = [value for value, *_ in valued], [weight for _, weight, _ in valued]
        value = mean(values) if self.weights is None else weighted_mean(values, by)
        if not self.has_error:
            return Estimate(value)
        keys = [[_known(key(unit), place) for place, (*_, unit) in enumerate(valued)] for key in self.clusters]
        if len(keys) > 1:
            found = dyadic_error(values, list(zip(*keys, strict=True)), by)
        else:
            found = clustered_error(values, keys[0], by)
        return Estimate(value, found.error, found.clusters, found.degrees, found.effective)


def _known(cluster: Hashable, place: int) -> Hashable:
    """Return a cluster; what belongs to none is one of its own."""
    return ("sample", place) if cluster is None else cluster


def mean(values: Sequence[float]) -> float:
    """Return the mean, the same in whatever order; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan


def weighted_mean(values: Sequence[float], by: Sequence[float]) -> float:
    """Return the weighted mean, the same in any order; NaN where all weights are 0."""
    total = math.fsum(by)
    return math.fsum(value * weight for value, weight in zip(values, by, strict=True)) / total if total else math.nan


@dataclass(frozen=True)
class PanelResult:
    """What metrics give that are computed together, by name; ``clusters`` are counted by whoever asks."""

    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # of those that could be computed
    failures: Mapping[str, str] = field(default_factory=dict)  # why and what mends it; without any text of a sample
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # what the numbers depend on
    warnings: tuple[str, ...] = ()  # what else a user has to know, one sentence each without its end


@dataclass(frozen=True)
class Panel(Generic[R]):
    """Metrics that are computed together, from what they need of each score, its row.

    The harness asks for each metric on its own, under each filter, with copies of the scores from other processes: what
    was computed last is known by its content.
    """

    row: Callable[[Mapping[str, Any]], R]
    compute: Callable[[Sequence[R]], PanelResult]
    order: Callable[[R], Any] = repr  # by what rows are sorted; results may depend on it in the last digits

    def of(self, scores: Scores) -> PanelResult:
        """Return the results for some scores."""
        return _computed(self, frozenset(Counter(map(self.row, clustered(list(scores)))).items()))


@lru_cache(maxsize=8)
def _computed(panel: Panel[Any], rows: frozenset[tuple[Any, int]]) -> PanelResult:
    repeated = [row for row, number in rows for _ in range(number)]
    return panel.compute(sorted(repeated, key=panel.order))


def forget_computed() -> None:
    """Let every panel be computed again: what failed may have been mended since."""
    _computed.cache_clear()


@dataclass(frozen=True)
class CorpusMetric(Declaration):
    """What only all scores together give: macro F1, AUROC, a count.

    Either a panel computes it, with others, or it is a count. ``of`` gives the value of one score where it has one of
    its own, of which the metric need not be the mean; ``text_field`` names the text that it compares with the target's.
    """

    panel: Panel[Any] | None = field(default=None, kw_only=True)
    count: Callable[[Scores], float] | None = field(default=None, kw_only=True)
    of: Callable[[Score], float | None] | None = field(default=None, kw_only=True)
    text_field: str | None = field(default=None, kw_only=True)

    def values(self, scores: Scores) -> list[tuple[Score, float]]:
        """Return the scores that have a value of their own, with it."""
        return [
            (score, value)
            for score in self.selection(scores)
            if self.of is not None and (value := self.of(score)) is not None
        ]

    def estimate(self, scores: Scores) -> Estimate:
        """Return value and standard error."""
        chosen = self.selection(scores)
        if self.count is not None:
            return Estimate(self.count(chosen))
        assert self.panel is not None
        found = self.panel.of(chosen).estimates.get(self.name, Estimate(math.nan))
        if not self.has_error:
            return Estimate(found.value)
        clusters = [_known(score.get("cluster_id"), place) for place, score in enumerate(clustered(chosen))]
        sizes = clustered_error([0.0] * len(clusters), clusters)
        effective = None if found.error > 0 else float(sizes.clusters)
        return Estimate(found.value, found.error, sizes.clusters, sizes.degrees, effective, found.ends)


AnyMetric = Metric[Any] | CorpusMetric


def evaluate(metrics: Sequence[AnyMetric], scores: Scores) -> dict[str, Estimate]:
    """Return the estimate of each metric by its name, in the order of the metrics.

    Example:
        >>> right = Metric("accuracy", of=lambda score: float(score["value"] == score["target"]))
        >>> scores = [{"cluster_id": n, "value": "A", "target": target} for n, target in enumerate("AAB")]
        >>> round(evaluate([right], scores)["accuracy"].value, 3)
        0.667
    """
    return {metric.name: metric.estimate(scores) for metric in metrics}


def counting(
    name: str, count: Callable[[Scores], float], *, higher_is_better: bool | None = None, **declared: Any
) -> CorpusMetric:
    """Return the metric that counts something: it has no error and is not compared."""
    return CorpusMetric(
        name, higher_is_better, has_error=False, role=Role.ASIDE, scale=Scale.COUNT, count=count, **declared
    )


def undeclared(name: str, higher_is_better: bool | None = None) -> Declaration:
    """Return the declaration of a metric of another harness task or of a user's hook: raw, as its range is unknown."""
    return Declaration(name, higher_is_better, scale=Scale.RAW)
