"""The task family: the one object that interprets samples, replies and scores of its tasks.

The harness's hooks, ``medtasks score``, ``compare`` and ``report``, the sanity variants, baselines and the doctor all
ask this object; nothing else looks at the columns of a document. It must never raise for a reply, nor make a number of
a failure. :class:`TaskFamily` opens with an example.
"""

import math
from abc import ABC
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, TypeGuard

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import DRAWN, Sample, Samples, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor_of
from medtasks.extract.failure import (
    NO_TEXT,
    cut_reply,
    failure_cause,
    reasoned_reply,
    without_cut_mark,
    without_reasoning,
)
from medtasks.extract.labeler import NAME as CHEXBERT_LABELS
from medtasks.extract.labeler import Labels, label_replies
from medtasks.extract.reading.reply_text import split_reasoning
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import Strategy
from medtasks.families.templates import written_options
from medtasks.families.text_metrics import text_values
from medtasks.judges.medheval_judges import JudgeQuestion
from medtasks.metrics.metric import (
    PATIENT_IMAGE,
    AnyMetric,
    CorpusMetric,
    Metric,
    MetricList,
    Score,
    ScoreList,
)
from medtasks.stats.standard_error import joined_clusters

# Ending of a rule's name in scores of replies that the judge got between marks
FENCED = "_fenced"
# For likelihoods where a task's file names none. A tie is no answer.
LIKELIHOOD_EXTRACTOR = "untied"
NO_OPTION = "none"  # a list of options without any
_WHEN_CUT = dict.fromkeys(  # an answer that is missing had no room
    (Reason.EMPTY, Reason.NO_MATCH, Reason.AMBIGUOUS), str(Reason.TRUNCATED)
)


class AskedFor(Enum):
    """Form of an answer."""

    LETTER = auto()  # of an option
    LETTER_OR_YES_NO = auto()  # by the question's ``kind``
    PHRASE = auto()  # or yes or no


class Asks(Enum):
    """Need of scoring for a judge."""

    NOBODY = auto()
    JUDGE = auto()
    JUDGE_IF_THERE = auto()  # some metrics need one


@dataclass(frozen=True)
class JointVerdicts:
    """Verdicts of a judge that saw replies of several models side by side."""

    models: int
    by_field: Mapping[str, Any]  # by field of the score; None without a verdict


@dataclass(frozen=True)
class Reply:
    """Reply of a model to one sample: a text, or one loss per option."""

    # As the model gave it, or the mark of a failed sample (:mod:`medtasks.extract.failure`).
    text: str | None = None
    # Mean negative log-likelihood per token of each option, NaN for a failed one.
    losses: tuple[float, ...] | None = None
    cut: bool = False  # whether the server cut the text at its length limit
    labelled: bool = False  # whether a labeler has read the text already
    labels: Labels | None = None  # of that labeler, None if it failed
    reasoning: str = ""  # before the text, where the model's server tells them apart
    # Whether each option is the one that greedy decoding gives, None if unknown.
    greedy: tuple[bool, ...] | None = field(default=None, compare=False)
    # Digest of all replies of its run, empty if it is in no file.
    run: str = field(default="", compare=False)
    # None if a judge is asked about it alone.
    verdicts: JointVerdicts | None = field(default=None, compare=False)

    @property
    def is_failure(self) -> bool:
        """Whether the model gave no reply: it is in no score.

        Example:
            >>> Reply(losses=(0.5, float("nan"))).is_failure
            True
        """
        if self.losses is not None:
            return not self.losses or any(map(math.isnan, self.losses))
        return self.text is None or failure_cause(self.text) is not None

    @property
    def text_for_files(self) -> str:
        """The text for files, with marks for a cut and for reasoning."""
        text = self.text or ""
        if self.reasoning:
            text = reasoned_reply(self.reasoning, text)
        return cut_reply(text) if self.cut else text

    @classmethod
    def of_text(cls, text: object) -> "Reply":
        """Return the reply that a file or a model has as text, with its marks.

        Args:
            text: The text. Without one, such as None, the sample failed.

        Example:
            >>> Reply.of_text("B").is_failure, Reply.of_text(None).is_failure
            (False, True)
        """
        marked, cut = without_cut_mark(text if isinstance(text, str) else NO_TEXT)
        plain, reasoning = without_reasoning(marked)
        return cls(text=plain, cut=cut, reasoning=reasoning)


