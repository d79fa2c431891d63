"""Words of each language by their role in a reply, from ``words.toml``, and the languages of a text.

The roles, and how an entry is written, are explained at the top of that file. Careful extractors have no words of
their own: they ask for the signals in a text, or for the pattern of a role, in the languages of the text they read.
No language may be guessed from a single word that others share: a text that does not tell has all of them.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from medtasks.errors import unknown_name
from medtasks.home import packaged_facts

Languages = tuple[str, ...]
"""Languages of a text by two-letter codes, as :func:`languages_of` returns them."""

Words = tuple[str, ...]
"""Words of a text, in one spelling."""

ENGLISH: Languages = ("en",)
_ANY = "und"  # block of marks that belong to no language
# To Python, vowel signs of Indian scripts end a word. Ignoring case, ranges of characters take long to compile.
_WORD_CHARACTER = r"(?-i:[\w\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
# In scripts with blanks
_BOUNDED = r"[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[\u0900-\u0dff]"
_LETTERS = re.compile(r"[^\W\d_]+")
_DOTTED_I = re.compile(r"İ(?=\w)")  # alone it is no numeral
_FEW = 2  # languages of a text; the patterns of each combination take compiling


class Signal(NamedTuple):
    """Words of a text that have a role."""

    start: int
    end: int
    roles: frozenset[str]


@cache
def _words() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the entries by language and role."""
    entries = {}
    for language, block in packaged_facts("medtasks.extract.reading", "words").items():
        entries[language] = {role: tuple(words.split(", ")) for role, words in block.items()}
    return entries


def all_languages() -> Languages:
    """Return the languages that have words, as two-letter codes."""
    return tuple(language for language in _words() if language != _ANY)


def known_language(name: object, location: str = "") -> str:
    """Return the name of a language that has words.

    Args:
        name: A two-letter code, as a user wrote it.
        location: Where it is written, for the message, with a blank before.

    Raises:
        UnknownName: The language has no words.
    """
    if name not in all_languages():
        raise unknown_name(f"language{location}", str(name), all_languages())
    return str(name)


