"""The option that a reply means without naming it by letter or by its whole text.

In this order: its position ("the third option", "2", a letter of another script), an option for "none" or "all" of the
others, the one option whose words all occur, the one that has words of its own in the reply, and what a statement says
about a yes/no question. Replies with a denial are read for yes or no alone.
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import verdicts, yes_no
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.reading.languages import pattern_of, words_of
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
    text: str, options: OptionSet, sample: Sample, languages: tuple[str, ...]
) -> int | Reason:
    """Return the index of the option that a reply without any mention means, or why there is none."""
    if len(words_in(text)) <= _FEW_WORDS:
        position = position_called(text, options, languages)
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


def position_called(text: str, options: OptionSet, languages: tuple[str, ...]) -> int | None:
    """Return the option at the position that is all a short reply says, apart from words for an answer."""
    if all(option[:1].isdigit() for option in options.texts):
        return None
    left = _words_left(text, languages)
    if len(left) == 1 and left[0].isdigit():
        return _among(int(left[0]) - 1, options)
    joined = f" {' '.join(words_in(text))}"
    for language in languages:
        letters = [" ".join(words_in(entry)) for entry in words_of("letters", (language,))]
        if len(left) == 1 and left[0] in letters and left[0] not in _LOOK_ALIKE:
            return _among(letters.index(left[0]), options)
        place = _ordinal(joined, language)
        if place is not None and pattern_of("option", languages).search(text):
            return _among(place, options)
    return None


def _ordinal(joined: str, language: str) -> int | None:
    """Return the place that an ordinal of a language names in words joined by blanks, from 0."""
    for place, entry in enumerate(words_of("first", (language,))):
        if f" {' '.join(words_in(entry))}" in joined:
            return place
    return None


def _among(place: int, options: OptionSet) -> int | None:
    return place if 0 <= place < len(options) else None


def _words_left(text: str, languages: tuple[str, ...]) -> list[str]:
    """Return the words of a text without those around an answer."""
    rest = pattern_of("answer option correct choose final article", languages).sub(" ", text)
    return [numeral(word) for word in words_in(rest)]


def quantity_option(
    text: str, options: OptionSet, roles: tuple[str, ...] = ("none", "all")
) -> int | None:
    """Return the option for none or for all of the others, if a text says so."""
    for role in roles:
        matching = [
            index for index, option in enumerate(options.texts) if pattern_of(role).match(option)
        ]
        if len(matching) == 1 and pattern_of(role).search(text):
            return matching[0]
    return None


def _yes_or_no(text: str, options: OptionSet, sample: Sample) -> int | None:
    """Return the option that a statement chooses of options of which one says yes and one no."""
    of_verdict: dict[str, int] = {}
    for index, option in enumerate(options.texts):
        for verdict in verdicts(option):
            if verdict in of_verdict:
                return None
            of_verdict[verdict] = index
    if not {"yes", "no"} <= of_verdict.keys():
        return None
    return of_verdict.get(str(yes_no(text, sample.question, sample.languages).value))


def _by_words(text: str, options: OptionSet, languages: tuple[str, ...]) -> int | Reason:
    """Return the option whose words all occur, or that alone begins with all of a reply, or by words of its own."""
    words = _words_left(_PRONOUN.sub(" ", text), languages)
    of_options = [[numeral(word) for word in own] for own in options.words]
    begun = [index for index, own in enumerate(of_options) if words and own[: len(words)] == words]
    if begun:
        return _one(begun)
    if pattern_of("not wrong not_after", languages).search(text):
        return Reason.NO_MATCH
    whole = [index for index, own in enumerate(of_options) if own and {*words}.issuperset(own)]
    return whole[0] if len(whole) == 1 else _by_parts({*words}, of_options, options)


def _by_parts(words: set[str], of_options: list[list[str]], options: OptionSet) -> int | Reason:
    """Return the option of which most words that no other option has occur, among few others."""
    having = []
    for index, parts in enumerate(options.parts):
        occurring = sum(_occurs(part, words) for part in parts)
        foreign = sum(not _occurs(word, {*of_options[index]}) for word in words if is_content(word))
        is_enough = (
            2 * occurring > len(parts)
            or (2 * occurring == len(parts) and foreign < _FOREIGN)
            or not foreign
        )
        if occurring and is_enough:
            having.append(index)
    return _one(having) if having else Reason.NO_MATCH


def _one(indices: list[int]) -> int | Reason:
    return indices[0] if len(indices) == 1 else Reason.AMBIGUOUS


def _occurs(part: str, words: set[str]) -> bool:
    """Return whether a word occurs, also with an ending or in a compound."""
    return any(same_word(part, word) or (len(part) > 4 and part in word) for word in words)
