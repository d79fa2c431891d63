"""What a report says, apart from how it looks: the same contents become a page, tables and JSON.

Values are fractions where :attr:`Score.share` is true; undefined numbers are NaN and become null in JSON. Nothing in
here came from a patient's record where :attr:`TaskReport.withheld` is true.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from medtasks.data.decoding import Decoding
from medtasks.families.family import ReadAnswer
from medtasks.harness.sample_counts import SampleCounts, counts_of, counts_of_reasons
from medtasks.stats.calibration import Calibration


@dataclass(frozen=True)
class Score:
    """One metric.

    Attributes:
        metric: Its name.
        value: NaN where it is not defined.
        error: Standard error at the task's own unit; NaN where there is none.
        low: Lower end of the 95 % interval; NaN where there is none.
        high: Upper end.
        share: Whether it is a fraction, which may be shown in percent.
        higher_is_better: Direction.
    """

    metric: str
    value: float
    error: float
    low: float
    high: float
    share: bool
    higher_is_better: bool


@dataclass(frozen=True)
class Group:
    """Scores of a part of the questions, such as those of one medical area.

    Attributes:
        name: Value of the column.
        questions: How many questions were answered in it.
        scores: The task's main metrics.
    """

    name: str
    questions: int
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class PairOutcomes:
    """What became of complete and incomplete pairs.

    Attributes:
        both_right: Both images answered rightly.
        swapped: Both images answered with the other image's answer.
        same: Both images got the same option, by its letter: the confusion the benchmark is about.
        one_invalid: One of the two replies has no valid answer.
        both_invalid: Neither has.
        incomplete: Only one image of the pair was answered at all; in no score of pairs.
    """

    both_right: int
    swapped: int
    same: Mapping[str, int]
    one_invalid: int
    both_invalid: int
    incomplete: int


@dataclass(frozen=True)
class RuleReport:
    """Scores under one reading of the replies.

    Attributes:
        name: Filter name, such as ``reference``.
        rule: Name and version of the rule, such as ``mediconfusion_reference v1``.
        describes: What the rule does, one sentence; empty where nothing is known.
        scores: All metrics, the main one first.
        reasons: How many replies were ok, ambiguous, refused ...; empty without samples.
        groups: Scores by column and group; empty without samples or columns.
        pairs: Outcomes of pairs, for paired questions.
        wrong_kinds: How many wrong answers are of which kind, where a rule can tell.
        failures: Why a metric has no value, by metric.
    """

    name: str
    rule: str
    describes: str
    scores: tuple[Score, ...]
    reasons: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    pairs: PairOutcomes | None = None
    wrong_kinds: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> SampleCounts:
        """How many samples are behind the scores; runs of earlier versions tell it by the replies' reasons alone."""
        recorded = counts_of({f"{score.metric},": score.value for score in self.scores})
        return counts_of_reasons(self.reasons) if recorded is None else recorded


@dataclass(frozen=True)
class Baseline:
    """What a model scores that does not look.

    Attributes:
        name: Such as ``always A`` or ``most frequent answer``.
        describes: How it answers, one sentence.
        scores: Values by filter name and metric.
    """

    name: str
    describes: str
    scores: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class PublishedScore:
    """A published result of the same benchmark.

    Attributes:
        model: As printed.
        metric: Name of our metric that is defined the same way.
        value: On our scale.
        printed: As printed.
        source: Paper and table.
        remark: A known misprint or what makes it not comparable; empty if nothing is known.
    """

    model: str
    metric: str
    value: float
    printed: str
    source: str
    remark: str = ""


@dataclass(frozen=True)
class Gain:
    """How a task differs from one of its sanity variants on the same questions.

    Attributes:
        variant: ``blind``, ``blank`` or ``swapped``.
        task: Name of the variant.
        rule: Filter name.
        metric: Name of the metric.
        score: Mean of the task.
        variant_score: Mean of the variant.
        difference: Task minus variant; against ``blind`` this is the image gain.
        low: Lower end of its 95 % interval; NaN where the samples do not tell.
        high: Upper end.
        p: Two-sided p-value.
        samples: Questions that both answered.
    """

    variant: str
    task: str
    rule: str
    metric: str
    score: float
    variant_score: float
    difference: float
    low: float
    high: float
    p: float
    samples: int


