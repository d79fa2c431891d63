"""Numbers of options and grades in a reply, in contrast to measurements, counts and years."""

import re

from medtasks.extract.reading.negation import Mention

_CARDINALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI")
_UNIT = (
    r"(?:[cmkµn]?m[23²³]?\b|millimet|centimet|micro|inch|%|percent|°|degrees?\b|years?\b|days?\b|weeks?\b|months?\b|hours?\b|"
    r"times\b|x\b|×|fold\b|[mk]g\b|ml\b|cc\b|m?hz\b|kv\b|tesla\b|t\b|pixels?\b|out of\b|of\b|in\s+\d|per\b)"
)
# No part of a decimal, a fraction, a measurement or a word such as "T2".
_NUMBER = rf"(?<![\w.,/])\d{{1,2}}(?![\w%°²³]|[.,/:]\d|\s*/\s*\d|\s*-?\s*{_UNIT})"
_BRACKETED = rf"[(\[\"']{{0,3}}{_NUMBER}[)\]\"']{{0,3}}"
_ALSO = r"\s*(?:,|/|&|\band\b|\bor\b|\bto\b|[-–])\s*(?:and\s+|or\s+)?(?:option\s+|class\s+|grade\s+|bi-?rads\s+)?"
_LIST = rf"{_BRACKETED}(?:{_ALSO}{_BRACKETED})*"
_KIND = r"(?:options?|choices?|class(?:es)?|labels?|categor(?:y|ies)|numbers?|no\.|answers?|#)"
_ONLY = re.compile(
    rf"\W*(?:(?:the|it is|it's|between|either|both)\s+)?(?:{_KIND}\W*)?({_LIST}|{_BRACKETED}(?:\s+{_BRACKETED})+)\W*",
    re.IGNORECASE,
)
_AT_START = re.compile(rf"(?:{_KIND}\s*)?({_LIST})", re.IGNORECASE)
_CALLED = re.compile(rf"(?<!\w){_KIND}\s*+(?:number|no\.|#)?\s*+:?\s*+({_LIST})", re.IGNORECASE)
_SPELLED = re.compile(rf"\b(?:option|choice|number)\s+({'|'.join(_CARDINALS)})\b", re.IGNORECASE)
_RANKED = re.compile(rf"\b({'|'.join(ORDINALS)})\s+(?:option|choice)\b", re.IGNORECASE)
_IN_BRACKETS = re.compile(r"\((\d{1,2})\)")
_SCALE = re.compile(r"\b(?:bi[\s-]?rads|grade|stage|level|severity|score|category|class|label)(?![a-z])", re.IGNORECASE)
_FILL = (
    r"(?:bi[\s-]?rads|level|category|grade|score|assessment|classification|class|stage|rating|label|of|is|was|be|would|in|"
    r"this|the|an?|as|mammography|mammogram|image|most|likely|probably|number|for|picture|it|diabetic|retinopathy|to)"
)
_GRADE = re.compile(
    rf"(?:[?\s:=(\"'®-]++(?:(?i:{_FILL})\b)?)*?[?\s:=(\"'®-]*+(?:(?<![\d.])(\d)(?i:[abc])?(?!\w|[.,/]\d|\s*-?\s*(?!o){_UNIT})|"
    rf"\b({'|'.join(reversed(_ROMAN[1:]))}|(?i:iii?|iv|vi))\b(?!\s+[a-z]|')|\b((?i:{'|'.join(_CARDINALS[:7])}))\b)"
    rf"(?:{_ALSO}(\d)(?!\w|[.]\d))?",
)
_NEAR = 160  # characters from the name of a scale to its grade


def only_numbers(text: str) -> list[int]:
    """Return the numbers of a reply without other content: "2", "(2).", "Option 2", "2 and 5", "two"."""
    plain = re.sub(r"[\W_]+", " ", text).strip().casefold()
    if plain in _CARDINALS:
        return [_CARDINALS.index(plain)]
    whole = _ONLY.fullmatch(text)
    return _digits(whole[1]) if whole else []


def numbers_at(text: str, start: int = 0) -> tuple[list[int], int]:
    """Return the numbers that begin at ``start``, with "or" and "and" between them, and where they end."""
    match = _AT_START.match(text, start)
    return (_digits(match[1]), match.end()) if match else ([], start)


def numbers_called(text: str) -> list[Mention[int]]:
    """Return the options called by number: "option 2", "the second option", else "(2)"."""
    mentions = [Mention(value, *match.span(1)) for match in _CALLED.finditer(text) for value in _digits(match[1])]
    for pattern, spelled in ((_SPELLED, _CARDINALS), (_RANKED, ORDINALS)):
        mentions += [Mention(spelled.index(match[1].casefold()), *match.span(1)) for match in pattern.finditer(text)]
    return mentions or [Mention(int(match[1]), *match.span(1)) for match in _IN_BRACKETS.finditer(text)]


def grades_called(text: str) -> list[Mention[int]]:
    """Return the grades of a scale: "BI-RADS 4a", "category IV", "the level in this image is 2".

    A grade is returned once for every word that names its scale.
    """
    grades = set()
    for scale in _SCALE.finditer(text):
        match = _GRADE.match(text, scale.end(), scale.end() + _NEAR)
        if match:
            word = match[2] or match[3] or ""
            spelled = _ROMAN if word.upper() in _ROMAN else _CARDINALS
            value = int(match[1]) if match[1] else spelled.index(word.upper() if spelled is _ROMAN else word.casefold())
            grades.add(Mention(value, scale.start(), match.end()))
            if match[4]:
                grades.add(Mention(int(match[4]), scale.start(), match.end()))
    return sorted(grades, key=lambda number: (number.start, number.what))


def without_scale(text: str, low: int, high: int) -> str:
    """Remove the mention of a whole scale, as in "(from 1 to 5)"."""
    return re.sub(rf"\(?\b(?:from\s+|between\s+)?{low}\s*(?:to|and|[-–]|through)\s*{high}\b\)?", " ", text)


def _digits(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]
