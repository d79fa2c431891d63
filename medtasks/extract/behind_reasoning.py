r"""What a reply that was asked to reason says behind its reasoning: the answer, and how long the reasoning is.

The reasoning is what stands in ``<think>``, also nested, or before a ``</think>`` whose beginning the chat template had
written; MedGemma marks it with ``<unused94>`` and ``<unused95>``. Behind it, the last ``<answer>`` with anything in it
is the answer, and in that the last ``\boxed{}``; a box inside the reasoning is none. Where a reply has neither, all
that stands behind the reasoning is left to the task's own rule. Nothing is read out of reasoning that never ended: a
reply that is still in ``<think>`` at its end has no answer, nor has one that was cut before any mark.
"""

import re
from dataclasses import dataclass

from medtasks.extract.medevalkit_text import last_box
from medtasks.extract.reply_text import without_thoughts

_MARKS = (("<unused94>", "<think>"), ("<unused95>", "</think>"))  # as MedGemma marks its thoughts
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|(?=<answer>)|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"</?(?:think(?:ing)?|answer)>", re.IGNORECASE)
_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True)
class Reasoned:
    """A reply in two parts."""

    answer: str | None  # what is left for the rule, possibly empty; None where the reasoning never ended
    words: int  # that are not of the answer, so of the reasoning; divided by blanks


def behind_reasoning(text: str, *, cut: bool = False, reasoning: str = "") -> Reasoned:
    r"""Return what stands behind the reasoning; ``reasoning`` was told apart by the server, ``cut`` if the reply was.

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
    answer = _answer(text, cut=cut and not reasoning)
    return Reasoned(answer, _words(f"{reasoning} {text}") - _words(answer or ""))


def _words(text: str) -> int:
    return len(_TAGS.sub(" ", text).split())


def _answer(text: str, *, cut: bool) -> str | None:
    rest = without_thoughts(text, nested=True)
    if rest is None:
        return None
    tagged = [content for content in _ANSWER.findall(rest) if content.strip()]
    within = tagged[-1] if tagged else rest
    if box := last_box(within):
        return box
    is_whole = tagged or _ENDS.search(text)
    return within.strip() if is_whole or not cut else None
