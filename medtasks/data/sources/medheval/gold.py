"""Which option the published answer of a MedHEval question names.

Answers are texts: an option, its letter, both, a sentence, several options, or a remark that the image does not say.
A single option is taken where a careful reader would find it, and none where the answer names several, contradicts
itself or decides nothing. What had to be interpreted is flagged, so that it can be looked at.

Options are published as one text in one of several dialects: ``A. x, B. y``, ``A: x, B: y`` and ``A) x, B) y``, also
with semicolons or blanks between them; ``A, x; B, y``; and letters without any text, ``A, B, C``.
"""

import enum
import re
from collections.abc import Sequence
from string import ascii_uppercase

from medtasks.data.samples import letter as letter_of
from medtasks.data.sources.medheval.gold_reading import normalised, option_said, yes_or_no

YES_NO = ("Yes", "No")
_LETTERS = {"yes": "A", "no": "B"}


class Flag(enum.StrEnum):
    """What had to be interpreted, or could not be."""

    OPTIONS_WITHOUT_TEXT = "options_without_text"
    OPTIONS_UNPARSED = "options_unparsed"
    GOLD_INTERPRETED = "gold_interpreted"
    GOLD_SEVERAL = "gold_several"
    GOLD_CONTRADICTORY = "gold_contradictory"
    GOLD_UNRESOLVED = "gold_unresolved"


Resolved = tuple[str | None, tuple[Flag, ...]]

_MARKS = (".", ":", ")", ".:)")  # the first option's mark for all of them, before a mixture
_BARE = re.compile(r"\(?[A-Z]\)?(?:\s*[,;/]\s*\(?[A-Z]\)?)+\s*\.?")
_BARE_LETTER = re.compile(r"[A-Z]")
_AROUND = " \t\r\n,;"
_LETTER = re.compile(r"\(?([A-Z])\)?[.:]?")
_LABELLED = re.compile(r"\(?([A-Z])\)?\s*[.:),]\s*(.+)", re.DOTALL)
_LABEL = re.compile(r"(?<!\w)([A-Z])[.:)]")
_DECIDED = re.compile(r"(yes|no)\b\W*", re.IGNORECASE)
_ASKS = re.compile(r"\W*(?:is|are|was|were|does|do|did|can|could|has|have|will|would|should)\b", re.IGNORECASE)
_JOINED = re.compile(r"\b(?:and|or|plus)(?: the| an?)? \||\| (?:and|or|plus)\b")


def parsed_options(choices: str) -> list[str]:
    """Return the texts of the options in order; none where they cannot be told.

    Labels must be A, B, C, ... without a gap, and there must be at least two.

    Example:
        >>> parsed_options("A. Left, lower lobe, B. Right lobe")
        ['Left, lower lobe', 'Right lobe']
        >>> parsed_options("A, axial; B, sagittal")
        ['axial', 'sagittal']
        >>> parsed_options("A, B, C"), parsed_options("left or right")
        ([], [])
    """
    for marks in _MARKS:
        texts = _texts_at_labels(choices, rf"\s*[{re.escape(marks)}]\s*")
        if len(texts) > 1 and all(texts):
            return texts
    texts = _texts_at_labels(choices, r"\s*,\s*") if ";" in choices else []
    return texts if len(texts) > 1 and all(texts) else []


def bare_letters(choices: str) -> list[str]:
    """Return the letters of options that have no text; none for other dialects.

    Example:
        >>> bare_letters("A, B, C"), bare_letters("A. CT, B. MRI")
        (['A', 'B', 'C'], [])
    """
    letters = _BARE_LETTER.findall(choices) if _BARE.fullmatch(choices.strip()) else []
    return letters if letters == list(ascii_uppercase[: len(letters)]) else []


def _texts_at_labels(choices: str, mark: str) -> list[str]:
    """Cut a text at its labels A, B, C, ..., taking for each the first place behind the one before."""
    texts: list[str] = []
    start = -1
    position = 0
    for letter in ascii_uppercase:
        before = r"\s*\(?" if letter == "A" else r"(?:[,;]\s*|\s+)\(?"
        label = re.compile(before + letter + mark)
        found = label.match(choices) if letter == "A" else label.search(choices, position)
        if found is None:
            break
        if start >= 0:
            texts.append(choices[start : found.start()].strip(_AROUND))
        start = position = found.end()
    return [*texts, choices[start:].strip(_AROUND)] if start >= 0 else []


