"""Options of MedHEval's multi-choice questions, which are published as one text in one of several dialects.

``A. x, B. y``, ``A: x, B: y`` and ``A) x, B) y``, also with semicolons or blanks between them; ``A, x; B, y``; and
letters without any text, ``A, B, C``.
"""

import re
from string import ascii_uppercase

_MARKS = (".", ":", ")", ".:)")  # the first option's mark for all of them, before a mixture
_BARE = re.compile(r"\(?[A-Z]\)?(?:\s*[,;/]\s*\(?[A-Z]\)?)+\s*\.?")
_BARE_LETTER = re.compile(r"[A-Z]")
_AROUND = " \t\r\n,;"


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
        texts = _labelled(choices, rf"\s*[{re.escape(marks)}]\s*")
        if len(texts) > 1 and all(texts):
            return texts
    texts = _labelled(choices, r"\s*,\s*") if ";" in choices else []
    return texts if len(texts) > 1 and all(texts) else []


def bare_letters(choices: str) -> list[str]:
    """Return the letters of options that have no text; none for other dialects.

    Example:
        >>> bare_letters("A, B, C"), bare_letters("A. CT, B. MRI")
        (['A', 'B', 'C'], [])
    """
    letters = _BARE_LETTER.findall(choices) if _BARE.fullmatch(choices.strip()) else []
    return letters if letters == list(ascii_uppercase[: len(letters)]) else []


def _labelled(choices: str, mark: str) -> list[str]:
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
