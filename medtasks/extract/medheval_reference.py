"""MedHEval's closed-ended evaluator, exactly as released.

Source: ``code/evaluation/close_ended_evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980. Reply and
published answer go through the same rule and are compared.

Yes/no: the text up to its first full stop, without commas, cut at single blanks. If one of the pieces is exactly
``No``, ``no`` or ``not`` it says no, else yes. Nothing is invalid: refusals, ``NO``, ``Nope`` and ``Cannot tell`` say
yes, and so do the published answers ``B. No`` and ``Cannot be determined``.

Options: the published text of the options is cut at labels (see :func:`listed_options`), and the option is chosen whose
text, label included, is most similar to the whole reply. A published answer that is only a letter is compared in the
same way, so that it may become another option; a lone right letter often does not become the right one either. Where
reply and published answer are like no option they are equal, which is right. A question without an option B has no
score of its own and counts like the average question with options of its source and type.

The evaluator has a slip for empty replies: it means to count each as wrong, but looks at the last reply of the file in
place of each one. If that is empty all replies are wrong, else an empty reply says yes. A score that depends on the
order of the questions cannot be aggregated over processes, so every reply is read as if the last one were not empty.
"""

import dataclasses
import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from medtasks.data.samples import letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.medheval_question import NO, YES, ClosedQuestion, ClosedReading, Counted

_LETTERS = "ABCDEF"
_LABEL = re.compile(r"(?<!\w)[A-Z][:.]|[A-Z]\)")
_DENIALS = frozenset(("No", "no", "not"))


def says_yes(text: str) -> bool:
    """Return whether a reply or a published answer counts as yes; everything that does not say no does.

    Example:
        >>> says_yes("I cannot tell"), says_yes("NO"), says_yes("Yes, there is no fracture")
        (True, True, False)
    """
    return _DENIALS.isdisjoint(text.partition(".")[0].replace(",", "").split(" "))


def listed_options(choices: str) -> tuple[str, ...]:
    """Return the options in a published text, label included, from A up to the first missing letter.

    A label is a capital with a colon or full stop that follows no letter or digit, or any capital with a closing
    bracket, also the last one of "(CT)". Of several texts with the same label the last counts.

    Args:
        choices: As published.

    Example:
        >>> listed_options("A. Left, B. Right")
        ('A. Left', 'B. Right')
        >>> listed_options("A. Computed tomography (CT), B. MRI (no ECA)")
        ('A)', 'B. MRI (no EC')
    """
    found = _labelled(choices)
    return tuple(found[label] for label in itertools.takewhile(found.__contains__, _LETTERS))


@lru_cache(maxsize=8192)
def _labelled(choices: str) -> Mapping[str, str]:
    starts = [match.start() for match in _LABEL.finditer(choices)]
    pieces = itertools.pairwise([*starts, len(choices)])
    return {choices[start]: choices[start:end].strip(", ") for start, end in pieces}


def most_similar(options: Sequence[str], text: str) -> int | None:
    """Return the index of the option most similar to a text, the earliest of equally similar ones.

    Similarity is ``difflib``'s ratio with the option as its first sequence.

    Returns:
        None where no option shares a character with the text.

    Example:
        >>> most_similar(["A. Left", "B. Right"], "right"), most_similar(["A. Left", "B. Right"], "7")
        (1, None)
    """
    ratios = [difflib.SequenceMatcher(None, option, text).ratio() for option in options]
    best = max(ratios, default=0.0)
    return ratios.index(best) if best > 0 else None


def read(reply: str | None, question: ClosedQuestion) -> ClosedReading:
    """Read a reply as the released evaluator does.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        question: Its ``choices`` and ``gold`` are looked at, and whether it is a yes/no question.

    Returns:
        The reading; a sample that the adapter could not run is ``adapter_failed``, because it has no reply to read.

    Example:
        >>> asked = ClosedQuestion("Is there a mass?", True, "", ("Yes", "No"), "A", "Yes")
        >>> read("I'm sorry, I can't help with that.", asked).correct
        True
    """
    said = reply or ""
    reading = _yes_no(said, question.gold) if question.binary else _option(said, question)
    if failure_cause(said) is not None:
        return dataclasses.replace(reading, answer=Answer.invalid(Reason.ADAPTER_FAILED), correct=False)
    return reading


def _yes_no(reply: str, gold: str) -> ClosedReading:
    value, key = (YES if says_yes(text) else NO for text in (reply, gold))
    return ClosedReading(Answer.ok(value), key, value == key)


def _option(reply: str, question: ClosedQuestion) -> ClosedReading:
    options = listed_options(question.choices)
    answer, key = _chosen(options, reply), _index_letter(_gold_index(options, question.gold))
    counted = Counted.SCORED if "B" in _labelled(question.choices) else Counted.AVERAGED
    return ClosedReading(answer, key, answer.value == key, counted)


_gold_index = lru_cache(maxsize=8192)(most_similar)


def _chosen(options: Sequence[str], reply: str) -> Answer:
    index = most_similar(options, reply)
    if index is None:
        return Answer.invalid(Reason.NO_MATCH if reply.strip() else Reason.EMPTY)
    return Answer.ok(letter(index))


def _index_letter(index: int | None) -> str | None:
    return None if index is None else letter(index)
