"""Running batches so that a sample that cannot be run costs that sample and no other; many cost the run."""

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

    Other messages may quote the prompt, a file of a patient or the document itself. Of these errors it is the type, and
    the innermost line of code that raised, without its content.
    """
    if isinstance(error, MedTasksError):
        return str(getattr(error, "loggable", error))
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    message = f": {error}" if isinstance(error, torch.OutOfMemoryError) else ""
    return f"{type(error).__name__}{place}{message}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which a smaller batch may fix; parts of torch have no own type for it."""
    told = isinstance(error, RuntimeError) and any(text in str(error) for text in _NO_MEMORY)
    return told or isinstance(error, torch.OutOfMemoryError | MemoryError)


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
        """Note and log one failed request, and return the cause; padding between ranks is not counted."""
        cause = cause_of(error)
        if not request.padding:
            self._causes[cause] += 1
            self._first = self._first or request.name
            logger.warning("{} failed on {}: {}", self._kind, request.name, cause)
        return cause

    def check_first(self, done: int, enough: int) -> None:
        """End the run where so many requests are done and all of them failed, unless all may fail."""
        if done >= enough and self._causes.total() == done and self._max_failed < 1:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(f"the first {done} {self._kind} requests all failed, most often ({times}x) {cause}")

    def settle(self) -> None:
        """Close the call: with more failures than are allowed, the run ends."""
        failed = self._causes.total()
        if failed > self.allowed:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"{failed} of {self._requests} {self._kind} requests failed, {self.allowed} may "
                f"(max_failed={self._max_failed:g}); first {self._first}, most often ({times}x) {cause}. Mend the "
                f"cause, or let more fail with --model_args max_failed=1."
            )


@dataclass(frozen=True)
class BatchBudget:
    """Size of a batch."""

    rows: int  # largest number of requests
    tokens: int | None  # largest number of tokens, padding included; ``None`` for any

    def takes(self, rows: int, longest: int) -> bool:
        """Return whether that many requests fit, of which the longest has so many tokens."""
        return rows <= self.rows and (self.tokens is None or rows * longest <= self.tokens)


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """Work of a model on one kind of request."""

    kind: str  # name of the harness's call
    prepare: Callable[[LoadedRequest], Item]  # turns one sample into model input; may fail for that sample alone
    length: Callable[[Item], int]  # tokens of a prepared sample
    # runs the model on a batch of prepared samples; results in the same order
    execute: Callable[[Sequence[Item]], Sequence[Result]]
    fallback: Callable[[str], Result]  # makes the result of a failed sample from the cause
    # all that decides about an answer besides model, context and images
    decisive: Callable[[LoadedRequest], object]
    stored: Callable[[Result], Mapping[str, Any]]  # from a result to the fields that the journal keeps
    restored: Callable[..., Result]  # back from the fields


@dataclass(frozen=True)
class _Prepared(Generic[Item]):
    """A request that waits for its batch; without an item it is done, because it failed or was answered before."""

    position: int  # in the call
    tokens: int
    key: str = ""
    item: Item | None = None


@dataclass
class BatchRunner(Generic[Item, Result]):
    """One call of the harness. Only ``Exception`` is caught: an interrupt by the user ends the run."""

    requests: Sequence[Request]  # all requests of the call
    work: Work[Item, Result]  # what is to be done
    reader: RequestReader  # loads images and texts
    budget: BatchBudget  # size of a batch
    failures: FailureLog  # counts the failures
    journal: Journal | None  # where answers are kept; ``None`` for nowhere
    progress: "tqdm[Any]"  # bar that is advanced by one per request
    replayed: int = 0  # answers that came from the journal
    _results: dict[int, Result] = field(default_factory=dict)
    _most: int | None = None  # requests that the memory was found to hold

    def run(self, streams: Iterable[Iterable[Sequence[int]]]) -> list[Result]:
        """Run streams of units of positions, see ``plan_streams``; returns results in the order of ``requests``."""
        for stream in streams:
            batch: list[_Prepared[Item]] = []
            for unit in stream:
                taken = [self._take(position) for position in unit]
                longest = max(one.tokens for one in (*batch, *taken))
                if batch and not self.budget.takes(len(batch) + len(taken), longest):
                    self._finish(batch)
                    batch = []
                batch += taken
            self._finish(batch)
        return [self._results[position] for position in range(len(self.requests))]

    def _take(self, position: int) -> _Prepared[Item]:
        """Prepare one request, or find its answer in the journal."""
        try:
            loaded, key = self.reader.read(self.requests[position]), ""
            if self.journal is not None:
                request, work = loaded.request, self.work
                place = request.task, request.split, request.doc_id, request.index, request.repeat
                key = digest_of(work.kind, place, request.context, loaded.visuals.digests, work.decisive(loaded))
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
        left = [one for one in batch if one.item is not None]
        size = self._most or max(len(left), 1)
        for start in range(0, len(left), size):
            self._execute(left[start : start + size])
        self.progress.update(len(batch))

    def _execute(self, batch: Sequence[_Prepared[Item]]) -> int:
        """Run some requests at once, or in parts where that fails; returns the largest size that could be run."""
        try:
            results = self.work.execute([one.item for one in batch if one.item is not None])
            done = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(batch) == 1:
                self._fail(batch[0].position, error)
                return 0
            full = is_out_of_memory(error)
        else:
            self._results |= {one.position: result for one, result in done}
            if self.journal is not None:
                self.journal.add({one.key: Entry(self.work.stored(result), one.tokens) for one, result in done})
            return len(batch)
        # Outside of the handler, which holds the tensors of the failed pass.
        if not full:  # one by one, so that only the culprit fails
            return max(self._execute([one]) for one in batch)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        first = self._most is None
        self._most = half = (len(batch) + 1) // 2
        # A single huge sample fails at every size; what its neighbours could be run at counts.
        self._most = max(1, *(self._execute(part) for part in (batch[:half], batch[half:])))
        if first:
            logger.warning(
                f"{self.work.kind} ran out of memory with {len(batch)} requests at once and goes on with "
                f"{self._most}; set a smaller batch_size or batch_tokens in --model_args to save the repeated work."
            )
        return self._most

    def _fail(self, position: int, error: Exception) -> None:
        self._results[position] = self.work.fallback(self.failures.record(self.requests[position], error))
