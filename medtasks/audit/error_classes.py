"""Kinds of wrong answers that do not depend on the image, after the case study of GMAI-MMBench.

The authors sorted 53 answers by hand into question misunderstanding, perceptual error, lack of knowledge, irrelevant
response and refusal. A rule cannot tell perception from knowledge. Source: Chen et al., 2024, supplement.
"""

import enum
import re

from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.reply_text import own_words, refuses

_LETTER = re.compile(r"\b[A-Z]\b")
_WORD = re.compile(r"[^\W\d_]{2,}")
_FEW_KINDS = 0.2  # distinct words of all words; broken models repeat themselves
_LONG = 30  # words


class ErrorClass(enum.StrEnum):
    """Kind of a wrong answer, as far as a rule can tell."""

    REFUSAL = "refusal"
    IRRELEVANT = "irrelevant response"
    MISUNDERSTOOD = "question misunderstanding"
    FAILED = "adapter failed"
    FOR_A_HUMAN = "perception or knowledge, for a human to tell"


def error_class(reply: str | None, value: str | None) -> ErrorClass:
    """Return the kind of a wrong answer; ``value`` is its letter, if any.

    An irrelevant response is empty, unreadable or repeats itself. The answer to a misunderstood question is several
    options, or none of them.
    """
    if failure_cause(reply) is not None:
        return ErrorClass.FAILED
    if value is not None:
        return ErrorClass.FOR_A_HUMAN
    text = own_words(reply)
    if isinstance(text, Reason) or not readable(text):
        return ErrorClass.IRRELEVANT
    if refuses(text):
        return ErrorClass.REFUSAL
    return ErrorClass.MISUNDERSTOOD


def readable(text: str) -> bool:
    """Return whether a text has words, or is a letter, and does not repeat the same few words.

    Example:
        >>> readable("#### 1.2.3"), readable("polyp polyp " * 40), readable("B")
        (False, False, True)
    """
    words = [word.casefold() for word in _WORD.findall(text)]
    if not words:
        return _LETTER.search(text) is not None
    return len(words) < _LONG or len(set(words)) / len(words) >= _FEW_KINDS
