"""What a request is about: its images (or volumes) and the text to score, read once for all requests of a question."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medtasks.errors import MedTasksError

from .requests import Documents, Request

IMAGES: tuple[type, ...] = (Image.Image,)
"""What a model looks at unless its adapter says more in ``AdapterModel.visual_types``."""
VOLUMES: tuple[type, ...] = (*IMAGES, str, Path, np.ndarray, list, tuple)
"""Images, and volumes: files, arrays, lists of images as slices."""


@dataclass(frozen=True)
class Visuals:
    """The images of a document, and whatever else its model takes, see :data:`VOLUMES`."""

    images: tuple[Any, ...]

    @cached_property
    def digests(self) -> list[str]:
        """One digest per image, of everything that decides about its pixels; no error names the file of a volume."""
        return [_visual_digest(image) for image in self.images]


@dataclass(frozen=True)
class Sample:
    """A request with what it points to."""

    request: Request  # the request
    visuals: Visuals  # its images
    continuation: str | None  # the text to score; ``None`` for a generation


class SampleReader:
    """Reads the samples of one call of the harness; keeps the images of the last document only."""

    def __init__(self, documents: Documents, scored: bool, taken: tuple[type, ...] = IMAGES) -> None:
        self._documents = documents
        self._scored = scored
        self._taken = taken
        self._last: tuple[tuple[Any, ...], Visuals] | None = None

    def read(self, request: Request) -> Sample:
        """Load the images and the continuation of a request.

        Raises:
            MedTasksError: The task yields images that the model does not take.
            TypeError: The task yields no text to score.
        """
        continuation = self._continuation(request) if self._scored else None
        place = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != place:
            self._last = place, Visuals(tuple(self._images(request)))
        return Sample(request, self._last[1], continuation)

    def _document(self, request: Request) -> Any:
        return self._documents[request.task][request.split][request.doc_id]

    def _continuation(self, request: Request) -> str:
        text = request.detail(self._document(request)) if callable(request.detail) else request.detail
        if not isinstance(text, str):
            raise TypeError(f"expected a continuation as text, got {type(text).__name__}")
        return text

    def _images(self, request: Request) -> list[Any]:
        """Load images; a file name or an array that stands alone counts as a list of one. No message names a file."""
        visuals = None if request.doc_to_visual is None else request.doc_to_visual(self._document(request))
        if visuals is None:
            return []
        images = [visuals] if isinstance(visuals, str | Path | np.ndarray) else list(visuals)
        for image in images:
            if not isinstance(image, self._taken):
                raise MedTasksError(_refusal(type(image).__name__, self._taken))
            if isinstance(image, list | tuple) and not all(isinstance(part, Image.Image) for part in image):
                raise MedTasksError("the task yields a list of something other than PIL images, which are no slices")
        return images


def _refusal(kind: str, taken: tuple[type, ...]) -> str:
    if taken == IMAGES:
        return f"this model looks at PIL images, the task yields {kind}; choose another task, or radfm for volumes"
    return f"this model looks at PIL images, file names, arrays and lists of slices, the task yields {kind}"


def _visual_digest(visual: Any) -> str:
    if isinstance(visual, Image.Image):
        # The indices of a palette image say nothing without the palette, nor a transparent colour without its name.
        indirect = visual.mode in ("P", "PA") or "transparency" in visual.info
        pixels = (visual.convert("RGBA") if indirect else visual).tobytes()
        return _digest(f"{visual.mode} {visual.size}", [pixels])
    if isinstance(visual, np.ndarray):
        return _digest(f"array {visual.dtype.str} {visual.shape}", [visual.tobytes()])
    if not isinstance(visual, str | Path):
        return _digest(f"slices {' '.join(map(_visual_digest, visual))}", [])
    try:
        with Path(visual).open("rb") as file:
            # The ending decides how the file is read; its name and place say nothing about its voxels.
            return _digest(f"file {Path(visual).suffix.lower()} ", iter(lambda: file.read(2**20), b""))
    except OSError as error:
        raise MedTasksError(f"the file of a volume cannot be read ({error.strerror}); prepare the data anew") from error


def _digest(head: str, content: Iterable[bytes]) -> str:
    digest = hashlib.sha256(head.encode())
    for block in content:
        digest.update(block)
    return digest.hexdigest()