def words_of(role: str, languages: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the entries of a role, as written in the file, in some languages or in all.

    Example:
        >>> words_of("yes", ("de",))[0]
        'ja'
    """
    entries: dict[str, None] = {}
    for language in (_ANY, *(languages or all_languages())):
        entries |= dict.fromkeys(_words()[language].get(role, ()))
    return tuple(entries)


@cache
def pattern_of(roles: str, languages: Languages = ()) -> re.Pattern[str]:
    """Return a pattern of all words of one or several roles.

    Args:
        roles: Names of roles, separated by blanks.
        languages: As :func:`languages_of` returns them; all languages if empty.

    Returns:
        A pattern that ignores case, never matches an empty text, and finds the longest of several phrases.
    """
    entries = set[str]()
    for role in roles.split():
        entries.update(map(str.lower, words_of(role, languages)))
    # Endings by first character, which is faster than a plain list.
    bounded: dict[str, list[str]] = defaultdict(list)
    inside: dict[str, list[str]] = defaultdict(list)
    for entry in sorted(entries, key=len, reverse=True):
        phrase = entry.strip("*")
        begins_inside = entry.startswith("*") or not re.match(_BOUNDED, phrase)
        groups = inside if begins_inside else bounded
        ending = re.escape(phrase[1:])
        ending = ending.replace(r"\ \.\.\.\ ", r"(?:\s+\S+){0,5}?\s+")
        ending = ending.replace(r"\ ", r"\s+")
        ending = ending.replace(r"\*", f"{_WORD_CHARACTER}*")
        if entry.endswith("*"):
            ending += f"{_WORD_CHARACTER}*"
        elif re.match(_BOUNDED, phrase[-1]):
            ending += f"(?!{_WORD_CHARACTER})"
        groups[phrase[0]].append(ending)
    at_boundary = f"(?<!{_WORD_CHARACTER})(?:{_union_pattern(bounded)})"
    return re.compile(f"{at_boundary}|{_union_pattern(inside)}", re.IGNORECASE)


def _union_pattern(groups: Mapping[str, Iterable[str]]) -> str:
    """Return a pattern of endings by first character."""
    parts = [f"{re.escape(first)}(?:{'|'.join(endings)})" for first, endings in groups.items()]
    return "|".join(parts) or "(?!)"


def lower_case(text: str) -> str:
    """Return a text in lower case, of the same length."""
    return _DOTTED_I.sub("i", text).replace("İ", "ı").lower()


@lru_cache(maxsize=4)  # a text is looked at for labels and for statements
def signals_in(
    text: str,
    roles: str,
    languages: Languages,
) -> list[Signal]:
    """Return the words of a text that have one of some roles, in order.

    Args:
        text: Any text.
        roles: Names of roles, separated by blanks.
        languages: As :func:`languages_of` returns them; all languages if empty.
    """
    signals = []
    for match in _lower_case_pattern(roles, languages).finditer(lower_case(text)):
        signals.append(Signal(*match.span(), _roles_of(match[0], roles, languages)))
    return signals


@cache
def _lower_case_pattern(roles: str, languages: Languages) -> re.Pattern[str]:
    """Return :func:`pattern_of` for lower case alone, which is found faster."""
    return re.compile(pattern_of(roles, languages).pattern)


@lru_cache(maxsize=8192)
def _roles_of(
    words: str,
    roles: str,
    languages: Languages,
) -> frozenset[str]:
    """Return the roles of words as a whole, out of ``roles``, which are separated by blanks."""
    return frozenset(
        role for role in roles.split() if pattern_of(role, languages).fullmatch(words)
    )


@cache
def _scripts() -> Mapping[str, re.Pattern[str]]:
    """Return the letters that show a language, of languages that are not written in Latin ones."""
    scripts = {}
    for language, block in _words().items():
        if "script" in block:
            scripts[language] = re.compile(f"[{block['script'][0]}]")
    return scripts


@cache
def _languages_by_word() -> Mapping[str, Languages]:
    """Return the Latin languages that have a word in any role."""
    languages: dict[str, Languages] = {}
    for language in _latin_languages():
        for word in set[str]().union(*_words()[language].values()):
            languages[word] = (*languages.get(word, ()), language)
    return languages


@cache
def _latin_languages() -> Languages:
    """Return the languages that are written in Latin letters."""
    return tuple(language for language in all_languages() if language not in _scripts())


def languages_of(text: str, named: Collection[str] = ()) -> Languages:
    """Return the languages of a text, in the order of the file: those of its scripts, told apart by their words.

    Args:
        text: Any text; of one in Latin letters without a known word all languages with these letters are returned.
        named: Languages that the task names. Replies in others, apart from English, are not expected.
    """
    present = _by_words(text)
    if not text.isascii():
        present |= {language for language, script in _scripts().items() if script.search(text)}
    if "ja" in present:  # Chinese characters are used there
        present.discard("zh")
    if named:
        expected = {*named, "en"}
        present = (present & expected) or expected
    accepted = present or _latin_languages()
    return tuple(filter(accepted.__contains__, all_languages()))


def _by_words(text: str) -> set[str]:
    """Return the Latin languages of which a text has most words, or more than half as many."""
    by_word = _languages_by_word()
    words = set(_LETTERS.findall(text))
    # A single capital is the letter of an option.
    lower = {word.lower() for word in words if len(word) > 1 or word.islower()}
    scores = Counter[str]()
    for word in lower & by_word.keys():
        scores.update(by_word[word])
    most = max(scores.values(), default=0)
    return {language for language, score in scores.items() if 2 * score > most}


def few_languages_of(text: str, named: Collection[str] = ()) -> Languages:
    """Return :func:`languages_of` a text, or all languages if they are hardly told apart.

    Example:
        >>> few_languages_of("The answer is no.")
        ('en',)
    """
    languages = languages_of(text, named)
    return languages if len(languages) <= _FEW else all_languages()
