"""Scores of a task under its rules: values with intervals, groups, pairs, baselines and single questions.

Scoring and reports fill these records, and the command line, pages and JSON files show them. Undefined numbers are NaN,
and null in JSON. Fields in ``not_in_json`` are for the other two only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from medtasks.extract.extractor_registry import Reason
from medtasks.families.family import ReadAnswer
from medtasks.metrics.clinical import ClassNumbers
from medtasks.metrics.pairs import PairCounts
from medtasks.runs.sample_counts import SampleCounts, counts_of
from medtasks.scores.error_classes import WrongAnswer
from medtasks.stats.intervals import EstimatedValue
from medtasks.stats.paired import PairedResult

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class MetricScore:
    """One metric."""

    not_in_json: ClassVar = ("has_error", "unit", "components", "most_shared")
    metric: str
    value: float  # NaN where it is not defined
    error: float  # standard error, clustered; NaN if unknown
    low: float  # lower end of its interval, at 95 % unless its group says otherwise; NaN if unknown
    high: float
    share: bool  # whether it is a fraction, which may be shown in percent
    higher_is_better: bool | None  # None if neither is, or it is not recorded
    # Whether the metric has a standard error at all; not in JSON.
    has_error: bool = field(default=True, compare=False)
    # Whether the value follows from the task alone; then it has no error and no interval.
    by_construction: bool = False
    # Of the error; None without one, or if only recorded.
    clusters: int | None = field(default=None, compare=False)
    unit: str = field(default="cluster", compare=False)  # see Estimate
    components: int | None = field(default=None, compare=False)
    most_shared: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Group:
    """Scores of a part of the questions, such as those of one medical area."""

    not_in_json: ClassVar = ("drawn",)
    name: str  # value of the column
    questions: int  # answered
    # The main metrics, with intervals that hold for all compared groups together.
    scores: tuple[MetricScore, ...]
    # Whether it is large enough; else its interval is its own 95 % interval
    compared: bool = True
    # Whether it estimates a group of a benchmark from a draw; then it is not compared.
    drawn: bool = False
    # Per score: test against all other samples, corrected for the column's groups.
    p_holm: tuple[float, ...] = ()
    # Per score: the group's value minus that of all other samples; NaN if not compared.
    gaps: tuple[EstimatedValue, ...] = ()


Groups = tuple[Group, ...]
"""Groups of one column."""


@dataclass(frozen=True)
class ColumnTest:
    """Test of a main metric by the groups of a column."""

    overall: MetricScore  # of all answered samples
    # Group with the smallest p-value if this test rejects after correction, else empty.
    different: str
    # P-value of the hypothesis that no group differs: the smallest of the groups' corrected ones.
    p: float
    p_holm: float = math.nan  # corrected for all columns and main metrics of the task


@dataclass(frozen=True)
class PairOutcomes:
    """Outcomes of complete and incomplete pairs."""

    both_right: int  # both images answered rightly
    swapped: int  # both images answered with the other image's answer
    # Both images got the same option, by its letter: the confusion the benchmark is about.
    same: Mapping[str, int]
    one_invalid: int  # one of the two replies has no valid answer
    both_invalid: int  # neither has
    incomplete: int  # only one image of the pair was answered at all; in no score of pairs
    both_wrong: int = 0  # both images got a valid answer, and both a wrong one
    # Both right, as a share of both right and both wrong.
    solved_of_decided: MetricScore | None = None


@dataclass(frozen=True)
class RuleScores:
    """Scores under one rule, of which the fields after ``failures`` are known only if replies were scored."""

    not_in_json: ClassVar = (
        "settings",
        "categories",
        "wrong",
        "few_clusters",
        "remarks",
        "also",
    )
    name: str  # filter name, such as reference
    rule: str  # name and version of the rule, such as mediconfusion_reference v1
    describes: str  # one sentence on the rule; empty if unknown
    scores: tuple[MetricScore, ...]  # all metrics, the main one first
    # Number of replies by reason; empty without samples.
    reasons: Mapping[str, int] = field(default_factory=dict)
    # By column; empty without samples or columns.
    groups: Mapping[str, Groups] = field(default_factory=dict)
    pairs: PairOutcomes | None = None  # outcomes of pairs, for paired questions
    # Number of wrong answers by kind, as far as known.
    wrong_kinds: Mapping[str, int] = field(default_factory=dict)
    # Why a metric has no value, by metric.
    failures: Mapping[str, str] = field(default_factory=dict)
    # Of metrics of reports, by metric.
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Of paired questions, "total" last.
    categories: Mapping[str, PairCounts] = field(default_factory=dict)
    wrong: Sequence[WrongAnswer] = ()
    few_clusters: tuple[str, ...] = ()  # a sentence where intervals rest on few clusters
    # Sentences of metrics on their scores, such as the number of images per class.
    remarks: tuple[str, ...] = ()
    # Of ``groups``, one per metric.
    column_tests: Mapping[str, tuple[ColumnTest, ...]] = field(default_factory=dict)
    by_class: tuple[ClassNumbers, ...] = ()  # of yes/no questions, classes and findings
    # Names of the rules that are shown together with it, see TaskReport.distinct_rules.
    also: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name, and those of the rules that are shown together with it."""
        return ", ".join((self.name, *self.also))

    @property
    def estimates(self) -> dict[str, MetricScore]:
        """Scores by metric."""
        return {score.metric: score for score in self.scores}

    @property
    def counts(self) -> SampleCounts:
        """Numbers of scored, failed and unjudged samples, by reasons of replies where no metric counts them."""
        recorded = counts_of({f"{score.metric},": score.value for score in self.scores})
        if recorded is not None:
            return recorded
        failed = self.reasons.get(Reason.ADAPTER_FAILED, 0)
        unjudged = self.reasons.get(Reason.JUDGE_FAILED, 0)
        return SampleCounts(sum(self.reasons.values()) - failed - unjudged, failed, unjudged)

    def group_score(self, column: str, name: str, metric: str) -> MetricScore | None:
        """Return one metric of one group, or None if there is no such group or metric."""
        for group in self.groups.get(column, ()):
            if group.name == name:
                return next((score for score in group.scores if score.metric == metric), None)
        return None


