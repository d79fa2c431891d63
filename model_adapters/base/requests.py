"""The harness's requests: typed, in the order of work, with their images and texts, and run in batches.

``MedicalAdapter`` calls it. A sample that fails costs no other one, too many failures end the run, and no message may
name a patient's file or quote a prompt unless the task allows it.
"""

import contextlib
import functools
import hashlib
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
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
from medtasks.runs.redaction import redact

from .batching import group_positions

Item = TypeVar("Item")
Result = TypeVar("Result")
TaskDocuments = Mapping[str, Mapping[str, Any]]
"""``documents[task][split][doc_id]`` is a document; the evaluator sets it as ``task_dict``."""
IMAGES: tuple[type, ...] = (Image.Image,)
"""Visuals that a model takes by default; see ``visual_types`` of its adapter."""
VOLUMES: tuple[type, ...] = (*IMAGES, str, Path, np.ndarray, list, tuple)
"""Images, and volumes: files, arrays, lists of images as slices."""
Streams = list[list[list[int]]]
"""Order of work: streams of units of positions of requests. A unit stays in one batch."""
# Column of documents, see ``medtasks.data.schema``: equal for equal images
_IMAGE_ID = "image_id"
_LONGEST_MESSAGE = 300  # characters
_NO_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")


@dataclass(frozen=True)
class Request:
    """One request of the harness."""

    context: str  # prompt text
    # ``gen_kwargs``, or the continuation to score: its text, or a function of the document
    detail: Any
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
        """Return a seed that depends on this request alone, not on its batch, rank or position.

        Args:
            base: Seed of the run.
        """
        origin = f"{base}|{self.name}|{self.repeat}"
        digest = hashlib.blake2b(origin.encode(), digest_size=7)
        return int.from_bytes(digest.digest(), "big")


def read_requests(
    instances: Sequence[Any], kind: Literal["generate_until", "loglikelihood"]
) -> list[Request]:
    """Turn the harness's ``Instance`` objects into requests, in the same order.

    Raises:
        MedTasksError: An instance is of another kind than simple-type models get.
    """
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
        requests.append(
            Request(
                context,
                detail,
                doc_to_visual,
                doc_id,
                task,
                split,
                index=instance.idx,
                repeat=seen[key],
                padding=bool((instance.metadata or {}).get("__padding_only__")),
            )
        )
        seen[key] += 1
    return requests


def plan_streams(
    requests: Sequence[Request],
    group: Callable[[Request], Hashable],
    unit: Callable[[Request], Hashable],
    documents: TaskDocuments | None = None,
) -> Streams:
    """Plan the order of work.

    Length is measured in characters of the context, without loading images. The longest come first, so that memory
    runs out at once or never.

    Args:
        requests: Requests of one call of the harness.
        group: Requests of different groups never share a batch.
        unit: Neighbours with equal units stay in one batch, whatever its size.
        documents: If given, requests on one image by its ``image_id`` stay together, ordered by the longest of them.
            This is a hint only: pixels decide whether images are equal.

    Returns:
        One stream per group: units of positions in ``requests``, longest first.
    """
    groups = group_positions(map(group, requests))
    images = _image_names(requests, documents or {})
    longest: Counter[tuple[str, ...]] = Counter()  # context on each image
    for image, request in zip(images, requests, strict=True):
        longest[image] = max(longest[image], len(request.context))

    def order(position: int) -> tuple[Any, ...]:
        """Return the key of a request: the longest context on its image, its image, its own length, its origin."""
        request = requests[position]
        image = images[position]
        length = len(request.context)
        return (
            -(longest[image] if image else length),
            image,
            -length,
            request.task,
            request.split,
            request.doc_id,
            request.context,
            request.index,
            position,
        )

    streams = []
    for positions in groups.values():
        runs = itertools.groupby(
            sorted(positions, key=order), key=lambda at: unit(requests[at])
        )
        streams.append([list(run) for _, run in runs])
    return streams


