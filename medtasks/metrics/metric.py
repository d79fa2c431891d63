"""Declarations of metrics, from which value, error, groups, values of single samples and tests follow.

A *score* is the flat record that a task family makes of one sample's reply (:mod:`medtasks.families`). A
:class:`Metric` is a mean over samples, or over units of several samples, such as pairs. A :class:`CorpusMetric` is a
value of all scores together. Nothing here depends on the order of the scores.
"""

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast

from medtasks.data.samples import DRAWN
from medtasks.stats.exchange import SummedCounts
from medtasks.stats.sample_design import DrawnUnit, drawn_mean, drawn_units
from medtasks.stats.standard_error import (
    Dyad,
    MeanError,
    clustered_error,
    connected_components,
    dyadic_error,
    joined_clusters,
)

Score = dict[str, Any]
ScoreList = Sequence[Score]
ScoreFilter = Callable[[ScoreList], ScoreList]
U = TypeVar("U")
R = TypeVar("R", bound=Hashable)
_UNITS = {
    "patient": "patient",
    "image": "image",
    "doc": "sample",
    "unit": "question",
    "pair": "pair",
}  # by prefix of a cluster's id
STDERR = "_stderr"  # ending of the standard error's name in the harness's results
# Field of scores with the patient as cluster: the image, which several patients may share.
PATIENT_IMAGE = "patient_image"


class Role(Enum):
    """Role of a metric in comparisons of runs."""

    MAIN = auto()  # overall quality of the answers
    PART = auto()  # one aspect of it
    # of unusable replies: compared only on request, since each further test weakens all others
    RATE = auto()
    ASIDE = auto()  # never compared


class Scale(Enum):
    """Range of a metric's values, which decides how they are printed and which interval they get."""

    SHARE = auto()  # between 0 and 1, printed in percent
    COUNT = auto()  # whole numbers
    RAW = auto()  # anything else


@dataclass(frozen=True)
class Estimate:
    """Value of a metric and its standard error, NaN where undefined."""

    value: float
    error: float = math.nan
    clusters: int | None = None  # number of independent clusters; None without an error
    degrees: float | None = None  # of freedom, for the interval; None if unknown
    # number of independent answers, for the interval; None if unknown
    effective: float | None = None
    # of the interval; None if it follows from the error
    ends: tuple[float, float] | None = None
    unit: str = "cluster"  # noun for a cluster
    # groups of dyads that share members, directly or through others; None without dyads
    components: int | None = None
    # Number of dyads with the member that most dyads share; 0 without dyads
    most_shared: int = 0

    @classmethod
    def with_error(cls, value: float, error: MeanError, **others: Any) -> "Estimate":
        """Return the estimate of a mean.

        Args:
            value: The mean.
            error: Error of the mean.
            others: Further fields of the estimate, by name.
        """
        return cls(value, error.error, error.clusters, error.degrees, error.effective, **others)


@dataclass(frozen=True)
class Declaration:
    """Properties that every metric declares."""

    name: str  # in results; no part of another name in the same task
    higher_is_better: bool | None = True  # None for a count
    selection: ScoreFilter = list  # the scores that count; by default all
    has_error: bool = True
    role: Role = Role.PART
    # whether it is 0 by construction for a deterministic model that gets no image
    zero_if_blind: bool = False
    of_questions: bool = False  # whether it describes the questions, whatever the replies
    # one sentence for the user, empty if there is nothing to warn of; None for a metric that never warns
    warning: Callable[[ScoreList], str] | None = None
    _: KW_ONLY
    # sentence below a table of scores, empty for no remark; None for a metric that never has one
    remark: Callable[[ScoreList], str] | None = None
    scale: Scale = Scale.SHARE
    description: str = ""  # one sentence

    @property
    def is_compared(self) -> bool:
        """Whether the metric can compare runs."""
        return self.has_error and self.role is not Role.ASIDE

    def is_share(self, *values: float) -> bool:
        """Whether values of this metric are fractions. Published code that counts an answer twice exceeds 1."""
        return self.scale is Scale.SHARE and not any(value < 0 or value > 1 for value in values)


