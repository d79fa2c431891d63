r"""The answer after a reply's reasoning, and the length of the reasoning.

Reasoning is the text in ``<think>``, also nested, or before a ``</think>`` whose beginning the chat template had
written; MedGemma marks it with ``<unused94>`` and ``<unused95>``. The answer is the last ``<answer>`` after it that is
not blank, and within it the last ``\boxed{}``; without either, it is all text after the reasoning, for the task's own
rule. Reasoning that never ended has no answer, nor has a reply that was cut before any mark.
"""

import re
from dataclasses import dataclass

from medtasks.extract.published.medevalkit_text import last_box
from medtasks.extract.reading.reply_text import without_thoughts

_MARKS = (("<unused94>", "<think>"), ("<unused95>", "</think>"))  # as MedGemma marks its thoughts
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|(?=<answer>)|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"</?(?:think(?:ing)?|answer)>", re.IGNORECASE)
_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True)
class Reasoned:
    """A reply in two parts."""

    answer: str | None  # the text for the rule, possibly empty; None if the reasoning never ended
    words: int  # outside the answer, so in the reasoning; separated by blanks


def behind_reasoning(text: str, *, cut: bool = False, reasoning: str = "") -> Reasoned:
    r"""Return the answer after the reasoning, of which the server may have sent ``reasoning`` apart from the reply.

    Example:
        >>> behind_reasoning(r"<think>Not \boxed{A}.</think>It is \boxed{B}.")
        Reasoned(answer='B', words=4)
        >>> behind_reasoning("<think>It may be A")
        Reasoned(answer=None, words=4)
        >>> behind_reasoning("It may be A because", cut=True).answer is None
        True
    """
    for own, usual in _MARKS:
        text = text.replace(own, usual)
    rest, answer = without_thoughts(text, nested=True), None
    if rest is not None:
        tagged = [content for content in _ANSWER.findall(rest) if content.strip()]
        within = tagged[-1] if tagged else rest
        is_whole = tagged or _ENDS.search(text) or reasoning or not cut
        answer = last_box(within) or (within.strip() if is_whole else None)
    return Reasoned(answer, _words(f"{reasoning} {text}") - _words(answer or ""))


def _words(text: str) -> int:
    return len(_TAGS.sub(" ", text).split())