def _image_names(
    requests: Sequence[Request], documents: TaskDocuments
) -> list[tuple[str, ...]]:
    """Return per request task, split and ``image_id``, or an empty tuple where its image has no id."""

    @functools.cache
    def without_images(task: str, split: str) -> Any:
        """Return the documents of a split without columns of images, none if no column holds image ids."""
        table = documents[task][split]
        columns = getattr(table, "column_names", None)
        if columns is None:
            return table
        # Other columns may hold images, which reading a row would decode.
        return table.select_columns([_IMAGE_ID]) if _IMAGE_ID in columns else []

    names: list[tuple[str, ...]] = []
    for request in requests:
        name = None
        if request.doc_to_visual is not None:
            # Another kind of document has no name; a missing one fails when it is loaded.
            with contextlib.suppress(LookupError, TypeError):
                name = without_images(request.task, request.split)[request.doc_id][_IMAGE_ID]
        names.append(() if name is None else (request.task, request.split, str(name)))
    return names


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # Parts of torch have no own type for it.
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)


@dataclass(frozen=True)
class Visuals:
    """The images of a document, or volumes, see :data:`VOLUMES`."""

    images: tuple[Any, ...]

    @cached_property
    def digests(self) -> list[str]:
        """One digest per image, of everything that decides about its pixels. Errors do not name a volume's file."""
        return [_visual_digest(image) for image in self.images]


@dataclass(frozen=True)
class LoadedRequest:
    """A request with what it points to."""

    request: Request
    visuals: Visuals
    continuation: str | None  # the text to score; ``None`` for a generation


@dataclass
class RequestReader:
    """Reads the requests of one call of the harness. It holds the images of the last document only."""

    documents: TaskDocuments
    scored: bool  # whether the requests have a continuation to score
    visual_types: tuple[type, ...] = IMAGES  # types that the model takes as image
    _last: tuple[tuple[Any, ...], Visuals] | None = None  # origin and images of that document

    def read(self, request: Request) -> LoadedRequest:
        """Load images and continuation of a request.

        Args:
            request: Requests on the same document should follow each other.

        Raises:
            MedTasksError: A visual is of a type that the model does not take. The message names no file.
            TypeError: The continuation is no text.
        """
        continuation = None
        if self.scored:
            continuation = request.detail
            if callable(continuation):
                continuation = continuation(self._document(request))
            if not isinstance(continuation, str):
                raise TypeError(
                    f"expected a continuation as text, got {type(continuation).__name__}"
                )
        origin = (request.task, request.split, request.doc_id, request.doc_to_visual)
        if self._last is None or self._last[0] != origin:
            self._last = origin, self._visuals(request)
        return LoadedRequest(request, self._last[1], continuation)

    def _document(self, request: Request) -> Any:
        return self.documents[request.task][request.split][request.doc_id]

    def _visuals(self, request: Request) -> Visuals:
        """Load the images of a request's document, none if it has none.

        Raises:
            MedTasksError: The model does not take a visual of this type, or something other than images is a slice.
        """
        if request.doc_to_visual is None:
            return Visuals(())
        visuals = request.doc_to_visual(self._document(request))
        if visuals is None:
            return Visuals(())
        images = [visuals] if isinstance(visuals, str | Path | np.ndarray) else list(visuals)
        for image in images:
            if not isinstance(image, self.visual_types):
                accepted = "PIL images, file names, arrays and lists of slices"
                hint = ""
                if self.visual_types == IMAGES:
                    accepted = "PIL images"
                    hint = "; choose another task, or radfm for volumes"
                raise MedTasksError(
                    f"this model takes {accepted}, the task yields {type(image).__name__}{hint}"
                )
            slices = image if isinstance(image, list | tuple) else ()
            if not all(isinstance(part, Image.Image) for part in slices):
                raise MedTasksError(
                    "the task yields a list of something other than PIL images, which are no slices"
                )
        return Visuals(tuple(images))


