"""MedHEval's closed questions, yes/no and options mixed, next to blind models under the same rule.

Blind are one that always says "Yes", one that always says "No", and the expected score of an option at random.
MedHEval's evaluator averages per source of images and type of hallucination, and weights each average by all its
questions, also by those it had to skip: a skipped question counts like the average one of its cell of source, type and
kind. The careful way is to leave it out. Both are weighted means.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from medtasks.data.samples import Sample, letter, option_index
from medtasks.extract.extractor_registry import Answer, AnswerKind, extractor_of
from medtasks.extract.published.medheval_closed import (
    BINARY,
    YES,
    Counted,
    listed_options,
    with_target,
)
from medtasks.families.choice import ACCURACY
from medtasks.families.columns import Column
from medtasks.families.constant_replies import ExpectedAnswer, Strategy, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered
from medtasks.families.family import AskedFor, ReadAnswer, Reply, Rule, TaskFamily
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, ScoreList

_STRICT = "medheval_strict"  # reads likelihoods, too
_CELL = ("source", "hallucination", "kind")
_QUESTION = (
    "question",
    "kind",
    "choices",
    "options",
    "answer",
    "gold",
)  # columns that blind scores depend on


def _weights(scores: ScoreList) -> list[float]:
    """Return each question's weight: 0 for one without a score, else 1 and its part of its cell's averaged ones."""
    cells = [(score["counted"], tuple(score[name] for name in _CELL)) for score in scores]
    sizes = Counter(cells)
    return [
        1.0 + sizes[Counted.AVERAGED, cell] / sizes[Counted.SCORED, cell]
        if counted == Counted.SCORED
        else 0.0
        for counted, cell in cells
    ]


def _scored(field: str, about: str | None = None) -> Callable[[Score], float | None]:
    def of(score: Score) -> float | None:
        counts = score["counted"] == Counted.SCORED and about in (None, score["hallucination"])
        return float(score[field]) if counts else None

    return of


_ACCURACY = Metric(
    "accuracy",
    selection=answered,
    role=Role.MAIN,
    description=ACCURACY,
    of=_scored("correct"),
    weights=_weights,
)
_RATES: tuple[AnyMetric, ...] = (
    INVALID_RATE,
    Metric(
        "yes_rate",
        None,
        answered,
        role=Role.RATE,
        description="Share of yes/no questions answered Yes.",
        of=lambda score: float(score["value"] == YES) if score["kind"] == BINARY else None,
    ),
    *(
        Metric(
            name,
            None,
            answered,
            False,
            Role.ASIDE,
            of_questions=True,
            description=f"Accuracy of {name.replace('_', ' ')} on the same questions.",
            of=_scored(name),
            weights=_weights,
        )
        for name in ("always_yes", "always_no", "random_choice")
    ),
    Metric(
        "unscored_rate",
        False,
        answered,
        False,
        Role.ASIDE,
        of_questions=True,
        description="Share of questions that the published code does not score.",
        of=lambda score: float(score["counted"] != Counted.SCORED),
    ),
    *SAMPLE_COUNTS,
)
YES_NO_METRICS = (_ACCURACY, *_RATES)
"""Metrics of sets that have no types of hallucination."""


class ClosedQuestions(TaskFamily):
    """Yes/no questions and questions whose options are one published text; errors are clustered by patient or image.

    The options are published in several dialects, of which the rules make use, so that they cannot be written in
    another order without changing anything else.
    """

    name = "yes/no"
    columns: ClassVar[Mapping[str, Column]] = {
        "question": Column.TEXT,
        "kind": Column.TEXT,
        "choices": Column.TEXT,
        "options": Column.TEXTS,
        "gold": Column.TEXT,
    }
    short: ClassVar[Mapping[str, Column]] = {"question": Column.TEXT, "answer": Column.YES_NO}
    kind = AnswerKind.CLOSED
    asked_for = AskedFor.LETTER_OR_YES_NO
    extractor = _STRICT
    metrics: Sequence[AnyMetric] = (
        _ACCURACY,
        *(
            Metric(
                f"acc_{about}",
                selection=answered,
                description=f"Accuracy of questions about {about}.",
                of=_scored("correct", about),
                weights=_weights,
            )
            for about in ("anatomy", "measurement", "symptom", "technique")
        ),
        *_RATES,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        answer, rule_name = self.read(sample, reply, rule)
        question = json.dumps({name: sample.document.get(name) for name in _QUESTION})
        return {
            **{name: sample.document[name] for name in _CELL},
            "target": answer.facts["target"],
            "value": answer.value,
            "reason": answer.reason,
            "correct": float(answer.facts["correct"]),
            "counted": str(answer.facts["counted"]),
            **_blind_scores(_STRICT if reply.losses is not None else rule_name, question),
            "rule": rule_name,
        }

    def read(self, sample: Sample, reply: Reply, rule: Rule) -> tuple[Answer, str]:
        """Return the answer that a rule reads from a reply, compared with the target, and the rule's name."""
        answer, rule_name = super().read(sample, reply, rule)
        return (answer if reply.losses is None else with_target(answer, sample)), rule_name

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letter that was read; right or wrong only where the question has a score of its own."""
        scored = score["counted"] == Counted.SCORED
        return ReadAnswer(
            score["value"], score["reason"], bool(score["correct"]) if scored else None
        )

    def decisions(self, score: Score) -> Mapping[str, tuple[bool, bool | None]]:
        """Return the decision about Yes, of a yes/no question."""
        if score["kind"] != BINARY or score["target"] is None:
            return {}
        return {
            "Yes": (
                score["target"] == YES,
                None if score["value"] is None else score["value"] == YES,
            )
        }

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Mean "Yes" or "No", also to questions with options, as ``always_yes`` and ``always_no`` do."""
        forms = [(sample.document["kind"], len(sample.options)) for sample in samples]
        frequent = most_frequent(
            (form, sample.document["answer"])
            for form, sample in zip(forms, samples, strict=True)
            if sample.target is not None
        )
        strategies: list[Strategy] = []
        if any(sample.document["kind"] == BINARY for sample in samples):
            strategies = [_always(word, samples) for word in ("Yes", "No")]
        most = []
        for form, sample in zip(forms, samples, strict=True):
            name = frequent.get(form, YES)
            binary = sample.document["kind"] == BINARY
            if not sample.options:
                most.append(ExpectedAnswer((name,), whole=True))
                continue
            text = sample.options[option_index(name)]
            # Any reading will do where options cannot be listed or none is the target.
            is_listed = sample.target is not None and (
                binary or listed_options(sample.document["choices"])
            )
            replies = (text,) if binary else (f"{name}. {text}", name, text)
            most.append(ExpectedAnswer(replies, name if is_listed else None, option_index(name)))
        describes = "Answers what is most often right: yes or no, and the letter of the questions with as many options."
        return [*strategies, Strategy("most frequent answer", describes, tuple(most))]


