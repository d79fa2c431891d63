"""Words of options and of texts in one spelling, and the leads to an answer."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from medtasks.extract.reading.negation import Mention

_FRAME = re.compile(
    r"^(?:(?:the |my )?(?:correct |right |best |final |most likely )*(?:answer|option|diagnosis) (?:is |would be )?"
    r"|(?:it|this|that) (?:is|s) )?(?:an |the )?"
)
_WORDS = re.compile(r"[^\W_]+|[=≠<>≤≥↑↓]")
_SIGNS = frozenset("=≠<>≤≥↑↓")
_SIGN = re.compile(r"(?<=[\w%)])\s*([=≠<>≤≥])\s*(?=[\w(-])|([↑↓])|[=≠<>≤≥]")  # a sign between two things, or any other


@lru_cache(maxsize=512)  # the same options are compared in several steps
def normalised(text: str) -> str:
    """Return ``text`` in lower case, with one space for each run of blanks and of punctuation but "<" and arrows."""
    plain = (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
    if not _SIGNS.isdisjoint(plain):
        plain = _SIGN.sub(r" \1\2 ", plain)
    return " ".join(_WORDS.findall(plain))


def equal_option(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the only option whose words are all of ``text``, else None."""
    words = normalised(text)
    framed = _FRAME.sub("", words)
    equal = [i for i, option in enumerate(options) if normalised(option) in (words, framed) and normalised(option)]
    return equal[0] if len(equal) == 1 else None


_WORD = re.compile(r"[^\W_]+(?:['’]s\b)?")
ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ARTICLES = frozenset({"a", "an", "the"})
_STEMS = {"nevi": "nevus", "keratoses": "keratosis", "leucocyte": "leukocyte", "tumour": "tumor"}


def words(text: str) -> list[Mention[str]]:
    """Return the words of a text without articles, singular and in one spelling."""
    stems = (Mention(_stem(match[0]), match.start(), match.end()) for match in _WORD.finditer(text))
    return [word for word in stems if word.what not in _ARTICLES]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    plain = unicodedata.normalize("NFKC", word).casefold().replace("’", "'").removesuffix("'s")
    plain = plain.replace("isation", "ization").replace("ae", "e").replace("oe", "e")
    if len(plain) > 3 and plain.endswith("s") and not plain.endswith(("ss", "is", "us", "ses")):
        plain = plain[:-1]
    return _STEMS.get(plain, plain)


_MOST = r"most\s+(?:likely|probable|appropriate|consistent)(?:\s+[a-z]+){1,3}?"


def leads(noun: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns of leads ("the answer is", "Diagnosis:"), strong ones first; not headings ("each option:")."""
    link = (
        r"(?:\s+(?:based on|given|considering|according to|for|to|in|among|from|of|here|that|which)\b"
        r"[^.:;?!\n]{0,100}?)?[\"']?\s*(?:\b(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*"
        r"(?:therefore|thus|(?:most )?likely|probably)?[:\s]*"
    )
    here = rf"(?<!each )(?<!every )(?<!other )(?<!following )(?<!differential ){noun}{link}(?<!\n)(?!\n)"
    good = rf"(?<!not )(?<!not the )(?:(?:correct|right|best|my|appropriate|predicted)\s+(?:\w+\s+)?{noun}|{_MOST})"
    tiers = (
        rf"final\s+{noun}{link}",
        rf"(?:{good}|the\s+(?:\w+\s+)?answer){link}|(?<!not )the\s+(?:\w+\s+)?{here}",
        rf"answer{link}|{here}",
    )
    return tuple(re.compile(rf"\b(?:{tier})", re.IGNORECASE) for tier in tiers)