Decisions = Mapping[str, tuple[bool, bool | None]]
"""By class: whether a sample has it, and whether its answer says so, None for no valid answer."""

ClusteredSample = tuple[str, Hashable]
"""Id and cluster of a sample."""

SampleValues = dict[str, tuple[Hashable, float]]
"""Cluster and value by id of a sample, or of several with one value."""

Replies = Mapping[str, Reply]
"""Replies by sample id."""


@dataclass(frozen=True)
class Rule:
    """Way in which the replies of a task are read, under one name in its results."""

    # Name of the extractor; None where only a judge reads them, or for the family's default.
    extractor: str | None = None
    # Template of one option as the extractor gets it (families/templates.py), None for a bare one.
    option_form: str | None = None
    # Whether a judge gets replies between marks, see :mod:`medtasks.judges.fence`.
    fenced: bool = False
    # Whether only the answer after the reasoning is read (extract/reading/reply_text.py).
    reasoned: bool = False


@dataclass(frozen=True)
class ReadAnswer:
    """Answer read from a reply, for a person who looks at single samples."""

    value: str | None  # in words or letters; None where there is no answer, for ``reason``
    reason: str
    right: bool | None  # None where it is neither right nor wrong, or a ``score`` lies between
    score: float | None = None


def compares_texts(metric: AnyMetric) -> TypeGuard[CorpusMetric]:
    """Return whether a metric compares texts, with others that are computed together."""
    return isinstance(metric, CorpusMetric) and metric.text_field is not None


def without_its_reasoning(reply: Reply) -> Reply:
    """Return the answer after the reasoning of a reply that has a text.

    Where the reasoning never ended, it is a cut and empty one.

    Example:
        >>> without_its_reasoning(Reply("<think>A or B?</think>B")).text
        'B'
    """
    answer = split_reasoning(reply.text or "", cut=reply.cut, reasoning=reply.reasoning).answer
    return replace(reply, text=answer or "", reasoning="", cut=reply.cut or answer is None)


def needs_labeler(rule: Rule) -> bool:
    """Return whether a rule has replies read by a labeler of chest findings.

    Example:
        >>> needs_labeler(Rule("chexbert_labels")), needs_labeler(Rule("robust_labels"))
        (True, False)
    """
    return rule.extractor == CHEXBERT_LABELS


def with_labels(replies: Sequence[Reply], rule: Rule) -> list[Reply]:
    """Return replies with their labels, all read at once, if the rule needs a labeler.

    Args:
        replies: Replies of a run, shape (samples,).
        rule: Way in which they are read.
    """
    if not needs_labeler(rule):
        return list(replies)
    results = label_replies([reply.text for reply in replies])
    labelled = []
    for reply, labels in zip(replies, results, strict=True):
        labelled.append(replace(reply, labelled=True, labels=labels))
    return labelled