@dataclass(frozen=True)
class Item:
    """One question with its reply.

    Attributes:
        doc_id: Its id; hashed where the task is withheld.
        unit: What belongs together on the screen: the pair's id, else the own one.
        images: Keys of :attr:`TaskReport.pictures`, in the order shown.
        question: As published; empty where withheld.
        options: Texts of the options; empty if there are none or withheld.
        prompt: What the model was asked; empty where it is not recorded or withheld.
        key: The right answer; empty where withheld.
        reply: Raw reply; empty for likelihoods and where withheld.
        losses: Mean negative log-likelihood per option; empty for replies in words.
        answers: By filter name.
        groups: Values by column, such as the medical areas.
    """

    doc_id: str
    unit: str
    images: tuple[str, ...]
    question: str
    options: tuple[str, ...]
    prompt: str
    key: str
    reply: str
    losses: tuple[float, ...]
    answers: Mapping[str, ReadAnswer]
    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class TaskReport:
    """One task of a run.

    Attributes:
        name: Name of the task.
        describes: One line about it.
        protocol: Protocol of its metadata, empty if none.
        dataset: Name of its dataset, empty for a task that is not ours.
        access: ``public``, ``gated`` or ``credentialed``; empty if not known.
        fingerprint: Of the data the run was made on, empty if not recorded.
        sample_data: Drawn pictures: the scores say nothing about a model.
        complete_data: Whether the prepared data are the whole published set.
        withheld: Whether text and pictures may not be shown.
        documents: How many questions the dataset has, 0 if not known.
        answered: How many were answered.
        rules: One per reading.
        baselines: Always for tasks of ours whose data are at hand.
        published: Published results, best first per metric.
        gains: Against the sanity variants in the same run.
        calibration: By filter name, for likelihoods.
        items: Every question answered; empty without samples.
        pictures: File of each picture by key; empty where withheld.
        decoding: How the task's own settings say that its images are decoded; None: as their dataset says.
        image_conversions: How models saw how many images, in words; empty if not recorded.
        missing: What this section lacks and how to get it, one sentence each.
    """

    name: str
    describes: str
    protocol: str
    dataset: str
    access: str
    fingerprint: str
    sample_data: bool
    complete_data: bool
    withheld: bool
    documents: int
    answered: int
    rules: tuple[RuleReport, ...]
    baselines: tuple[Baseline, ...] = ()
    published: tuple[PublishedScore, ...] = ()
    gains: tuple[Gain, ...] = ()
    calibration: Mapping[str, Calibration] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    pictures: Mapping[str, Path] = field(default_factory=dict)
    decoding: Decoding | None = None
    image_conversions: str = ""
    missing: tuple[str, ...] = ()

    @property
    def lost(self) -> SampleCounts | None:
        """How many samples are in no score, under the rule that lost most; None if none is."""
        found = [rule.counts for rule in self.rules]
        worst = max(found, key=lambda counts: counts.lost, default=None)
        return worst if worst is not None and worst.lost else None


@dataclass(frozen=True)
class ComparedScore:
    """One test between two runs.

    Attributes:
        task: Name of the task.
        rule: Filter name.
        metric: Name of the metric.
        samples: Questions answered in both.
        units: Independent units among them.
        first: Mean of this run.
        second: Mean of the other run.
        difference: Second minus first.
        low: Lower end of its 95 % interval; NaN where the samples do not tell.
        high: Upper end.
        test: Name of the test.
        p: Two-sided p-value.
        p_holm: Corrected for all tests of the report.
        detectable: Smallest true difference found with 80 % power; NaN where the samples do not tell.
    """

    task: str
    rule: str
    metric: str
    samples: int
    units: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    test: str
    p: float
    p_holm: float
    detectable: float


@dataclass(frozen=True)
class RunComparison:
    """This run against another one.

    Attributes:
        name: What the other run is called: its model.
        path: Where it lies.
        scores: All tests.
        notes: What could not be compared, one sentence each.
    """

    name: str
    path: str
    scores: tuple[ComparedScore, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RunReport:
    """A whole run.

    Attributes:
        title: Heading of the page.
        model: Model and its arguments as given to the harness; empty if not recorded.
        created: When the report was made, ISO 8601.
        run_at: When the run was made, ISO 8601 or as recorded; empty if not recorded.
        facts: Versions, fingerprints, seeds, hardware, times and the command, by name, as recorded.
        tasks: Tasks with results, in order of name.
        missing: Why a task that was asked for is not in ``tasks``, by name.
        notes: Anything else a reader has to know, one sentence each.
        comparisons: With other runs.
    """

    title: str
    model: str
    created: str
    run_at: str
    facts: Mapping[str, str]
    tasks: tuple[TaskReport, ...]
    missing: Mapping[str, str]
    notes: tuple[str, ...] = ()
    comparisons: tuple[RunComparison, ...] = ()


def report_as_dict(report: RunReport) -> dict[str, Any]:
    """Return a report as JSON types: undefined numbers become None, files of pictures are left out.

    What a :attr:`~medtasks.audit.report.contents.TaskReport.withheld` section keeps back is not in here either.
    """
    return {"schema_version": 1, **as_json(report)}


def as_json(value: Any) -> Any:
    """Return any value as JSON types; a number that is not defined is null."""
    if is_dataclass(value) and not isinstance(value, type):
        left_out = {"pictures", "decoding"} if isinstance(value, TaskReport) else set()
        return {one.name: as_json(getattr(value, one.name)) for one in fields(value) if one.name not in left_out}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value  # a StrEnum becomes plain text
    if isinstance(value, Integral):  # numpy's numbers would not be JSON
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)
