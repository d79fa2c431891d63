"""One failing sample costs that sample, many cost the run."""

import traceback
from collections import Counter
from pathlib import Path

import torch
from loguru import logger

from medtasks.errors import MedTasksError

from .requests import Request

# Other messages may quote the prompt, a file of a patient or the document itself.
_SAFE_MESSAGES = (MedTasksError, torch.OutOfMemoryError)


def cause_of(error: BaseException) -> str:
    """Describe an error for logs and results: its type and place, and its message where that cannot hold sample text.

    The place is the innermost line of code that raised, without its content. An error may bring a message for this
    purpose as ``loggable``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    message = f": {getattr(error, 'loggable', error)}" if isinstance(error, _SAFE_MESSAGES) else ""
    return f"{type(error).__name__}{place}{message}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which a smaller batch may mend; parts of torch have no own type for it."""
    told = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in told)
    )


class FailureLedger:
    """The failures of one call of the harness.

    Args:
        kind: Kind of request, for messages.
        requests: How many the call has.
        max_failed: Share of them that may fail; one always may, unless the share is 0.
    """

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
        """Note and log one failed request; padding between ranks is not counted.

        Returns:
            The cause, as :func:`cause_of` words it.
        """
        cause = cause_of(error)
        if not request.padding:
            self._causes[cause] += 1
            self._first = self._first or request.name
            logger.warning("{} failed on {}: {}", self._kind, request.name, cause)
        return cause

    def settle(self) -> None:
        """Close the call.

        Raises:
            MedTasksError: More requests failed than are allowed.
        """
        failed = self._causes.total()
        if failed > self.allowed:
            cause, times = self._causes.most_common(1)[0]
            raise MedTasksError(
                f"{failed} of {self._requests} {self._kind} requests failed, {self.allowed} may "
                f"(max_failed={self._max_failed:g}); first {self._first}, most often ({times}x) {cause}. Mend the "
                f"cause, or let more fail with --model_args max_failed=1."
            )
