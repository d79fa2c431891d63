"""Replies that decline to answer."""

import re

_CANNOT = r"(?:can(?:not| not|'t)|could(?: not|n't)|unable to|(?:not |im)possible to)"
_JUDGE = (
    r"(?:determine|tell|answer|say|identif|provide|assist|help|assess|interpret|confirm|diagnos|conclu|analy|view|choose|"
    r"see (?:the|any) image)"
)
_LACKING = r"(?:insufficient|not enough|do(?:es)?(?: not|n't) (?:have|provide) (?:enough|sufficient))"
_UNABLE = (
    rf"\b{_CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?{_JUDGE}|\b{_LACKING} (?:information|detail|context)"
    r"|\bi(?: do not|'m not| am not| don't) (?:know|sure|able|qualified)|\bi(?:'m| am) sorry\b|\bas an ai\b|\bno idea\b"
)
_INABILITY = re.compile(_UNABLE, re.IGNORECASE)
_REFUSAL = re.compile(
    rf"{_UNABLE}|\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b",
    re.IGNORECASE,
)


def refuses(text: str) -> bool:
    """Return whether the text declines to choose: it cannot tell, or none of the options fits.

    Example:
        >>> refuses("None of the above."), refuses("There is an effusion.")
        (True, False)
    """
    return _REFUSAL.search(text) is not None


def is_unable(text: str) -> bool:
    """Return whether the text says that its writer cannot answer; "none of the lobes" is a statement about an image.

    Example:
        >>> is_unable("As an AI, I cannot interpret images."), is_unable("None of the lobes is affected.")
        (True, False)
    """
    return _INABILITY.search(text) is not None
