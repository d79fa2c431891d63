"""The result of reading one raw reply."""

import enum
from dataclasses import dataclass


class Reason(enum.StrEnum):
    """Why a reply has, or has not, a value."""

    OK = "ok"
    EMPTY = "empty"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"
    NO_MATCH = "no_match"
    TRUNCATED = "truncated"
    ADAPTER_FAILED = "adapter_failed"
    JUDGE_FAILED = "judge_failed"


@dataclass(frozen=True)
class Answer:
    """What an answer rule read from a reply.

    Attributes:
        value: The option's letter, or ``None`` when the reply has no valid answer. ``None`` is not the same as wrong.
        reason: ``Reason.OK`` exactly when ``value`` is not ``None``.
    """

    value: str | None
    reason: Reason

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is Reason.OK):
            raise ValueError(f"an answer has a value exactly when its reason is ok, got {self.value!r}, {self.reason}")

    @classmethod
    def ok(cls, value: str) -> "Answer":
        """Return a valid answer."""
        return cls(value, Reason.OK)

    @classmethod
    def invalid(cls, reason: Reason) -> "Answer":
        """Return an answer without a value."""
        return cls(None, reason)
