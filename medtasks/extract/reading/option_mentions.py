"""Mentions of options in a text: by label, by text, by label and text.

Texts are compared by their words, in lower case, without accents and marks; signs of comparison, and plus and minus,
count. Words of Chinese and Japanese are single characters. A letter is a label if nothing is written onto it, and if no
word such as "vitamin" makes a name of it; a small letter only in brackets, or where it begins or is the statement.

Called by :mod:`medtasks.extract.reading.option_statements`. A mention says nothing about whether the option is chosen.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from medtasks.data.option_texts import without_marks
from medtasks.data.samples import first_letters, letter
from medtasks.extract.reading.languages import (
    Languages,
    Signal,
    Words,
    all_languages,
    lower_case,
    pattern_of,
    signals_in,
    words_of,
)
from medtasks.extract.reading.reply_text import without_html

ROLES = (
    "answer option final choose correct wrong likely not not_after lack because and or but than than_after before "
    "correction aside reasoning yes named is"
)
_TOKEN = re.compile(
    r"(?:[^\W\d_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+[\u0300-\u036f\u0900-\u0dff]*)+|"
    r"\d+(?:[.,:]\d+)*|(?<!\d)[.,]\d+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|"
    r"[<>≤≥=≠↑↓]|(?<=\w)[+-](?![\w+-])|(?<![\w.])[+-](?=\d)"
)
_ZEROS = re.compile(r"(?<=\.\d)0$|\.0$")
_BRACKET = re.compile(r"(.+)\((.+)\)\s*")
_ACCENTS = {
    code: unicodedata.normalize("NFD", chr(code))[0]
    for code in (*range(0xC0, 0x250), *range(0x386, 0x3CF), *range(0x400, 0x460))
    if chr(code) not in "йЙ"
}
_SYMBOL = re.compile("[\u2300-\u2bff\U0001f000-\U0001ffff]")  # may say that it is wrong
_HANGUL = re.compile("[\uac00-\ud7af]")
_ROMANS = "i ii iii iv v vi vii viii"
_LONG = 4  # letters of a word
_ENDING = 2  # letters that may be written onto a longer word: plural, case
_LINE = 80  # characters around a letter that are looked at

_JOINED = r"[^\W\u0e00-\u0eff\u1100-\u11ff\u3040-\ud7ff]"  # letters, but for scripts in which Latin letters stand alone
_OPENED = re.compile(rf"(?<!{_JOINED})(?<!['’°.-])(?<!N/)(?<![\w)][(\[])[(\[<\"']*\Z")
_CLOSED = re.compile(rf"[)\]>\"']{{0,3}}(?!{_JOINED}|['’]|-\w|&\w|\.[a-zA-Z0-9](?!\w))")
_NAME = re.compile(r"[A-Z]\.\s?[a-z]{3}|I,? [a-z]")  # "E. coli"
# "A normal brain"
_SENTENCE = re.compile(r"[AEIO] (?![A-Z]\W*$)[A-Za-z0-9\u00c0-\u024f]|[A-Z] [a-z\u00df-\u024f]")
# "B. text", "B (text)", "B | text"
LABEL_GAP = re.compile(r"[\"')\]]{0,2}\s*[.:)\],=|–—-]?\s*[\"'(\[]{0,2}")
# "is C. Appendicitis would": a label that ends a sentence, and a word after the text that follows
_SENTENCE_END = re.compile(r"(?<=\w) [(\[]*[A-Z][)\]]*\.[)\]]*\s")
_GOES_ON = re.compile(r" [^\W\d_]{2}")


class Mention(NamedTuple):
    """Part of a text that names options: one, or several that contradict each other ("A. text of B")."""

    options: frozenset[int]
    start: int
    end: int
    is_label: bool
    has_text: bool


# ---- words ----


def fold(text: str) -> str:
    """Return a text in lower case without accents, of the same length.

    Example:
        >>> fold("Ödème")
        'odeme'
    """
    if text.isascii():
        return text.lower()
    return lower_case(text).translate(_ACCENTS)


def words_in(text: str) -> Words:
    """Return the words, numbers and signs of any text.

    Example:
        >>> words_in("≥ 2.0 cm, Café")
        ('≥', '2', 'cm', 'cafe')
    """
    return tuple(map(_plain, _TOKEN.findall(fold(text))))


def _plain(word: str) -> str:
    """Return a number with a decimal point and without a final zero after it, any other word as it is."""
    if not word[-1].isdigit():
        return word
    return _ZEROS.sub("", word.replace(",", "."))


def same_word(first: str, second: str) -> bool:
    """Return whether two words differ by an ending at most.

    Example:
        >>> same_word("fracture", "fractured"), same_word("renal", "rectal")
        (True, False)
    """
    if first[:_LONG] != second[:_LONG]:
        return False
    shorter, longer = sorted((first, second), key=len)
    common = max(_LONG, len(shorter) - 1)
    return len(longer) - len(shorter) <= _ENDING and shorter[:common] == longer[:common]


@cache
def _numerals() -> Mapping[str, str]:
    """Return Roman numerals and words for numbers, with their digits."""
    numerals = {roman: str(value) for value, roman in enumerate(_ROMANS.split(), 1)}
    for language in all_languages():
        for value, word in enumerate(words_of("one", (language,)), 1):
            numerals[fold(word)] = str(value)
    return numerals


def numeral(word: str) -> str:
    """Return the digits of a number in words or in Roman numerals, any other word as it is.

    Example:
        >>> numeral("three"), numeral("iv"), numeral("lung")
        ('3', '4', 'lung')
    """
    return _numerals().get(word, word)


@cache
def _folded_words(*roles: str) -> frozenset[str]:
    """Return the words of roles in all languages, in lower case and without accents."""
    words = set[str]()
    for role in roles:
        words.update(map(fold, words_of(role)))
    return frozenset(words)


def is_content(word: str) -> bool:
    """Return whether a word tells something: a number, or no frequent word."""
    frequent = _folded_words("common", "article", "and", "or", "not", "is")
    return word in _numerals() or word not in frequent


def without_article(words: Words) -> Words:
    """Return words without an article before them."""
    is_article = len(words) > 1 and words[0].isalpha() and words[0] in _folded_words("article")
    return words[1:] if is_article else words


# ---- options ----


@dataclass(frozen=True)
class OptionSet:
    """The options of a question, prepared for comparison."""

    texts: tuple[str, ...]  # without marks of their own
    words: tuple[Words, ...]  # of each text

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def names(self) -> dict[str, int]:
        """Option by words that name it: its text, and the text without an article or a bracket.

        What several options are called is left out, and so are letters.
        """
        whole = [" ".join(words_in(text)) for text in self.texts]
        indices: dict[str, set[int]] = defaultdict(set)
        for index, name in enumerate(whole):
            indices[name].add(index)
        for index, text in enumerate(self.texts):
            for words in (self.words[index], *_bracket_parts(text)):
                name = " ".join(words)
                if name not in whole:
                    indices[name].add(index)
        indices.pop("", None)
        names = {}
        for name, of_name in indices.items():
            if len(of_name) == 1 and name.upper() not in self.letters:
                names[name] = min(of_name)
        return names

    @cached_property
    def whole(self) -> dict[str, int]:
        """Option by words that are a whole answer: its names, its letter, and both."""
        forms = dict(self.names)
        for name, index in self.letters.items():
            forms[name.lower()] = index
            forms[" ".join((name.lower(), *words_in(self.texts[index])))] = index
        return forms

    @cached_property
    def letters(self) -> dict[str, int]:
        """Option by its letter."""
        return {letter(index): index for index in range(len(self))}

    @cached_property
    def parts(self) -> list[set[str]]:
        """Words and numbers of each option that no other option has."""
        content = [
            {numeral(word) for word in words if is_content(word)} for words in self.words
        ]
        parts = []
        for index, words in enumerate(content):
            others = set[str]().union(*content[:index], *content[index + 1 :])
            shared = {word for word in words if any(same_word(word, other) for other in others)}
            parts.append(words - shared)
        return parts


def _bracket_parts(text: str) -> list[Words]:
    """Return the words before and in a bracket at the end of a text, with and without an article."""
    bracket = _BRACKET.fullmatch(text)
    if bracket is None:
        return []
    parts = list(map(words_in, bracket.groups()))
    return parts + list(map(without_article, parts))


@lru_cache(maxsize=4096)  # many samples have the same options
def option_set(options: tuple[str, ...]) -> OptionSet:
    """Return options prepared for comparison, without marks of their own ("A.", "2)").

    Example:
        >>> option_set(("A. The liver", "B. A kidney")).words
        (('liver',), ('kidney',))
    """
    texts = []
    for option in without_marks(options) or options:
        texts.append(unicodedata.normalize("NFKC", without_html(option)).strip())
    words = [without_article(words_in(text)) for text in texts]
    return OptionSet(tuple(texts), tuple(words))


# ---- mentions by text ----


def text_mentions(text: str, options: OptionSet) -> list[Mention]:
    """Return mentions of options by their text, in order, without those inside a longer one."""
    lower = fold(text)
    words = list(map(_plain, _TOKEN.findall(lower)))
    joined = f" {' '.join(words)} "
    spans = []
    for name, index in options.names.items():
        spans += [
            (start, -end, ending, index) for start, end, ending in _occurrences(joined, name)
        ]
    if not spans:
        return []
    blanks = list(accumulate((len(word) + 1 for word in words), initial=0))
    places = [match.span() for match in _TOKEN.finditer(lower)]
    mentions = []
    last_end = 0
    for first, last, ending, index in sorted(spans):
        start = places[bisect_left(blanks, first)][0]
        end = places[bisect_left(blanks, -last) - 1][1] - ending
        if start < last_end:  # inside a longer one
            continue
        last_end = end
        if not _is_within(lower, start, end):
            mentions.append(Mention(frozenset({index}), start, end, False, True))
    return mentions


def _occurrences(joined: str, name: str) -> Iterator[tuple[int, int, int]]:
    """Yield the blanks before and after a name in words joined by blanks, and the length of an ending."""
    start = joined.find(f" {name}")
    while start >= 0:
        after = start + 1 + len(name)
        end = joined.index(" ", after)
        ending = joined[after:end]
        if _HANGUL.match(name[-1]):
            is_ending = ending.startswith(words_of("particle", ("ko",)))
        else:
            is_long = len(name.split()[-1]) > _LONG
            is_ending = is_long and len(ending) <= _ENDING and ending.isalpha()
        if not ending or is_ending:
            yield start, end, len(ending)
        start = joined.find(f" {name}", after)


def _is_within(
    text: str,
    start: int,
    end: int,
) -> bool:
    """Return whether a word such as "no" is part of a sentence, and no answer: "shows no fracture", "no doubt"."""
    word = text[start:end]
    short_answers = _folded_words("yes", "no", "maybe", "not", "none")
    if start == 0 or word not in short_answers or not word.isalpha():
        return False
    return re.match(r" [^\W\d_]", text[end : end + 2]) is not None


# ---- mentions by label ----


@cache
def _capital_pattern(count: int) -> re.Pattern[str]:
    """Return a pattern of the letters of as many options, the last first, as "AB" begins with "A"."""
    letters = "|".join(reversed(first_letters(count)))
    return re.compile(rf"(?:{letters})(?!{_JOINED})")


@cache
def _small_pattern(count: int) -> re.Pattern[str]:
    """Return a pattern of small letters in brackets, and at the beginning or the end of a line."""
    small = f"[a-{letter(min(count, 26) - 1).lower()}]"
    return re.compile(
        rf"[\s\"'(\[](?:(?<=[(\[])(?<![\w)].)(?P<bracketed>{small})[)\]]|"
        rf"(?<=\n)\W{{0,8}}(?P<first>{small})(?=[):]|\.(?!\w)|\s*\(|\W*$)|"
        rf"(?<=[\s\"'])(?P<last>{small})(?=[\").!]*[ \t]*$|[:)]\s))",
        re.MULTILINE,
    )


def label_mentions(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> list[Mention]:
    """Return mentions of options by their label, without letters that are part of a name."""
    if not len(options):
        return []
    labels = list(_capitals(text, options, languages))
    for match in _small_pattern(len(options)).finditer(f"\n{text}"):
        kind = match.lastgroup or ""
        start = match.start(kind) - 1
        end = match.end() - 1
        if kind == "last":
            line = text[max(text.rfind("\n", 0, start) + 1, start - _LINE) : start]
            is_label = pattern_of("answer option", languages).search(line) is not None
        else:
            # It may number a part of the sentence: "(a) large", "d. The correct number".
            after = text[end : end + _LINE]
            gap = re.match(r"\.\s*(?=\w)" if kind == "first" else r"\s+(?=[a-z])", after)
            is_label = not gap or bool(pattern_of("and or because").match(after, gap.end()))
        if is_label:
            labels.append((start, end, match[kind].upper()))
    mentions = []
    for start, end, name in sorted(labels):
        mentions.append(Mention(frozenset({options.letters[name]}), start, end, True, False))
    return mentions


def _capitals(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and letter of each capital that is a label."""
    signals = signals_in(text, ROLES, languages)
    by_end = {signal.end: signal for signal in signals}
    by_start = {signal.start: signal for signal in signals}
    for match in _capital_pattern(len(options)).finditer(text):
        start, end = match.span()
        opened = _OPENED.search(text, max(start - 3, 0), start)
        closed = _CLOSED.match(text, end)
        if opened is None or closed is None:
            continue
        name = match[0]
        if opened[0] or closed[0]:  # a bracket or a quotation mark
            yield opened.start(), closed.end(), name
            continue
        preceding = by_end.get(start, by_end.get(start - 1))
        following = by_start.get(end, by_start.get(end + 1))
        if _is_part_of_name(preceding, following, end):
            continue
        first_word = options.words[options.letters[name]][:1]  # none of an option without words
        is_before_option = fold(text[end : end + _LINE]).lstrip(". ").startswith(first_word)
        if is_before_option or not _is_word(text, start, preceding, following, languages):
            yield opened.start(), closed.end(), name


