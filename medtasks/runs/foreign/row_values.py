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


def text_of(record: TableRow, key: str) -> str | None:
    """Return the text under a key; None for null or a missing key, and numbers as text.

    Raises:
        RepliesError: It is a list, an object, ``NaN`` or infinite.
    """
    value = record.values.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise RepliesError(f"{record.place}: '{key}' is {value}, and no text; write the text, or null where none is")
    if isinstance(value, bool | int | float):
        return name_of(value)
    raise RepliesError(f"{record.place}: '{key}' is no text but {'a list' if isinstance(value, list) else 'an object'}")


def first_text(record: TableRow, keys: Iterable[str]) -> str | None:
    """Return the first text under one of several keys that is neither missing nor blank."""
    for key in keys:
        if not isinstance(record.values.get(key), list | dict):
            text = text_of(record, key)
            if text and text.strip():
                return text
    return None


def option_texts(value: Any) -> tuple[str, ...] | None:
    """Return options from a list, a mapping, or one text (a list, lines, or ``A) left; B) right``); None without any.

    Example:
        >>> option_texts({"text": ["left", "right"], "label": ["A", "B"]}), option_texts("(A) left (B) right")
        (('left', 'right'), ('(A) left', '(B) right'))
    """
    if isinstance(value, Mapping) and isinstance(value.get("text"), list):
        value = value["text"]
    options = listed_options(value)
    if isinstance(options, str):
        lines = [line for line in options.splitlines() if line.strip()]
        parts = [part for part in _IN_ONE_LINE.split(options.strip()) if part.strip()]
        options = lines if len(lines) > 1 or not without_marks(parts) else parts
    if not isinstance(options, Sequence) or not options:
        return None
    if not all(isinstance(option, str | int | float | None) for option in options):
        return None
    return tuple("" if option is None else name_of(option) for option in options)


def image_names(*values: Any) -> tuple[str, ...]:
    """Return the names of image files, without their folders; addresses of other kinds are left out."""
    names: list[str] = []
    for value in values:
        if isinstance(value, list | tuple):
            names += image_names(*value)
        elif isinstance(value, str) and value.strip() and not value.startswith(("data:", "attachment:")):
            name = PurePosixPath(value.strip().replace("\\", "/").partition("?")[0]).name
            names += [name] if 0 < len(name) <= _LONGEST_NAME else []
    return tuple(names)
