"""The words of a text in a comparable spelling, with what the text denies kept apart from what it states."""

import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

from medtasks.extract.class_names import words
from medtasks.extract.negation import Stance, clauses, stance

DENIED = "not:"

_WORD = re.compile(
    r"\d+(?:st|nd|rd|th)\b|(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|(?<![\w.])\.\d+|\d+(?:\.\d+)?)|"
    r"[^\W\d_][^\W_]*(?:['’][^\W\d_]+)?",
    re.IGNORECASE,
)
_XRAY = re.compile(r"\bx[ -]ray(?=s?\b)", re.IGNORECASE)
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_RANKED = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_RANKS = ("1st", "2nd", "3rd", *(f"{rank}th" for rank in range(4, 11)))
_SPELLINGS = (
    {"none": "0"} | {word: str(value) for value, word in enumerate(_COUNTED)} | dict(zip(_RANKED, _RANKS, strict=True))
)
_ARTICLES = frozenset(("an", "the"))


@lru_cache(maxsize=1 << 16)
def _spelled(written: str) -> str:
    """Return a word's comparable spelling."""
    plain = written.casefold().replace("’", "'").removesuffix("'s").replace("'", "")
    return _SPELLINGS.get(plain) or next((word.stem for word in words(plain)), plain)


# A denial is about the finding; "no effusion is seen" and "there is no effusion" share the word "is".
_UNDENIABLE = frozenset(map(_spelled, (
    "am", "and", "any", "are", "at", "be", "been", "being", "but", "by", "can", "cannot", "could", "did", "do",
    "does", "evidence", "for", "from", "had", "has", "have", "i", "in", "is", "it", "its", "no", "not", "of",
    "on", "or", "sign", "that", "there", "these", "they", "this", "those", "to", "was", "we", "were", "with",
    "yes",
)))  # fmt: skip
_NOUN_FOLLOWS = re.compile(r"\s+(?!(?:and|or|vs|versus|is|was|because)\b)[^\W_]", re.IGNORECASE)
_SENTENCE_STARTS = re.compile(r"(?:^|[.!?:;\n])[\s\"'(]*$")
_LABELLED = re.compile(
    r"\b(?:type|grade|stage|class|category|group|vitamin|hepatitis|ha?emophilia|influenza|factor|level|segment|figure|"
    r"fig|panel|image|part|option|choice|label|lesion)\s+[\"'(]?$",
    re.IGNORECASE,
)


def stated_words(text: str, of_interest: Container[str] | None = None) -> list[str]:
    """Return the words of a text in order, those in a denied statement with the prefix ``not:``.

    Lower case, singular, American spelling; punctuation and possessives removed; number words up to ten and "none" in
    digits, "third" as "3rd"; numbers without thousands separators and trailing zeros; a unit apart from its number;
    "x-ray" as one word. Articles are dropped. The letter A stays where it names something: at the end, before a mark,
    "and" or "is", after a noun such as "type" or "hepatitis", and as a capital within a sentence.

    Args:
        text: Text without markup.
        of_interest: Words for which it matters whether they are denied, None for all. Telling it takes time.

    Example:
        >>> stated_words("The mass is 1.20cm, but there is no effusion.")
        ['mass', 'is', '1.2', 'cm', 'but', 'there', 'is', 'no', 'not:effusion']
        >>> stated_words("Lesion A"), stated_words("A lesion")
        (['lesion', 'a'], ['lesion'])
    """
    text = _XRAY.sub("xray", unicodedata.normalize("NFKC", text))
    spoken = list(_words(text))
    doubtful = [
        position
        for position, (word, _, _) in enumerate(spoken)
        if word not in _UNDENIABLE and (of_interest is None or word in of_interest)
    ]
    found = [word for word, _, _ in spoken]
    for position in _denied(text, [(position, *spoken[position][1:]) for position in doubtful]) if doubtful else ():
        found[position] = DENIED + found[position]
    return found


def _denied(text: str, mentions: Iterable[tuple[int, int, int]]) -> Iterator[int]:
    """Yield the numbers of mentions ``(number, start, end)``, in the order of the text, that their clause denies."""
    rest = iter(clauses(text))
    clause, begins, ends = "", 0, 0
    for number, start, end in mentions:
        while ends <= start and (following := next(rest, None)) is not None:
            clause, begins = following, text.index(following, ends)
            ends = begins + len(clause)
        if begins <= start and end <= ends and stance(clause, start - begins, end - begins) is Stance.DENIED:
            yield number


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text with their offsets."""
    shouting = text.isupper()
    for match in _WORD.finditer(text):
        if match.lastgroup == "number":
            yield _plain_number(match[0]), match.start(), match.end()
        elif (
            not (match[0] in ("a", "A") and _is_article(text, match, shouting)) and match[0].casefold() not in _ARTICLES
        ):
            yield _spelled(match[0]), match.start(), match.end()


def _plain_number(written: str) -> str:
    whole, _, fraction = written.replace(",", "").partition(".")
    fraction = fraction.rstrip("0")
    whole = whole.lstrip("0") or "0"
    return f"{whole}.{fraction}" if fraction else whole


def _is_article(text: str, match: re.Match[str], shouting: bool) -> bool:
    """Return whether an "a" belongs to the noun behind it."""
    before = text[max(0, match.start() - 20) : match.start()]
    if _NOUN_FOLLOWS.match(text, match.end()) is None or _LABELLED.search(before):
        return False
    return match[0] == "a" or shouting or _SENTENCE_STARTS.search(before) is not None
