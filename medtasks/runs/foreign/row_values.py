"""Values of a record as a row has them: texts, options, names of image files, and what messages of chat APIs say.

Of messages these are the text of one, the thinking next to it, and the last question that was asked.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from medtasks.data.option_texts import without_marks
from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError
from medtasks.runs.asked_questions import name_of
from medtasks.tasks.answer_columns import listed_options

JsonObject = Mapping[str, Any]
_LONGEST_NAME = 255  # of a file
_IN_ONE_LINE = re.compile(r"\s*;\s*|\s+(?=\(?[B-Z][).:]\s)")
_TEXTS = ("text", "input_text", "output_text", "refusal")
CUT_REASONS = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Reasons for the end of a reply that mean a limit of its length."""
_THOUGHTS = ("reasoning", "thinking", "summary_text")


def as_mapping(value: Any) -> JsonObject:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def first_entry(value: Any) -> JsonObject:
    """Return the first object of a JSON list, or an empty one."""
    return as_mapping(value[0]) if isinstance(value, list) and value else {}


def text_of(record: TableRow, key: str) -> str | None:
    """Return the text under a key, with numbers as text, or None for null or a missing key.

    Raises:
        RepliesError: The value is a list, an object, ``NaN`` or infinite.

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
    """Return the first text under one of several keys that is not blank, also the only one of a list.

    Returns:
        The text, numbers as text; None if all keys are missing, blank, or hold longer lists or objects.

    Raises:
        RepliesError: A value before the first text is ``NaN`` or infinite.
    """
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


# ---- messages of chat APIs ----


def message_text(content: Any, joint: str = "") -> str | None:
    """Return the text of a message's content, or None without any.

    Args:
        content: A text, or a list of parts.
        joint: Text between two parts.

    Example:
        >>> message_text([{"type": "text", "text": "Left"}, {"type": "image"}, {"type": "text", "text": "lung"}], " ")
        'Left lung'
    """
    texts = list(_texts(content, _TEXTS))
    return joint.join(texts) if texts else None


def thinking_text(message: JsonObject) -> str:
    """Return thinking that is kept next to a message's text, or in parts of its content.

    Example:
        >>> thinking_text({"content": "B", "reasoning_content": "It is dark."})
        'It is dark.'
    """
    fields = (message.get("reasoning_content"), message.get("reasoning"))
    apart = [field for field in fields if isinstance(field, str)][:1]
    return "\n".join([*apart, *_texts(message.get("content"), _THOUGHTS)])


def last_question(messages: Any) -> tuple[str | None, tuple[str, ...]]:
    """Return the text, and the names of the images, of the last message of a user, or a text itself.

    The text is None, and no image is named, where there is no such message or it has no text.

    Example:
        >>> last_question([{"role": "user", "content": "Which side?"}, {"role": "assistant", "content": "Left"}])
        ('Which side?', ())
    """
    if isinstance(messages, str):
        return messages, ()
    for message in reversed(_objects(messages)):
        if message.get("role", "user") == "user":
            content = message.get("content")
            return message_text(content, "\n"), image_names(*_image_places(content))
    return None, ()


def _objects(value: Any) -> list[JsonObject]:
    """Return the objects in a JSON list, none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(content: Any, kinds: tuple[str, ...]) -> Iterator[str]:
    """Yield the texts of the parts of these kinds in a message's content, which may be one text itself."""
    if isinstance(content, str) and "text" in kinds:
        yield content
    for part in _objects(content):
        if part.get("type") in kinds:
            for key in ("text", "refusal", "reasoning", "thinking"):
                if isinstance(part.get(key), str):
                    yield part[key]
                    break


def _image_places(content: Any) -> Iterator[Any]:
    for part in _objects(content):
        source = part.get("image") or part.get("image_url")
        yield source.get("url") if isinstance(source, dict) else source
