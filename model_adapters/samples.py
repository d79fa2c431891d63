"""What a request is about: its images and the text to score, loaded once for all requests of a question."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PIL import Image

from .requests import Documents, Request, continuation_of, images_of


@dataclass(frozen=True)
class Pictures:
    """The images of a document."""

    images: tuple[Image.Image, ...]

    @cached_property
    def digests(self) -> list[str]:
        """One digest per image, of everything that decides about its pixels."""
        return [_image_digest(image) for image in self.images]


@dataclass(frozen=True)
class Sample:
    """A request with what it points to.

    Attributes:
        request: The request.
        pictures: Its images.
        continuation: The text to score; ``None`` for a generation.
    """

    request: Request
    pictures: Pictures
    continuation: str | None


class SampleReader:
    """Reads the samples of one call of the harness; keeps the images of the last document only.

    Args:
        documents: See :data:`~medtasks.model_adapters.requests.Documents`.
        scored: Whether the requests carry a text to score.
    """

    def __init__(self, documents: Documents, scored: bool) -> None:
        self._documents = documents
        self._scored = scored
        self._last: tuple[tuple[Any, ...], Pictures] | None = None

    def read(self, request: Request) -> Sample:
        """Load the images and the continuation of a request.

        Raises:
            TypeError: The task yields something other than images, or no text to score.
        """
        continuation = continuation_of(request, self._documents) if self._scored else None
        place = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != place:
            self._last = place, Pictures(tuple(images_of(request, self._documents)))
        return Sample(request, self._last[1], continuation)


def _image_digest(image: Image.Image) -> str:
    # The indices of a palette image say nothing without the palette, nor a transparent colour without its name.
    shown = image.convert("RGBA") if image.mode in ("P", "PA") or "transparency" in image.info else image
    digest = hashlib.sha256(f"{image.mode} {image.size}".encode())
    digest.update(shown.tobytes())
    return digest.hexdigest()
