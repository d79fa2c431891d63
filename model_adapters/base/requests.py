"""The harness's requests: typed, in the order of work, with their images and texts, and run in batches.

A sample that fails costs no other one, and too many failures end the run.
"""

import contextlib
import functools
import hashlib
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from loguru import logger
from PIL import Image
from tqdm import tqdm

from medtasks.errors import MedTasksError
from medtasks.net.journal import Entry, Journal, digest_of
from medtasks.runs.redaction import redacted

Item = TypeVar("Item")
Result = TypeVar("Result")
TaskDocuments = Mapping[str, Mapping[str, Any]]
"""``documents[task][split][doc_id]`` is a document; the evaluator sets it as ``task_dict``."""
IMAGES: tuple[type, ...] = (Image.Image,)
"""Visuals that a model takes by default; see ``visual_types`` of its adapter."""
VOLUMES: tuple[type, ...] = (*IMAGES, str, Path, np.ndarray, list, tuple)
"""Images, and volumes: files, arrays, lists of images as slices."""
_IMAGE_ID = "image_id"  # column of documents, see ``medtasks.data.schema``: equal for equal images
_LONGEST_MESSAGE = 300  # characters
_NO_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")


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
        digest = hashlib.blake2b(
            f"{base}|{self.name}|{self.repeat}".encode(), digest_size=7
        ).digest()
        return int.from_bytes(digest, "big")


def read_requests(
    instances: Sequence[Any], kind: Literal["generate_until", "loglikelihood"]
) -> list[Request]:
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
        requests.append(
            Request(
                context,
                detail,
                doc_to_visual,
                doc_id,
                task,
                split,
                instance.idx,
                seen[key],
                padding,
            )
        )
        seen[key] += 1
    return requests


def plan_streams(
    requests: Sequence[Request],
    group: Callable[[Request], Hashable],
    unit: Callable[[Request], Hashable],
    documents: TaskDocuments | None = None,
) -> list[list[list[int]]]:
    """Return streams of units of positions in ``requests``: one stream per group, longest first.

    Requests of different groups never share a batch; neighbours with equal units stay in one batch, whatever its
    size. Length is measured in characters of the context, without loading images. The longest come first, so that
    memory runs out at once or never. With ``documents``, requests on one image by its ``image_id`` stay together,
    ordered by the longest of them. This is a hint only: pixels decide whether images are equal.
    """

    @functools.cache
    def without_images(task: str, split: str) -> Any:
        table = (documents or {})[task][split]
        if (columns := getattr(table, "column_names", None)) is None:
            return table
        return (
            table.select_columns([_IMAGE_ID]) if _IMAGE_ID in columns else []
        )  # other columns may hold images

    groups: dict[Hashable, list[int]] = {}
    images: list[tuple[str, ...]] = []
    longest: Counter[tuple[str, ...]] = Counter()
    for position, request in enumerate(requests):
        groups.setdefault(group(request), []).append(position)
        name = None
        if request.doc_to_visual is not None:
            # Another kind of document has no name; a missing one fails when it is loaded.
            with contextlib.suppress(LookupError, TypeError):
                name = without_images(request.task, request.split)[request.doc_id][_IMAGE_ID]
        images.append(() if name is None else (request.task, request.split, str(name)))
        longest[images[-1]] = max(longest[images[-1]], len(request.context))

    def order(position: int) -> tuple[Any, ...]:
        request, image = requests[position], images[position]
        length = len(request.context)
        origin = (
            request.task,
            request.split,
            request.doc_id,
            request.context,
            request.index,
            position,
        )
        return -(longest[image] if image else length), image, -length, *origin

    return [
        [
            list(run)
            for _, run in itertools.groupby(
                sorted(positions, key=order), key=lambda at: unit(requests[at])
            )
        ]
        for positions in groups.values()
    ]


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

    def __init__(
        self, documents: TaskDocuments, scored: bool, visual_types: tuple[type, ...] = IMAGES
    ) -> None:
        self._documents = documents
        self._scored = scored
        self._visual_types = visual_types
        self._last: tuple[tuple[Any, ...], Visuals] | None = None

    def read(self, request: Request) -> LoadedRequest:
        """Load images and continuation of a request; visuals of an unknown type are an error, which names no file."""

        def document() -> Any:
            return self._documents[request.task][request.split][request.doc_id]

        continuation = None
        if self._scored:
            continuation = (
                request.detail(document()) if callable(request.detail) else request.detail
            )
            if not isinstance(continuation, str):
                raise TypeError(
                    f"expected a continuation as text, got {type(continuation).__name__}"
                )
        origin = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != origin:
            visuals = None if request.doc_to_visual is None else request.doc_to_visual(document())
            visuals = () if visuals is None else visuals
            images = [visuals] if isinstance(visuals, str | Path | np.ndarray) else list(visuals)
            for image in images:
                if not isinstance(image, self._visual_types):
                    flat = self._visual_types == IMAGES
                    accepted = (
                        "PIL images"
                        if flat
                        else "PIL images, file names, arrays and lists of slices"
                    )
                    hint = "; choose another task, or radfm for volumes" * flat
                    raise MedTasksError(
                        f"this model takes {accepted}, the task yields {type(image).__name__}{hint}"
                    )
                if isinstance(image, list | tuple) and not all(
                    isinstance(part, Image.Image) for part in image
                ):
                    raise MedTasksError(
                        "the task yields a list of something other than PIL images, which are no slices"
                    )
            self._last = origin, Visuals(tuple(images))
        return LoadedRequest(request, self._last[1], continuation)


