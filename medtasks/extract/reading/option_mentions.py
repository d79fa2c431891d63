"""Mentions of options in a text: by label, by text, by label and text, by position.

Texts are compared by their words, in lower case, without accents and marks; signs of comparison, and plus and minus,
count. Words of Chinese and Japanese are single characters. A letter is a label if nothing is written onto it, and if no
word such as "vitamin" makes a name of it; a small letter only in brackets, or where it begins or is the statement.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from medtasks.data.option_texts import without_marks
from medtasks.data.samples import letter
from medtasks.extract.reading.languages import all_languages, pattern_of, words_of
from medtasks.extract.reading.reply_text import without_html

_COMPARING = "<>≤≥=≠↑↓"
_SIGNS = f"{_COMPARING}+-"
_TOKEN = re.compile(
    r"\d+(?:[.,:]\d+)*|(?<!\d)[.,]\d+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|"
    r"(?:(?![\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff])[^\W\d_][\u0300-\u036f\u0900-\u0dff]*)+|"
    r"[<>≤≥=≠↑↓]|(?<=\w)[+-](?![\w+-])|(?<![\w.])[+-](?=\d)"
)
# Two characters of one word or number.
_JOINT = re.compile(
    r"(?:[^\W\d_\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[\u0300-\u036f\u0900-\u0dff])[^\W\d_]|\d\d|(?<=\d)[.,:]\d"
)
_ZEROS = re.compile(r"(?<=\.\d)0$|\.0$")
_BRACKET = re.compile(r"\(([^()]+)\)")
_ACCENTS = {
    code: unicodedata.normalize("NFD", chr(code))[0]
    for code in (*range(0xC0, 0x250), *range(0x386, 0x3CF), *range(0x400, 0x460))
    if unicodedata.normalize("NFD", chr(code))[1:2] and chr(code) not in "йЙ"
}
_DOTTED_I = re.compile(r"İ(?=\w)")  # alone it is no numeral
_HANGUL = re.compile("[\uac00-\ud7af]")
_ALPHABET = 26
_FEW_WORDS = 5
_LONG = 4  # letters of a word
_ENDING = 2  # letters that may be written onto a longer word: plural, case


class Token(NamedTuple):
    """A word, number or sign of a text."""

    word: str
    start: int
    end: int


class Mention(NamedTuple):
    """Part of a text that names options: one, or several that contradict each other ("A. text of B")."""

    options: frozenset[int]
    start: int
    end: int
    is_label: bool
    has_text: bool


def folded(text: str) -> str:
    """Return a text in lower case without accents, of the same length."""
    if text.isascii():
        return text.lower()
    text = _DOTTED_I.sub("i", text)
    lower = text.lower()
    if len(lower) != len(text):
        lower = "".join(mark.lower() if len(mark.lower()) == 1 else mark for mark in text)
    return lower.translate(_ACCENTS)


def tokens_of(text: str) -> list[Token]:
    """Return the words, numbers and signs of a :func:`folded` text."""
    return [Token(_plain(match[0]), *match.span()) for match in _TOKEN.finditer(text)]


def words_in(text: str) -> tuple[str, ...]:
    """Return the words, numbers and signs of any text."""
    return tuple(token.word for token in tokens_of(folded(text)))


def _plain(word: str) -> str:
    if not word[-1].isdigit():
        return word
    number = f"0{word}" if word[0] in ".," else word
    return _ZEROS.sub("", number.replace(",", "."))


def same_word(first: str, second: str) -> bool:
    """Return whether two words differ by an ending at most."""
    if first == second:
        return True
    shorter, longer = sorted((first, second), key=len)
    common = max(4, len(shorter) - 1)
    return len(shorter) >= common and len(longer) - len(shorter) <= _ENDING and shorter[:common] == longer[:common]


@lru_cache(maxsize=1)
def _numerals() -> dict[str, str]:
    """Return Roman numerals and words for numbers, with their digits."""
    numerals = {roman: str(value) for value, roman in enumerate(("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"), 1)}
    for language in all_languages():
        numerals |= {folded(word): str(value) for value, word in enumerate(words_of("one", (language,)), 1)}
    return numerals


def numeral(word: str) -> str:
    """Return the digits of a number in words or in Roman numerals; any other word as it is."""
    return _numerals().get(word, word)


@lru_cache(maxsize=1)
def _short_words() -> frozenset[str]:
    return frozenset(
        folded(word) for role in ("common", "article", "and", "or", "not", "is") for word in words_of(role)
    )


def is_content(word: str) -> bool:
    """Return whether a word tells something: no sign, and no short or frequent word."""
    return (
        word not in _SIGNS
        and (word in _numerals() or not word.isascii() or len(word) > 2 or word[0].isdigit())
        and (word not in _short_words() or word in _numerals())
    )


def _aliases(text: str) -> list[str]:
    """Return the two parts of a short text with a bracket: "Computed tomography (CT)"."""
    bracket = _BRACKET.search(text) if text.rstrip().endswith(")") else None
    if bracket is None or len(text[: bracket.start()].split()) > _FEW_WORDS:
        return []
    return [text[: bracket.start()], bracket[1]]


@dataclass(frozen=True)
class OptionSet:
    """The options of a question, prepared for comparison."""

    written: tuple[str, ...]  # without marks of their own
    texts: tuple[str, ...]  # empty where the text is a letter, which names its option
    numbered: bool  # their own marks are numbers
    words: tuple[tuple[str, ...], ...]  # of each text

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def names(self) -> list[tuple[tuple[str, ...], int]]:
        """Words that name an option, the longest first: its text, also without an article or brackets."""
        names: dict[tuple[str, ...], set[int]] = {}
        for index, text in enumerate(self.texts):
            forms = [words_in(text), self.words[index]]
            for alias in _aliases(text):
                forms += [words_in(alias), without_article(words_in(alias))]
            for form in forms:
                if form and not (len(form) == 1 and form[0].upper() in self.letters):
                    names.setdefault(form, set()).add(index)
        unique = [(words, min(indices)) for words, indices in names.items() if len(indices) == 1]
        return sorted(unique, key=lambda name: -len(" ".join(name[0])))

    @cached_property
    def longest(self) -> int:
        """Length of the longest text."""
        return max(map(len, self.written), default=0)

    @cached_property
    def letters(self) -> dict[str, int]:
        """Option by its letter."""
        return {letter(index): index for index in range(len(self))}

    @cached_property
    def parts(self) -> list[set[str]]:
        """Words and numbers of each option that no other option has."""
        content = [{numeral(word) for word in words if is_content(word)} for words in self.words]
        parts = []
        for index, words in enumerate(content):
            others = set[str]().union(*content[:index], *content[index + 1 :])
            parts.append({word for word in words if not any(same_word(word, other) for other in others)})
        return parts

    @cached_property
    def has_signs(self) -> bool:
        """Whether a sign tells options apart."""
        return any(word in _SIGNS for words in self.words for word in words)


@lru_cache(maxsize=4096)  # many samples have the same options
def option_set(options: tuple[str, ...]) -> OptionSet:
    """Return options prepared for comparison; marks of their own ("A.", "2)") are left out."""
    bare = without_marks(options)
    numbered = bool(bare) and options[0].lstrip("([ ")[:1].isdigit()
    plain = tuple(unicodedata.normalize("NFKC", without_html(text)).strip() for text in (bare or options))
    names = [letter(index) for index in range(len(options))]
    texts = tuple("" if text.upper().strip(" .") in names else text for text in plain)  # a letter names its option
    whole = tuple(words_in(text) for text in texts)
    short = tuple(without_article(words) for words in whole)
    words = short if len({*short}) == len({*whole}) else whole  # "A, B and C" begins with no article
    return OptionSet(plain, texts, numbered, words)


@lru_cache(maxsize=1)
def _articles() -> frozenset[str]:
    return frozenset(folded(word) for word in words_of("article") if word.isalpha())


def without_article(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without an article before them."""
    return words[1:] if len(words) > 1 and words[0] in _articles() else words


