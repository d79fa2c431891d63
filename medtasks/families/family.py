"""What a task family is: the one object that knows what a sample, a reply and a score mean in its tasks.

The harness's hooks, ``medtasks score``, ``compare`` and ``report``, the sanity variants, baselines and the doctor all
ask this object; nothing else looks at what columns a document has.
"""

import math
from abc import ABC
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, ClassVar, TypeGuard

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor_of
from medtasks.extract.failure import (
    NO_TEXT,
    cut_reply,
    failure_cause,
    reasoned_reply,
    without_cut_mark,
    without_reasoning,
)
from medtasks.extract.labels.labeler import NAME as CHEXBERT_LABELS
from medtasks.extract.labels.labeler import Labels, label_replies
from medtasks.extract.reading.reply_text import Reasoned, split_reasoning
from medtasks.families.constant_replies import Strategy
from medtasks.families.templates import written_options
from medtasks.families.text_metrics import text_values
from medtasks.metrics.metric import PATIENT_IMAGE, AnyMetric, CorpusMetric, Metric, Score, Scores
from medtasks.stats.standard_error import joined_clusters

FENCED = "_fenced"
"""What stands behind a rule's name in scores of replies that the judge got between marks."""
LIKELIHOOD_EXTRACTOR = "untied"
"""Reads likelihoods where a task's file names no rule."""
NO_OPTION = "none"
"""A list of options without any."""

_UNSAID = frozenset({Reason.EMPTY, Reason.NO_MATCH, Reason.AMBIGUOUS})


class Column(Enum):
    """What a column holds in every row."""

    TEXT = "a text"
    TEXTS = "a list of texts"
    OPTIONS = "a list of at least two texts"
    LETTER = "the letter of one of the options"
    LETTERS = "a list of letters of the options"
    LABEL = "the number of one of the options, counted from 0"
    LABELS = "a list with 0 or 1 for each of the options"
    LETTER_OR_NOTHING = "the letter of one of the options, or nothing"
    POSITION = "1 or 2"
    YES_NO = "yes or no"
    ID = "a text or a number"
    ANYTHING = "anything"


class AskedFor(Enum):
    """What an answer is."""

    LETTER = auto()  # of an option
    LETTER_OR_YES_NO = auto()  # as the question's ``kind`` says
    PHRASE = auto()  # or yes or no


class Asks(Enum):
    """Whom scoring asks besides the rules."""

    NOBODY = auto()
    JUDGE = auto()
    JUDGE_IF_THERE = auto()  # some metrics need one


@dataclass(frozen=True)
class Reply:
    """What a model gave to one sample: a text, or one loss per option."""

    text: str | None = None  # as the model gave it, or the mark of a failed sample (:mod:`medtasks.extract.failure`)
    # mean negative log-likelihood per token of each option; NaN for a failed one
    losses: tuple[float, ...] | None = None
    cut: bool = False  # whether the server cut the text at its length limit
    labelled: bool = False  # whether a labeler was asked about the text already
    labels: Labels | None = None  # what the labeler said, None if nothing
    reasoning: str = ""  # what the model thought before the text, where its server tells them apart
    # whether each option is what greedy decoding gives; None where that is not known
    greedy: tuple[bool, ...] | None = field(default=None, compare=False)

    @property
    def failed(self) -> bool:
        """Whether the model gave no reply: it is in no score."""
        if self.losses is not None:
            return not self.losses or any(map(math.isnan, self.losses))
        return self.text is None or failure_cause(self.text) is not None

    @property
    def recorded(self) -> str:
        """The text as it is kept in files, which says whether it was cut, and what was thought before it."""
        text = reasoned_reply(self.reasoning, self.text or "") if self.reasoning else self.text or ""
        return cut_reply(text) if self.cut else text

    @classmethod
    def of_text(cls, text: object) -> "Reply":
        """Return the reply that a file or a model has as text, with its marks; without any text the sample failed."""
        marked, cut = without_cut_mark(text if isinstance(text, str) else NO_TEXT)
        own, reasoning = without_reasoning(marked)
        return cls(text=own, cut=cut, reasoning=reasoning)


@dataclass(frozen=True)
class Row:
    """One row of a task's results: how replies are read there."""

    extractor: str | None = None  # name of the rule; None where a judge alone reads them, or the family's own is meant
    option_form: str | None = None  # how one option is written for the rule (families/templates.py); None: bare
    fenced: bool = False  # whether a judge gets replies between marks, see :mod:`medtasks.judges.fence`
    reasoned: bool = False  # whether only what stands behind the reasoning is read (extract/behind_reasoning.py)


