"""Numbers of samples in no score, and the limit on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medtasks.errors import MedTasksError

DEFAULT_LIMIT = "1%"
# Number of reports for which the judge of GREEN gave no list of errors. Their other scores count.
GREEN_FAILED = "green_failed"


@dataclass(frozen=True)
class SampleCounts:
    """Numbers of samples of one task: scored, failed (without an answer), and without a judge's verdict."""

    scored: int
    failed: int
    unjudged: int = 0

    @property
    def lost(self) -> int:
        """Number of samples in no score."""
        return self.failed + self.unjudged

    def __str__(self) -> str:
        parts = []
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.unjudged:
            parts.append(f"{self.unjudged} unjudged")
        return f"{' and '.join(parts) or 'none failed'} of {self.scored + self.lost} samples"


def counts_of(row: Mapping[str, Any]) -> SampleCounts | None:
    """Return the counts of a task, of the filter that lost most.

    Args:
        row: The task's row of a results file, by ``<metric>,<filter>``.

    Returns:
        The counts, None if there are none.

    Example:
        >>> str(counts_of({"scored_samples,none": 9, "failed_samples,none": 1}))
        '1 failed of 10 samples'
    """
    by_filter: dict[str, dict[str, int]] = {}
    for key, value in row.items():
        metric, _, name = key.rpartition(",")
        if isinstance(value, int | float) and math.isfinite(value):
            by_filter.setdefault(name, {})[metric] = int(value)
    counts = []
    for numbers in by_filter.values():
        # Reports without a verdict of the judge that one of their metrics asks.
        unread = numbers.get(GREEN_FAILED, 0)
        scored = numbers.get("scored_samples", numbers.get(GREEN_FAILED))
        failed = numbers.get("failed_samples")
        if scored is not None and failed is not None:
            unjudged = numbers.get("unjudged_samples", 0) + unread
            counts.append(SampleCounts(scored - unread, failed, unjudged))
    return max(counts, key=lambda of_filter: of_filter.lost, default=None)


@dataclass(frozen=True)
class FailureLimit:
    """Largest number, or percentage, of a task's samples that may be in no score."""

    number: float
    is_share: bool

    @classmethod
    def parse(cls, text: str) -> "FailureLimit":
        """Read ``--max-failed``: a number of samples, or a percentage of them.

        Raises:
            MedTasksError: The text is neither a whole number from 0 nor a percentage from 0 to 100.

        Example:
            >>> FailureLimit.parse("5%").allows(SampleCounts(scored=95, failed=5))
            True
        """
        stripped = text.strip()
        try:
            number = float(stripped.removesuffix("%"))
        except ValueError:
            number = math.nan
        is_share = stripped.endswith("%")
        is_valid = 0 <= number <= 100 if is_share else number >= 0 and number.is_integer()
        if not is_valid:
            raise MedTasksError(
                f"--max-failed {text} is neither a number of samples (such as 5) nor a share (1%)"
            )
        return cls(number, is_share)

    def allows(self, counts: SampleCounts) -> bool:
        """Return whether a task with these counts is within the limit.

        Example:
            >>> FailureLimit.parse("5").allows(SampleCounts(scored=90, failed=6))
            False
        """
        total = max(1, counts.scored + counts.lost)
        return (counts.lost * 100 / total if self.is_share else counts.lost) <= self.number

    def __str__(self) -> str:
        return f"{self.number:g}{'%' if self.is_share else ''}"
