"""A prompt as a conversation in the form of OpenAI's chat messages, with images at their places.

Adapters of servers and functions send them.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from medtasks.errors import MedTasksError

IMAGE_MARK = "<image>"
"""Position of an image in a prompt; without any mark, images come first."""


def image_parts(text: str, images: int, mark: str) -> list[str | None]:
    """Split a prompt at the marks of its images, each of which becomes ``None``.

    Args:
        text: The prompt. Without any mark, its images come first.
        images: Number of images.
        mark: Mark of an image's place; empty for a prompt without marks.

    Raises:
        MedTasksError: There are marks, and not one per image.

    Example:
        >>> image_parts("Compare <image> with <image>.", 2, "<image>")
        ['Compare ', None, ' with ', None, '.']
    """
    pieces = text.split(mark) if mark else [text]
    if len(pieces) == 1:
        return [None] * images + [text]
    if len(pieces) != images + 1:
        raise MedTasksError(
            f"the prompt holds {len(pieces) - 1} image marks for {images} images ({mark})"
        )
    parts: list[str | None] = []
    for piece in pieces:
        parts += [piece, None]
    return parts[:-1]


def prompt_parts(text: str, images: int) -> list[str | None]:
    """Split a prompt of the harness into texts and images, each of which becomes ``None``.

    Args:
        text: The prompt. Without images it is one text.
        images: Number of images.

    Example:
        >>> prompt_parts("<image>Is it normal?", 1)
        [None, 'Is it normal?']
    """
    parts = image_parts(text, images, IMAGE_MARK) if images else [text]
    return [part for part in parts if part != ""]


def chat_messages(
    parts: Sequence[str | None],
    images: Sequence[Mapping[str, Any]],
    system: str | None = None,
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
    content = []
    for part in parts:
        if part is None:
            content.append(dict(next(remaining)))
        else:
            content.append({"type": "text", "text": part})
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if system is not None:
        turns.insert(0, {"role": "system", "content": system})
    return turns


def png(image: Image.Image) -> bytes:
    """Return an image as a PNG file: RGB without transparency, as our adapters see it."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return file.getvalue()


def data_url(image: Image.Image) -> str:
    """Return an image as PNG in a URL, see :func:`png`."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def split_images(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[Image.Image]]:
    """Take the images out of a conversation of the harness's chat models.

    Args:
        messages: Turns whose content is a list of parts: ``{"type": "image", "url": image}`` and texts.

    Returns:
        The same turns with ``{"type": "image"}`` in the place of each image, and the images in order. Without any
        image, the content of each turn is one text, which chat templates without image parts take as well.

    Raises:
        MedTasksError: A part is neither a text nor an image of PIL.
    """
    images = []
    turns = []
    for message in messages:
        parts = message["content"]
        if isinstance(parts, str):
            parts = [{"type": "text", "text": parts}]
        content = []
        for part in parts:
            if part["type"] == "text":
                content.append(dict(part))
                continue
            if not isinstance(part.get("url"), Image.Image):
                raise MedTasksError(
                    f"prompts with a {part['type']} that is no PIL image cannot be sent as messages"
                )
            images.append(part["url"])
            content.append({"type": "image"})
        turns.append({"role": message["role"], "content": content})
    if not images:
        for turn in turns:
            turn["content"] = "".join(part["text"] for part in turn["content"])
    return turns, images


def with_image_urls(
    messages: Sequence[Mapping[str, Any]], urls: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a conversation of :func:`split_images` in OpenAI's form, with one URL per image, in order.

    Example:
        >>> with_image_urls([{"role": "user", "content": [{"type": "image"}]}], ["images/1.png"])
        [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'images/1.png'}}]}]
    """
    remaining = iter(urls)
    turns = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = [dict(part) for part in content]
            for number, part in enumerate(content):
                if part["type"] == "image":
                    content[number] = {
                        "type": "image_url",
                        "image_url": {"url": next(remaining)},
                    }
        turns.append({**message, "content": content})
    return turns
