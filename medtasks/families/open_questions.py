"""Open questions: overlap with the target, and accuracy of closed and open ones, clustered by patient or image.

A metric over a subset without samples is NaN. The reference prints 0 there, which would read as "all wrong".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.multimedeval import clean_head
from medtasks.extract.registry import Kind
from medtasks.families.constant_replies import Meant, Strategy, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered
from medtasks.families.family import Column, ReadAnswer, Reply, TaskFamily
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score
from medtasks.metrics.set_overlap import is_closed

_FACTS = ("closed", "correct", "bleu_1", "token_f1", "token_recall")


def _field(name: str, *, closed: bool | None = None) -> Callable[[Score], float | None]:
    return lambda score: float(score[name]) if closed in (None, score["closed"]) else None


class OpenQuestions(TaskFamily):
    """Questions without options; scores hold numbers only, as question, target and reply may come from a record."""

    name = "open questions"
    columns: ClassVar[Mapping[str, Column]] = {"question": Column.TEXT, "answer": Column.TEXT}
    kind = Kind.OPEN
    extractor = "robust_vqa"
    metrics: Sequence[AnyMetric] = (
        *(Metric(name, selection=answered, of=_field(name)) for name in ("bleu_1", "token_f1", "token_recall")),
        Metric("closed_accuracy", selection=answered, role=Role.MAIN, of=_field("correct", closed=True)),
        Metric("open_recall", selection=answered, role=Role.MAIN, of=_field("token_recall", closed=False)),
        Metric("open_accuracy", selection=answered, of=_field("correct", closed=False)),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {name: answer.facts[name] for name in _FACTS}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Return the reply; only a closed question is right or wrong."""
        said = (reply.text or "").strip() if score["reason"] == Reason.OK else None
        if score["closed"]:
            return ReadAnswer(said, score["reason"], bool(score["correct"]))
        return ReadAnswer(said, score["reason"], None, score["bleu_1"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Mean words: to questions whose target is yes or no as much as to others."""
        targets = [str(sample.document["answer"]) for sample in samples if sample.document.get("answer") is not None]
        if len(targets) < len(samples):
            return []
        cleaned = [clean_head(target.strip()) for target in targets]
        asked = [(is_closed(target), target) for target in cleaned]
        frequent = most_frequent(asked)
        # as it first occurs
        spelled = {word: target for target, word in zip(reversed(targets), reversed(cleaned), strict=True)}
        found = [
            Strategy(
                f"always {word}",
                f"Answers {word} to every question.",
                tuple(_words(word, closed, target, word) for closed, target in asked),
            )
            for word in ("yes", "no")
            if any(closed for closed, _ in asked)
        ]
        most = tuple(_words(spelled[frequent[closed]], closed, target, frequent[closed]) for closed, target in asked)
        describes = "Answers what is most often right, to yes/no questions and to others."
        return [*found, Strategy("most frequent answer", describes, most)]


def _words(reply: str, closed: bool, target: str, said: str) -> Meant:
    """Mean words; it is known whether they are right where they are the target, and for yes/no questions."""
    return Meant((reply, said), target == said if closed or target == said else None, whole=True)


OPEN_QUESTIONS = OpenQuestions()
