"""Running batches: a sample that fails costs no other one, and too many failures end the run."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from loguru import logger
from tqdm import tqdm

from medtasks.errors import MedTasksError
from medtasks.net.journal import Entry, Journal, digest_of

from .requests import LoadedRequest, Request, RequestReader

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")


def cause_of(error: BaseException) -> str:
    """Describe an error for logs and results: one of ours by its message, or by its ``loggable`` message if it has one.

    Other messages may quote the prompt, a file of a patient or the document itself: such an error is described by its
    type and the innermost line of code.
    """
    if isinstance(error, MedTasksError):
        return str(getattr(error, "loggable", error))
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    message = f": {error}" if isinstance(error, torch.OutOfMemoryError) else ""
    return f"{type(error).__name__}{location}{message}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which a smaller batch may fix; parts of torch have no own type for it."""
    is_named = isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    return is_named or isinstance(error, torch.OutOfMemoryError | MemoryError)


class FailureLog:
    """The failures of one call of the harness."""

    def __init__(self, kind: str, requests: int, max_failed: float) -> None:
        self._kind = kind
        self._requests = requests
        self._max_failed = max_failed
        self._causes: Counter[str] = Counter()
        self._first: str | None = None

    @property
    def allowed(self) -> int:
        """Number of failures that do not stop the run."""
        return max(int(self._max_failed * self._requests), 1 if self._max_failed > 0 else 0)

    def record(self, request: Request, error: Exception) -> str:
        """Count and log one failed request, and return the cause; padding between ranks is not counted."""
        cause = cause_of(error)
        if not request.padding:
            self._causes[cause] += 1
            self._first = self._first or request.name
            logger.warning("{} failed on {}: {}", self._kind, request.name, cause)
        return cause

    def check_first(self, done: int, enough: int) -> None:
        """End the run if ``enough`` requests are done and all of them failed, unless all may fail."""
        if done >= enough and self._causes.total() == done and self._max_failed < 1:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(f"the first {done} {self._kind} requests all failed, most often ({times}x) {cause}")

    def settle(self) -> None:
        """End the run if more requests failed than are allowed."""
        failed = self._causes.total()
        if failed > self.allowed:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"{failed} of {self._requests} {self._kind} requests failed, {self.allowed} may "
                f"(max_failed={self._max_failed:g}); first {self._first}, most often ({times}x) {cause}. Fix the "
                f"cause, or let more fail with --model_args max_failed=1."
            )


@dataclass(frozen=True)
class BatchBudget:
    """Size of a batch."""

    rows: int  # largest number of requests
    tokens: int | None  # largest number of tokens, padding included; ``None`` for any

    def takes(self, rows: int, longest: int) -> bool:
        """Return whether a batch of ``rows`` requests fits, with ``longest`` tokens in the longest one."""
        return rows <= self.rows and (self.tokens is None or rows * longest <= self.tokens)


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """Work of a model on one kind of request."""

    kind: str  # name of the harness's call
    prepare: Callable[[LoadedRequest], Item]  # turns one sample into model input; may fail for that sample alone
    length: Callable[[Item], int]  # tokens of a prepared sample
    execute: Callable[[Sequence[Item]], Sequence[Result]]  # runs the model on a batch; results in the same order
    fallback: Callable[[str], Result]  # makes the result of a failed sample from the cause
    decisive: Callable[[LoadedRequest], object]  # decides about an answer, besides model, context and images
    stored: Callable[[Result], Mapping[str, Any]]  # from a result to the fields that the journal keeps
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
    budget: BatchBudget
    failures: FailureLog
    journal: Journal | None
    progress: "tqdm[Any]"  # advanced by one per request
    replayed: int = 0  # answers that came from the journal
    _results: dict[int, Result] = field(default_factory=dict)
    _most: int | None = None  # largest batch that fits into memory, once a larger one did not

    def run(self, streams: Iterable[Iterable[Sequence[int]]]) -> list[Result]:
        """Run streams of units of positions, see ``plan_streams``; returns results in the order of ``requests``."""
        for stream in streams:
            batch: list[_Prepared[Item]] = []
            for unit in stream:
                prepared = [self._take(position) for position in unit]
                longest = max(row.tokens for row in (*batch, *prepared))
                if batch and not self.budget.takes(len(batch) + len(prepared), longest):
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
                key = digest_of(work.kind, origin, request.context, loaded.visuals.digests, work.decisive(loaded))
                entry = self.journal.replay(key)
                if entry is not None:
                    self._results[position] = self.work.restored(**entry.answer)
                    self.replayed += 1
                    return _Prepared(position, entry.tokens)
            item = self.work.prepare(loaded)
            return _Prepared(position, self.work.length(item), key, item)
        except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
            self._fail(position, error)
            return _Prepared(position, 0)

    def _finish(self, batch: Sequence[_Prepared[Item]]) -> None:
        unanswered = [row for row in batch if row.item is not None]
        size = self._most or max(len(unanswered), 1)
        for start in range(0, len(unanswered), size):
            self._execute(unanswered[start : start + size])
        self.progress.update(len(batch))

    def _execute(self, batch: Sequence[_Prepared[Item]]) -> int:
        """Run requests at once, or in parts where that fails; returns the largest size that could be run."""
        try:
            results = self.work.execute([row.item for row in batch if row.item is not None])
            done = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(batch) == 1:
                self._fail(batch[0].position, error)
                return 0
            full = is_out_of_memory(error)
        else:
            self._results |= {row.position: result for row, result in done}
            if self.journal is not None:
                self.journal.add({row.key: Entry(self.work.stored(result), row.tokens) for row, result in done})
            return len(batch)
        # Outside of the handler, which holds the tensors of the failed pass.
        if not full:  # one by one, so that only the culprit fails
            return max(self._execute([row]) for row in batch)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        first = self._most is None
        self._most = half = (len(batch) + 1) // 2
        # A single huge sample fails at every size; the size that its neighbours ran at counts.
        self._most = max(1, *(self._execute(part) for part in (batch[:half], batch[half:])))
        if first:
            logger.warning(
                f"{self.work.kind} ran out of memory with {len(batch)} requests at once and goes on with "
                f"{self._most}; set a smaller batch_size or batch_tokens in --model_args to save the repeated work."
            )
        return self._most

    def _fail(self, position: int, error: Exception) -> None:
        self._results[position] = self.work.fallback(self.failures.record(self.requests[position], error))
