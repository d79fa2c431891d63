"""The result of reading which labels a reply gives to one image."""

from dataclasses import dataclass

from medtasks.extract.answer import Reason


@dataclass(frozen=True)
class LabelAnswer:
    """What a label rule read from a reply.

    Attributes:
        values: 1 (present) or 0 (absent) per label, in the order of the document's options, or ``None`` when the reply
            cannot be read. ``None`` is not the same as all absent.
        reason: ``Reason.OK`` exactly when ``values`` is not ``None``.
    """

    values: tuple[int, ...] | None
    reason: Reason

    def __post_init__(self) -> None:
        if (self.values is None) == (self.reason is Reason.OK):
            raise ValueError(
                f"a label answer has values exactly when its reason is ok, got {self.values!r}, {self.reason}"
            )
        if self.values is not None and not set(self.values) <= {0, 1}:
            raise ValueError(f"label values are 0 or 1, got {self.values!r}")

    @classmethod
    def ok(cls, values: tuple[int, ...]) -> "LabelAnswer":
        """Return a valid answer."""
        return cls(tuple(values), Reason.OK)

    @classmethod
    def invalid(cls, reason: Reason) -> "LabelAnswer":
        """Return an answer without values."""
        return cls(None, reason)
