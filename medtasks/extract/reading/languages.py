"""Words of each language by their role in a reply, from ``words.toml``, and the languages of a text.

The roles, and how an entry is written, are explained at the top of that file. Careful extractors have no words of
their own: they ask for the pattern of a role in the languages of the text that they read.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from medtasks.home import packaged_facts

_WORD_CHARACTER = r"[\w\u0300-\u036f\u0900-\u0dff]"  # to Python, vowel signs of Indian scripts end a word
_WITHOUT_BLANKS = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_LATIN_WORD = re.compile(r"[^\W\d_]{2,}|\b[^\W\d_A-Z]\b")  # a single capital is the letter of an option
_SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "[\u3040-\u30ff]": ("ja",),
    "[\uac00-\ud7af]": ("ko",),
    "[\u4e00-\u9fff]": ("zh", "ja"),
    "[\u0370-\u03ff]": ("el",),
    "[\u0400-\u04ff]": ("ru", "uk"),
    "[\u0590-\u05ff]": ("he",),
    "[\u0600-\u06ff]": ("ar", "fa"),
    "[\u0900-\u097f]": ("hi",),
    "[\u0980-\u09ff]": ("bn",),
    "[\u0e00-\u0e7f]": ("th",),
}
_IN_SCRIPT = tuple((re.compile(f"{script}+"), languages) for script, languages in _SCRIPTS.items())
_LETTERS_OF = {"uk": re.compile("[іїєґ]"), "fa": re.compile("[پچژگ]")}  # that no other language of the script has


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
    return tuple(_words())


def words_of(role: str, languages: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the entries of a role, as written in the file, in some languages or in all."""
    blocks = _words()
    entries = (blocks[language].get(role, ()) for language in languages or blocks)
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
    entries = {entry for role in roles.split() for entry in words_of(role, languages)}
    longest_first = sorted(entries, key=lambda entry: (-len(entry), entry))
    return re.compile("|".join(map(_entry_pattern, longest_first)) or r"(?!)", re.IGNORECASE)


def _entry_pattern(entry: str) -> str:
    phrase = entry.strip("*")
    escaped = re.escape(phrase).replace(r"\ \.\.\.\ ", r"(?:\s+\S+){0,5}?\s+").replace(r"\ ", r"\s+")
    begins_inside = entry.startswith("*") or re.match(rf"{_WITHOUT_BLANKS}|\W", phrase)
    before = "" if begins_inside else rf"(?<!{_WORD_CHARACTER})"
    ends_inside = re.search(rf"(?:{_WITHOUT_BLANKS}|[^\w\u0900-\u0dff])$", phrase)
    after = "" if ends_inside else rf"(?!{_WORD_CHARACTER})"
    return before + escaped + (rf"{_WORD_CHARACTER}*" if entry.endswith("*") else after)


@cache
def _languages_by_word() -> Mapping[str, tuple[str, ...]]:
    """Return the languages that have a word in any role."""
    languages: dict[str, tuple[str, ...]] = {}
    for language, roles in _words().items():
        for word in {entry for entries in roles.values() for entry in entries}:
            languages[word] = (*languages.get(word, ()), language)
    return languages


@cache
def _latin_languages() -> tuple[str, ...]:
    scripted = {language for languages in _SCRIPTS.values() for language in languages}
    return tuple(language for language in all_languages() if language not in scripted)


def languages_of(text: str, named: Collection[str] = ()) -> tuple[str, ...]:
    """Return the languages of a text, in the order of the file: those of its scripts, told apart by frequent words.

    Args:
        text: Any text; of one without a known word all languages of its scripts are returned.
        named: Languages that the task names. Replies in others, apart from English, are not expected.
    """
    present = set() if text.isascii() else _by_script(text)
    words = Counter(map(str.lower, _LATIN_WORD.findall(text)))
    if any(len(word) > 1 for word in words if word.isascii()) or not present:
        present.update(_by_words(words))
    narrowed = present & {*named, "en"} if named else present
    return tuple(language for language in all_languages() if language in (narrowed or {*named, "en"}))


def _by_script(text: str) -> set[str]:
    present: set[str] = set()
    for script, languages in _IN_SCRIPT:
        if script.search(text):
            present.update(languages)
    if {"zh", "ja"} <= present:
        present.discard("zh" if _IN_SCRIPT[0][0].search(text) else "ja")
    return present - {language for language, letters in _LETTERS_OF.items() if not letters.search(text)}


def _by_words(counts: Mapping[str, int]) -> set[str]:
    """Return the Latin languages with most frequent words, and those near them; all if there is no such word."""
    by_word, scores = _languages_by_word(), Counter[str]()
    for word in counts.keys() & by_word.keys():
        for language in by_word[word]:
            scores[language] += counts[word]
    latin = {language: scores[language] for language in _latin_languages()}
    most = max(latin.values())
    return {language for language, score in latin.items() if 2 * score > most or most == 0}
