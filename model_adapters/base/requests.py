"""The harness's requests as typed values, their order, and their images and texts."""

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from medtasks.errors import MedTasksError

Documents = Mapping[str, Mapping[str, Any]]
"""``documents[task][split][doc_id]`` is a document; the evaluator sets it as ``task_dict``."""
IMAGE_ID = "image_id"
"""Canonical column of documents, see ``medtasks.data.schema``: equal for equal images."""


@dataclass(frozen=True)
class Request:
    """One request of the harness."""

    context: str  # prompt text
    detail: Any  # ``gen_kwargs``, or the continuation (its text, or a function of the document) to score
    doc_to_visual: Callable[[Any], Any] | None  # function from the document to its images
    doc_id: int  # row of the document in its split
    task: str
    split: str
    index: int  # number among the document's requests (the option in multiple choice)
    repeat: int  # number of earlier equal requests in this call (``repeats`` in the task)
    padding: bool  # whether the request only evens out the ranks; its result is not used

    @property
    def name(self) -> str:
        """Origin of the request, without its text."""
        return f"{self.task}/{self.split}/{self.doc_id}#{self.index}"

    def seed(self, base: int) -> int:
        """Return a seed that depends on this request alone, not on its batch, rank or position."""
        digest = hashlib.blake2b(f"{base}|{self.name}|{self.repeat}".encode(), digest_size=7).digest()
        return int.from_bytes(digest, "big")


def read_requests(instances: Sequence[Any], kind: Literal["generate_until", "loglikelihood"]) -> list[Request]:
    """Turn harness ``Instance`` objects into requests, in the same order."""
    seen: Counter[tuple[Any, ...]] = Counter()
    requests = []
    for instance in instances:
        if len(instance.args) != 6:
            raise MedTasksError(
                f"a {kind} request of task '{instance.task_name}' carries {len(instance.args)} values where adapters "
                f"of medtasks read 6; choose metrics without mutual information, and a task for simple-type models."
            )
        context, detail, doc_to_visual, doc_id, task, split = instance.args
        key = (task, split, doc_id, instance.idx)
        padding = bool((instance.metadata or {}).get("__padding_only__"))
        requests.append(Request(context, detail, doc_to_visual, doc_id, task, split, instance.idx, seen[key], padding))
        seen[key] += 1
    return requests


def image_names(documents: Documents) -> Callable[[Request], str | None]:
    """Return a function from a request to its ``image_id``, by which questions on one image are planned together.

    The result is ``None`` without an image or an id. It is a hint only: pixels decide whether images are equal.
    """

    @functools.cache
    def named(task: str, split: str) -> Any:
        table = documents[task][split]
        columns = getattr(table, "column_names", None)
        if columns is None:
            return table
        return table.select_columns([IMAGE_ID]) if IMAGE_ID in columns else []  # other columns may hold images

    def name_of(request: Request) -> str | None:
        if request.doc_to_visual is None:
            return None
        try:
            name = named(request.task, request.split)[request.doc_id][IMAGE_ID]
        except (LookupError, TypeError):  # another kind of document; a missing one fails when it is loaded
            return None
        return None if name is None else str(name)

    return name_of


def plan_streams(
    requests: Sequence[Request],
    group: Callable[[Request], Hashable],
    unit: Callable[[Request], Hashable],
    image_name: Callable[[Request], str | None] = lambda _: None,
) -> list[list[list[int]]]:
    """Return streams of units of positions in ``requests``: one stream per group, longest first.

    Requests of different groups never share a batch; neighbours with equal units stay in one batch, whatever its
    size. Length is measured in characters of the context, without loading images. The longest come first, so that
    memory runs out at once or never. Requests on one image stay together, ordered by the longest of them.
    """
    groups: dict[Hashable, list[int]] = {}
    images: list[tuple[str, ...]] = []
    longest: Counter[tuple[str, ...]] = Counter()
    for position, request in enumerate(requests):
        groups.setdefault(group(request), []).append(position)
        name = image_name(request)
        images.append(() if name is None else (request.task, request.split, name))
        longest[images[-1]] = max(longest[images[-1]], len(request.context))

    def order(position: int) -> tuple[Any, ...]:
        request, image = requests[position], images[position]
        length = len(request.context)
        origin = request.task, request.split, request.doc_id, request.context, request.index, position
        return -(longest[image] if image else length), image, -length, *origin

    return [
        [list(run) for _, run in itertools.groupby(sorted(positions, key=order), key=lambda at: unit(requests[at]))]
        for positions in groups.values()
    ]


