"""A prompt as a conversation in the form of OpenAI's chat messages, with images at their places."""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from medtasks.errors import MedTasksError

IMAGE_MARK = "<image>"
"""Position of an image in a prompt; without any mark, images come first."""


def image_parts(text: str, images: int, mark: str) -> list[str | None]:
    """Split a prompt at the marks of its images, which ``None`` stands for; without any mark they come first."""
    pieces = text.split(mark) if mark else [text]
    if len(pieces) == 1:
        return [None] * images + [text]
    if len(pieces) != images + 1:
        raise MedTasksError(f"the prompt holds {len(pieces) - 1} image marks for {images} images ({mark})")
    return [part for piece in pieces for part in (piece, None)][:-1]


def prompt_parts(text: str, images: int) -> list[str | None]:
    """Split a prompt of the harness into texts and images, which ``None`` stands for; without images it is one text."""
    parts = image_parts(text, images, IMAGE_MARK) if images else [text]
    return [part for part in parts if part != ""]


def chat_messages(
    parts: Sequence[str | None], images: Sequence[Mapping[str, Any]], system: str | None = None
) -> list[dict[str, Any]]:
    """Build a conversation of a user's turn, and a system turn before it if there is one.

    Args:
        parts: Texts and images of the user's turn, see :func:`prompt_parts`.
        images: One content part per image, such as ``{"type": "image_url", "image_url": {"url": ...}}``.
        system: Text of the system turn.

    Example:
        >>> chat_messages(prompt_parts("<image>Is it normal?", 1), [{"type": "image"}])
        [{'role': 'user', 'content': [{'type': 'image'}, {'type': 'text', 'text': 'Is it normal?'}]}]
    """
    remaining = iter(images)
    content = [dict(next(remaining)) if part is None else {"type": "text", "text": part} for part in parts]
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
    return turns


def data_url(image: Image.Image) -> str:
    """Return an image as PNG in a URL: RGB without transparency, as our adapters see it."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
