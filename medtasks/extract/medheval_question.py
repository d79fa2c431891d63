"""A closed question of MedHEval, and what a rule reads from the reply to it."""

import enum
from dataclasses import dataclass
from typing import Protocol

from medtasks.extract.answer import Answer

YES, NO = "A", "B"
"""Letters of the options Yes and No."""


@dataclass(frozen=True, slots=True)
class ClosedQuestion:
    """What a rule may look at.

    Attributes:
        question: As published.
        binary: A yes/no question, else one with options.
        choices: The options as published, one text.
        options: Option texts in order A, B, ...; Yes and No for a yes/no question, none where they cannot be told.
        answer: Letter of the right option; None where the published answer names no single one.
        gold: The answer as published.
    """

    question: str
    binary: bool
    choices: str
    options: tuple[str, ...]
    answer: str | None
    gold: str


class Counted(enum.StrEnum):
    """How a question enters the accuracies."""

    SCORED = "scored"
    LEFT_OUT = "left_out"
    AVERAGED = "averaged"  # not scored, but it counts as many times as the average question of its cell


@dataclass(frozen=True, slots=True)
class ClosedReading:
    """What a rule makes of one reply.

    Attributes:
        answer: The chosen option's letter.
        key: The right option's letter as the rule reads the published answer.
        correct: Whether the rule takes the reply for right.
        counted: How the question enters the accuracies.
    """

    answer: Answer
    key: str | None
    correct: bool
    counted: Counted = Counted.SCORED


class ClosedRule(Protocol):
    """A rule for closed questions; it never raises."""

    def __call__(self, reply: str | None, question: ClosedQuestion) -> ClosedReading:
        """Read a reply."""