def resolve_yes_no(gold: str, question: str, choices: str) -> Resolved:
    """Return A for yes, B for no, or None, and what had to be interpreted.

    All texts are as published; sentences are understood as answers to the question, and some yes/no questions list
    ``A. Yes, B. No`` as choices.

    Example:
        >>> resolve_yes_no("yes", "Is it?", "")
        ('A', ())
        >>> resolve_yes_no("B. No", "Is it?", "")
        ('B', ())
        >>> resolve_yes_no("Cannot be determined", "Is it?", "")[0] is None
        True
    """
    text = gold.strip()
    listed = parsed_options(choices)
    if listed:
        chosen, flags = resolve_choice(text, listed)
        if Flag.GOLD_CONTRADICTORY in flags:
            return None, flags
        text = listed[ord(chosen) - ord("A")] if chosen and not flags else text
    labelled = _LABELLED.fullmatch(text)
    plain = _DECIDED.fullmatch(labelled[2].strip() if labelled else text)
    if plain:
        return _LETTERS[plain[1].casefold()], ()
    # "None" says no to "Is there an effusion?", and something else to "Which organ is enlarged?".
    value = yes_or_no(text, question) if _DECIDED.match(text) or _ASKS.match(question) else None
    return (_LETTERS[value], (Flag.GOLD_INTERPRETED,)) if value else (None, (Flag.GOLD_UNRESOLVED,))


def resolve_choice(gold: str, options: Sequence[str]) -> Resolved:
    """Return the letter of the one option that the published answer names, or None, and what had to be interpreted.

    Example:
        >>> [resolve_choice(gold, ["CT", "MRI"])[0] for gold in ("MRI", "B", "B: MRI")]
        ['B', 'B', 'B']
        >>> resolve_choice("A: MRI", ["CT", "MRI"])[0] is None
        True
    """
    text = gold.strip()
    equal = _equal(text, options)
    if len(equal) == 1:
        return letter_of(equal[0]), ()
    alone = _LETTER.fullmatch(text)
    if alone:
        known = ord(alone[1]) - ord("A") < len(options)
        return (alone[1], ()) if known else (None, (Flag.GOLD_UNRESOLVED,))
    labelled = _LABELLED.fullmatch(text)
    if labelled and ord(labelled[1]) - ord("A") < len(options):
        return _resolve_labelled(labelled[1], labelled[2], options)
    if _names_several(text, options):
        return None, (Flag.GOLD_SEVERAL,)
    said = option_said(text, options)
    return (None, (Flag.GOLD_UNRESOLVED,)) if said is None else (letter_of(said), (Flag.GOLD_INTERPRETED,))


def _resolve_labelled(letter: str, text: str, options: Sequence[str]) -> Resolved:
    equal = [letter_of(index) for index in _equal(text, options)]
    if letter in equal:
        return letter, ()
    if equal:
        return None, (Flag.GOLD_CONTRADICTORY,)
    others = {found for found in _LABEL.findall(text) if found != letter and ord(found) - ord("A") < len(options)}
    if others or _names_several(text, options):
        return None, (Flag.GOLD_SEVERAL,)
    contained = [letter_of(index) for index in _contained(text, options)[0]]
    if contained and letter not in contained:
        return None, (Flag.GOLD_CONTRADICTORY,)
    return letter, (Flag.GOLD_INTERPRETED,)


def _equal(text: str, options: Sequence[str]) -> list[int]:
    """Return the options that are the text, to the letter if there is one, else but for case and punctuation."""
    same = [index for index, option in enumerate(options) if option.casefold() == text.strip().casefold()]
    words = normalised(text)
    return same or [index for index, option in enumerate(options) if words and normalised(option) == words]


def _names_several(text: str, options: Sequence[str]) -> bool:
    """Return whether a text holds several options, or one that is joined to something else ("GI and IV contrast")."""
    found, rest = _contained(text, options)
    return len(found) > 1 or _JOINED.search(rest) is not None


def _contained(text: str, options: Sequence[str]) -> tuple[list[int], str]:
    """Return the options whose words stand in a text and not only inside a longer one, and the text with bars there."""
    rest = f" {normalised(text)} "
    found = []
    for index in sorted(range(len(options)), key=lambda index: -len(normalised(options[index]))):
        words = f" {normalised(options[index])} "
        if words.strip() and words in rest:
            found.append(index)
            rest = rest.replace(words, " | ")
    return sorted(found), rest
