"""MultiMedEval's two text cleaners, exactly as published.

Source: https://github.com/corentin-ryr/MultiMedEval, ``multimedeval/utils.py``: ``clean_str`` at d9ac283, the same in
v0.1.1, and ``cleanStr`` of v0.1.0. Replies, keys and options are cleaned alike before they are compared. The published
numbers for questions and for image classification rest on the older cleaner.
"""

import re
import string

from medtasks.extract.contractions import CONTRACTIONS

_MARKS = frozenset(';/[]"{}()=+\\_-><@`,?!')
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
# The reference passes a regular expression flag, whose value is 32, where the number of replacements belongs.
_MOST_PERIODS = 32
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"none": "0"} | {word: str(value) for value, word in enumerate(_COUNTED)}
_ARTICLES = frozenset(("a", "an", "the"))

_PUNCTUATION_TO_BLANK = str.maketrans(dict.fromkeys(string.punctuation, " "))
_BLANKS = re.compile(" +")


def clean_head(text: str) -> str:
    """Clean a text as MultiMedEval does from v0.1.1 on.

    Lower case; 21 punctuation marks deleted where the text has the mark next to a blank, or a number with a comma
    anywhere, and blanks otherwise; the first 32 periods without a digit behind them deleted; number words up to ten in
    digits; the words "a", "an" and "the" dropped; apostrophes of contractions restored; single blanks.

    Colons, apostrophes, ``*``, ``#``, ``%``, ``&`` and others stay, and the letter A alone is taken for an article: a
    reply that is only a letter or a number may have nothing in common with its option.

    Args:
        text: Any text.

    Returns:
        Words with single blanks between them; may be empty.

    Example:
        >>> clean_head("The mass measures 1.2cm, dont biopsy (yet).")
        "mass measures 1.2cm don't biopsy yet"
        >>> clean_head("A")
        ''
    """
    text = text.lower()
    number = _COMMA_IN_NUMBER.search(text) is not None
    replacements = {
        ord(mark): "" if number or f"{mark} " in text or f" {mark}" in text else " "
        for mark in _MARKS.intersection(text)
    }
    words = _PERIOD.sub("", text.translate(replacements), count=_MOST_PERIODS).split()
    numbered = (_NUMBERS.get(word, word) for word in words)
    return " ".join(CONTRACTIONS.get(word, word) for word in numbered if word not in _ARTICLES)


def clean_v0_1_0(text: str) -> str:
    r"""Clean a text as MultiMedEval v0.1.0 did.

    Lower case; newlines are blanks; outer whitespace stripped; ASCII punctuation becomes blanks; runs of blanks become
    one. Punctuation is replaced after stripping, so one blank may lead or trail, and other whitespace stays.

    Args:
        text: Any text.

    Returns:
        The cleaned text; may be empty or a single blank.

    Example:
        >>> clean_v0_1_0("(B) It's 1.2cm\n")
        ' b it s 1 2cm'
    """
    return _BLANKS.sub(" ", text.lower().replace("\n", " ").strip().translate(_PUNCTUATION_TO_BLANK))