def text_mentions(text: str, options: OptionSet) -> list[Mention]:
    """Return mentions of options by their text, in order, without those inside a longer one."""
    lower = folded(text)
    spans: list[tuple[int, int, int]] = []
    for words, index in options.names:
        if all(word in lower for word in words if word.isalpha()):
            spans += [(start, -end, index) for start, end in _occurrences(lower, words)]
    mentions: list[Mention] = []
    last_end = 0
    for start, minus_end, index in sorted(spans):
        end = -minus_end
        if start < last_end:  # inside a longer one
            continue
        last_end = end
        if not (options.has_signs and _has_other_sign(lower, start, end)) and not _is_within(lower, start, end):
            mentions.append(Mention(frozenset({index}), start, end, False, True))
    return mentions


def _occurrences(lower: str, words: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield start and end of words that follow one another in a folded text, without patterns: they take compiling."""
    first = words[0].partition(".")[0]
    start = lower.find(first)
    while start >= 0:
        end = _end_of(lower, start, words)
        if end is not None:
            yield start, end
        start = lower.find(first, start + 1)


def _end_of(lower: str, start: int, words: tuple[str, ...]) -> int | None:
    """Return where words end that begin at a place; None if others stand there."""
    if start and _JOINT.match(lower, start - 1):
        return None
    end = start
    for word in words[:-1]:
        token = _TOKEN.search(lower, end)
        if token is None or _plain(token[0]) != word:
            return None
        end = token.end()
    token = _TOKEN.search(lower, end)
    if token is None or not _is_form(words[-1], _plain(token[0])):
        return None
    return token.end() if token[0][-1].isdigit() else token.start() + len(words[-1])


def _is_form(word: str, written: str) -> bool:
    """Return whether a word is written with an ending of its language at most."""
    if written == word:
        return True
    ending = written.removeprefix(word)
    if len(ending) == len(written):
        return False
    if _HANGUL.match(word[-1]):
        return ending.startswith(words_of("particle", ("ko",)))
    return len(ending) <= _ENDING and len(word) > _LONG and ending.isalpha()


def _has_other_sign(text: str, start: int, end: int) -> bool:
    """Return whether a sign next to a mention makes another option of it: "> 5 mm" is not "5 mm"."""
    is_compared = text[:start].rstrip()[-1:] in set(_COMPARING) and text[start] not in _COMPARING
    return is_compared or re.match(r"[+-](?![\w+-])", text[end : end + 2]) is not None


def _is_within(text: str, start: int, end: int) -> bool:
    """Return whether a word such as "no" is part of a sentence, and no answer: "shows no fracture", "no doubt"."""
    return start > 0 and text[start:end] in _bare_words() and re.match(r" [^\W\d_]", text[end : end + 2]) is not None


@lru_cache(maxsize=1)
def _bare_words() -> frozenset[str]:
    words = (folded(word) for role in ("yes", "no", "maybe", "not", "none") for word in words_of(role))
    return frozenset(word for word in words if " " not in word)


_VERBS = "is and or but because than final not not_after"
_AFTER_LETTER = f"{_VERBS} correct wrong choose likely"
_BEFORE_LETTER = f"{_AFTER_LETTER} answer option"
_JOINED = r"[^\W\u0e00-\u0eff\u1100-\u11ff\u3040-\ud7ff]"  # letters, but for scripts in which Latin letters stand alone
_OPENED = re.compile(rf"(?<!{_JOINED})(?<!['’°.-])(?<![\w)][(\[])[(\[<\"']*\Z")
_CLOSED = re.compile(rf"[)\]>\"']{{0,3}}(?!{_JOINED}|['’]|-\w|&\w|\.[a-zA-Z0-9](?!\w))")
_LINE = 80  # characters around a letter that are looked at
_SHORT_WORDS = "AIEOÉÀ"
LABEL_GAP = re.compile(r"[\"')\]]{0,2}\s*[.:)\],=|–—-]?\s*[\"'(\[]{0,2}")  # "B. text", "B (text)", "B | text"
_ASIDE_GAP = re.compile(r"[\"']?\s*")  # "text (B)"


@lru_cache(maxsize=64)
def _capital_pattern(count: int) -> re.Pattern[str]:
    if count > _ALPHABET:
        letters = "|".join(letter(index) for index in reversed(range(count)))
        return re.compile(rf"(?<!{_JOINED})(?:{letters})(?!{_JOINED})")
    return re.compile(rf"[A-{letter(count - 1)}](?!{_JOINED})(?<!{_JOINED}.)")


@lru_cache(maxsize=64)
def _small_pattern(count: int) -> re.Pattern[str]:
    """Return a pattern of small letters in brackets, at the beginning or the end of a line, or glued to a number."""
    last = letter(min(count, _ALPHABET) - 1)
    small = f"[a-{last.lower()}]"
    return re.compile(
        rf"[\s\"'(\[](?:(?<=[(\[])(?<![\w)].)(?P<bracketed>{small})[)\]]|"
        rf"(?<=\n)\W{{0,8}}(?P<first>{small})(?=[):]|\.(?!\w)|\s*\(|\W*$)|"
        rf"(?<=[\s\"'])(?P<last>{small})(?=[\").!]*[ \t]*$|[:)]\s)|"
        rf"(?<=\n)\d{{1,3}}(?P<glued>[A-{last}])(?=[.)]\s))",
        re.MULTILINE,
    )


def label_mentions(text: str, options: OptionSet, languages: tuple[str, ...]) -> list[Mention]:
    """Return mentions of options by their label, without letters that are part of a name."""
    if not len(options):
        return []
    spans = []
    for match in _capital_pattern(len(options)).finditer(text):
        start, end = match.span()
        opened = _OPENED.search(text, max(start - 3, 0), start)
        closed = _CLOSED.match(text, end)
        if opened is None or closed is None:
            continue
        own = options.words[options.letters[match[0]]][:1]
        is_bare = not (opened[0] or closed[0])
        if not is_bare or not (_is_named(text, start, end, languages) or _is_word(text, start, end, own, languages)):
            spans.append((opened.start(), closed.end(), match[0]))
    for match in _small_pattern(len(options)).finditer(f"\n{text}"):
        kind = match.lastgroup or ""
        start = match.start(kind) - 1
        if kind == "last":
            line = text[max(text.rfind("\n", 0, start) + 1, start - _LINE) : start]
            is_label = pattern_of("answer option", languages).search(line) is not None
        else:
            own = options.words[options.letters[match[kind].upper()]][:1]
            after = text[match.end() - 1 : match.end() - 1 + _LINE]
            is_label = kind == "glued" or not _goes_on(after, own, kind == "first")
        if is_label:
            spans.append((start, match.end() - 1, match[kind].upper()))
    return [Mention(frozenset({options.letters[name]}), start, end, True, False) for start, end, name in sorted(spans)]


def _is_named(text: str, start: int, end: int, languages: tuple[str, ...]) -> bool:
    """Return whether a word next to a letter makes a name of it, as in "hepatitis B" and "B型"."""
    named = pattern_of("named", languages)
    near = start - 1 if text[start - 1 : start] == " " else start
    if any(match.end() >= near for match in named.finditer(text, max(start - _LINE, 0), start)):
        return True
    after = named.match(text, end)
    return after is not None and not after[0].isascii()


def _goes_on(after: str, own: tuple[str, ...], is_first: bool) -> bool:
    """Return whether a small letter numbers a part of the sentence: "(a) large", "d. The correct number"."""
    match = re.match(r"\.\s*(?=\w)" if is_first else r"\s+(?=[a-z])", after)
    rest = folded(after[match.end() :]) if match else ""
    return match is not None and not (own and rest.startswith(own[0])) and not pattern_of("and or because").match(rest)


def _is_word(text: str, start: int, end: int, own: tuple[str, ...], languages: tuple[str, ...]) -> bool:
    """Return whether a capital is a word or part of a name, as in "A normal brain", "E. coli", "B cells" and "N/A"."""
    after = text[end : end + _LINE]
    if text[start - 1 : start] == "/" and not re.search(r"(?<![A-Za-z])[A-J][)\]]?/$", text[max(start - 4, 0) : start]):
        return True
    if own and folded(after).lstrip(". ").startswith(own[0]):
        return False
    if re.match(r"\.\s?[a-z]{3}", after) or (text[start:end] == "I" and re.match(r",? [a-z]", after)):
        return True
    is_followed = re.match(r" (?![A-Z]\W*$)[^\W_]", after) and (text[start:end] in _SHORT_WORDS or after[1].islower())
    if not is_followed or not words_of("is", languages):
        return False
    around = pattern_of(_BEFORE_LETTER, languages)
    before = text[max(start - _LINE, 0) : start].rstrip(" ")
    follows = before.endswith((":", "=")) or any(match.end() == len(before) for match in around.finditer(before))
    after_letter = _VERBS if text[start:end] in _SHORT_WORDS else _AFTER_LETTER
    follows = follows and text[start:end].lower() not in words_of("article", languages)
    return not follows and pattern_of(after_letter, languages).match(text, end + 1) is None


def option_mentions(text: str, options: OptionSet, languages: tuple[str, ...]) -> list[Mention]:
    """Return all mentions of options in order; a label next to its text is one mention."""
    of_texts = text_mentions(text, options)
    spans = [(mention.start, mention.end) for mention in of_texts]
    labels = [
        label
        for label in label_mentions(text, options, languages)
        if not any(start <= label.start and label.end <= end for start, end in spans)
    ]
    mentions = join_mentions(text, labels, of_texts)
    return [_with_text(text, mention, options) if mention.is_label else mention for mention in mentions]


def join_mentions(text: str, labels: Sequence[Mention], of_texts: Sequence[Mention]) -> list[Mention]:
    """Return mentions by label and by text in order; a label next to a text is one mention with it."""
    mentions: list[Mention] = []
    for mention in sorted([*of_texts, *labels], key=lambda mention: (mention.start, not mention.is_label)):
        last = mentions[-1] if mentions else None
        if last and last.is_label != mention.is_label and last.has_text != mention.has_text:
            gap = text[last.end : mention.start]
            follows = LABEL_GAP if last.is_label else _ASIDE_GAP
            bracketed = last.is_label or text[mention.start] in "(["
            if follows.fullmatch(gap) and bracketed:
                options_named = last.options | mention.options
                mentions[-1] = Mention(options_named, last.start, mention.end, True, True)
                continue
        mentions.append(mention)
    return mentions


def _with_text(text: str, mention: Mention, options: OptionSet) -> Mention:
    """Extend a label over the text of its option, of which some words are left out or written otherwise."""
    own = options.words[min(mention.options)]
    if mention.has_text or len(own) < 2:
        return mention
    gap = LABEL_GAP.match(text, mention.end)
    start = gap.end() if gap and "\n" not in gap[0] else mention.end
    near = text[start : start + len(" ".join(own)) + _LINE].partition("\n")[0]
    tokens = tokens_of(folded(near))[: len(own) + 2]
    own_tokens = [token for token in tokens if any(same_word(token.word, word) for word in own)]
    if 2 * len(own_tokens) <= len(own):
        return mention
    return mention._replace(end=start + own_tokens[-1].end, has_text=True)


def whole_option(text: str, options: OptionSet) -> int | None:
    """Return the option that is all of a text: by its letter, by its text, or by both."""
    if len(text) > options.longest + _LINE:
        return None
    stripped = text.strip(" \t\n.,:;!()[]<>\"'*`")
    if stripped.upper() in options.letters:
        return options.letters[stripped.upper()]
    label, separator, rest = stripped.partition(stripped[1:2] if stripped[1:2] in tuple(".:)") else "\n")
    index = options.letters.get(label.upper())
    if separator and index is not None and options.written[index].casefold() == rest.strip().casefold():
        return index
    words = words_in(text)
    matching = [index for index, own in enumerate(options.words) if own and own == words]
    return matching[0] if len(matching) == 1 else None
