"""Contents of a report, which become a page, tables and JSON.

Undefined numbers are NaN, and null in JSON. Nothing is from a patient's record if :attr:`TaskReport.withheld` is true.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from medtasks.data.images.decoding import Decoding
from medtasks.home import as_json
from medtasks.metrics.metric import Declaration
from medtasks.runs.run_manifest import PrimaryOutcome
from medtasks.runs.sample_counts import SampleCounts
from medtasks.scores.score_model import AuditItem, Baseline, MetricScore, RuleScores
from medtasks.stats.calibration import Calibration
from medtasks.stats.paired import PairedResult, PairedValues


@dataclass(frozen=True)
class PublishedScore:
    """A published result of the same benchmark."""

    model: str  # as printed
    metric: str  # name of our metric that is defined the same way
    value: float  # on our scale
    printed: str  # as printed
    source: str
    remark: str = ""  # a known misprint, or the reason why it is not comparable
    same_model: bool = False  # whether it is of the model that the run's recipe names
    column: str = ""  # of the group; empty for a result over all questions
    group: str = ""  # whose questions it is over


@dataclass(frozen=True)
class Gain:
    """Difference of a task from one of its variants on the same questions."""

    not_in_json: ClassVar = ("test",)
    variant: str  # blind, nota, ..., or the part of them with one severity
    task: str  # name of the variant
    rule: str
    metric: str
    score: float  # mean of the task
    variant_score: float  # mean of the variant
    difference: float  # task minus variant; against blind this is the image gain
    low: float  # lower end of its 95 % interval; NaN if unknown
    high: float
    p: float
    samples: int  # questions that both answered
    p_holm: float = math.nan  # corrected for all gains of the run
    same_as: str = ""  # an earlier rule with the same value of every sample in both: one test
    # Whether the variant's score is 0 for any model, so that there is no test.
    by_construction: bool = False
    # Until p-values are corrected.
    test: tuple[PairedResult, PairedValues] | None = field(
        default=None, compare=False, repr=False
    )


@dataclass(frozen=True)
class LengthBin:
    """Questions with replies of similar length."""

    least: int
    most: int
    questions: int
    score: MetricScore  # of these questions alone


@dataclass(frozen=True)
class Thinking:
    """Comparison of a thinking variant with its direct form, and the cost of reasoning."""

    base: str  # name of the task in its direct form
    # Thinking minus direct, on the questions that both answered; empty if it was not run.
    gains: tuple[Gain, ...]
    rule: str  # name of the rule that the other fields are about
    answered: int
    truncated: MetricScore  # share whose reasoning never ended
    unit: str  # what lengths count: tokens of the whole reply, else words of the reasoning
    mean: float  # of the lengths; NaN if none is known, like the next two
    median: float
    most: float
    limit: int | None  # of new tokens; None if unknown
    at_limit: int | None  # replies of that length; None if tokens were not counted
    bins: tuple[LengthBin, ...]  # from short to long


@dataclass(frozen=True)
class RepeatedScore:
    """One metric over the repeats. Error, interval and variances are NaN if it is no mean over questions."""

    metric: str
    values: tuple[float, ...]  # one per repeat, in ascending order
    mean: float
    spread: float  # their standard deviation; NaN for a single one
    # Of the most frequent answers; None if it does not follow from single samples.
    majority: MetricScore | None
    share: bool  # whether it is a fraction
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    between: float = math.nan  # variance between questions, without that of replies
    within: float = math.nan  # variance of the replies to one question


@dataclass(frozen=True)
class RepeatedRule:
    """Repeats under one rule."""

    name: str  # of the filter
    scores: tuple[RepeatedScore, ...]
    samples: int  # asked in any repeat; 0 if equal answers cannot be recognised
    ties: int  # samples with several most frequent answers
    failed_replies: int  # of all repeats; they are no vote
    failed_samples: int  # without a reply in any repeat; they are in no score of the majority


@dataclass(frozen=True)
class RepeatedTask:
    """A task that was run several times with other seeds."""

    task: str
    repeats: int
    seeds: tuple[int | None, ...]  # in ascending order; None if not recorded
    rows: tuple[RepeatedRule, ...]
    notes: tuple[str, ...] = ()  # one sentence each


@dataclass(frozen=True)
class TaskReport:
    """One task of a run."""

    not_in_json: ClassVar = ("pictures", "decoding", "metrics")
    name: str
    describes: str
    protocol: str = ""  # protocol of its metadata, empty if none
    dataset: str = ""  # name of its dataset, empty for a task that is not ours
    data_in_words: str = "own data"  # what its questions are, if it has no dataset
    access: str = ""  # public, gated or credentialed; empty if unknown
    fingerprint: str = ""  # of the data the run was made on, empty if not recorded
    sample_data: bool = False  # synthetic images: the scores say nothing about a model
    complete_data: bool = True  # whether the prepared data are the whole published set
    withheld: bool = False  # whether text and images must not be shown
    documents: int = 0  # questions of the dataset, 0 if unknown
    answered: int = 0
    rules: tuple[RuleScores, ...] = ()  # in the order of the task
    # As declared, by name; empty if it is not ours.
    metrics: Mapping[str, Declaration] = field(default_factory=dict)
    baselines: tuple[Baseline, ...] = ()  # always for tasks of ours whose data are at hand
    # Published results over all questions, best first per metric.
    published: tuple[PublishedScore, ...] = ()
    # Published results of groups of questions
    published_groups: tuple[PublishedScore, ...] = ()
    gains: tuple[Gain, ...] = ()  # against the sanity and stress variants in the same run
    thinking: Thinking | None = None  # of a thinking variant
    repeats: RepeatedTask | None = None  # results over all repeats of the run
    # By filter name, for likelihoods.
    calibration: Mapping[str, Calibration] = field(default_factory=dict)
    items: tuple[AuditItem, ...] = ()  # every question answered; empty without samples
    # Image files by key; empty if withheld.
    pictures: Mapping[str, Path] = field(default_factory=dict)
    decoding: Decoding | None = None  # of the task's own settings; None: as its dataset says
    # Numbers of images by conversion, in words; empty if not recorded
    image_conversions: str = ""
    draw: tuple[str, ...] = ()  # sentences on scores that estimate those of a larger set
    missing: tuple[str, ...] = ()  # missing parts and how to get them, one sentence each
    # As recorded: version, prompt, decoding, source of the data.
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def largest_loss(self) -> SampleCounts | None:
        """Numbers of samples that are in no score, under the rule that lost most, or None if none is lost."""
        counts = [rule.counts for rule in self.rules if rule.counts.lost]
        return max(counts, key=lambda numbers: numbers.lost, default=None)

    @cached_property
    def distinct_rules(self) -> list[RuleScores]:
        """Rules for tables. Those with the same value of every sample, and hence the same numbers, come once."""
        alike: dict[str, list[RuleScores]] = {}
        for rule in self.rules:
            unnamed = replace(rule, name="", rule="", describes="")
            answers = (item.answers.get(rule.name) for item in self.items)
            values = [(answer.right, answer.score) for answer in answers if answer]
            baselines = [baseline.scores.get(rule.name) for baseline in self.baselines]
            key = repr((unnamed, values, baselines)) if values else rule.name  # NaN equals NaN
            alike.setdefault(key, []).append(rule)
        distinct = []
        for first, *others in alike.values():
            distinct.append(replace(first, also=tuple(rule.name for rule in others)))
        return distinct

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics, in the order of the rules."""
        scores = chain.from_iterable(rule.scores for rule in self.rules)
        return list(dict.fromkeys(score.metric for score in scores))

    @property
    def group_sizes(self) -> dict[str, dict[str, int]]:
        """Numbers of answered questions of all groups by column and name, in the order of the rules."""
        sizes: dict[str, dict[str, int]] = {}
        for rule in self.rules:
            for column, groups in rule.groups.items():
                column_sizes = sizes.setdefault(column, {})
                for group in groups:
                    column_sizes[group.name] = max(
                        group.questions, column_sizes.get(group.name, 0)
                    )
        return sizes

    def most_frequent(self, counts: str) -> list[str]:
        """Return the names in numbers by name of all rules, the most frequent first.

        Args:
            counts: Field of a rule that holds them, ``reasons`` or ``wrong_kinds``.
        """
        total = Counter[str]()
        for rule in self.rules:
            total += Counter(getattr(rule, counts))
        return sorted(total, key=lambda name: (-total[name], name))

    @property
    def distinct_calibrations(self) -> list[tuple[list[str], Calibration]]:
        """Calibrations with the names of their rules. Equal ones come once."""
        by_value: dict[str, tuple[list[str], Calibration]] = {}
        for name, calibration in self.calibration.items():
            # In its text NaN equals NaN.
            names, _ = by_value.setdefault(repr(calibration), ([], calibration))
            names.append(name)
        return list(by_value.values())

    def is_share(self, metric: str, *values: float) -> bool:
        """Return whether values of a metric are fractions, as far as known.

        Args:
            metric: Name of the metric. One that is not ours is none.
            *values: Values that are shown. One below 0 or above 1 is none, as published code may count an answer twice.
        """
        return metric in self.metrics and self.metrics[metric].is_share(*values)

    def best_baseline(self, rule: RuleScores) -> tuple[Baseline, float] | None:
        """Return the baseline that does best at the main metric of a rule, and its value, or None if none has any."""
        main = rule.scores[0]
        sign = -1 if main.higher_is_better is False else 1
        values = []
        for baseline in self.baselines:
            value = baseline.scores.get(rule.name, {}).get(main.metric, math.nan)
            if not math.isnan(value):
                values.append((baseline, value))
        return max(values, key=lambda entry: sign * entry[1], default=None)


@dataclass(frozen=True)
class RunReport:
    """A whole run."""

    title: str  # heading of the page
    model: str  # model and its arguments as given to the harness; empty if not recorded
    created: str  # time of the report, ISO 8601
    run_at: str  # time of the run, ISO 8601 or as recorded; empty if not recorded
    # Versions, fingerprints, seeds, hardware, times and the command, by name, as recorded.
    facts: Mapping[str, str]
    tasks: tuple[TaskReport, ...]  # tasks with results, in the order of --tasks
    missing: Mapping[str, str]  # why a task of the call is not in tasks, by name
    notes: tuple[str, ...] = ()  # one sentence each
    primary: PrimaryOutcome | None = None  # that was stated before the run


def report_as_dict(report: RunReport) -> dict[str, Any]:
    """Return a report as JSON types, without image files and whatever is withheld."""
    return {"schema_version": 3, **as_json(report)}
