"""Finding option texts in a reply."""

import re
import unicodedata
from collections.abc import Sequence

_NEGATION = re.compile(
    r"\b(?:no|not|without|never|nor|neither|isn t|absence of|rather than)"
    r"(?: (?:an?|the|any|evidence of|on|in|at|of))* $"
)
_REACH = 200  # characters; broken models repeat an option thousands of times
_BARE_WORDS = frozenset({"yes", "no", "true", "false", "maybe", "normal", "present", "absent"})
_FRAME = re.compile(
    r"^(?:(?:the |my )?(?:correct |right |best |final |most likely )*(?:answer|option|diagnosis) (?:is |would be )?"
    r"|(?:it|this|that) (?:is|s) )?(?:an |the )?"
)


def normalised(text: str) -> str:
    """Return ``text`` in lower case with every run of punctuation and white space as one space.

    Example:
        >>> normalised("  Low-grade FDG uptake. ")
        'low grade fdg uptake'
    """
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()


def equal_option(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the only option whose words are all of ``text``, else None."""
    words = normalised(text)
    framed = _FRAME.sub("", words)
    equal = [i for i, option in enumerate(options) if normalised(option) in (words, framed) and normalised(option)]
    return equal[0] if len(equal) == 1 else None


def leading_option(text: str, options: Sequence[str]) -> set[int]:
    """Return options that begin with the whole reply ("Yes" for "Yes, uptake is seen") or whose one word opens it."""
    words = normalised(text)
    if not words:
        return set()
    found = {i for i, option in enumerate(options) if normalised(option).startswith(f"{words} ")}
    first, *rest = words.split(" ", 3)
    opening = {first, rest[1]} if len(rest) > 1 and rest[0] in ("and", "or") else {first}
    return found | {i for i, option in enumerate(options) if normalised(option) in opening & _BARE_WORDS}


def options_named(text: str, options: Sequence[str]) -> set[int]:
    """Return the options whose words occur in ``text``, without those only found inside a longer one or negated.

    One-word options such as "no" or "normal" are not searched: they occur in too many sentences.
    """
    words = f" {normalised(text)} "
    spans = []
    for index, option in enumerate(options):
        needle = normalised(option)
        if not needle or needle in _BARE_WORDS:
            continue
        for match in re.finditer(rf"(?<= ){re.escape(needle)}(?= )", words):
            negated = _NEGATION.search(words, max(0, match.start() - _REACH), match.start()) is not None
            spans.append((match.start(), match.end(), index, negated))
    found, widest = set(), (-1, -1)
    for start, end, index, negated in sorted(spans, key=lambda span: (span[0], -span[1])):
        inside = end <= widest[1] and (start, end) != widest
        widest = (start, end) if end > widest[1] else widest
        if not negated and not inside:
            found.add(index)
    return found
