"""Comparing a reply in free text with the key of an open question."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from medtasks.extract import robust_open
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.multimedeval_cleaning import clean_head
from medtasks.extract.stated_words import DENIED, stated_words
from medtasks.metrics.bleu import bleu1
from medtasks.metrics.open_questions import closed_correct, is_closed, open_correct, token_overlap


@dataclass(frozen=True, slots=True)
class OpenScore:
    """How far a reply agrees with the key.

    Attributes:
        bleu_1: BLEU-1 of the sentence, without smoothing; 0 to 1.
        token_f1: F1 over distinct tokens; 0 to 1.
        token_recall: Share of the key's tokens that the reply has; 0 to 1.
        closed: The key is "yes" or "no".
        correct: The rule takes the reply for right. An invalid reply never is.
        reason: ``Reason.OK`` for a valid reply, else why it is invalid.
    """

    bleu_1: float
    token_f1: float
    token_recall: float
    closed: bool
    correct: bool
    reason: Reason

    @classmethod
    def invalid(cls, reason: Reason, *, closed: bool) -> "OpenScore":
        """Return the score of a reply without an answer."""
        return cls(0.0, 0.0, 0.0, closed, correct=False, reason=reason)


class OpenRule(Protocol):
    """A rule that compares a reply with the key; it never raises."""

    def __call__(self, reply: str | None, key: str, question: str = "") -> OpenScore:
        """Return the score; ``question`` helps to understand a reply, and not every rule looks at it."""


@lru_cache(maxsize=4096)
def _cleaned_key(key: str) -> str:
    # The reference strips keys, not replies; outer blanks decide whether some marks join or part words.
    return clean_head(key.strip())


def multimedeval_vqa_head(reply: str | None, key: str, question: str = "") -> OpenScore:
    """Score as MultiMedEval does at d9ac283: tokens are the distinct words of the cleaned texts.

    Source: ``VQA.evaluate`` in ``multimedeval/task_families.py`` of https://github.com/corentin-ryr/MultiMedEval.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        key: Answer as published.
        question: Not looked at.

    Returns:
        The reference's numbers for every reply; one without words is also marked ``empty``, and scores 0 there, too. A
        sample that the adapter could not run has no reply to compare.

    Example:
        >>> score = multimedeval_vqa_head("The image shows No", "No")
        >>> score.closed, score.correct, score.token_recall, round(score.bleu_1, 3)
        (True, True, 1.0, 0.333)
    """
    cleaned_key = _cleaned_key(key)
    closed = is_closed(cleaned_key)
    if reply is not None and failure_cause(reply) is not None:
        return OpenScore.invalid(Reason.ADAPTER_FAILED, closed=closed)
    cleaned = clean_head(reply or "")
    tokens = set(cleaned.split())
    if not tokens:
        return OpenScore.invalid(Reason.EMPTY, closed=closed)
    overlap = token_overlap(tokens, set(cleaned_key.split()))
    correct = closed_correct(tokens, cleaned_key) if closed else open_correct(overlap.recall)
    return OpenScore(bleu1(cleaned, cleaned_key), overlap.f1, overlap.recall, closed, correct, Reason.OK)


@lru_cache(maxsize=4096)
def _key_words(key: str) -> tuple[str, ...]:
    return tuple(stated_words(key))


def robust_vqa(reply: str | None, key: str, question: str = "") -> OpenScore:
    """Score as a careful reader would.

    A closed question is right when the reply says the key's "yes" or "no"; a reply that says both or neither is
    invalid. What was read is compared, not the sentence around it, so the overlaps are those of "yes" and "no".

    For an open question, words in a denied statement match only words that the key denies, too: "no pneumonia" has
    nothing of "pneumonia". Right is three quarters of the key's words, as for the reference. Refusals are invalid.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        key: Answer as published.
        question: As asked, to understand a statement such as "There is no fracture." as yes or no.

    Example:
        >>> robust_vqa("There is no evidence of pneumonia.", "pneumonia").token_recall
        0.0
        >>> robust_vqa("Yes and no.", "yes").correct
        False
        >>> robust_vqa("Hepatitis A.", "hepatitis A").correct
        True
    """
    words = _key_words(key)
    if is_closed(" ".join(words)):
        return _robust_closed(robust_open.yes_no(reply, question), words[0])
    said, reason = robust_open.open_reply(reply)
    if said is None:
        return OpenScore.invalid(reason, closed=False)
    spoken = stated_words(said, frozenset(word.removeprefix(DENIED) for word in words))
    if not spoken:
        return OpenScore.invalid(Reason.EMPTY, closed=False)
    overlap = token_overlap(set(spoken), set(words))
    bleu_1 = bleu1(" ".join(spoken), " ".join(words))
    return OpenScore(bleu_1, overlap.f1, overlap.recall, False, open_correct(overlap.recall), Reason.OK)


def _robust_closed(answer: Answer, word: str) -> OpenScore:
    if answer.value is None:
        return OpenScore.invalid(answer.reason, closed=True)
    overlap = token_overlap({answer.value}, {word})
    return OpenScore(bleu1(answer.value, word), overlap.f1, overlap.recall, True, answer.value == word, Reason.OK)