def _always(word: str, samples: Sequence[Sample]) -> Strategy:
    """Return the strategy that answers every question by Yes or No."""
    answers = []
    for sample in samples:
        letter_read = extractor_of(_STRICT).extract(word, sample).value
        index = None if letter_read is None else option_index(letter_read)
        value = letter(("Yes", "No").index(word)) if sample.document["kind"] == BINARY else None
        answers.append(ExpectedAnswer((word,), value, index, whole=True))
    describes = f"Answers {word} to every question, also where options are asked for."
    return Strategy(f"always {word.lower()}", describes, tuple(answers))


@lru_cache(maxsize=16384)
def _blind_scores(rule: str, question: str) -> Mapping[str, float]:
    """Return the scores of blind models on one question: always "Yes", always "No", and an option at random.

    The last is the mean over the replies "Yes" and "No", or "A. text" for every option.
    """
    sample = Sample(json.loads(question))
    read = extractor_of(rule, AnswerKind.CLOSED).extract
    random = ["Yes", "No"]
    if sample.document["kind"] != BINARY:
        random = [f"{letter(index)}. {text}" for index, text in enumerate(sample.options)]
    right = {reply: float(read(reply, sample).facts["correct"]) for reply in {"Yes", "No", *random}}
    return {
        "always_yes": right["Yes"],
        "always_no": right["No"],
        "random_choice": math.fsum(right[reply] for reply in random) / len(random)
        if random
        else 0.0,
    }


CLOSED_QUESTIONS = ClosedQuestions()
