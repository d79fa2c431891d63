"""Running batches so that a sample that cannot be run is replaced, and the others are not."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tqdm import tqdm

from .failures import FailureLedger
from .requests import Request

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class GuardedLoop(Generic[Item, Result]):
    """One call of the harness.

    Only ``Exception`` is caught: an interrupt by the user ends the run.

    Attributes:
        prepare: Turns one request into model input; may fail for that request alone.
        execute: Runs the model on a batch of prepared requests; results in the same order.
        fallback: Makes the result of a failed request from the cause.
        ledger: Counts the failures.
        progress: Bar that is advanced by one per request.
    """

    prepare: Callable[[Request], Item]
    execute: Callable[[Sequence[Item]], Sequence[Result]]
    fallback: Callable[[str], Result]
    ledger: FailureLedger
    progress: "tqdm[Any]"

    def run(self, requests: Sequence[Request], batches: Iterable[Sequence[int]]) -> list[Result]:
        """Run all batches.

        Args:
            requests: All requests of the call.
            batches: Positions in ``requests``, each position in exactly one batch.

        Returns:
            One result per request, in the order of ``requests``.
        """
        results: dict[int, Result] = {}
        for positions in batches:
            items: dict[int, Item] = {}
            for position in positions:
                try:
                    items[position] = self.prepare(requests[position])
                except Exception as error:  # noqa: BLE001  # task code and image files can fail in any way
                    results[position] = self._failed(requests[position], error)
            results.update(self._run_batch(requests, items))
            self.progress.update(len(positions))
        return [results[position] for position in range(len(requests))]

    def _run_batch(self, requests: Sequence[Request], items: dict[int, Item]) -> dict[int, Result]:
        if not items:
            return {}
        try:
            return dict(zip(items, self.execute(list(items.values())), strict=True))
        except Exception as error:  # noqa: BLE001  # whatever it is, one sample must not end the run
            if len(items) == 1:
                (position,) = items
                return {position: self._failed(requests[position], error)}
        # One by one, so that only the culprit fails.
        results: dict[int, Result] = {}
        for position, item in items.items():
            results.update(self._run_batch(requests, {position: item}))
        return results

    def _failed(self, request: Request, error: Exception) -> Result:
        return self.fallback(self.ledger.record(request, error))
