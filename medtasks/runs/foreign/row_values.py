"""Values of a record as a row has them: texts, options and the names of image files."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from medtasks.data.option_texts import without_marks
from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.asked_questions import name_of
from medtasks.tasks.answer_columns import listed_options

_LONGEST_NAME = 255  # of a file
_IN_ONE_LINE = re.compile(r"\s*;\s*|\s+(?=\(?[B-Z][).:]\s)")


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def first_entry(value: Any) -> Mapping[str, Any]:
    """Return the first object of a JSON list, or an empty one."""
    return as_mapping(value[0]) if isinstance(value, list) and value else {}


def text_of(record: TableRow, key: str) -> str | None:
    """Return the text under a key, with numbers as text, or None for null or a missing key.

    Raises:
        RepliesError: It is a list, an object, ``NaN`` or infinite.

    Example:
        >>> text_of(TableRow("row 1", {"id": 7.0}), "id")
        '7'
    """
    value = record.values.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise RepliesError(
            f"{record.place}: '{key}' is {value}, and no text; write the text, or null where none is"
        )
    if isinstance(value, bool | int | float):
        return name_of(value)
    raise RepliesError(
        f"{record.place}: '{key}' is no text but {'a list' if isinstance(value, list) else 'an object'}"
    )


def first_text(record: TableRow, keys: Iterable[str]) -> str | None:
    """Return the first text under one of several keys that is not blank, also the only one of a list."""
    for key in keys:
        value = record.values.get(key)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, list | dict):
            continue
        text = text_of(TableRow(record.place, {key: value}), key)
        if text and text.strip():
            return text
    return None


def option_texts(record: TableRow, *keys: str) -> tuple[str, ...] | None:
    """Return the options under the first of some keys that a record has, or None without any.

    They may be a list, a mapping, or one text: a list in JSON or Python, lines, or ``A) left; B) right``.

    Example:
        >>> option_texts(TableRow("row 1", {"choices": {"text": ["left", "right"], "label": ["A", "B"]}}), "choices")
        ('left', 'right')
        >>> option_texts(TableRow("row 1", {"options": "(A) left (B) right"}), "choices", "options")
        ('(A) left', '(B) right')

    Raises:
        RepliesError: An option is ``NaN`` or infinite.
    """
    value = next(filter(None, map(record.values.get, keys)), None)
    options = listed_options(as_mapping(value).get("text", value))
    if isinstance(options, str):
        parts = _IN_ONE_LINE.split(options.strip())
        is_lettered = "\n" not in options.strip() and without_marks(parts) is not None
        options = parts if is_lettered else options.splitlines()
    if not isinstance(options, list) or any(
        isinstance(option, list | dict) for option in options
    ):
        return None
    texts = []
    for number, option in enumerate(options, start=1):
        key = f"option {number}"
        texts.append(text_of(TableRow(record.place, {key: option}), key) or "")
    return without_blank_end(texts)


def without_blank_end(options: Sequence[str]) -> tuple[str, ...] | None:
    """Return options without blank ones at the end, which are cells of questions with more options.

    Example:
        >>> without_blank_end(["left", "", "right", " "])
        ('left', '', 'right')
    """
    count = len(options)
    while count and not options[count - 1].strip():
        count -= 1
    return tuple(options[:count]) or None


def image_names(*values: Any) -> tuple[str, ...]:
    """Return the names of image files without their folders, where values are paths or addresses of files.

    Example:
        >>> image_names("images/x-ray 1.png", ["https://host/scan.jpg?size=2"])
        ('x-ray 1.png', 'scan.jpg')
    """
    names: list[str] = []
    for value in values:
        if isinstance(value, list | tuple):
            names += image_names(*value)
            continue
        if not isinstance(value, str) or value.startswith(("data:", "attachment:")):
            continue
        path = value.strip().replace("\\", "/").partition("?")[0]
        name = PurePosixPath(path).name
        if 0 < len(name) <= _LONGEST_NAME:
            names.append(name)
    return tuple(names)
