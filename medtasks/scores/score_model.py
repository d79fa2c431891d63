"""Scores of a task under its rules: values with intervals, groups, pairs, baselines and single questions.

Undefined numbers are NaN, and null in JSON.
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
    low: float  # lower end of the 95 % interval; NaN if unknown
    high: float
    share: bool  # whether it is a fraction, which may be shown in percent
    higher_is_better: bool | None  # None if neither is, or it is not recorded
    has_error: bool = field(
        default=True, compare=False
    )  # whether the metric has a standard error at all; not in JSON
    by_construction: bool = (
        False  # whether the value follows from the task alone; then it has no error and no interval
    )
    clusters: int | None = field(
        default=None, compare=False
    )  # of the error; None without one, or if only recorded
    unit: str = field(default="cluster", compare=False)  # see Estimate
    components: int | None = field(default=None, compare=False)
    most_shared: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Group:
    """Scores of a part of the questions, such as those of one medical area."""

    not_in_json: ClassVar = ("drawn",)
    name: str  # value of the column
    questions: int  # answered
    scores: tuple[
        MetricScore, ...
    ]  # the main metrics, with intervals that hold for all compared groups together
    compared: bool = True  # whether it is large enough; else its interval is its own 95 % interval
    drawn: bool = (
        False  # whether it estimates a group of a benchmark from a draw; then it is not compared
    )
    p_holm: tuple[
        float, ...
    ] = ()  # per score: test against all other samples, corrected for the column's groups
    gaps: tuple[
        EstimatedValue, ...
    ] = ()  # per score: minus that of all other samples; NaN if not compared


@dataclass(frozen=True)
class ColumnTest:
    """Test of a main metric by the groups of a column."""

    overall: MetricScore  # of all answered samples
    different: (
        str  # group with the smallest p-value if this test rejects after correction, else empty
    )
    p: float  # that no group differs: the smallest of the groups' corrected ones
    p_holm: float = math.nan  # corrected for all columns and main metrics of the task


@dataclass(frozen=True)
class PairOutcomes:
    """Outcomes of complete and incomplete pairs."""

    both_right: int  # both images answered rightly
    swapped: int  # both images answered with the other image's answer
    same: Mapping[
        str, int
    ]  # both images got the same option, by its letter: the confusion the benchmark is about
    one_invalid: int  # one of the two replies has no valid answer
    both_invalid: int  # neither has
    incomplete: int  # only one image of the pair was answered at all; in no score of pairs
    both_wrong: int = 0  # both images got a valid answer, and both a wrong one
    solved_of_decided: MetricScore | None = (
        None  # both right, as a share of both right and both wrong
    )


@dataclass(frozen=True)
class RuleScores:
    """Scores under one rule, of which the fields after ``failures`` are known only if replies were scored."""

    not_in_json: ClassVar = ("settings", "categories", "wrong", "few_clusters", "remarks", "also")
    name: str  # filter name, such as reference
    rule: str  # name and version of the rule, such as mediconfusion_reference v1
    describes: str  # one sentence on the rule; empty if unknown
    scores: tuple[MetricScore, ...]  # all metrics, the main one first
    reasons: Mapping[str, int] = field(
        default_factory=dict
    )  # number of replies by reason; empty without samples
    groups: Mapping[str, tuple[Group, ...]] = field(
        default_factory=dict
    )  # by column; empty without samples or columns
    pairs: PairOutcomes | None = None  # outcomes of pairs, for paired questions
    wrong_kinds: Mapping[str, int] = field(
        default_factory=dict
    )  # number of wrong answers by kind, as far as known
    failures: Mapping[str, str] = field(
        default_factory=dict
    )  # why a metric has no value, by metric
    settings: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict
    )  # of metrics of reports, by metric
    categories: Mapping[str, PairCounts] = field(
        default_factory=dict
    )  # of paired questions, "total" last
    wrong: Sequence[WrongAnswer] = ()
    few_clusters: tuple[str, ...] = ()  # a sentence where intervals rest on few clusters
    remarks: tuple[
        str, ...
    ] = ()  # sentences of metrics on their scores, such as the number of images per class
    column_tests: Mapping[str, tuple[ColumnTest, ...]] = field(
        default_factory=dict
    )  # of ``groups``, one per metric
    by_class: tuple[ClassNumbers, ...] = ()  # of yes/no questions, classes and findings
    also: tuple[
        str, ...
    ] = ()  # names of the rules that are shown together with it, see TaskReport.distinct_rules

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
        """Samples that are in the scores and in none; from reasons of replies where no metric counts them."""
        recorded = counts_of({f"{score.metric},": score.value for score in self.scores})
        if recorded is not None:
            return recorded
        failed, unjudged = (
            self.reasons.get(Reason.ADAPTER_FAILED, 0),
            self.reasons.get(Reason.JUDGE_FAILED, 0),
        )
        return SampleCounts(sum(self.reasons.values()) - failed - unjudged, failed, unjudged)

    def group_score(self, column: str, name: str, metric: str) -> MetricScore | None:
        """Return one metric of one group."""
        named = (group for group in self.groups.get(column, ()) if group.name == name)
        return next(
            (score for group in named for score in group.scores if score.metric == metric), None
        )


def published_rule(rules: Mapping[str, _Value]) -> _Value | None:
    """Select the value of a task's published rule from values by name of the rule. None without one."""
    return next((rule for name, rule in rules.items() if name.startswith("reference")), None)


def careful_rule(rules: Mapping[str, _Value]) -> _Value | None:
    """Select the value of a task's careful rule from values by name of the rule. None without one."""
    return rules.get("robust") or rules.get("strict")


@dataclass(frozen=True)
class Baseline:
    """Scores of an image-blind baseline."""

    name: str  # such as always A or most frequent answer
    describes: str  # one sentence on its answers
    scores: Mapping[str, Mapping[str, float]]  # values by filter name and metric
    tests: Mapping[str, tuple[str, PairedResult]] = field(
        default_factory=dict
    )  # of the best one: metric, run against it


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
    losses: tuple[
        float, ...
    ] = ()  # mean negative log-likelihood per option; empty for replies in words
    answers: Mapping[str, ReadAnswer] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # values by column, such as medical areas
    facts: tuple[str, ...] = ()  # image files and the user's own columns; empty if withheld