class TaskFamily(ABC):
    """Tasks whose samples are scored in one way.

    A family declares the columns that its documents need, the extractor that reads a reply, and the metrics of its
    scores. It builds the values for the metrics from the answer, one flat record per sample:

    Example:
        >>> from medtasks.families.counts import INVALID_RATE, answered
        >>> class Sides(TaskFamily):
        ...     name = "sides"
        ...     columns = {"options": Column.OPTIONS, "answer": Column.LETTER}
        ...     extractor = "robust_choice"
        ...     metrics = (Metric("accuracy", selection=answered, of=lambda score: score["right"]), INVALID_RATE)
        ...
        ...     def _fields(self, sample, answer):
        ...         return {"right": float(answer.value == sample.document["answer"])}
        >>> sides = Sides()
        >>> sample = Sample({"doc_id": "1", "options": ["left", "right"], "answer": "B"})
        >>> scores = [sides.score(sample, Reply(text), Rule()) for text in ("B", "left", "I cannot tell.")]
        >>> [(score["right"], score["reason"]) for score in scores]
        [(1.0, 'ok'), (0.0, 'ok'), (0.0, 'refused')]
        >>> round(sides.metric("accuracy").estimate(scores).value, 2)
        0.33
    """

    name: ClassVar[str]
    columns: ClassVar[Columns]  # needed in its documents, besides those of its prompt
    # Columns that are enough in their place, if any.
    short: ClassVar[Columns | None] = None
    kind: ClassVar[str | None] = AnswerKind.CHOICE  # of the extractors that read its replies
    # Where a task's file names none; None where a judge reads them
    extractor: ClassVar[str | None]
    asks: ClassVar[Asks] = Asks.NOBODY
    # Whether recorded scores suffice for metrics; else these need texts
    scores_suffice: ClassVar[bool] = True
    saves_replies: ClassVar[bool] = False  # each is on disk before anything is computed from it
    labels_texts: ClassVar[bool] = False  # a labeler reads texts for its metrics
    # Form of answer that its questions ask for, where reasoning before it makes sense.
    asked_for: ClassVar[AskedFor | None] = None
    metrics: MetricList  # all that its tasks may have, in the order of tables
    # By which runs are compared, in no table
    compared_only: ClassVar[tuple[Metric[Any], ...]] = ()
    # Metrics by which groups of samples are compared, where no main metric is a mean over samples.
    compared_in_groups: ClassVar[tuple[Metric[Any], ...]] = ()
    # Those of ``metrics`` that are of such a judge's verdicts.
    judged: ClassVar[MetricList] = ()
    joins_runs: bool = False  # whether a judge's prompt is about several runs side by side
    paired: ClassVar[bool] = False  # samples come in pairs, with scores by category
    # Module of ``medtasks.hooks`` for its samples asked in every rotation of their options; None where no target is
    # among the options, or a judge reads the replies.
    rotated: ClassVar[str | None] = None
    # Rows for replies that are letters, in tasks that compare likelihoods.
    letter_rows: ClassVar[Mapping[str, Rule]] = {}

    def score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score one sample. It never raises, whatever the reply.

        Args:
            sample: The sample with its target.
            reply: Reply of the model.
            rule: Way in which the reply is read.

        Returns:
            A flat record of ``sample``, ``cluster_id``, ``rule``, ``reason`` and the values for the family's metrics:
            ids, letters, labels and numbers, and text only as :class:`~medtasks.data.privacy.PrivateText`. Where only
            the answer after the reasoning is read, ``reasoning_words`` is the length of the reasoning.
        """
        if rule.reasoned and reply.text is not None and not reply.is_failure:
            parts = split_reasoning(reply.text, cut=reply.cut, reasoning=reply.reasoning)
            score = self.score(
                sample, without_its_reasoning(reply), replace(rule, reasoned=False)
            )
            score["reasoning_words"] = parts.words
            # Rules that reproduce published code read even nothing as some option.
            if parts.answer is None:
                score["reason"] = str(Reason.TRUNCATED)
                if "value" in score:
                    score["value"] = None
            return score
        score = {"sample": sample.doc_id, "cluster_id": sample.cluster_id}
        if sample.patient_image is not None:
            score[PATIENT_IMAGE] = sample.patient_image
        score |= self._score(sample, reply, rule)
        if rule.fenced:
            score["rule"] = f"{score['rule']}{FENCED}"
        score["reason"] = str(score["reason"])
        # The others of its stratum stand for a failed sample.
        if sample.sampling_unit is not None and score["reason"] != Reason.ADAPTER_FAILED:
            score[DRAWN] = dict(sample.sampling_unit)
        if reply.cut:
            score["cut"] = True
            score["reason"] = _WHEN_CUT.get(score["reason"], score["reason"])
        return score

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the family's part of a score: ``rule``, ``reason`` and its own fields."""
        answer, rule_name = self.read(sample, reply, rule)
        return {**self._fields(sample, answer), "reason": answer.reason, "rule": rule_name}

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return the values for the family's metrics where they follow from the answer."""
        raise NotImplementedError

    def texts(self, sample: Sample, reply: Reply, rule: Rule) -> dict[str, PrivateText]:
        """Return the fields of a score that are texts, which no file holds, without asking a judge.

        Args:
            sample: The sample.
            reply: Reply of the model.
            rule: Way in which the reply is read.
        """
        return {}

    def final_scores(self, scores: ScoreList) -> ScoreList:
        """Return the scores of a whole run with values that depend on all.

        Args:
            scores: Scores of the run, shape (samples,). Final ones are returned as they are.
        """
        return scores

    def independent_clusters(self, samples: Samples) -> list[str]:
        """Return the clusters of tests and of calibration, which are those of errors.

        Args:
            samples: Samples of a run, shape (samples,). Patients that share an image are one cluster.

        Returns:
            Names of clusters, shape (samples,).
        """
        return joined_clusters(
            [sample.cluster_id for sample in samples],
            [sample.patient_image for sample in samples],
        )

    def sample_values(
        self,
        metric: AnyMetric,
        scores: ScoreList,
        samples: Sequence[ClusteredSample],
    ) -> SampleValues:
        """Return the values of single samples under a metric, for tests that pair the samples of two runs.

        Args:
            metric: One of the family's metrics.
            scores: Scores of a run, shape (samples,).
            samples: Ids with clusters of :meth:`independent_clusters`, shape (samples,).

        Returns:
            Cluster and value by sample, or by the id of several samples with one value, without those that have none.

        Raises:
            NotComparable: The values cannot be computed, or a metric of texts is not their mean.
        """
        ids = {id(score): sample for score, sample in zip(scores, samples, strict=True)}
        valued = (
            text_values(metric, scores, only_of_means=True)
            if compares_texts(metric)
            else metric.values(scores)
        )
        values = {}
        for score, value in valued:
            doc_id, cluster = ids[id(score)]
            values[doc_id] = (cluster, value)
        return values

    def decisions(self, score: Score) -> Decisions:
        """Return the decision about each class of a sample, for clinical numbers.

        Returns:
            By the letter of an option, or ``Yes``: whether the sample has the class, and whether its answer says so,
            None for no valid answer. A sample without any is in no clinical number.
        """
        return {}

    def judge_questions(
        self, sample: Sample, reply: Reply, rule: Rule
    ) -> Sequence[JudgeQuestion]:
        """Return the judge's questions about a reply that can be judged side by side with others.

        Args:
            sample: The sample.
            reply: Reply of one model.
            rule: Way in which the reply is read.
        """
        return ()

    def read(self, sample: Sample, reply: Reply, rule: Rule) -> tuple[Answer, str]:
        """Return the answer that a rule reads from a reply, and the rule's name.

        Args:
            sample: The sample with its options.
            reply: Text, or losses of the options, which have rules of their own.
            rule: Way in which the reply is read, by default that of the family.
        """
        if reply.losses is not None:
            rule_name = rule.extractor or LIKELIHOOD_EXTRACTOR
            extractor = extractor_of(rule_name, AnswerKind.LIKELIHOODS)
            return extractor.extract(reply.losses, sample), rule_name
        rule_name = rule.extractor or self.extractor or ""
        extractor = extractor_of(rule_name, self.kind)
        written = Sample(sample.document, written_options(rule.option_form, sample.options))
        return extractor.extract(reply.text, written), rule_name

    def metric(self, name: str) -> AnyMetric | None:
        """Return a metric by its name, None if the family has none of that name."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def rule_with_version(self, rule: Rule) -> str:
        """Return name and version of a rule."""
        extractor = extractor_of(rule.extractor or self.extractor or "")
        ending = FENCED if rule.fenced else ""
        return f"{extractor.name}{ending} v{extractor.version}"

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the answer read from a reply, for a person.

        Args:
            score: Score of the reply.
            reply: The reply.
            value: Value of the sample in a metric of texts, if it has one.
        """
        answer = score.get("value")
        target = score.get("target")
        right = None
        if target is not None and "value" in score:  # which is missing without a verdict
            right = answer == target
        text = None if answer is None else str(answer)
        return ReadAnswer(text, str(score.get("reason", "")), right, value)

    def target_text(self, sample: Sample) -> str:
        """Return the target in words or letters, or the answer as published, empty if unknown."""
        document = sample.document
        names = {kind: name for name, kind in self.columns.items()}
        if Column.LABEL in names:
            return letter(document[names[Column.LABEL]])
        if Column.LABELS in names:
            return ", ".join(letters_of(document[names[Column.LABELS]])) or NO_OPTION
        if Column.LETTERS in names:
            return ", ".join(document[names[Column.LETTERS]])
        if "report" in self.columns:
            return str(document["report"])
        return str(document.get("answer") or document.get("gold") or "")

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return ways to answer without looking at the image, none if targets are unknown.

        Args:
            samples: Samples of a task, at least one.
        """
        return []

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the exact expectation of metrics, by name, for an option drawn at random.

        Only means over questions, pairs or classes of the value of one guess have such a formula; the others, such as
        macro F1, are left out rather than simulated.

        Args:
            samples: Samples of a task, at least one.
        """
        return {}


def letters_of(values: Sequence[int] | None) -> list[str]:
    """Return the letters of the options that are 1, none without values.

    Example:
        >>> letters_of([1, 0, 1])
        ['A', 'C']
    """
    return [letter(index) for index, present in enumerate(values or ()) if present]