def _visual_digest(visual: Any) -> str:
    content = b""
    if isinstance(visual, Image.Image):
        # The indices of a palette image have no meaning without the palette, nor has a named transparent colour.
        indirect = visual.mode in ("P", "PA") or "transparency" in visual.info
        head, content = (
            f"{visual.mode} {visual.size}",
            (visual.convert("RGBA") if indirect else visual).tobytes(),
        )
    elif isinstance(visual, np.ndarray):
        head, content = f"array {visual.dtype.str} {visual.shape}", visual.tobytes()
    elif not isinstance(visual, str | Path):
        head = f"slices {' '.join(map(_visual_digest, visual))}"
    else:
        # The ending decides how the file is read; its name and folder do not matter.
        head = f"file {Path(visual).suffix.lower()} "
        try:
            with Path(visual).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        except OSError as error:
            raise MedTasksError(
                f"the file of a volume cannot be read ({error.strerror}); prepare the data anew"
            ) from error
    return hashlib.sha256(head.encode() + content).hexdigest()


class FailureLog:
    """The failures of one call of the harness."""

    def __init__(
        self, kind: str, requests: int, max_failed: float, *, quotes: bool = False
    ) -> None:
        self._kind, self._requests, self._max_failed = kind, requests, max_failed
        self._quotes = quotes
        self._causes: Counter[str] = Counter()
        self._first: str | None = None

    def record(self, request: Request, error: Exception) -> str:
        """Count and log one failed request, and return the cause; padding between ranks is not counted.

        One of our errors is described by its message, or by its ``loggable`` message. Another is described by its type
        and the innermost line of code. Its message may repeat the prompt, a patient's file or the document, and is
        added where errors are quoted.
        """
        if isinstance(error, MedTasksError):
            cause = str(getattr(error, "loggable", error))
        else:
            last = traceback.extract_tb(error.__traceback__)[-1:]
            location = "".join(
                f" at {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in last
            )
            cause = f"{type(error).__name__}{location}"
            if self._quotes or isinstance(error, torch.OutOfMemoryError):
                message = " ".join(redacted(str(error)).split())
                cause = f"{cause}: {message[:_LONGEST_MESSAGE]}".rstrip(": ")
        if not request.padding:
            self._causes[cause] += 1
            self._first = self._first or request.name
            logger.warning("{} failed on {}: {}", self._kind, request.name, cause)
        return cause

    def check_first(self, done: int, enough: int) -> None:
        """End the run if ``enough`` requests are done and all of them failed."""
        if done >= enough and self._causes.total() == done:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"the first {done} {self._kind} requests all failed, most often ({times}x) {cause}"
            )

    def settle(self) -> None:
        """End the run if more requests failed than are allowed."""
        failed = self._causes.total()
        allowed = max(int(self._max_failed * self._requests), 1 if self._max_failed > 0 else 0)
        if failed > allowed:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"{failed} of {self._requests} {self._kind} requests failed, {allowed} may "
                f"(max_failed={self._max_failed:g}); first {self._first}, most often ({times}x) {cause}. Fix the "
                f"cause, or let more fail with --model_args max_failed=1."
            )


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """Work of a model on one kind of request."""

    kind: str  # name of the harness's call
    prepare: Callable[
        [LoadedRequest], Item
    ]  # turns one sample into model input; may fail for that sample alone
    length: Callable[[Item], int]  # tokens of a prepared sample
    # Runs the model on a batch; results in the same order. An exception in place of one is the failure of this sample.
    execute: Callable[[Sequence[Item]], Sequence[Result | Exception]]
    fallback: Callable[[str], Result]  # makes the result of a failed sample from the cause
    decisive: Callable[
        [LoadedRequest], object
    ]  # decides about an answer, besides model, context and images
    stored: Callable[
        [Result], Mapping[str, Any]
    ]  # from a result to the fields that the journal keeps
    restored: Callable[..., Result]  # back from the fields


