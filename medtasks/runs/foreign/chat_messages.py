"""Messages of chat APIs: the text of a message, the thinking next to it, and the last question that was asked."""

from collections.abc import Iterator, Mapping
from typing import Any

from medtasks.runs.foreign.row_values import image_names

_TEXTS = ("text", "input_text", "output_text", "refusal")
CUT_REASONS = ("length", "max_tokens", "max_output_tokens", "model_length")
"""Reasons for the end of a reply that mean a limit of its length."""
_THOUGHTS = ("reasoning", "thinking", "summary_text")


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


def thinking_text(message: Mapping[str, Any]) -> str:
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

    Example:
        >>> last_question([{"role": "user", "content": "Which side?"}, {"role": "assistant", "content": "Left"}])
        ('Which side?', ())
    """
    if isinstance(messages, str):
        return messages, ()
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, dict) and message.get("role", "user") == "user":
            content = message.get("content")
            return message_text(content, "\n"), image_names(*_image_places(content))
    return None, ()


def _texts(content: Any, kinds: tuple[str, ...]) -> Iterator[str]:
    if isinstance(content, str) and "text" in kinds:
        yield content
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") in kinds:
            for key in ("text", "refusal", "reasoning", "thinking"):
                if isinstance(part.get(key), str):
                    yield part[key]
                    break


def _image_places(content: Any) -> Iterator[Any]:
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict):
            source = part.get("image") or part.get("image_url")
            yield source.get("url") if isinstance(source, dict) else source
