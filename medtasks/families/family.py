"""The task family: the one object that interprets samples, replies and scores of its tasks.

The harness's hooks, ``medtasks score``, ``compare`` and ``report``, the sanity variants, baselines and the doctor all
ask this object; nothing else looks at the columns of a document.
"""

import math
from abc import ABC
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, TypeGuard

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import DRAWN, Sample, letter
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
from medtasks.families.columns import Column
from medtasks.families.constant_replies import Strategy
from medtasks.families.templates import written_options
from medtasks.families.text_metrics import text_values
from medtasks.judges.medheval_judges import JudgeQuestion
from medtasks.metrics.metric import PATIENT_IMAGE, AnyMetric, CorpusMetric, Metric, Score, ScoreList
from medtasks.stats.standard_error import joined_clusters

FENCED = "_fenced"  # ending of a rule's name in scores of replies that the judge got between marks
LIKELIHOOD_EXTRACTOR = "untied"  # for likelihoods where a task's file names none
NO_OPTION = "none"  # a list of options without any


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

    text: str | None = (
        None  # as the model gave it, or the mark of a failed sample (:mod:`medtasks.extract.failure`)
    )
    # mean negative log-likelihood per token of each option; NaN for a failed one
    losses: tuple[float, ...] | None = None
    cut: bool = False  # whether the server cut the text at its length limit
    labelled: bool = False  # whether a labeler has read the text already
    labels: Labels | None = None  # of that labeler, None if it failed
    reasoning: str = ""  # before the text, where the model's server tells them apart
    # whether each option is the one that greedy decoding gives; None if unknown
    greedy: tuple[bool, ...] | None = field(default=None, compare=False)
    run: str = field(
        default="", compare=False
    )  # digest of all replies of its run; empty if it is in no file
    verdicts: JointVerdicts | None = field(
        default=None, compare=False
    )  # None: a judge is asked about it alone

    @property
    def failed(self) -> bool:
        """Whether the model gave no reply: it is in no score."""
        if self.losses is not None:
            return not self.losses or any(map(math.isnan, self.losses))
        return self.text is None or failure_cause(self.text) is not None

    @property
    def recorded(self) -> str:
        """The text for files, with marks for a cut and for reasoning."""
        text = (
            reasoned_reply(self.reasoning, self.text or "") if self.reasoning else self.text or ""
        )
        return cut_reply(text) if self.cut else text

    @classmethod
    def of_text(cls, text: object) -> "Reply":
        """Return the reply that a file or a model has as text, with its marks; without any text the sample failed."""
        marked, cut = without_cut_mark(text if isinstance(text, str) else NO_TEXT)
        plain, reasoning = without_reasoning(marked)
        return cls(text=plain, cut=cut, reasoning=reasoning)


Replies = Mapping[str, Reply]
"""Replies by sample id."""


@dataclass(frozen=True)
class Rule:
    """Way in which the replies of a task are read, under one name in its results."""

    extractor: str | None = (
        None  # name of the rule; None where only a judge reads them, or for the family's default
    )
    option_form: str | None = (
        None  # template of one option as the rule gets it (families/templates.py); None: bare
    )
    fenced: bool = (
        False  # whether a judge gets replies between marks, see :mod:`medtasks.judges.fence`
    )
    reasoned: bool = (
        False  # whether only the answer after the reasoning is read (extract/reading/reply_text.py)
    )


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
    """Return the answer after the reasoning of a reply that has a text; a cut and empty one where that never ended."""
    answer = split_reasoning(reply.text or "", cut=reply.cut, reasoning=reply.reasoning).answer
    return replace(reply, text=answer or "", reasoning="", cut=reply.cut or answer is None)


def needs_labeler(rule: Rule) -> bool:
    """Return whether a rule has replies read by a labeler of chest findings."""
    return rule.extractor == CHEXBERT_LABELS


def with_labels(replies: Sequence[Reply], rule: Rule) -> list[Reply]:
    """Return replies with their labels, all read at once, if the rule needs a labeler."""
    if not needs_labeler(rule):
        return list(replies)
    results = label_replies([reply.text for reply in replies])
    return [
        replace(reply, labelled=True, labels=labels)
        for reply, labels in zip(replies, results, strict=True)
    ]


