"""The harness's requests as typed values, the order in which they are run, and what they are about, read once."""

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
"""``documents[task][split][doc_id]`` is a document; the evaluator fills it in as ``task_dict``."""
IMAGE_ID = "image_id"
"""Canonical column of documents, see ``medtasks.data.schema``: the same image has the same id wherever it is used."""


@dataclass(frozen=True)
class Request:
    """One request of the harness."""

    context: str  # prompt text
    # ``gen_kwargs`` of a generation; continuation text, or the function of the document that yields it, of a
    # log-likelihood
    detail: Any
    doc_to_visual: Callable[[Any], Any] | None  # function from the document to its images, or ``None``
    doc_id: int  # row of the document in its split
    task: str  # task name
    split: str  # split name
    index: int  # which of the document's requests this is (the option in multiple choice)
    repeat: int  # how often the same request came before in this call (``repeats`` in the task)
    padding: bool  # true for a request that only evens out the ranks; its result is thrown away

    @property
    def name(self) -> str:
        """Origin of the request, without a word of its text."""
        return f"{self.task}/{self.split}/{self.doc_id}#{self.index}"

    def seed(self, base: int) -> int:
        """Return a seed that depends on this request alone, not on its batch, its rank or its place in the run."""
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
    """Return a look-up of the ``image_id`` of a request, so that questions on one image are planned next to each other.

    It is ``None`` for a request without image, or where documents do not name theirs. A hint only, before any image is
    loaded: whether images are equal is told by their pixels.
    """

    @functools.cache
    def named(task: str, split: str) -> Any:
        """Return the documents of a split; of a table this column alone, because others may hold images to decode."""
        table = documents[task][split]
        columns = getattr(table, "column_names", None)
        if columns is None:
            return table
        return table.select_columns([IMAGE_ID]) if IMAGE_ID in columns else []

    def name_of(request: Request) -> str | None:
        if request.doc_to_visual is None:
            return None
        try:
            name = named(request.task, request.split)[request.doc_id][IMAGE_ID]
        except (LookupError, TypeError):  # another kind of document; where one is missing, loading it says so
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

    Requests with different groups never share a batch; neighbours with equal units stay in one batch, whatever its
    size. Length is measured in characters of the context, so that no image has to be loaded in order to plan. The
    longest come first because what does not fit into memory should fail at once. Requests on one image stay together,
    after the longest of them.
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
        place = request.task, request.split, request.doc_id, request.context, request.index, position
        return -(longest[image] if image else length), image, -length, *place

    return [
        [list(run) for _, run in itertools.groupby(sorted(positions, key=order), key=lambda at: unit(requests[at]))]
        for positions in groups.values()
    ]


IMAGES: tuple[type, ...] = (Image.Image,)
"""Visuals that a model takes unless its adapter's ``visual_types`` has more."""
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
class LoadedRequest:
    """A request with what it points to."""

    request: Request  # the request
    visuals: Visuals  # its images
    continuation: str | None  # the text to score; ``None`` for a generation


class RequestReader:
    """Reads the requests of one call of the harness; keeps the images of the last document only."""

    def __init__(self, documents: Documents, scored: bool, taken: tuple[type, ...] = IMAGES) -> None:
        self._documents = documents
        self._scored = scored
        self._taken = taken
        self._last: tuple[tuple[Any, ...], Visuals] | None = None

    def read(self, request: Request) -> LoadedRequest:
        """Load the images and the continuation of a request; what the model does not take is an error."""
        continuation = None
        if self._scored:
            text = request.detail(self._document(request)) if callable(request.detail) else request.detail
            if not isinstance(text, str):
                raise TypeError(f"expected a continuation as text, got {type(text).__name__}")
            continuation = text
        place = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != place:
            self._last = place, Visuals(tuple(self._images(request)))
        return LoadedRequest(request, self._last[1], continuation)

    def _document(self, request: Request) -> Any:
        return self._documents[request.task][request.split][request.doc_id]

    def _images(self, request: Request) -> list[Any]:
        """Load images; a file name or an array that stands alone counts as a list of one. No message names a file."""
        visuals = None if request.doc_to_visual is None else request.doc_to_visual(self._document(request))
        if visuals is None:
            return []
        images = [visuals] if isinstance(visuals, str | Path | np.ndarray) else list(visuals)
        for image in images:
            if not isinstance(image, self._taken):
                alone = self._taken == IMAGES
                looks = "PIL images" if alone else "PIL images, file names, arrays and lists of slices"
                hint = "; choose another task, or radfm for volumes" * alone
                raise MedTasksError(f"this model looks at {looks}, the task yields {type(image).__name__}{hint}")
            if isinstance(image, list | tuple) and not all(isinstance(part, Image.Image) for part in image):
                raise MedTasksError("the task yields a list of something other than PIL images, which are no slices")
        return images


def _visual_digest(visual: Any) -> str:
    if isinstance(visual, Image.Image):
        # The indices of a palette image say nothing without the palette, nor a transparent colour without its name.
        indirect = visual.mode in ("P", "PA") or "transparency" in visual.info
        pixels = (visual.convert("RGBA") if indirect else visual).tobytes()
        return _digest(f"{visual.mode} {visual.size}", pixels)
    if isinstance(visual, np.ndarray):
        return _digest(f"array {visual.dtype.str} {visual.shape}", visual.tobytes())
    if not isinstance(visual, str | Path):
        return _digest(f"slices {' '.join(map(_visual_digest, visual))}")
    try:
        with Path(visual).open("rb") as file:
            # The ending decides how the file is read; its name and place say nothing about its voxels.
            content = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise MedTasksError(f"the file of a volume cannot be read ({error.strerror}); prepare the data anew") from error
    return _digest(f"file {Path(visual).suffix.lower()} ", content)


def _digest(head: str, content: bytes = b"") -> str:
    return hashlib.sha256(head.encode() + content).hexdigest()
