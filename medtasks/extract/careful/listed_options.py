"""Options that a reply lists, for questions with several right ones.

GMAI-MMBench asks for letters separated by commas and does not publish its rule, so this is our own:

1. the whole reply, or its declared answer ("the correct answers are A and C", "Answer: A,C"), is a list of letters;
2. lines that begin with a letter, unless they repeat every option;
3. named or bracketed letters ("options A and D", "(A), (D)");
4. the texts of options, unless denied.

A refusal lists nothing.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor
from medtasks.extract.reading.option_names import equal_option, options_named
from medtasks.extract.reading.reply_text import own_words, refuses

_LETTER = r"[\"'(\[]*(?<![A-Za-z])[A-Za-z](?![A-Za-z'])[\"')\].:]*"
_BETWEEN = r"\s*+(?:,?\s*+(?:and|&)\s++|[,;/+]\s*+|(?<=\s))"
_LIST = rf"{_LETTER}(?:{_BETWEEN}{_LETTER})*"
_WHOLE = re.compile(rf"\s*(?:(?:options?|answers?|choices?)\s*:?\s*)?({_LIST})\s*\.?\s*", re.IGNORECASE)
_TOGETHER = re.compile(r"\s*([A-Z]{2,})\s*\.?\s*")
_DECLARED = re.compile(
    r"\b(?:answers?|options?|choices?|letters?)\s*(?:\([^)]{0,99}\)\s*)?(?:is|are|would be|:|=)+\s*(?:options?\s+)?"
    rf"({_LIST})(?=\s*(?:$|[.\n,;]))",
    re.IGNORECASE,
)
_LINE = re.compile(r"^\s*+[-*•]?\s*+[\"'(\[]*([A-Za-z])[)\].:]+(?=\s|$)", re.MULTILINE)
_NAMED = re.compile(rf"\b(?:options?|choices?|letters?)\s+({_LIST})", re.IGNORECASE)
_BRACKETED = re.compile(r"[(\[]([A-Za-z])[)\]]")
_SINGLE = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")


@extractor("listed_options", AnswerKind.LABELS, "all letters, else option texts, that the reply lists", version=2)
def listed_options(reply: str | None, sample: Sample) -> Answer:
    """Read the options that a reply lists: 1 or 0 per option, at least one of them 1.

    Example:
        >>> sample = Sample({"options": ["cytosol", "actin", "vesicles"]})
        >>> listed_options("The correct answers are A and C.", sample).value
        (1, 0, 1)
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    letters = [letter(index) for index in range(len(sample.options))]
    lines = {mark.upper() for mark in _LINE.findall(text)}
    repeated = lines == set(letters)
    together, whole = _TOGETHER.fullmatch(text), _WHOLE.fullmatch(text)
    listed = set(together[1]) if together else _letters(whole[1]) if whole else set()
    listed = listed or _letters(*_DECLARED.findall(text)[-1:]) or (set() if repeated else lines)
    if listed:
        return _answer(listed, letters)
    if repeated:
        text = "\n".join(line for line in text.splitlines() if not _LINE.match(line))
    if refuses(text):
        return Answer.invalid(Reason.REFUSED)
    named = _letters(" ".join([*_NAMED.findall(text), *_BRACKETED.findall(text)]))
    named = named & set(letters)
    if not named:
        parts = re.split(r"[,;\n]|\band\b", text)
        equal = {index for part in parts if (index := equal_option(part, sample.options)) is not None}
        named = {letter(index) for index in equal | options_named(text, sample.options)}
    return _answer(named, letters)


def _letters(listed: str = "") -> set[str]:
    plain = re.sub(r"\b(?:and|options?)\b", " ", listed, flags=re.IGNORECASE)
    return {name.upper() for name in _SINGLE.findall(plain)}


def _answer(listed: set[str], letters: Sequence[str]) -> Answer:
    if listed.isdisjoint(letters):
        return Answer.invalid(Reason.NO_MATCH)
    if not listed <= set(letters):
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(tuple(int(name in listed) for name in letters))