@dataclass(frozen=True)
class ReadAnswer:
    """What was read from a reply, for a person who looks at single samples."""

    value: str | None  # in words or letters; None where there is no answer, and ``reason`` says why
    reason: str
    right: bool | None  # None where it is neither right nor wrong, or a ``score`` lies between
    score: float | None = None


def compares_texts(metric: AnyMetric) -> TypeGuard[CorpusMetric]:
    """Return whether a metric compares texts, with others that are computed together."""
    return isinstance(metric, CorpusMetric) and metric.text_field is not None


def without_its_reasoning(reply: Reply) -> Reply:
    """Return the answer behind the reasoning of a reply that has a text; a cut and empty one where that never ended."""
    answer = _two_parts(reply).answer
    return replace(reply, text=answer or "", reasoning="", cut=reply.cut or answer is None)


def _two_parts(reply: Reply) -> Reasoned:
    return split_reasoning(reply.text or "", cut=reply.cut, reasoning=reply.reasoning)


def needs_labeler(row: Row) -> bool:
    """Return whether the replies in a row are read by a labeler of chest findings."""
    return row.extractor == CHEXBERT_LABELS


def labelled(replies: Sequence[Reply], row: Row) -> list[Reply]:
    """Return replies with what the labeler says of them, all asked at once, if the row's rule asks one."""
    if not needs_labeler(row):
        return list(replies)
    found = label_replies([reply.text for reply in replies])
    return [replace(reply, labelled=True, labels=labels) for reply, labels in zip(replies, found, strict=True)]


