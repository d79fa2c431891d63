"""The result of reading one raw reply."""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """Value and facts read from a reply; see :class:`medtasks.extract.extractor_registry.AnswerKind`.

    ``value`` is ``None``, and ``reason`` is not ``Reason.OK``, if the reply has no valid answer, which is not the same
    as wrong, nor as no label at all; labels are a tuple of 0 and 1. An invalid answer has facts, too.
    """

    value: Any
    reason: Reason
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is Reason.OK):
            raise ValueError(f"an answer has a value exactly when its reason is ok, got {self.value!r}, {self.reason}")
        if isinstance(self.value, tuple) and not set(self.value) <= {0, 1}:
            raise ValueError(f"label values are 0 or 1, got {self.value!r}")

    @classmethod
    def ok(cls, value: Any, **facts: Any) -> "Answer":
        """Return a valid answer."""
        return cls(value, Reason.OK, facts)

    @classmethod
    def only(cls, values: Collection[Any]) -> "Answer":
        """Return a valid answer for a single value; none is ``no_match``, several are ``ambiguous``."""
        if len(values) == 1:
            return cls.ok(*values)
        return cls.invalid(Reason.AMBIGUOUS if values else Reason.NO_MATCH)

    @classmethod
    def invalid(cls, reason: Reason, **facts: Any) -> "Answer":
        """Return an answer without a value."""
        return cls(None, reason, facts)
