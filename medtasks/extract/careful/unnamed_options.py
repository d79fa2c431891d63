"""The option that a reply means without naming it by letter or by its whole text.

In this order: its position ("the third option", "2", a letter of another script), an option for "none" or "all" of the
others, the one option whose words all occur, the one that has words of its own in the reply, and what a statement says
about a yes/no question. Replies with a denial are read for yes or no alone.
"""

import re
from collections.abc import Collection

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import verdicts, yes_no
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.reading.languages import Languages, pattern_of, words_of
from medtasks.extract.reading.option_mentions import (
    OptionSet,
    is_content,
    numeral,
    same_word,
    words_in,
)

_FEW_WORDS = 8
_FOREIGN = 3  # words that are not the option's
_PRONOUN = re.compile(
    r"(?:^|(?<=[.,;!?]\s)|(?<=\bso\s)|(?<=\band\s)|(?<=\bbut\s))I(?=['’]|\s+[a-z])"
)
_LOOK_ALIKE = frozenset("весор")  # Cyrillic letters that are other Latin ones


def unnamed_option(
    text: str,
    options: OptionSet,
    sample: Sample,
    languages: Languages,
) -> int | Reason:
    """Return the index of the option that a reply without any mention means, or why there is none."""
    if len(words_in(text)) <= _FEW_WORDS:
        position = position_in_words(text, options, languages)
        if position is None:
            position = quantity_option(text, options)
        if position is not None:
            return position
        if pattern_of("none all", languages).search(text):
            return Reason.REFUSED
    if pattern_of("refusal", languages).search(text):
        return Reason.REFUSED
    of_statement = _yes_or_no(text, options, sample)
    if of_statement is not None:
        return of_statement
    return _by_words(text, options, languages)


def position_in_words(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> int | None:
    """Return the option at the position that is all a short reply says, apart from words for an answer.

    Args:
        text: The reply.
        options: Options of the question. If all begin with a digit, no number is a position.
        languages: Languages of the reply.

    Returns:
        Index of the option, None if the reply says no position or one beyond the options.
    """
    if all(option[:1].isdigit() for option in options.texts):
        return None
    position = _position(text, languages)
    return position if position is not None and 0 <= position < len(options) else None


def _position(text: str, languages: Languages) -> int | None:
    """Return the position that a text says by a number, a letter of another script, or an ordinal.

    It counts from 0, may lie beyond the options, and is None if the text says none.
    """
    content = _words_of_content(text, languages)
    name = content[0] if len(content) == 1 else ""
    if name.isdigit():
        return int(name) - 1
    joined = f" {' '.join(words_in(text))}"
    for language in languages:
        letters = _entries("letters", language)
        if name in letters and name not in _LOOK_ALIKE:
            return letters.index(name)
        for position, ordinal in enumerate(_entries("first", language)):
            if f" {ordinal}" in joined and pattern_of("option", languages).search(text):
                return position
    return None


def _entries(role: str, language: str) -> list[str]:
    """Return the entries of a role in a language, with their words joined by blanks."""
    return [" ".join(words_in(entry)) for entry in words_of(role, (language,))]


def _words_of_content(text: str, languages: Languages) -> list[str]:
    """Return the words of a text without those around an answer."""
    around = pattern_of("answer option correct choose final article", languages)
    return list(map(numeral, words_in(around.sub(" ", text))))


def quantity_option(
    text: str,
    options: OptionSet,
    roles: tuple[str, ...] = ("none", "all"),
) -> int | None:
    """Return the option for none or for all of the others, if a text says so."""
    for role in roles:
        pattern = pattern_of(role)
        matching = [
            index for index, option in enumerate(options.texts) if pattern.match(option)
        ]
        if len(matching) == 1 and pattern.search(text):
            return matching[0]
    return None


def _yes_or_no(
    text: str,
    options: OptionSet,
    sample: Sample,
) -> int | None:
    """Return the option that a statement chooses where one option says yes and one says no.

    None if the options are others, if several say the same, or if the text answers neither.
    """
    of_verdict = {}
    for index, option in enumerate(options.texts):
        for verdict in verdicts(option):
            if verdict in of_verdict:
                return None
            of_verdict[verdict] = index
    if not {"yes", "no"} <= of_verdict.keys():
        return None
    return of_verdict.get(str(yes_no(text, sample.question, sample.languages).value))


def _by_words(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> int | Reason:
    """Return the option whose words all occur, or that alone begins with all of a reply, or by words of its own."""
    words = _words_of_content(_PRONOUN.sub(" ", text), languages)
    names = [list(map(numeral, name)) for name in options.words]
    beginning = [
        index for index, name in enumerate(names) if words and name[: len(words)] == words
    ]
    if beginning:
        return only_option(beginning)
    if pattern_of("not wrong not_after", languages).search(text):
        return Reason.NO_MATCH
    spoken = set(words)
    whole = [index for index, name in enumerate(names) if name and spoken.issuperset(name)]
    return whole[0] if len(whole) == 1 else _by_parts(spoken, names, options)


def _by_parts(
    words: set[str],
    names: list[list[str]],
    options: OptionSet,
) -> int | Reason:
    """Return the option of which most words that no other option has occur, among few others."""
    content = list(filter(is_content, words))
    matching = []
    for index, parts in enumerate(options.parts):
        occurring = sum(_occurs(part, words) for part in parts)
        if not occurring:
            continue
        name = set(names[index])
        foreign = sum(not _occurs(word, name) for word in content)
        least = len(parts) if foreign < _FOREIGN else len(parts) + 1
        if 2 * occurring >= least or not foreign:
            matching.append(index)
    return only_option(matching) if matching else Reason.NO_MATCH


def only_option(indices: Collection[int]) -> int | Reason:
    """Return the index of an option that is the only one, or that several are ambiguous."""
    return next(iter(indices)) if len(indices) == 1 else Reason.AMBIGUOUS


def _occurs(part: str, words: set[str]) -> bool:
    """Return whether a word occurs, also with an ending or in a compound."""
    return any(same_word(part, word) or (len(part) > 4 and part in word) for word in words)
