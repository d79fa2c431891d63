"""Open questions: overlap with the target, and accuracy of closed and open ones, clustered by patient or image.

A metric over a subset without samples is NaN. The reference prints 0 there, which would read as "all wrong".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason
from medtasks.extract.published.multimedeval import clean_head
from medtasks.families.constant_replies import Strategy, answer_strategies
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered
from medtasks.families.family import AskedFor, Column, ReadAnswer, Reply, TaskFamily
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score

_FACTS = ("closed", "correct", "bleu_1", "token_f1", "token_recall")


def _field(name: str, *, closed: bool | None = None) -> Callable[[Score], float | None]:
    return lambda score: float(score[name]) if closed in (None, score["closed"]) else None


class OpenQuestions(TaskFamily):
    """Questions without options; scores hold numbers only, as question, target and reply may come from a record."""

    name = "open questions"
    columns: ClassVar[Mapping[str, Column]] = {"question": Column.TEXT, "answer": Column.TEXT}
    kind = AnswerKind.OPEN
    asked_for = AskedFor.PHRASE
    extractor = "robust_vqa"
    metrics: Sequence[AnyMetric] = (
        *(
            Metric(name, selection=answered, role=role, description=description, of=_field(field, closed=closed))
            for name, role, field, closed, description in (
                ("bleu_1", Role.PART, "bleu_1", None, "BLEU-1 of the reply, mean over questions."),
                ("token_f1", Role.PART, "token_f1", None, "F1 of the words shared with the target."),
                ("token_recall", Role.PART, "token_recall", None, "Share of the target's words that the reply has."),
                ("closed_accuracy", Role.MAIN, "correct", True, "Share of closed questions answered rightly."),
                ("open_recall", Role.MAIN, "token_recall", False, "Token recall of open questions."),
                ("open_accuracy", Role.PART, "correct", False, "Share of open questions answered rightly."),
            )
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {name: answer.facts[name] for name in _FACTS}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the reply; only a closed question is right or wrong."""
        text = (reply.text or "").strip() if score["reason"] == Reason.OK else None
        if score["closed"]:
            return ReadAnswer(text, score["reason"], bool(score["correct"]))
        return ReadAnswer(text, score["reason"], None, score["bleu_1"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Mean words: to questions whose target is yes or no as much as to others."""
        return answer_strategies(samples, lambda target: clean_head(target.strip()))


OPEN_QUESTIONS = OpenQuestions()