def with_image_clusters(scores: ScoreList) -> ScoreList:
    """Return scores in which patients that share an image have one cluster."""
    if not any(PATIENT_IMAGE in score for score in scores):
        return scores
    patients = [str(score.get("cluster_id")) for score in scores]
    images = []
    for score, patient in zip(scores, patients, strict=True):
        has_image = patient.startswith("patient-")
        images.append(score.get(PATIENT_IMAGE) if has_image else None)
    clusters = joined_clusters(patients, images)
    return [
        {**score, "cluster_id": cluster}
        for score, cluster in zip(scores, clusters, strict=True)
    ]


def with_units(scores: ScoreList) -> ScoreList:
    """Add the unit of the draw to each score of a run on drawn data. Other scores are returned as they are.

    Args:
        scores: All scores of the run. Parts of the result keep their units, which depend on all replies.
    """
    draws = [score.get(DRAWN) for score in scores]
    if not any(isinstance(draw, Mapping) for draw in draws):
        return scores
    units = drawn_units(draws)
    return [{**score, DRAWN: unit} for score, unit in zip(scores, units, strict=True)]


def units_by_cluster(scores: ScoreList) -> dict[Hashable, DrawnUnit]:
    """Return the unit of a draw that holds each cluster. Empty for scores of a whole benchmark."""
    units = {}
    for score in with_units(scores):
        if isinstance(score.get(DRAWN), DrawnUnit):
            units[score.get("cluster_id")] = score[DRAWN]
    return units


@dataclass(frozen=True)
class Metric(Declaration, Generic[U]):
    """A mean over samples, or over units of several samples. By default each score is a unit.

    ``clusters`` return what a unit shares with units that are not independent of it, None if that is unknown. With two
    of them a unit is a dyad, such as a pair of two images, which other dyads may share in either position. ``weights``
    returns one weight per unit; without it (None) all weigh 1.

    Example:
        >>> right = Metric("accuracy", of=lambda score: score["correct"])
        >>> right.estimate([{"correct": 1.0, "cluster_id": "a"}, {"correct": 0.0, "cluster_id": "b"}]).value
        0.5
    """

    _: KW_ONLY
    of: Callable[[U], float | None]  # None for a unit without a value
    units: Callable[[ScoreList], Sequence[U]] = field(default=cast(Any, list))
    clusters: tuple[Callable[[U], Hashable], ...] = cast(Any, (itemgetter("cluster_id"),))
    weights: Callable[[Sequence[U]], Sequence[float]] | None = None

    def values(self, scores: ScoreList) -> list[tuple[U, float]]:
        """Return the units of the selected scores that have a value, with that value."""
        return _with_values(self.units(self.selection(scores)), self.of)

    def _unit_values(
        self, scores: ScoreList
    ) -> tuple[list[float], list[float], list[tuple[Hashable, ...]]]:
        """Return values, weights and clusters of the units with a value and a nonzero weight.

        A unit has one cluster for each function of ``clusters``, as a tuple.
        """
        units = self.units(with_image_clusters(self.selection(scores)))
        weights = [1.0] * len(units) if self.weights is None else self.weights(units)
        values = []
        weights_kept = []
        units_kept = []
        for unit, weight in zip(units, weights, strict=True):
            value = self.of(unit)
            if value is not None and weight:
                values.append(value)
                weights_kept.append(weight)
                units_kept.append(unit)
        clusters = [_without_gaps([key(unit) for unit in units_kept]) for key in self.clusters]
        return values, weights_kept, list(zip(*clusters, strict=True))

    def estimate(self, scores: ScoreList) -> Estimate:
        """Return value and standard error, of the whole benchmark if the samples were drawn from it.

        The value is NaN without a unit that has a value.
        """
        values, weights, clusters = self._unit_values(scores)
        firsts = [first for first, *_ in clusters]
        drawn = units_by_cluster(scores)
        if drawn and clusters:
            units = list(map(drawn.__getitem__, firsts))
            value, error = drawn_mean(values, units, weights)
            if not self.has_error:
                return Estimate(value)
            # One drawn cluster may hold several patients or images.
            unit = unit_of(firsts) if len({*firsts}) == error.clusters else "cluster"
            return Estimate.with_error(value, error, unit=unit)
        total = math.fsum(weights)
        value = math.nan
        if total:
            value = math.fsum(map(operator.mul, values, weights)) / total
        if not self.has_error:
            return Estimate(value)
        if len(self.clusters) < 2:
            error = clustered_error(values, firsts, weights)
            return Estimate.with_error(value, error, unit=unit_of(firsts))
        dyads = [(first, second) for first, second in clusters]
        uses = Counter(itertools.chain.from_iterable(map(set, dyads)))
        return Estimate.with_error(
            value,
            dyadic_error(values, dyads, weights),
            unit="pair",
            components=len({*connected_components(dyads)}),
            most_shared=max(uses.values(), default=0),
        )

    def deviations(self, scores: ScoreList) -> dict[frozenset[Hashable], float]:
        """Return the sums of deviations from the mean, over the sum of weights, by cluster or dyad."""
        values, weights, clusters = self._unit_values(scores)
        center = self.estimate(scores).value
        total = math.fsum(weights)
        by_unit: dict[frozenset[Hashable], list[float]] = defaultdict(list)
        for value, weight, members in zip(values, weights, clusters, strict=True):
            by_unit[frozenset(members)].append(weight * (value - center) / total)
        return {unit: math.fsum(parts) for unit, parts in by_unit.items()}


