"""Running batches so that a sample that cannot be run is replaced, and the others are not."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from loguru import logger
from tqdm import tqdm

from .batching import BatchRoom
from .failures import FailureLedger, is_out_of_memory
from .journal import Entry, Journal
from .requests import Request
from .samples import Sample, SampleReader

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Work(Generic[Item, Result]):
    """What one kind of request asks of a model.

    Attributes:
        kind: Name of the harness's call.
        group: Requests with different values never share a batch.
        prepare: Turns one sample into model input; may fail for that sample alone.
        length: Tokens of a prepared sample.
        execute: Runs the model on a batch of prepared samples; results in the same order.
        fallback: Makes the result of a failed sample from the cause.
        key: Names a sample's answer in the journal, by everything that decides about it.
        stored: From a result to the fields that the journal keeps.
        restored: Back from the fields.
    """

    kind: str
    group: Callable[[Request], Hashable]
    prepare: Callable[[Sample], Item]
    length: Callable[[Item], int]
    execute: Callable[[Sequence[Item]], Sequence[Result]]
    fallback: Callable[[str], Result]
    key: Callable[[Sample], str]
    stored: Callable[[Result], Mapping[str, Any]]
    restored: Callable[..., Result]


@dataclass
class _Batch(Generic[Item, Result]):
    """Requests on their way, by position."""

    positions: list[int] = field(default_factory=list)
    items: dict[int, Item] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)


@dataclass
class GuardedLoop(Generic[Item, Result]):
    """One call of the harness.

    Only ``Exception`` is caught: an interrupt by the user ends the run.

    Attributes:
        work: What is to be done.
        reader: Loads images and texts.
        room: Size of a batch.
        ledger: Counts the failures.
        journal: Where answers are kept; ``None`` for nowhere.
        progress: Bar that is advanced by one per request.
        replayed: Answers that came from the journal.
    """

    work: Work[Item, Result]
    reader: SampleReader
    room: BatchRoom
    ledger: FailureLedger
    journal: Journal | None
    progress: "tqdm[Any]"
    replayed: int = 0
    _results: dict[int, Result] = field(default_factory=dict)
    _most: int | None = None  # requests that the memory was found to hold

    def run(self, requests: Sequence[Request], streams: Iterable[Iterable[Sequence[int]]]) -> list[Result]:
        """Run everything.

        Args:
            requests: All requests of the call.
            streams: Positions in ``requests`` in units, see :func:`~medtasks.model_adapters.batching.plan_streams`.

        Returns:
            One result per request, in the order of ``requests``.
        """
        for stream in streams:
            batch: _Batch[Item, Result] = _Batch()
            for unit in stream:
                unit_batch: _Batch[Item, Result] = _Batch()
                lengths = [self._take(requests[position], position, unit_batch) for position in unit]
                if not self.room.takes(lengths):
                    self._finish(requests, batch)
                    batch = _Batch()
                self.room.add(lengths)
                batch.positions += unit
                batch.items |= unit_batch.items
                batch.keys |= unit_batch.keys
            self._finish(requests, batch)
        return [self._results[position] for position in range(len(requests))]

    def _take(self, request: Request, position: int, batch: _Batch[Item, Result]) -> int:
        """Prepare one request, or find its answer in the journal; returns its length in tokens."""
        try:
            sample = self.reader.read(request)
            if self.journal is not None:
                batch.keys[position] = self.work.key(sample)
                entry = self.journal.replay(batch.keys[position])
                if entry is not None:
                    self._results[position] = self.work.restored(**entry.answer)
                    self.replayed += 1
                    return entry.tokens
            item = self.work.prepare(sample)
            batch.items[position] = item
            return self.work.length(item)
        except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
            self._fail(request, position, error)
            return 0

    def _finish(self, requests: Sequence[Request], batch: _Batch[Item, Result]) -> None:
        positions = list(batch.items)
        size = self._most or max(len(positions), 1)
        for start in range(0, len(positions), size):
            self._execute(requests, batch, positions[start : start + size])
        self.progress.update(len(batch.positions))
        self.room.empty()

    def _execute(self, requests: Sequence[Request], batch: _Batch[Item, Result], positions: Sequence[int]) -> int:
        """Run some requests at once, or in parts where that fails; returns the largest size that could be run."""
        try:
            results = self.work.execute([batch.items[position] for position in positions])
            done = dict(zip(positions, results, strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(positions) == 1:
                self._fail(requests[positions[0]], positions[0], error)
                return 0
            full = is_out_of_memory(error)
        else:
            self._results |= done
            self._keep(batch, done)
            return len(positions)
        # Outside of the handler, which holds the tensors of the failed pass.
        if not full:  # one by one, so that only the culprit fails
            return max(self._execute(requests, batch, [position]) for position in positions)
        return self._halve(requests, batch, positions)

    def _halve(self, requests: Sequence[Request], batch: _Batch[Item, Result], positions: Sequence[int]) -> int:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        first = self._most is None
        self._most = half = (len(positions) + 1) // 2
        # A single huge sample fails at every size; what its neighbours could be run at counts.
        parts = positions[:half], positions[half:]
        self._most = max(1, *(self._execute(requests, batch, part) for part in parts))
        if first:
            logger.warning(
                "{} ran out of memory with {} requests at once and goes on with {}; set a smaller batch_size or "
                "batch_tokens in --model_args to save the repeated work.",
                self.work.kind,
                len(positions),
                self._most,
            )
        return self._most

    def _keep(self, batch: _Batch[Item, Result], done: Mapping[int, Result]) -> None:
        if self.journal is not None:
            self.journal.add(
                {
                    batch.keys[position]: Entry(self.work.stored(result), self.work.length(batch.items[position]))
                    for position, result in done.items()
                }
            )

    def _fail(self, request: Request, position: int, error: Exception) -> None:
        self._results[position] = self.work.fallback(self.ledger.record(request, error))