def _visual_digest(visual: Any) -> str:
    """Return a digest of everything that decides about the pixels of an image or a volume.

    Raises:
        MedTasksError: The file of a volume cannot be read. The message does not name it.
    """
    content = b""
    if isinstance(visual, Image.Image):
        head = f"{visual.mode} {visual.size}"
        # The indices of a palette image have no meaning without the palette, nor has a named transparent colour.
        if visual.mode in ("P", "PA") or "transparency" in visual.info:
            visual = visual.convert("RGBA")
        content = visual.tobytes()
    elif isinstance(visual, np.ndarray):
        head = f"array {visual.dtype.str} {visual.shape}"
        content = visual.tobytes()
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


@dataclass
class FailureLog:
    """The failures of one call of the harness."""

    kind: str  # name of the call
    requests: int  # number of its requests, without padding
    max_failed: float  # share of them that may fail
    quotes: bool = field(default=False, kw_only=True)  # whether messages of errors are quoted
    _causes: Counter[str] = field(default_factory=Counter)  # number of failures by cause
    _first: str | None = None  # name of the first request that failed

    def record(self, request: Request, error: Exception) -> str:
        """Count and log one failed request. Padding between ranks is not counted.

        Returns:
            The cause. One of our errors is described by its message, or by its ``loggable`` message. Another is
            described by its type and the innermost line of code: its message may repeat the prompt, a patient's file or
            the document, and is added where errors are quoted.
        """
        if isinstance(error, MedTasksError):
            cause = str(getattr(error, "loggable", error))
        else:
            cause = type(error).__name__
            for frame in traceback.extract_tb(error.__traceback__)[-1:]:
                cause += f" at {Path(frame.filename).name}:{frame.lineno} in {frame.name}"
            if self.quotes or isinstance(error, torch.OutOfMemoryError):
                message = " ".join(redact(str(error)).split())
                cause = f"{cause}: {message[:_LONGEST_MESSAGE]}".rstrip(": ")
        if not request.padding:
            self._causes[cause] += 1
            self._first = self._first or request.name
            logger.warning("{} failed on {}: {}", self.kind, request.name, cause)
        return cause

    def check_first(self, done: int, enough: int) -> None:
        """End the run early if nothing works.

        Args:
            done: Requests done so far.
            enough: Number from which it counts that all of them failed.

        Raises:
            MedTasksError: ``enough`` requests are done and all failed.
        """
        if done >= enough and self._causes.total() == done:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"the first {done} {self.kind} requests all failed, most often ({times}x) {cause}"
            )

    def settle(self) -> None:
        """Check the number of failures at the end of a run.

        Raises:
            MedTasksError: More requests failed than are allowed.
        """
        failed = self._causes.total()
        allowed = int(self.max_failed * self.requests)
        if self.max_failed > 0:
            allowed = max(allowed, 1)
        if failed > allowed:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"{failed} of {self.requests} {self.kind} requests failed, {allowed} may "
                f"(max_failed={self.max_failed:g}); first {self._first}, most often ({times}x) {cause}. Fix the "
                f"cause, or let more fail with --model_args max_failed=1."
            )


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """Work of a model on one kind of request."""

    kind: str  # name of the harness's call
    # Turns one sample into model input; may fail for that sample alone.
    prepare: Callable[[LoadedRequest], Item]
    length: Callable[[Item], int]  # tokens of a prepared sample
    # Runs the model on a batch; results in the same order. An exception in place of one is the failure of this sample.
    execute: Callable[[Sequence[Item]], Sequence[Result | Exception]]
    fallback: Callable[[str], Result]  # makes the result of a failed sample from the cause
    # Decides about an answer, besides model, context and images.
    decisive: Callable[[LoadedRequest], object]
    stored: Callable[[Result], Mapping[str, Any]]  # from a result to the journal's fields
    restored: Callable[..., Result]  # back from the fields