def unit_of(clusters: Iterable[Hashable]) -> str:
    """Return the noun for clusters with these ids, such as ``patient``.

    Example:
        >>> unit_of(["patient-0a1b", "patient-77c0"])
        'patient'
    """
    prefixes = set()
    for cluster in clusters:
        prefixes.add("pair" if isinstance(cluster, Dyad) else str(cluster).partition("-")[0])
    return _UNITS.get(prefixes.pop(), "cluster") if len(prefixes) == 1 else "cluster"


def _with_values(units: Iterable[U], of: Callable[[U], float | None]) -> list[tuple[U, float]]:
    """Return the units for which ``of`` returns a value, with that value."""
    valued = []
    for unit in units:
        value = of(unit)
        if value is not None:
            valued.append((unit, value))
    return valued


def _without_gaps(clusters: Sequence[Hashable]) -> list[Hashable]:
    """Replace None, an unknown cluster, by a cluster of its own."""
    return [
        ("sample", at) if cluster is None else cluster for at, cluster in enumerate(clusters)
    ]


def mean(values: Sequence[float]) -> float:
    """Return the mean, the same in any order, and NaN for no values.

    Example:
        >>> mean([0.0, 1.0, 0.5])
        0.5
    """
    return math.fsum(values) / len(values) if values else math.nan


def harmonic_mean(first: float, second: float) -> float:
    """Return 2 * first * second / (first + second), or 0 if both are 0.

    Example:
        >>> harmonic_mean(0.5, 1.0)
        0.6666666666666666
    """
    total = first + second
    return 2 * first * second / total if total else 0.0


@dataclass(frozen=True)
class PanelResult:
    """Results, by name, of metrics that are computed together. The caller counts ``clusters``."""

    # without those that could not be computed
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    # cause and fix, without any text of a sample
    failures: Mapping[str, str] = field(default_factory=dict)
    # settings that decide about the numbers
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # for the user, one sentence each without its full stop


@dataclass(frozen=True)
class Panel(Generic[R]):
    """Metrics that are computed together, from one row per score."""

    row: Callable[[Mapping[str, Any]], R]
    compute: Callable[[Sequence[R]], PanelResult]
    # sort key of the rows, which may change the last digits of results
    order: Callable[[R], Any] = repr
    # Counts of rows, from whose sums the metric of a name follows; None for a metric that does not.
    counts: Callable[[str, Sequence[R]], SummedCounts | None] = lambda name, rows: None

    def of(self, scores: ScoreList) -> PanelResult:
        """Return the results for some scores."""
        joined = with_image_clusters(with_units(list(scores)))
        return _compute_rows(self, frozenset(Counter(map(self.row, joined)).items()))


