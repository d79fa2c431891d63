"""Answers as people and published files write them: letters, numbers, texts of options, yes and no in several forms.

One way of reading has to fit a whole column. The documented form counts first, and needs no word; of other ways the one
that fits is named in a note, and if several fit with different answers the column is ambiguous.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from medtasks.data.option_texts import without_marks
from medtasks.data.safe_parsing import parse_json, parse_literal
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.extract.reading.languages import words_of
from medtasks.families.columns import Column

_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_MARK = re.compile(r"\(?([a-z])[).:]+\s*")
_WHOLE = re.compile(r"\d{1,9}(?:\.0)?")
# Possible keys of options in a mapping, in order
_KEYS = ascii_uppercase, "0123456789", "123456789"
# Forms of "yes" and "no" besides the words of each language.
_YES = ("true", "1", "1.0", "y", "j")
_NO = ("false", "0", "0.0", "n")
_LETTERS = "letters"
_FROM_0 = "option numbers from 0"

Cells = Sequence[Any]
Reading = tuple[list[Any], str]  # values and a note


def is_blank(value: object) -> bool:
    """Return whether a cell holds nothing.

    Example:
        >>> is_blank(" "), is_blank(0)
        (True, False)
    """
    return value is None or (isinstance(value, str) and not value.strip())


def parsed_list(text: Any) -> Any:
    """Return the list or mapping in a text, in JSON or as Python prints it. Other values are returned as they are.

    Example:
        >>> parsed_list("('left', 'right')")
        ['left', 'right']
    """
    if isinstance(text, str) and text.strip().startswith(("[", "{", "(")):
        for parse in (parse_json, parse_literal):
            with contextlib.suppress(ValueError):
                content = parse(text)
                return list(content) if isinstance(content, tuple) else content
    return text


def listed_options(options: Any) -> Any:
    """Return options as a list, from a text, from keys and values, or from a list of such pairs.

    Keys have to be the letters or numbers of the options, none left out. Anything else is returned as it is.

    Example:
        >>> listed_options('{"B": "right", "A": "left"}')
        ['left', 'right']
    """
    content = parsed_list(options)
    if isinstance(content, list):
        if not content or not all(
            isinstance(each, Mapping) and len(each) == 2 for each in content
        ):
            return content
        content = {str(key): text for key, text in (pair.values() for pair in content)}
    if not isinstance(content, Mapping):
        return options
    return in_order_of_keys(content) or options


def in_order_of_keys(content: Mapping[Any, Any]) -> list[Any]:
    """Return the texts of lettered or numbered options in their order.

    Args:
        content: Texts by letter or number, such as ``"B"``, ``"(b)"`` or ``2``. A text of None is left out.

    Returns:
        An empty list if a key is missing, occurs twice, or is something else.
    """
    texts: dict[str, Any] = {}
    for key, text in content.items():
        if (
            text is not None
            and texts.setdefault(str(key).strip("(). :").upper(), text) is not text
        ):
            return []
    keys = "".join(sorted(texts))
    if not any(sequence.startswith(keys) for sequence in _KEYS):
        return []
    return [texts[key] for key in keys]


def read_column(name: str, kind: Column, values: Cells, options: Cells) -> Reading:
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
    if kind in (Column.LETTER, Column.LETTER_OR_NOTHING, Column.LABEL):
        return _read_indices(name, kind, values, options)
    if kind is not Column.YES_NO:
        reader = kind.read or _READERS.get(kind)
        return list(values if reader is None else map(reader, values)), ""
    forms = [str(value).strip().casefold() for value in values]
    meanings = _other_forms()
    read = [meanings.get(form, value) for form, value in zip(forms, values, strict=True)]
    others = sorted({*forms} & meanings.keys())
    if not others:
        return read, ""
    explanations = [f"{form} as {meanings[form]}" for form in others]
    return read, f"'{name}' is read with {' and '.join(explanations)}"


@cache
def _other_forms() -> Mapping[str, str]:
    """Return the meaning of each form but the documented "yes" and "no"."""
    meanings = dict.fromkeys((*_YES, *words_of("yes")), "yes")
    meanings |= dict.fromkeys((*_NO, *words_of("no")), "no")
    return {form: meaning for form, meaning in meanings.items() if form != meaning}


def _read_indices(name: str, kind: Column, values: Cells, options: Cells) -> Reading:
    """Read letters, or with ``Column.LABEL`` numbers from 0, of the options."""
    written = {row: value for row, value in enumerate(values) if not is_blank(value)}
    by_way = {}
    for way, index_of in _WAYS.items():
        # Index of the option by row, without answers that name none this way
        indices: dict[int, int] = {}
        for row, value in written.items():
            texts = options[row] or ()
            index = index_of(value, texts)
            if 0 <= index < len(texts):
                indices[row] = index
        by_way[way] = indices
    best, note = _best_way(name, kind, by_way, len(written))
    read: list[Any] = list(map(written.get, range(len(values))))
    for row, index in by_way[best].items():
        read[row] = index if kind is Column.LABEL else letter(index)
    return read, note


def _best_way(
    name: str,
    kind: Column,
    by_way: Mapping[str, Mapping[int, int]],
    count: int,
) -> tuple[str, str]:
    """Return the way that reads most of ``count`` answers, of equal ones the documented or the first, and a note.

    Raises:
        MedTasksError: Several ways read all answers, with different results.
    """
    documented = _FROM_0 if kind is Column.LABEL else _LETTERS
    best = max(by_way, key=lambda way: (len(by_way[way]), way == documented))
    fitting = [way for way, indices in by_way.items() if len(indices) == count]
    if best == documented or not fitting:
        return best, ""
    if any(by_way[way] != by_way[best] for way in fitting):
        raise MedTasksError(
            f"'{name}' can be read as {' or as '.join(fitting)}, which are different answers; write {kind.words}"
        )
    return best, f"'{name}' is read as {best}"


def _loose_letter(value: Any, _: Sequence[str]) -> int:
    match = _LETTER.fullmatch(str(value).strip())
    return ascii_uppercase.index(match[1].upper()) if match else -1


def _option_text(value: Any, options: Sequence[str]) -> int:
    """Return the index of the option whose text an answer is, with or without a mark such as "B.", -1 for no option."""
    form = str(value).strip().casefold()
    mark = _MARK.match(form)
    texts = list(map(str, options))
    for written in (texts, without_marks(texts) or []):  # "B. left" is also the option "left"
        forms = [text.strip().casefold() for text in written]
        if forms.count(form) == 1:
            return forms.index(form)
        if mark:
            index = ascii_lowercase.index(mark[1])
            # "b. left" is also the second option "left".
            if forms[index : index + 1] == [form[mark.end() :]]:
                return index
    return -1


def _whole(value: Any, other: Any) -> Any:
    """Return a whole number, which may be a text, or else the ``other`` value."""
    text = str(value).strip()
    return int(float(text)) if _WHOLE.fullmatch(text) else other


# Index of the option that an answer means; below 0 for an answer that is nothing of the kind.
_WAYS: Mapping[str, Callable[[Any, Sequence[str]], int]] = {
    _LETTERS: lambda value, _: (
        ascii_uppercase.find(value) if isinstance(value, str) and len(value) == 1 else -1
    ),
    "letters in any form": _loose_letter,
    _FROM_0: lambda value, _: _whole(value, -1),
    "option numbers from 1": lambda value, _: _whole(value, 0) - 1,
    "texts of the options": _option_text,
}


def _entries(value: Any) -> list[Any]:
    content = parsed_list(value)
    if isinstance(content, str):
        content = [entry.strip() for entry in re.split("[,;|]", content) if entry.strip()]
    return content if isinstance(content, list) else []


_READERS: Mapping[Column, Callable[[Any], Any]] = {
    Column.TEXT: lambda value: str(value) if type(value) is int else value,
    Column.LETTERS: lambda value: _entries(value) or value,
    Column.POSITION: lambda value: _whole(value, value),
    Column.LABELS: lambda value: [_whole(entry, entry) for entry in _entries(value)] or value,
}