class TaskFamily(ABC):
    """Tasks whose samples are scored in one way."""

    name: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]]  # what its documents need, besides those of its prompt
    short: ClassVar[Mapping[str, Column] | None] = None  # those that are enough in their place, if any
    kind: ClassVar[AnswerKind | None] = AnswerKind.CHOICE  # which extractors read its replies
    extractor: ClassVar[str | None]  # where a task's file names none; None where a judge reads them
    asks: ClassVar[Asks] = Asks.NOBODY
    scores_suffice: ClassVar[bool] = True  # for metrics, as they are recorded; else they need texts
    saves_replies: ClassVar[bool] = False  # each is on disk before anything is computed from it
    labels_texts: ClassVar[bool] = False  # a labeler reads texts for its metrics
    asked_for: ClassVar[AskedFor | None] = None  # what its questions ask for, where reasoning before it makes sense
    metrics: Sequence[AnyMetric]  # all that its tasks may have, in the order of tables
    compared_only: ClassVar[tuple[Metric[Any], ...]] = ()  # by which runs are compared, in no table
    paired: ClassVar[bool] = False  # samples come in pairs, with scores by category
    # What scores its samples where they are asked in every rotation of their options, as task files name it; None where
    # no target is among the options, or a judge reads the replies.
    rotated: ClassVar[str | None] = None
    # Of tasks that compare likelihoods, how replies are read that are letters; none where they are not.
    letter_rows: ClassVar[Mapping[str, Row]] = {}

    def score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        """Return the score of one sample; never raises for what the reply says.

        It is a flat record of ``sample``, ``cluster_id``, ``rule``, ``reason`` and what the family's metrics look at:
        ids, letters, labels and numbers, and text only as :class:`~medtasks.data.privacy.PrivateText`. Where the reply
        is read behind its reasoning, ``reasoning_words`` says how long that is.
        """
        if row.reasoned and reply.text is not None and not reply.failed:
            return self._reasoned(sample, reply, replace(row, reasoned=False))
        image = {} if sample.patient_image is None else {PATIENT_IMAGE: sample.patient_image}
        score = {"sample": sample.doc_id, "cluster_id": sample.cluster_id, **image, **self._score(sample, reply, row)}
        score["rule"] = f"{score['rule']}{FENCED}" if row.fenced else score["rule"]
        score["reason"] = str(score["reason"])
        if reply.cut:
            score["cut"] = True  # one without an answer had no room for it
            score["reason"] = str(Reason.TRUNCATED) if score["reason"] in _UNSAID else score["reason"]
        return score

    def _reasoned(self, sample: Sample, reply: Reply, row: Row) -> Score:
        found = _two_parts(reply)
        score = {**self.score(sample, without_its_reasoning(reply), row), "reasoning_words": found.words}
        if found.answer is None:  # rules that reproduce published code read even nothing as some option
            score |= {"reason": str(Reason.TRUNCATED)} | ({"value": None} if "value" in score else {})
        return score

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        """Return what the family adds to a score: ``rule``, ``reason`` and its own fields."""
        answer, rule = self.read(sample, reply, row)
        return {**self._fields(sample, answer), "reason": answer.reason, "rule": rule}

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return what the family's metrics look at, of families for which the answer tells it."""
        raise NotImplementedError

    def texts(self, sample: Sample, reply: Reply, row: Row) -> dict[str, PrivateText]:
        """Return those fields of a score that are texts, which no file holds; nobody is asked for them."""
        return {}

    def settled(self, scores: Scores) -> Scores:
        """Return the scores of a whole run with what is only decided by all of them, such as a draw in their order.

        What is settled already stays the same object. Metrics settle what they are given; whoever looks at parts of a
        run, or at single scores, has to do it before.
        """
        return scores

    def independent_clusters(self, samples: Sequence[Sample]) -> list[str]:
        """Return the clusters of tests and of calibration, shape (samples,), which are those of errors."""
        return joined_clusters([sample.cluster_id for sample in samples], [sample.patient_image for sample in samples])

    def sample_values(
        self, metric: AnyMetric, scores: Sequence[Score], samples: Sequence[tuple[str, Hashable]]
    ) -> dict[str, tuple[Hashable, float]]:
        """Return what single samples are worth under a metric, for tests that pair the samples of two runs.

        Scores have shape (samples,), as have the ids with clusters of :meth:`independent_clusters`. The result has
        cluster and value by sample, or by what several samples make together, without those that have no value. Raises
        NotComparable where the values cannot be computed, or a metric of texts is not their mean.
        """
        known = {id(score): sample for score, sample in zip(scores, samples, strict=True)}
        valued = text_values(metric, scores, only_of_means=True) if compares_texts(metric) else metric.values(scores)
        found = ((known[id(score)], value) for score, value in valued)
        return {doc_id: (cluster, value) for (doc_id, cluster), value in found}

    def read(self, sample: Sample, reply: Reply, row: Row) -> tuple[Answer, str]:
        """Return what a rule reads from a reply, and its name."""
        if reply.losses is not None:
            rule = row.extractor or LIKELIHOOD_EXTRACTOR
            return extractor_of(rule, AnswerKind.LIKELIHOODS).extract(reply.losses, sample), rule
        rule = row.extractor or self.extractor or ""
        written = Sample(sample.document, written_options(row.option_form, sample.options))
        return extractor_of(rule, self.kind).extract(reply.text, written), rule

    def metric(self, name: str) -> AnyMetric | None:
        """Return a metric by its name, None if the family has none of that name."""
        return next((metric for metric in self.metrics if metric.name == name), None)

    def versioned(self, row: Row) -> str:
        """Return name and version of the rule that reads the replies in a row."""
        rule = extractor_of(row.extractor or self.extractor or "")
        return f"{rule.name}{FENCED * row.fenced} v{rule.version}"

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Return what was read from a reply, for a person.

        The score may be of an earlier version; the value is that of a metric of texts where the score does not tell.
        """
        given, target = score.get("value"), score.get("target")
        right = None if target is None or "value" not in score else given == target  # without a verdict is no value
        return ReadAnswer(None if given is None else str(given), str(score.get("reason", "")), right, value)

    def target_text(self, sample: Sample) -> str:
        """Return the target in words or letters, empty where it is not known."""
        document, kinds = sample.document, {kind: name for name, kind in self.columns.items()}
        if Column.LABEL in kinds:
            return letter(document[kinds[Column.LABEL]])
        if Column.LABELS in kinds:
            return ", ".join(letters_of(document[kinds[Column.LABELS]])) or NO_OPTION
        if Column.LETTERS in kinds:
            return ", ".join(document[kinds[Column.LETTERS]])
        return str(document["report"] if "report" in self.columns else document.get("answer") or "")

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return ways to answer at least one sample without looking at the image; none if targets are not known."""
        return []

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the exact expectation of metrics, by name, for an option of at least one sample drawn at random.

        Only metrics that are means over questions, pairs or classes of what one guess is worth have such a formula; the
        others, such as macro F1, are left out rather than simulated.
        """
        return {}


def letters_of(values: Sequence[int] | None) -> list[str]:
    """Return the letters of the options that are 1."""
    return [letter(index) for index, present in enumerate(values or ()) if present]
