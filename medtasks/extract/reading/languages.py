"""Words of each language by their role in a reply, from ``words.toml``, and the languages of a text.

The roles, and how an entry is written, are explained at the top of that file. Careful extractors have no words of
their own: they ask for the signals in a text, or for the pattern of a role, in the languages of the text they read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from typing import NamedTuple

from medtasks.errors import unknown_name
from medtasks.home import packaged_facts

_ANY = "und"  # block of marks that belong to no language
# To Python, vowel signs of Indian scripts end a word. Ignoring case, ranges of characters take long to compile.
_WORD_CHARACTER = r"(?-i:[\w\u0300-\u036f\u0900-\u0963\u0966-\u0dff])"
_WITHOUT_BLANKS = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_LETTERS = re.compile(r"[^\W\d_]+")
_GAP = re.compile(r" \.\.\. |\* ")
_KANA = re.compile("[\u3040-\u30ff]")
_SCRIPTS = (
    (_KANA, ("ja",)),
    (re.compile("[\uac00-\ud7af]"), ("ko",)),
    (re.compile("[\u4e00-\u9fff]"), ("zh", "ja")),
    (re.compile("[\u0370-\u03ff]"), ("el",)),
    (re.compile("[\u0400-\u04ff]"), ("ru", "uk")),
    (re.compile("[\u0590-\u05ff]"), ("he",)),
    (re.compile("[\u0600-\u06ff]"), ("ar", "fa")),
    (re.compile("[\u0900-\u097f]"), ("hi",)),
    (re.compile("[\u0980-\u09ff]"), ("bn",)),
    (re.compile("[\u0e00-\u0e7f]"), ("th",)),
)
_LETTERS_OF = {"uk": re.compile("[іїєґ]"), "fa": re.compile("[پچژگ]")}  # that no other language of the script has


class Signal(NamedTuple):
    """Words of a text that have a role."""

    start: int
    end: int
    roles: frozenset[str]


@cache
def _words() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the entries by language and role."""
    blocks = packaged_facts("medtasks.extract.reading", "words")
    return {
        language: {role: tuple(words.split(", ")) for role, words in block.items()}
        for language, block in blocks.items()
    }


def all_languages() -> tuple[str, ...]:
    """Return the languages that have words, as two-letter codes."""
    return tuple(language for language in _words() if language != _ANY)


def known_language(name: object, place: str = "") -> str:
    """Return the name of a language that has words, or raise UnknownName, which tells where it is written."""
    if name not in all_languages():
        raise unknown_name(f"language{place}", str(name), all_languages())
    return str(name)


