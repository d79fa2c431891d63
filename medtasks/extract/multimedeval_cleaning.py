"""MultiMedEval's two text cleaners, exactly as published.

Source: https://github.com/corentin-ryr/MultiMedEval, ``multimedeval/utils.py``: ``clean_str`` at d9ac283, the same in
v0.1.1, and ``cleanStr`` of v0.1.0. Replies, keys and options are cleaned alike before they are compared. The published
numbers for questions and for image classification rest on the older cleaner.
"""

import re
import string
from collections.abc import Mapping
from types import MappingProxyType

_MARKS = frozenset(';/[]"{}()=+\\_-><@`,?!')
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
_PERIOD = re.compile(r"\.(?!\d)")
# The reference passes a regular expression flag, whose value is 32, where the number of replacements belongs.
_MOST_PERIODS = 32
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBERS = {"none": "0"} | {word: str(value) for value, word in enumerate(_COUNTED)}
_ARTICLES = frozenset(("a", "an", "the"))

_PUNCTUATION_TO_BLANK = str.maketrans(dict.fromkeys(string.punctuation, " "))
_BLANKS = re.compile(" +")
# The table ``contractions`` there. Every entry but one puts a single missing apostrophe back, so the full forms say it
# all; the other takes one away. Left out are four entries with a capital, which are looked up in lower-case text and
# never found, and two that change nothing.
_FULL_FORMS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd've he'd he's
how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've o'clock
oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'd've y'all'll you'd you'd've you'll you're you've
"""
_RESTORED = {
    word[:position] + word[position + 1 :]: word
    for word in _FULL_FORMS.split()
    for position, character in enumerate(word)
    if character == "'"
}
CONTRACTIONS: Mapping[str, str] = MappingProxyType({**_RESTORED, "somebody'd": "somebodyd"})
"""Words that lost an apostrophe, and what they were."""


def clean_head(text: str) -> str:
    """Clean a text as MultiMedEval does from v0.1.1 on.

    Lower case; 21 punctuation marks deleted where the text has the mark next to a blank, or a number with a comma
    anywhere, and blanks otherwise; the first 32 periods without a digit behind them deleted; number words up to ten in
    digits; the words "a", "an" and "the" dropped; apostrophes of contractions restored; single blanks.

    Colons, apostrophes, ``*``, ``#``, ``%``, ``&`` and others stay, and the letter A alone is taken for an article: a
    reply that is only a letter or a number may have nothing in common with its option. What is left may be empty.

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
    numbered = (NUMBERS.get(word, word) for word in words)
    return " ".join(CONTRACTIONS.get(word, word) for word in numbered if word not in _ARTICLES)


def clean_v0_1_0(text: str) -> str:
    r"""Clean a text as MultiMedEval v0.1.0 did.

    Lower case; newlines are blanks; outer whitespace stripped; ASCII punctuation becomes blanks; runs of blanks become
    one. Punctuation is replaced after stripping, so one blank may lead or trail, and other whitespace stays. What is
    left may be empty or a single blank.

    Example:
        >>> clean_v0_1_0("(B) It's 1.2cm\n")
        ' b it s 1 2cm'
    """
    return _BLANKS.sub(" ", text.lower().replace("\n", " ").strip().translate(_PUNCTUATION_TO_BLANK))
