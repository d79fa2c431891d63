"""Answers as people and published files write them: letters, numbers, texts of options, yes and no in several forms.

One way of reading has to fit a whole column. The documented form counts first, and needs no word; of other ways the one
that fits is named in a note, and if several fit with different answers the column is ambiguous.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.data.safe_parsing import parse_json, parse_literal
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.families.family import Column

Way = Callable[[Any, Sequence[str]], int | None]

_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_WHOLE = re.compile(r"\d{1,9}(?:\.0+)?")
_BETWEEN = re.compile(r"\s*[,;|]\s*")
_SHORT_KEY = re.compile(r"[\W_]*(\w)[\W_]*")  # of an option in a mapping, such as A, (a) or 1
_YES_NO = {"true": "yes", "1": "yes", "1.0": "yes", "y": "yes", "false": "no", "0": "no", "0.0": "no", "n": "no"}


def parsed_list(text: Any) -> Any:
    """Return the list or mapping in a text, JSON or a Python literal, which is never run; other values unchanged."""
    if not isinstance(text, str) or text.strip()[:1] not in ("[", "{", "("):
        return text
    for parse in (parse_json, parse_literal):
        with contextlib.suppress(ValueError):
            value = parse(text)
            return list(value) if isinstance(value, tuple) else value
    return text


def listed_options(options: Any) -> Any:
    """Return options as a list, from a text, from keys and values, or from a list of such pairs.

    Keys have to be the letters or numbers of the options, none left out. Anything else is returned as it is.
    """
    content = parsed_list(options)
    if isinstance(content, list) and content and all(isinstance(entry, Mapping) for entry in content):
        pairs = [tuple(entry.values()) for entry in content]
        if any(len(pair) != 2 for pair in pairs):
            return options
        content = {str(key): text for key, text in pairs}
        if len(content) != len(pairs):
            return options
    if isinstance(content, Mapping):
        filled = {str(key): text for key, text in content.items() if text is not None}
        keys = {match[1].upper(): key for key in filled if (match := _SHORT_KEY.fullmatch(key))}
        for names in (list(map(letter, range(26))), list("123456789"), list("0123456789")):
            if filled and sorted(keys) == names[: len(filled)]:
                return [filled[keys[name]] for name in sorted(keys)]
        return options
    return content if isinstance(content, list) else options


def read_column(name: str, kind: Column, values: Sequence[Any], options: Sequence[Any]) -> tuple[list[Any], str]:
    """Return the values that a family needs, and a note on how they were read.

    Values that are nothing of the kind stay as they are, for the message on their rows. The note is empty where all
    values have the documented form.

    Args:
        name: Name of the column, for messages.
        kind: What the family needs.
        values: The column, shape (samples,).
        options: The options of each sample, shape (samples,); empty lists without any.

    Raises:
        MedTasksError: Several ways of reading fit the column, with different answers.
    """
    if kind is Column.YES_NO:
        return _yes_or_no(name, values)
    if kind is Column.POSITION:
        return [_whole(value, value) for value in values], ""
    if kind is Column.LABELS:
        return [_flags(value) for value in values], ""
    if kind is Column.LETTERS:
        entries = [_entries(value) for value in values]
        flat = [(entry, options[row]) for row, each in enumerate(entries) for entry in each]
        read, note = _indices(name, [entry for entry, _ in flat], [each for _, each in flat], kind)
        following = iter(read)
        lists = [[next(following) for _ in each] for each in entries]
        return [each or value for each, value in zip(lists, values, strict=True)], note
    if kind in (Column.LETTER, Column.LETTER_OR_NOTHING, Column.LABEL):
        return _indices(name, values, options, kind)
    return list(values), ""


def _indices(name: str, values: Sequence[Any], options: Sequence[Any], kind: Column) -> tuple[list[Any], str]:
    """Read letters, or with ``Column.LABEL`` numbers from 0, of the options."""
    asked = [row for row, value in enumerate(values) if not _is_empty(value)]
    by_way: dict[str, dict[int, int]] = {}
    for way, read in _WAYS.items():
        indices = {row: read(values[row], options[row] or ()) for row in asked}
        by_way[way] = {row: index for row, index in indices.items() if index is not None}
    documented = _FROM_0 if kind is Column.LABEL else _LETTERS
    fitting = [way for way, indices in by_way.items() if len(indices) == len(asked)]
    chosen = max(by_way, key=lambda way: len(by_way[way]))
    if documented in fitting:
        fitting = [documented]
    elif any(by_way[way] != by_way[fitting[0]] for way in fitting):
        ways = " or as ".join(fitting)
        wanted = "numbers from 0" if kind is Column.LABEL else "the letters of the options"
        raise MedTasksError(f"'{name}' can be read as {ways}, which are different answers; write {wanted}")
    chosen = fitting[0] if fitting else chosen
    read_values = list(values)
    for row, index in by_way[chosen].items():
        read_values[row] = index if kind is Column.LABEL else letter(index)
    for row in set(range(len(values))) - set(asked):
        read_values[row] = None
    return read_values, f"'{name}' is read as {chosen}" if asked and fitting and chosen != documented else ""


def _exact_letter(value: Any, options: Sequence[str]) -> int | None:
    return next((index for index in range(len(options)) if value == letter(index)), None)


def _loose_letter(value: Any, options: Sequence[str]) -> int | None:
    match = _LETTER.fullmatch(value.strip()) if isinstance(value, str) else None
    return _exact_letter(match[1].upper(), options) if match else None


def _from(first: int) -> Way:
    def read(value: Any, options: Sequence[str]) -> int | None:
        number = _whole(value, None)
        return number - first if number is not None and 0 <= number - first < len(options) else None

    return read


def _text(value: Any, options: Sequence[str]) -> int | None:
    text = str(value).strip()
    for form in (str, str.casefold):
        same = [index for index, option in enumerate(options) if form(str(option).strip()) == form(text)]
        if len(same) == 1:
            return same[0]
    return None


_LETTERS, _FROM_0 = "letters", "option numbers from 0"
_WAYS: Mapping[str, Way] = {
    _LETTERS: _exact_letter,
    "letters in any form": _loose_letter,
    _FROM_0: _from(0),
    "option numbers from 1": _from(1),
    "texts of the options": _text,
}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _whole(value: Any, other: Any) -> Any:
    """Return a whole number, which may be written as a text or with a decimal point, or else the ``other`` value."""
    if isinstance(value, bool):
        return other
    text = repr(value) if isinstance(value, float) else str(value).strip()
    return int(float(text)) if _WHOLE.fullmatch(text) else other


def _entries(value: Any) -> list[Any]:
    content = parsed_list(value)
    if isinstance(content, str):
        return [entry for entry in _BETWEEN.split(content.strip()) if entry]
    return content if isinstance(content, list) else []


def _flags(value: Any) -> Any:
    content = parsed_list(value)
    if isinstance(content, str) and _BETWEEN.search(content):
        content = _entries(content)
    if not isinstance(content, list):
        return value
    return [_whole(int(entry) if isinstance(entry, bool) else entry, entry) for entry in content]


def _yes_or_no(name: str, values: Sequence[Any]) -> tuple[list[Any], str]:
    forms = {str(value).strip().casefold() for value in values} & _YES_NO.keys()
    read = [_YES_NO.get(str(value).strip().casefold(), value) for value in values]
    if not forms:
        return read, ""
    meanings = " and ".join(f"{form} as {_YES_NO[form]}" for form in sorted(forms))
    return read, f"'{name}' is read with {meanings}"
