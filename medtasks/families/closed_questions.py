"""MedHEval's closed questions, yes/no and options mixed, next to blind models under the same rule.

Blind are one that always says "Yes", one that always says "No", and the expected score of an option at random.
MedHEval's evaluator averages per source of images and type of hallucination, and weights each average by all its
questions, also by those it had to skip: a skipped question counts like the average one of its cell of source, type and
kind. The careful way is to leave it out. Both are weighted means.

Used by MedHEval's hook, and by a user's own yes/no questions. A question without a target must be in no accuracy.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from medtasks.data.samples import Sample, Samples, letter, option_index
from medtasks.extract.extractor_registry import Answer, AnswerKind, extractor_of
from medtasks.extract.published.medheval_closed import (
    BINARY,
    YES,
    Counted,
    listed_options,
    with_target,
)
from medtasks.families.choice import ACCURACY
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import ExpectedAnswer, Strategy, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered
from medtasks.families.family import AskedFor, Decisions, ReadAnswer, Reply, Rule, TaskFamily
from medtasks.metrics.metric import Metric, MetricList, Role, Score, ScoreList

_STRICT = "medheval_strict"  # reads likelihoods, too
_CELL = ("source", "hallucination", "kind")
# Columns that blind scores depend on.
_QUESTION = ("question", "kind", "choices", "options", "answer", "gold")


def _weights(scores: ScoreList) -> list[float]:
    """Return each question's weight: 0 for one without a score, else 1 and its part of its cell's averaged ones."""
    cells = [(score["counted"], tuple(score[name] for name in _CELL)) for score in scores]
    sizes = Counter(cells)
    weights = []
    for counted, cell in cells:
        weight = 0.0
        if counted == Counted.SCORED:
            weight = 1.0 + sizes[Counted.AVERAGED, cell] / sizes[Counted.SCORED, cell]
        weights.append(weight)
    return weights


def _field(name: str, about: str | None = None) -> Callable[[Score], float | None]:
    """Return the function from a score to a number, None without a score or about another type of hallucination."""

    def of(score: Score) -> float | None:
        if score["counted"] != Counted.SCORED or about not in (None, score["hallucination"]):
            return None
        return float(score[name])

    return of


def _accuracy(
    name: str,
    description: str,
    about: str | None = None,
) -> Metric[Score]:
    """Declare an accuracy, of all questions or of those about one type of hallucination (``about``)."""
    return Metric(
        name,
        selection=answered,
        description=description,
        of=_field("correct", about),
        weights=_weights,
    )


def _blind_accuracy(name: str) -> Metric[Score]:
    """Declare the accuracy of a blind model on the same questions, from the field ``name`` of scores."""
    return Metric(
        name,
        None,
        answered,
        False,
        Role.ASIDE,
        of_questions=True,
        description=f"Accuracy of {name.replace('_', ' ')} on the same questions.",
        of=_field(name),
        weights=_weights,
    )


_ACCURACY = replace(_accuracy("accuracy", ACCURACY), role=Role.MAIN)
_RATES: MetricList = (
    INVALID_RATE,
    Metric(
        "yes_rate",
        None,
        answered,
        role=Role.RATE,
        description="Share of yes/no questions answered Yes.",
        of=lambda score: float(score["value"] == YES) if score["kind"] == BINARY else None,
    ),
    *map(_blind_accuracy, ("always_yes", "always_no", "random_choice")),
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
    """Yes/no questions and questions whose options are one published text.

    Errors are clustered by patient or image. The options are published in several dialects, of which the rules make
    use, so that they cannot be written in another order without changing anything else.
    """

    name = "yes/no"
    columns: ClassVar[Columns] = {
        "question": Column.TEXT,
        "kind": Column.TEXT,
        "choices": Column.TEXT,
        "options": Column.TEXTS,
        "gold": Column.TEXT,
    }
    short: ClassVar[Columns] = {"question": Column.TEXT, "answer": Column.YES_NO}
    kind = AnswerKind.CLOSED
    asked_for = AskedFor.LETTER_OR_YES_NO
    extractor = _STRICT
    metrics: MetricList = (
        _ACCURACY,
        _accuracy("acc_anatomy", "Accuracy of questions about anatomy.", "anatomy"),
        _accuracy("acc_measurement", "Accuracy of questions about measurement.", "measurement"),
        _accuracy("acc_symptom", "Accuracy of questions about symptom.", "symptom"),
        _accuracy("acc_technique", "Accuracy of questions about technique.", "technique"),
        *_RATES,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score a reply as MedHEval counts it, with the scores of blind models on the same question."""
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
        if reply.losses is not None:
            answer = with_target(answer, sample)
        return answer, rule_name

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letter that was read, right or wrong only where the question has a score of its own."""
        right = bool(score["correct"]) if score["counted"] == Counted.SCORED else None
        return ReadAnswer(score["value"], score["reason"], right)

    def decisions(self, score: Score) -> Decisions:
        """Return the decision about Yes, of a yes/no question.

        Example:
            >>> CLOSED_QUESTIONS.decisions({"kind": "binary", "target": "A", "value": "B"})
            {'Yes': (True, False)}
        """
        if score["kind"] != BINARY or score["target"] is None:
            return {}
        says_yes = None if score["value"] is None else score["value"] == YES
        return {"Yes": (score["target"] == YES, says_yes)}

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Answer "Yes" or "No", also to questions with options, as ``always_yes`` and ``always_no`` do."""
        targets = []
        for sample in samples:
            if sample.target is not None:
                targets.append((_form(sample), sample.document["answer"]))
        frequent = most_frequent(targets)
        strategies: list[Strategy] = []
        if any(sample.document["kind"] == BINARY for sample in samples):
            for number, word in enumerate(("Yes", "No")):
                answers = []
                for sample in samples:
                    letter_read = extractor_of(_STRICT).extract(word, sample).value
                    index = None if letter_read is None else option_index(letter_read)
                    value = letter(number) if sample.document["kind"] == BINARY else None
                    answers.append(ExpectedAnswer((word,), value, index, whole=True))
                describes = (
                    f"Answers {word} to every question, also where options are asked for."
                )
                strategies.append(Strategy(f"always {word.lower()}", describes, tuple(answers)))
        most = tuple(
            _named_option(sample, frequent.get(_form(sample), YES)) for sample in samples
        )
        frequent_answer = Strategy(
            "most frequent answer",
            "Answers what is most often right: yes or no, and the letter of the questions with as many options.",
            most,
        )
        return [*strategies, frequent_answer]


def _form(sample: Sample) -> tuple[str, int]:
    return sample.document["kind"], len(sample.options)


def _named_option(sample: Sample, name: str) -> ExpectedAnswer:
    """Return the answer that names the option of a letter."""
    if not sample.options:
        return ExpectedAnswer((name,), whole=True)
    text = sample.options[option_index(name)]
    value = name if sample.target is not None else None
    if sample.document["kind"] == BINARY:
        return ExpectedAnswer((text,), value, option_index(name))
    # Any reading will do where options cannot be listed or none is the target.
    if not listed_options(sample.document["choices"]):
        value = None
    return ExpectedAnswer((f"{name}. {text}", name, text), value, option_index(name))


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
    right = {
        reply: float(read(reply, sample).facts["correct"]) for reply in {"Yes", "No", *random}
    }
    mean = math.fsum(right[reply] for reply in random) / len(random) if random else 0.0
    return {"always_yes": right["Yes"], "always_no": right["No"], "random_choice": mean}


CLOSED_QUESTIONS = ClosedQuestions()
