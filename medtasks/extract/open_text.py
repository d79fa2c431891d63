"""Comparing a reply in free text with the target of an open question.

Facts of the answers: ``closed``, whether the target is "yes" or "no"; ``correct``, whether the extractor takes the
reply for right, which an invalid one never is; and, between 0 and 1, ``bleu_1`` of the sentence, without smoothing,
``token_f1`` over distinct tokens, and ``token_recall``, the share of the target's tokens that the reply has.
"""

from functools import lru_cache

from medtasks.data.samples import Sample
from medtasks.extract import robust_open
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.multimedeval_cleaning import clean_head
from medtasks.extract.stated_words import DENIED, stated_words
from medtasks.metrics.bleu import bleu1
from medtasks.metrics.open_questions import TokenOverlap, closed_correct, is_closed, open_correct, token_overlap


@lru_cache(maxsize=4096)
def _cleaned_target(target: str) -> str:
    # The reference strips targets, not replies; outer blanks decide whether some marks join or part words.
    return clean_head(target.strip())


@extractor(
    "multimedeval_vqa_head",
    kind=Kind.OPEN,
    version=1,
    summary="MultiMedEval, visual questions, cleaner at d9ac283: words shared with the key",
)
def multimedeval_vqa_head(reply: str | None, sample: Sample) -> Answer:
    """Score as MultiMedEval does at d9ac283: tokens are the distinct words of the cleaned texts.

    Source: ``VQA.evaluate`` in ``multimedeval/task_families.py`` of https://github.com/corentin-ryr/MultiMedEval.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its ``answer`` is the target as published.

    Returns:
        The cleaned reply with the reference's numbers; a reply without words is ``empty``, and scores 0 there, too. A
        sample that the adapter could not run has no reply to compare.

    Example:
        >>> answer = multimedeval_vqa_head("The image shows No", Sample({"answer": "No"}))
        >>> answer.facts["closed"], answer.facts["correct"], answer.facts["token_recall"], answer.value
        (True, True, 1.0, 'image shows no')
    """
    target = _cleaned_target(sample.document["answer"])
    closed = is_closed(target)
    if reply is not None and failure_cause(reply) is not None:
        return _invalid(Reason.ADAPTER_FAILED, closed=closed)
    cleaned = clean_head(reply or "")
    tokens = set(cleaned.split())
    if not tokens:
        return _invalid(Reason.EMPTY, closed=closed)
    overlap = token_overlap(tokens, set(target.split()))
    correct = closed_correct(tokens, target) if closed else open_correct(overlap.recall)
    return _compared(cleaned, target, overlap, closed=closed, correct=correct)


@lru_cache(maxsize=4096)
def _target_words(target: str) -> tuple[str, ...]:
    return tuple(stated_words(target))


@extractor(
    "robust_vqa",
    kind=Kind.OPEN,
    version=1,
    summary="words shared with the key that the reply does not deny; clear yes or no",
)
def robust_vqa(reply: str | None, sample: Sample) -> Answer:
    """Score as a careful reader would.

    A closed question is right when the reply says the target's "yes" or "no"; a reply that says both or neither is
    invalid. What was read is compared, not the sentence around it, so the overlaps are those of "yes" and "no".

    For an open question, words in a denied statement match only words that the target denies, too: "no pneumonia" has
    nothing of "pneumonia". Right is three quarters of the target's words, as for the reference. Refusals are invalid.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its ``answer`` is the target as published; its question helps to understand a statement such as "There
            is no fracture." as yes or no.

    Example:
        >>> robust_vqa("There is no evidence of pneumonia.", Sample({"answer": "pneumonia"})).facts["token_recall"]
        0.0
        >>> robust_vqa("Yes and no.", Sample({"answer": "yes"})).facts["correct"]
        False
        >>> robust_vqa("Hepatitis A.", Sample({"answer": "hepatitis A"})).facts["correct"]
        True
    """
    words = _target_words(sample.document["answer"])
    if is_closed(" ".join(words)):
        return _robust_closed(robust_open.yes_no(reply, sample.question), words[0])
    said, reason = robust_open.open_reply(reply)
    if said is None:
        return _invalid(reason, closed=False)
    spoken = stated_words(said, frozenset(word.removeprefix(DENIED) for word in words))
    if not spoken:
        return _invalid(Reason.EMPTY, closed=False)
    overlap = token_overlap(set(spoken), set(words))
    return _compared(" ".join(spoken), " ".join(words), overlap, closed=False, correct=open_correct(overlap.recall))


def _robust_closed(answer: Answer, word: str) -> Answer:
    if answer.value is None:
        return _invalid(answer.reason, closed=True)
    overlap = token_overlap({answer.value}, {word})
    return _compared(answer.value, word, overlap, closed=True, correct=answer.value == word)


def _compared(said: str, target: str, overlap: TokenOverlap, *, closed: bool, correct: bool) -> Answer:
    shares = {"bleu_1": bleu1(said, target), "token_f1": overlap.f1, "token_recall": overlap.recall}
    return Answer.ok(said, closed=closed, correct=correct, **shares)


def _invalid(reason: Reason, *, closed: bool) -> Answer:
    return Answer.invalid(reason, closed=closed, correct=False, bleu_1=0.0, token_f1=0.0, token_recall=0.0)