class TaskFamily(ABC):
    """Tasks whose samples are scored in one way."""

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]]  # needed in its documents, besides those of its prompt
    short: ClassVar[Mapping[str, Column] | None] = (
        None  # those that are enough in their place, if any
    )
    kind: ClassVar[str | None] = AnswerKind.CHOICE  # of the extractors that read its replies
    extractor: ClassVar[str | None]  # where a task's file names none; None where a judge reads them
    asks: ClassVar[Asks] = Asks.NOBODY
    scores_suffice: ClassVar[bool] = True  # for metrics, as they are recorded; else they need texts
    saves_replies: ClassVar[bool] = False  # each is on disk before anything is computed from it
    labels_texts: ClassVar[bool] = False  # a labeler reads texts for its metrics
    asked_for: ClassVar[AskedFor | None] = (
        None  # by its questions, where reasoning before it makes sense
    )
    metrics: Sequence[AnyMetric]  # all that its tasks may have, in the order of tables
    compared_only: ClassVar[tuple[Metric[Any], ...]] = ()  # by which runs are compared, in no table
    # Metrics by which groups of samples are compared, where no main metric is a mean over samples.
    compared_in_groups: ClassVar[tuple[Metric[Any], ...]] = ()
    judged: ClassVar[
        Sequence[AnyMetric]
    ] = ()  # those of ``metrics`` that are of such a judge's verdicts
    joins_runs: bool = False  # whether a judge's prompt is about several runs side by side
    paired: ClassVar[bool] = False  # samples come in pairs, with scores by category
    # Module of ``medtasks.hooks`` for its samples asked in every rotation of their options; None where no target is
    # among the options, or a judge reads the replies.
    rotated: ClassVar[str | None] = None
    # Rows for replies that are letters, in tasks that compare likelihoods.
    letter_rows: ClassVar[Mapping[str, Rule]] = {}

    def score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the score of one sample; never raises, whatever the reply.

        It is a flat record of ``sample``, ``cluster_id``, ``rule``, ``reason`` and the values for the family's metrics:
        ids, letters, labels and numbers, and text only as :class:`~medtasks.data.privacy.PrivateText`. Where only the
        answer after the reasoning is read, ``reasoning_words`` is the length of the reasoning.
        """
        if rule.reasoned and reply.text is not None and not reply.failed:
            parts = split_reasoning(reply.text, cut=reply.cut, reasoning=reply.reasoning)
            plain = replace(rule, reasoned=False)
            score = {
                **self.score(sample, without_its_reasoning(reply), plain),
                "reasoning_words": parts.words,
            }
            if (
                parts.answer is None
            ):  # rules that reproduce published code read even nothing as some option
                score |= {"reason": str(Reason.TRUNCATED)} | (
                    {"value": None} if "value" in score else {}
                )
            return score
        image = {} if sample.patient_image is None else {PATIENT_IMAGE: sample.patient_image}
        score = {
            "sample": sample.doc_id,
            "cluster_id": sample.cluster_id,
            **image,
            **self._score(sample, reply, rule),
        }
        score["rule"] = f"{score['rule']}{FENCED}" if rule.fenced else score["rule"]
        score["reason"] = str(score["reason"])
        # The others of its stratum stand for a failed sample.
        if sample.drawn is not None and score["reason"] != Reason.ADAPTER_FAILED:
            score[DRAWN] = dict(sample.drawn)
        if reply.cut:
            score["cut"] = True  # one without an answer had no room for it
            is_void = score["reason"] in (Reason.EMPTY, Reason.NO_MATCH, Reason.AMBIGUOUS)
            score["reason"] = str(Reason.TRUNCATED) if is_void else score["reason"]
        return score

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the family's part of a score: ``rule``, ``reason`` and its own fields."""
        answer, rule_name = self.read(sample, reply, rule)
        return {**self._fields(sample, answer), "reason": answer.reason, "rule": rule_name}

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return the values for the family's metrics where they follow from the answer."""
        raise NotImplementedError

    def texts(self, sample: Sample, reply: Reply, rule: Rule) -> dict[str, PrivateText]:
        """Return the fields of a score that are texts, which no file holds, without asking a judge."""
        return {}

    def settled(self, scores: ScoreList) -> ScoreList:
        """Return the scores of a whole run with values that depend on all; settled ones stay the same object."""
        return scores

    def independent_clusters(self, samples: Sequence[Sample]) -> list[str]:
        """Return the clusters of tests and of calibration, shape (samples,), which are those of errors."""
        return joined_clusters(
            [sample.cluster_id for sample in samples], [sample.patient_image for sample in samples]
        )

    def sample_values(
        self, metric: AnyMetric, scores: ScoreList, samples: Sequence[tuple[str, Hashable]]
    ) -> dict[str, tuple[Hashable, float]]:
        """Return the values of single samples under a metric, for tests that pair the samples of two runs.

        Scores have shape (samples,), as have the ids with clusters of :meth:`independent_clusters`. The result has
        cluster and value by sample, or by the id of several samples with one value, without those that have none.
        Raises NotComparable where the values cannot be computed, or a metric of texts is not their mean.
        """
        ids = {id(score): sample for score, sample in zip(scores, samples, strict=True)}
        valued = (
            text_values(metric, scores, only_of_means=True)
            if compares_texts(metric)
            else metric.values(scores)
        )
        values = ((ids[id(score)], value) for score, value in valued)
        return {doc_id: (cluster, value) for (doc_id, cluster), value in values}

    def decisions(self, score: Score) -> Mapping[str, tuple[bool, bool | None]]:
        """Return whether the sample has each class, and whether its answer says so; None for no valid answer.

        Classes are the letters of options, or ``Yes``; samples without any are in no clinical number.
        """
        return {}

    def judge_questions(self, sample: Sample, reply: Reply, rule: Rule) -> Sequence[JudgeQuestion]:
        """Return the judge's questions about a reply that can be judged side by side with others."""
        return ()

    def read(self, sample: Sample, reply: Reply, rule: Rule) -> tuple[Answer, str]:
        """Return the answer that a rule reads from a reply, and the rule's name."""
        if reply.losses is not None:
            rule_name = rule.extractor or LIKELIHOOD_EXTRACTOR
            return extractor_of(rule_name, AnswerKind.LIKELIHOODS).extract(
                reply.losses, sample
            ), rule_name
        rule_name = rule.extractor or self.extractor or ""
        written = Sample(sample.document, written_options(rule.option_form, sample.options))
        return extractor_of(rule_name, self.kind).extract(reply.text, written), rule_name

    def metric(self, name: str) -> AnyMetric | None:
        """Return a metric by its name, None if the family has none of that name."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def versioned(self, rule: Rule) -> str:
        """Return name and version of a rule."""
        rule_name = extractor_of(rule.extractor or self.extractor or "")
        return f"{rule_name.name}{FENCED * rule.fenced} v{rule_name.version}"

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the answer read from a reply, for a person; the value is that of a metric of texts."""
        answer, target = score.get("value"), score.get("target")
        right = (
            None if target is None or "value" not in score else answer == target
        )  # without a verdict is no value
        return ReadAnswer(
            None if answer is None else str(answer), str(score.get("reason", "")), right, value
        )

    def target_text(self, sample: Sample) -> str:
        """Return the target in words or letters, or the answer as published; empty if unknown."""
        document, kinds = sample.document, {kind: name for name, kind in self.columns.items()}
        if Column.LABEL in kinds:
            return letter(document[kinds[Column.LABEL]])
        if Column.LABELS in kinds:
            return ", ".join(letters_of(document[kinds[Column.LABELS]])) or NO_OPTION
        if Column.LETTERS in kinds:
            return ", ".join(document[kinds[Column.LETTERS]])
        return str(
            document["report"]
            if "report" in self.columns
            else document.get("answer") or document.get("gold") or ""
        )

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return ways to answer at least one sample without looking at the image; none if targets are unknown."""
        return []

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the exact expectation of metrics, by name, for an option of at least one sample drawn at random.

        Only means over questions, pairs or classes of the value of one guess have such a formula; the others, such as
        macro F1, are left out rather than simulated.
        """
        return {}


def letters_of(values: Sequence[int] | None) -> list[str]:
    """Return the letters of the options that are 1."""
    return [letter(index) for index, present in enumerate(values or ()) if present]