def _is_part_of_name(
    preceding: Signal | None,
    following: Signal | None,
    end: int,
) -> bool:
    """Return whether a word next to a letter makes a name of it, as in "hepatitis B" and "B型".

    Args:
        preceding: Signal that ends at the letter or one character before, or None.
        following: Signal that begins at the letter's end or one character later, or None.
        end: Position after the letter.
    """
    if preceding and "named" in preceding.roles:
        return True
    return following is not None and following.start == end and "named" in following.roles


def _is_word(
    text: str,
    start: int,
    preceding: Signal | None,
    following: Signal | None,
    languages: Languages,
) -> bool:
    """Return whether a capital is a word or part of a name, as in "A normal brain", "E. coli" and "B cells".

    Args:
        text: The reply.
        start: Position of the capital.
        preceding: Signal next to it on the left, or None.
        following: Signal next to it on the right, or None.
        languages: Languages of the reply.
    """
    if _NAME.match(text, start):
        return True
    if not _SENTENCE.match(text, start):
        return False
    if following and following.roles - {"answer", "option", "named"}:
        return False
    return preceding is None or text[start].lower() in words_of("article", languages)


# ---- all mentions ----


def option_mentions(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> list[Mention]:
    """Return all mentions of options in order, where a label next to its text is one mention.

    Example:
        >>> option_mentions("B. scar, not A", option_set(("cyst", "scar")), ("en",))[0]
        Mention(options=frozenset({1}), start=0, end=7, is_label=True, has_text=True)
    """
    of_texts = text_mentions(text, options)
    mentions = join_mentions(text, label_mentions(text, options, languages), of_texts)
    return [_with_text(text, mention, options) for mention in mentions]


def join_mentions(
    text: str,
    labels: Sequence[Mention],
    of_texts: Sequence[Mention],
) -> list[Mention]:
    """Return mentions by label and by text in order.

    Args:
        text: The text that has them.
        labels: Mentions by label. One next to a text is joined with it.
        of_texts: Mentions by text.
    """
    mentions: list[Mention] = []
    for mention in sorted(
        [*of_texts, *labels], key=lambda mention: (mention.start, mention.is_label)
    ):
        last = mentions[-1] if mentions else None
        if last and mention.end <= last.end:  # a letter within the text of an option
            continue
        if last and _is_label_of(text, last, mention):
            mentions.pop()
            mention = Mention(
                last.options | mention.options, last.start, mention.end, True, True
            )
        mentions.append(mention)
    return mentions


def _is_label_of(
    text: str,
    first: Mention,
    second: Mention,
) -> bool:
    """Return whether a label and a text after it are one mention."""
    is_pair = first.is_label and not first.has_text and not second.is_label
    if not is_pair or not LABEL_GAP.fullmatch(text, first.end, second.start):
        return False
    if first.options == second.options or not _GOES_ON.match(text, second.end):
        return True
    return not _SENTENCE_END.match(text, max(first.start - 1, 0))


def _with_text(
    text: str,
    mention: Mention,
    options: OptionSet,
) -> Mention:
    """Extend a label over the text of its option, of which some words are left out or written otherwise."""
    if mention.has_text:
        return mention
    words = options.words[min(mention.options)]
    gap = LABEL_GAP.match(text, mention.end)
    start = gap.end() if gap and "\n" not in gap[0] else mention.end
    near = text[start : start + len(" ".join(words)) + _LINE].partition("\n")[0]
    ends = []  # of words near the label that the option has
    for match in list(_TOKEN.finditer(fold(near)))[: len(words) + 2]:
        if any(same_word(_plain(match[0]), word) for word in words):
            ends.append(match.end())
    if 2 * len(ends) <= len(words):
        return mention
    return mention._replace(end=start + ends[-1], has_text=True)


def whole_option(text: str, options: OptionSet) -> int | None:
    """Return the option that is all of a text: by its letter, by its text, or by both.

    Example:
        >>> whole_option("(b)", option_set(("cyst", "scar"))), whole_option("a scar", option_set(("cyst", "scar")))
        (1, None)
    """
    longest = max(map(len, options.texts), default=0)
    if len(text) > longest + _LINE or _SYMBOL.search(text):
        return None
    return options.whole.get(" ".join(words_in(text)))