IMAGES: tuple[type, ...] = (Image.Image,)
"""Visuals that a model takes by default; see ``visual_types`` of its adapter."""
VOLUMES: tuple[type, ...] = (*IMAGES, str, Path, np.ndarray, list, tuple)
"""Images, and volumes: files, arrays, lists of images as slices."""


@dataclass(frozen=True)
class Visuals:
    """The images of a document, or volumes, see :data:`VOLUMES`."""

    images: tuple[Any, ...]

    @cached_property
    def digests(self) -> list[str]:
        """One digest per image, of everything that decides about its pixels; errors do not name a volume's file."""
        return [_visual_digest(image) for image in self.images]


@dataclass(frozen=True)
class LoadedRequest:
    """A request with what it points to."""

    request: Request
    visuals: Visuals
    continuation: str | None  # the text to score; ``None`` for a generation


class RequestReader:
    """Reads the requests of one call of the harness; holds the images of the last document only."""

    def __init__(self, documents: Documents, scored: bool, visual_types: tuple[type, ...] = IMAGES) -> None:
        self._documents = documents
        self._scored = scored
        self._visual_types = visual_types
        self._last: tuple[tuple[Any, ...], Visuals] | None = None

    def read(self, request: Request) -> LoadedRequest:
        """Load the images and the continuation of a request; visuals of an unknown type are an error."""
        continuation = None
        if self._scored:
            text = request.detail(self._document(request)) if callable(request.detail) else request.detail
            if not isinstance(text, str):
                raise TypeError(f"expected a continuation as text, got {type(text).__name__}")
            continuation = text
        origin = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != origin:
            self._last = origin, Visuals(tuple(self._images(request)))
        return LoadedRequest(request, self._last[1], continuation)

    def _document(self, request: Request) -> Any:
        return self._documents[request.task][request.split][request.doc_id]

    def _images(self, request: Request) -> list[Any]:
        """Load images; a single file name or array counts as a list of one. No message names a file."""
        visuals = None if request.doc_to_visual is None else request.doc_to_visual(self._document(request))
        if visuals is None:
            return []
        images = [visuals] if isinstance(visuals, str | Path | np.ndarray) else list(visuals)
        for image in images:
            if not isinstance(image, self._visual_types):
                flat = self._visual_types == IMAGES
                accepted = "PIL images" if flat else "PIL images, file names, arrays and lists of slices"
                hint = "; choose another task, or radfm for volumes" * flat
                raise MedTasksError(f"this model takes {accepted}, the task yields {type(image).__name__}{hint}")
            if isinstance(image, list | tuple) and not all(isinstance(part, Image.Image) for part in image):
                raise MedTasksError("the task yields a list of something other than PIL images, which are no slices")
        return images


def _visual_digest(visual: Any) -> str:
    if isinstance(visual, Image.Image):
        # The indices of a palette image have no meaning without the palette, nor has a named transparent colour.
        indirect = visual.mode in ("P", "PA") or "transparency" in visual.info
        pixels = (visual.convert("RGBA") if indirect else visual).tobytes()
        return _digest(f"{visual.mode} {visual.size}", pixels)
    if isinstance(visual, np.ndarray):
        return _digest(f"array {visual.dtype.str} {visual.shape}", visual.tobytes())
    if not isinstance(visual, str | Path):
        return _digest(f"slices {' '.join(map(_visual_digest, visual))}")
    try:
        with Path(visual).open("rb") as file:
            # The ending decides how the file is read; its name and folder do not matter.
            content = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise MedTasksError(f"the file of a volume cannot be read ({error.strerror}); prepare the data anew") from error
    return _digest(f"file {Path(visual).suffix.lower()} ", content)


def _digest(head: str, content: bytes = b"") -> str:
    return hashlib.sha256(head.encode() + content).hexdigest()
