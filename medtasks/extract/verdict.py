"""Finding the verdict of a reply to a yes/no question: what it says first, declares, or says on its own."""

import re

from medtasks.extract.reply_text import is_unable

_SURE = (
    r"(?:(?:(?:most|very|quite)\s+)?(?:likely|probably|definitely|certainly|absolutely|clearly|generally|overall|"
    r"in general|so|thus|therefore|hence|in short|in conclusion|in summary|finally|then|simply)\b[,:]?\s+)*"
)
_SUBJECT = (
    r"(?:it|there|the|this|that|these|those|they|he|she|we|you|i|because|since|as|indeed|of course|a|an|both|all|"
    r"neither|patients|in|at|but|according|based|although|however|though)\b"
)
# What may follow a verdict, unlike the noun of "no fracture" and the number of "no. 2".
_SECOND_WORD = r"\s+(?:(?:or|and)\s+)?(?:yes|no|maybe|not)\b"
_STOP = rf"(?=\W*$|\s*[,;:!?()\]/\"'\n]|\.(?!\d)(?!\s*\d+\b)|\s*[-–—]+\s|\s+{_SUBJECT}|{_SECOND_WORD})"
_YES = rf"yes\b{_STOP}"
_NO = rf"(?:no\b{_STOP}|(?:absolutely|definitely|certainly|of course|probably) not\b(?=\W*$|\s*[,.;:!]))"
_MAYBE = rf"(?:maybe|perhaps|possibly|uncertain|inconclusive|unclear)\b{_STOP}"
_WORD = rf"(?:(?P<yes>{_YES})|(?P<no>{_NO})|(?P<maybe>{_MAYBE}))"
_LEADING = re.compile(rf"\W*{_SURE}{_WORD}", re.IGNORECASE)
_NOUN = r"(?:answer|conclusion|verdict|response|result|decision|choice|option)"
_LINK = (
    r"[\"']?\s*(?:to (?:the|this|your|that) question\s*)?(?:here\s*)?"
    r"(?:(?:is|was|would be|should be|must be)\b|:|=|->|→)"
)
_DECLARED = (
    re.compile(rf"\bfinal\s+{_NOUN}{_LINK}\W*{_SURE}{_WORD}", re.IGNORECASE),
    re.compile(
        rf"\b(?:{_NOUN}{_LINK}|(?:i|i'd|i would|i will)\s+(?:say|answer|think|believe|conclude|choose|go with)"
        rf"(?:\s+that)?)\W*{_SURE}{_WORD}",
        re.IGNORECASE,
    ),
)
_SECOND = re.compile(
    r"\W*(?:[,/(]|\bor\b|\band\b|&|\s)\s*(?:also\s+)?(yes|no|maybe|not)\b(?=\W*$|\s*[.,;:!?/)\n]|\s+(?:or|and)\b)",
    re.IGNORECASE,
)
_ECHO = re.compile(
    r"(?:please\s+)?answer (?:the |this )?(?:following )?question with (?:either )?[\"']?yes[\"']?,? (?:or )?"
    r"[\"']?no[\"']?(?:,? or [\"']?maybe[\"']?)?\W*",
    re.IGNORECASE,
)
# "No, I cannot answer that" declines, "No, I cannot see a fracture" does not.
_OWN_LIMIT = re.compile(
    r"\bi(?:'m| am)? (?:cannot|can't|can not|unable to|not able to)\s+(?:\w+ly\s+)?(?:answer|help|assist|provide|"
    r"determine|tell|say|interpret|view|analy[sz]e|assess|diagnose)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(r"\W*(?:i(?: a|')m )?(?:not (?:really |quite )?(?:sure|certain)|unsure)\b", re.IGNORECASE)
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


def own_part(text: str) -> str:
    r"""Return the text without a repeated instruction, up to the next instruction that a base model invents.

    Example:
        >>> own_part("Answer the question with yes, no or maybe. Yes\nAnswer the question with yes or no. B")
        'Yes'
    """
    parts = [part.strip() for part in _ECHO.split(text)]
    return next((part for part in parts if part), "")


def verdicts(text: str) -> set[str]:
    """Return the verdicts a reply gives: of ``yes``, ``no`` and ``maybe``, several if it contradicts itself.

    Args:
        text: The reply's own words without markup.

    Returns:
        The final answer if one is declared; else what the reply begins with, declares, or says in its own sentence.
        The "no" of "no significant difference" is never a verdict.

    Example:
        >>> verdicts("Yes, no significant difference was found.")
        {'yes'}
        >>> verdicts("No significant difference was found.")
        set()
    """
    final = {word for match in _DECLARED[0].finditer(text) for word in _said(match, text)}
    if final:
        return final
    found = {word for match in _DECLARED[1].finditer(text) for word in _said(match, text)}
    for number, sentence in enumerate(_SENTENCES.split(text)):
        match = _LEADING.match(sentence)
        alone = match and not re.search(r"\w", sentence[match.end() :])
        if match and (alone or (number == 0 and not _OWN_LIMIT.search(sentence))):
            found |= _said(match, sentence)
    return found


def _said(match: re.Match[str], text: str) -> set[str]:
    """Return the verdict of a match, and a second one set beside it ("yes and no", "maybe not")."""
    first = match.lastgroup or ""
    beside = _SECOND.match(text, match.end())
    second = beside[1].casefold() if beside else first
    return {first, "no" if second == "not" else second}


def is_unsure(text: str) -> bool:
    """Return whether the reply is about its writer's limits: "I cannot tell", "not sure".

    Example:
        >>> is_unsure("Not sure."), is_unsure("There is no fracture.")
        (True, False)
    """
    return is_unable(text) or _UNSURE.match(text) is not None