# The harness computes each metric alone, under each filter, on copies of the scores from other processes.
@lru_cache(maxsize=8)
def _compute_rows(panel: Panel[Any], rows: frozenset[tuple[Any, int]]) -> PanelResult:
    return panel.compute(sorted(Counter(dict(rows)).elements(), key=panel.order))


def clear_results() -> None:
    """Clear the results of all panels: the cause of a failure may have been fixed."""
    _compute_rows.cache_clear()


@dataclass(frozen=True)
class CorpusMetric(Declaration):
    """Value of all scores together. Either a panel computes it, or ``count``: the other one is None."""

    _: KW_ONLY
    panel: Panel[Any] | None = None
    count: Callable[[ScoreList], float] | None = None
    # The value of one score, None for a score without one; the metric need not be their mean.
    of: Callable[[Score], float | None] | None = None
    # name of the text that the metric compares with the target's; None if it compares none
    text_field: str | None = None

    def counts(self, scores: ScoreList) -> SummedCounts | None:
        """Return the counts of selected scores, from whose sums the value follows. None if it follows from no sums."""
        if self.panel is None:
            return None
        return self.panel.counts(self.name, list(map(self.panel.row, scores)))

    def values(self, scores: ScoreList) -> list[tuple[Score, float]]:
        """Return the selected scores that have a value of their own, with that value. Empty without ``of``."""
        return [] if self.of is None else _with_values(self.selection(scores), self.of)

    def estimate(self, scores: ScoreList) -> Estimate:
        """Return value and standard error of the selected scores. The value is NaN if the panel did not compute it."""
        chosen = self.selection(scores)
        if self.count is not None:
            return Estimate(self.count(chosen))
        assert self.panel is not None
        estimates = self.panel.of(chosen).estimates
        estimate = estimates.get(self.name, Estimate(math.nan))
        if not self.has_error:
            return Estimate(estimate.value)
        clusters = _without_gaps(
            [score.get("cluster_id") for score in with_image_clusters(chosen)]
        )
        estimate = replace(estimate, unit=unit_of(clusters))
        if estimate.effective is not None:  # of drawn samples
            return estimate
        number = estimate.clusters  # of a panel in which some scores have no value
        if number is None:
            sizes = clustered_error([0.0] * len(clusters), clusters)
            number = sizes.clusters
            estimate = replace(estimate, clusters=number, degrees=sizes.degrees)
        if not estimate.error > 0:
            estimate = replace(estimate, effective=float(number))
        return estimate


AnyMetric = Metric[Any] | CorpusMetric
MetricList = Sequence[AnyMetric]


def evaluate(metrics: MetricList, scores: ScoreList) -> dict[str, Estimate]:
    """Return the estimate of each metric by its name, in the order of the metrics."""
    return {metric.name: metric.estimate(scores) for metric in metrics}


def counting(
    name: str,
    count: Callable[[ScoreList], float],
    *,
    higher_is_better: bool | None = None,
    **declared: Any,
) -> CorpusMetric:
    """Return a count, which has no error and is not compared.

    Args:
        name: Name of the metric.
        count: Takes the selected scores.
        higher_is_better: Whether a larger count is better. None if neither is.
        declared: Other fields of :class:`Declaration`.
    """
    return CorpusMetric(
        name,
        higher_is_better,
        has_error=False,
        role=Role.ASIDE,
        scale=Scale.COUNT,
        count=count,
        **declared,
    )


def raw_declaration(name: str, higher_is_better: bool | None = None) -> Declaration:
    """Return the declaration of a metric of another task or a user's hook: raw, as its range is unknown.

    Args:
        name: Name of the metric.
        higher_is_better: Whether larger values are better. None if that is unknown.
    """
    return Declaration(name, higher_is_better, scale=Scale.RAW)