def published_rule(rules: Mapping[str, _Value]) -> _Value | None:
    """Select the value of a task's published rule from values by row, or None if the task has no such rule.

    Example:
        >>> published_rule({"reference": 0.4, "robust": 0.5})
        0.4
    """
    return next((rule for name, rule in rules.items() if name.startswith("reference")), None)


def careful_rule(rules: Mapping[str, _Value]) -> _Value | None:
    """Select the value of a task's careful rule from values by row, or None if the task has no such rule.

    Example:
        >>> careful_rule({"reference": 0.4, "robust": 0.5})
        0.5
    """
    return rules.get("robust") or rules.get("strict")


@dataclass(frozen=True)
class Baseline:
    """Scores of an image-blind baseline."""

    name: str  # such as always A or most frequent answer
    describes: str  # one sentence on its answers
    scores: Mapping[str, Mapping[str, float]]  # values by filter name and metric
    # Of the best one: metric, run against it.
    tests: Mapping[str, tuple[str, PairedResult]] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditItem:
    """One question with its reply."""

    doc_id: str  # its id; hashed where the task is withheld
    unit: str  # id of its pair, else its own; items of one unit are shown together
    images: tuple[str, ...] = ()  # keys of TaskReport.pictures, in order
    question: str = ""  # as published; empty where withheld
    options: tuple[str, ...] = ()  # texts of the options; empty if there are none or withheld
    prompt: str = ""  # prompt of the model; empty if not recorded or withheld
    key: str = ""  # target; empty if withheld
    reply: str = ""  # raw reply; empty for likelihoods and where withheld
    # Mean negative log-likelihood per option; empty for replies in words.
    losses: tuple[float, ...] = ()
    answers: Mapping[str, ReadAnswer] = field(default_factory=dict)
    # Values by column, such as medical areas.
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    facts: tuple[str, ...] = ()  # image files and the user's own columns; empty if withheld