def words_of(role: str, languages: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the entries of a role, as written in the file, in some languages or in all."""
    blocks = _words()
    entries = (blocks[language].get(role, ()) for language in (_ANY, *(languages or all_languages())))
    return tuple(dict.fromkeys(entry for of_language in entries for entry in of_language))


@cache
def pattern_of(roles: str, languages: tuple[str, ...] = ()) -> re.Pattern[str]:
    """Return a pattern of all words of one or several roles.

    Args:
        roles: Names of roles, separated by blanks.
        languages: As :func:`languages_of` returns them; all languages if empty.

    Returns:
        A pattern that ignores case, never matches an empty text, and finds the longest of several phrases.
    """
    return re.compile(_alternatives(_roles_by_entry(roles, languages)), re.IGNORECASE)


@cache
def _roles_by_entry(roles: str, languages: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Return the roles that each entry has, out of some."""
    by_entry: dict[str, frozenset[str]] = {}
    for role in roles.split():
        for entry in words_of(role, languages):
            by_entry[entry.lower()] = by_entry.get(entry.lower(), frozenset()) | {role}
    return by_entry


def _alternatives(entries: Iterable[str]) -> str:
    """Return a pattern of entries, grouped by their first character, which is faster than a plain list."""
    groups: dict[tuple[bool, str], list[str]] = defaultdict(list)
    for entry in sorted(entries, key=len, reverse=True):
        first = entry.lstrip("*")[0]
        begins_inside = entry.startswith("*") or re.match(rf"{_WITHOUT_BLANKS}|\W", first)
        groups[not begins_inside, first].append(_ending(entry))
    of_words = [f"{first}(?:{'|'.join(endings)})" for (bounded, first), endings in groups.items() if bounded]
    inside = [
        f"{re.escape(first)}(?:{'|'.join(endings)})" for (bounded, first), endings in groups.items() if not bounded
    ]
    bounded = [rf"(?<!{_WORD_CHARACTER})(?:{'|'.join(of_words)})"] if of_words else []
    return "|".join([*bounded, *inside]) or r"(?!)"


def _ending(entry: str) -> str:
    """Return the pattern of an entry after its first character."""
    phrase = entry.strip("*")
    escaped = re.escape(phrase[1:]).replace(r"\ \.\.\.\ ", r"(?:\s+\S+){0,5}?\s+").replace(r"\ ", r"\s+")
    escaped = escaped.replace(r"\*", rf"{_WORD_CHARACTER}*")
    if entry.endswith("*"):
        return rf"{escaped}{_WORD_CHARACTER}*"
    ends_inside = re.search(rf"(?:{_WITHOUT_BLANKS}|[^\w\u0900-\u0dff])$", phrase)
    return escaped if ends_inside else rf"{escaped}(?!{_WORD_CHARACTER})"


def signals_in(lower: str, roles: str, languages: tuple[str, ...]) -> list[Signal]:
    """Return the words of a lower-case text that have one of some roles, in order."""
    pattern = _signal_pattern(roles, languages)
    return [
        Signal(*match.span(), _roles_of(match[0], roles, languages)) for match in pattern.finditer(lower) if match[0]
    ]


@cache
def _signal_pattern(roles: str, languages: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_alternatives(_roles_by_entry(roles, languages)))


@lru_cache(maxsize=8192)
def _roles_of(words: str, roles: str, languages: tuple[str, ...]) -> frozenset[str]:
    """Return the roles of words that an entry matches: of the entry itself, or of the longest that they begin with."""
    by_entry = _roles_by_entry(roles, languages)
    for end in range(len(words), 0, -1):
        for entry in (words[:end], f"{words[:end]}*", f"*{words[:end]}", f"*{words[:end]}*"):
            if entry in by_entry:
                return by_entry[entry]
    return frozenset[str]().union(
        *(
            of_entry
            for entry, of_entry in by_entry.items()
            if _GAP.search(entry) and words.startswith(_GAP.split(entry)[0])
        )
    )


@cache
def _latin_languages() -> tuple[str, ...]:
    scripted = {language for _, languages in _SCRIPTS for language in languages}
    return tuple(language for language in all_languages() if language not in scripted)


@cache
def _languages_by_word() -> Mapping[str, tuple[str, ...]]:
    """Return the Latin languages that have a word in any role."""
    languages: dict[str, tuple[str, ...]] = {}
    for language in _latin_languages():
        for word in {entry for entries in _words()[language].values() for entry in entries}:
            languages[word] = (*languages.get(word, ()), language)
    return languages


def languages_of(text: str, named: Collection[str] = ()) -> tuple[str, ...]:
    """Return the languages of a text, in the order of the file: those of its scripts, told apart by their words.

    Args:
        text: Any text; of one in Latin letters without a known word all languages with these letters are returned.
        named: Languages that the task names. Replies in others, apart from English, are not expected.
    """
    by_word = _languages_by_word()
    # a single capital is the letter of an option
    written = {word.lower() for word in set(_LETTERS.findall(text)) if len(word) > 1 or word.islower()}
    scores = Counter(language for word in written & by_word.keys() for language in by_word[word])
    most = max(scores.values(), default=0)
    present = {language for language, score in scores.items() if 2 * score > most}
    if not text.isascii():
        present |= _by_script(text)
    expected = {*named, "en"} if named else {*(present or _latin_languages())}
    return tuple(language for language in all_languages() if language in ((present & expected) or expected))


def _by_script(text: str) -> set[str]:
    present = {language for script, languages in _SCRIPTS if script.search(text) for language in languages}
    if {"zh", "ja"} <= present:
        present.discard("zh" if _KANA.search(text) else "ja")
    return present - {language for language, letters in _LETTERS_OF.items() if not letters.search(text)}