@dataclass(frozen=True)
class _Prepared(Generic[Item]):
    """A request in a batch; without an item it is done, because it failed or comes from the journal."""

    position: int  # in the call
    tokens: int
    key: str = ""
    item: Item | None = None


@dataclass
class BatchRunner(Generic[Item, Result]):
    """One call of the harness. Only ``Exception`` is caught: an interrupt by the user ends the run."""

    requests: Sequence[Request]  # all requests of the call
    work: Work[Item, Result]
    reader: RequestReader
    most_rows: int  # requests in a batch
    most_tokens: int | None  # tokens in a batch, padding included; ``None`` for any number
    failures: FailureLog
    journal: Journal | None
    progress: "tqdm[Any]"  # advanced by one per request
    stops_after: int | None = (
        None  # requests; if these are the first and all of them fail, the run stops
    )
    replayed: int = 0  # answers that came from the journal
    copied: set[tuple[str, int]] = field(
        default_factory=set
    )  # samples with one that another run asked for
    _results: dict[int, Result] = field(default_factory=dict)
    _fitting: int | None = None  # largest batch that fits into memory, once a larger one did not

    def run(self, streams: Iterable[Iterable[Sequence[int]]]) -> list[Result]:
        """Run streams of units of positions, see ``plan_streams``; returns results in the order of ``requests``."""
        for stream in streams:
            batch: list[_Prepared[Item]] = []
            for unit in stream:
                prepared = [self._take(position) for position in unit]
                rows, longest = (
                    len(batch) + len(prepared),
                    max(row.tokens for row in (*batch, *prepared)),
                )
                is_too_long = self.most_tokens is not None and rows * longest > self.most_tokens
                if batch and (rows > self.most_rows or is_too_long):
                    self._finish(batch)
                    batch = []
                batch += prepared
            self._finish(batch)
        return [self._results[position] for position in range(len(self.requests))]

    def _take(self, position: int) -> _Prepared[Item]:
        """Prepare one request, or find its answer in the journal."""
        try:
            loaded, key = self.reader.read(self.requests[position]), ""
            if self.journal is not None:
                request, work = loaded.request, self.work
                origin = request.task, request.split, request.doc_id, request.index, request.repeat
                key = digest_of(
                    work.kind,
                    origin,
                    request.context,
                    loaded.visuals.digests,
                    work.decisive(loaded),
                )
                entry = self.journal.replay(key)
                if entry is not None:
                    self._results[position] = self.work.restored(**entry.answer)
                    self.replayed += 1
                    if self.journal.is_copy(entry):
                        self.copied.add((request.task, request.doc_id))
                    return _Prepared(position, entry.tokens)
            item = self.work.prepare(loaded)
            return _Prepared(position, self.work.length(item), key, item)
        except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
            self._fail(position, error)
            return _Prepared(position, 0)

    def _fail(self, position: int, error: Exception) -> None:
        self._results[position] = self.work.fallback(
            self.failures.record(self.requests[position], error)
        )

    def _finish(self, batch: Sequence[_Prepared[Item]]) -> None:
        unanswered = [row for row in batch if row.item is not None]
        size = self._fitting or max(len(unanswered), 1)
        for start in range(0, len(unanswered), size):
            self._execute(unanswered[start : start + size])
        self.progress.update(len(batch))
        if self.stops_after:
            self.failures.check_first(len(self._results), self.stops_after)

    def _execute(self, batch: Sequence[_Prepared[Item]]) -> int:
        """Run requests at once, or in parts where that fails; returns the largest size that could be run."""
        try:
            results = self.work.execute([row.item for row in batch if row.item is not None])
            done = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(batch) == 1:
                self._fail(batch[0].position, error)
                return 0
            # Parts of torch have no own type for it.
            full = isinstance(error, torch.OutOfMemoryError | MemoryError) or (
                isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
            )
        else:
            entries: dict[str, Entry] = {}
            for row, result in done:
                if isinstance(result, Exception):
                    self._fail(row.position, result)
                else:
                    self._results[row.position] = result
                    entries[row.key] = Entry(self.work.stored(result), row.tokens)
            if self.journal is not None:
                self.journal.add(entries)
            return len(batch)
        # Outside of the handler, which holds the tensors of the failed pass.
        if not full:  # one by one, so that only the culprit fails
            return max(self._execute([row]) for row in batch)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        first = self._fitting is None
        self._fitting = half = (len(batch) + 1) // 2
        # A single huge sample fails at every size; the size that its neighbours ran at counts.
        self._fitting = max(1, *(self._execute(part) for part in (batch[:half], batch[half:])))
        if first:
            logger.warning(
                f"{self.work.kind} ran out of memory with {len(batch)} requests at once and goes on with "
                f"{self._fitting}; set a smaller batch_size or batch_tokens in --model_args to save the repeated work."
            )
        return self._fitting