@dataclass(frozen=True)
class _Prepared(Generic[Item]):
    """A request in a batch. Without an item it is done, because it failed or comes from the journal."""

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
    most_rows: int  # requests in a batch, unless one unit has more
    most_tokens: float  # tokens in a batch, padding included
    failures: FailureLog
    journal: Journal | None
    progress: "tqdm[Any]"  # advanced by one per request
    stops_after: int | None = None  # requests after which the run stops if all of them failed
    replayed: int = 0  # answers that came from the journal
    # Samples with an answer that another run asked for.
    copied: set[tuple[str, int]] = field(default_factory=set)
    _results: dict[int, Result] = field(default_factory=dict)
    # Largest batch that fits into memory, once a larger one did not
    _fitting: int | None = None

    def run(self, streams: Streams) -> list[Result]:
        """Run requests in batches.

        Args:
            streams: Units of positions in ``requests``, as ``plan_streams`` orders them.

        Returns:
            One result per request, in the order of ``requests``.
        """
        for stream in streams:
            batch: list[_Prepared[Item]] = []
            for unit in stream:
                prepared = [self._take(position) for position in unit]
                rows = [*batch, *prepared]
                # All are padded to the longest of them.
                tokens = len(rows) * max(row.tokens for row in rows)
                if len(rows) <= self.most_rows and tokens <= self.most_tokens:
                    batch = rows
                    continue
                if batch:
                    self._finish(batch)
                batch = prepared
            self._finish(batch)
        return [self._results[position] for position in range(len(self.requests))]

    def _take(self, position: int) -> _Prepared[Item]:
        """Prepare one request, or find its answer in the journal."""
        try:
            request = self.requests[position]
            loaded = self.reader.read(request)
            key = ""
            if self.journal is not None:
                key = digest_of(
                    self.work.kind,
                    (
                        request.task,
                        request.split,
                        request.doc_id,
                        request.index,
                        request.repeat,
                    ),
                    request.context,
                    loaded.visuals.digests,
                    self.work.decisive(loaded),
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
        cause = self.failures.record(self.requests[position], error)
        self._results[position] = self.work.fallback(cause)

    def _finish(self, batch: Sequence[_Prepared[Item]]) -> None:
        """Run the requests of a batch that have no result yet, at most as many at once as fitted into memory.

        Raises:
            MedTasksError: All requests so far failed, and these are enough to stop.
        """
        unanswered = [row for row in batch if row.item is not None]
        size = self._fitting or max(len(unanswered), 1)
        for start in range(0, len(unanswered), size):
            self._execute(unanswered[start : start + size])
        self.progress.update(len(batch))
        if self.stops_after:
            self.failures.check_first(len(self._results), self.stops_after)

    def _execute(self, batch: Sequence[_Prepared[Item]]) -> int:
        """Run requests at once, or in parts where that fails.

        Returns:
            The largest size that could be run; 0 where a single request failed.
        """
        try:
            results = self.work.execute([row.item for row in batch if row.item is not None])
            answers = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(batch) == 1:
                self._fail(batch[0].position, error)
                return 0
            is_full = _is_out_of_memory(error)
        else:
            entries: dict[str, Entry] = {}
            for row, result in answers:
                if isinstance(result, Exception):
                    self._fail(row.position, result)
                else:
                    self._results[row.position] = result
                    entries[row.key] = Entry(self.work.stored(result), row.tokens)
            if self.journal is not None:
                self.journal.add(entries)
            return len(batch)
        # Outside of the handler, which holds the tensors of the failed pass.
        if is_full:
            return self._halve(batch)
        return max(self._execute([row]) for row in batch)  # so that only the culprit fails

    def _halve(self, batch: Sequence[_Prepared[Item]]) -> int:
        """Run a batch that did not fit into memory in two parts."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        is_first = self._fitting is None
        self._fitting = half = (len(batch) + 1) // 2
        sizes = [self._execute(batch[:half]), self._execute(batch[half:])]
        # A single huge sample fails at every size; the size that its neighbours ran at counts.
        self._fitting = max(1, *sizes)
        if is_first:
            logger.warning(
                f"{self.work.kind} ran out of memory with {len(batch)} requests at once and goes on with "
                f"{self._fitting}; set a smaller batch_size or batch_tokens in --model_args to save the repeated work."
            )
        return self._fitting
