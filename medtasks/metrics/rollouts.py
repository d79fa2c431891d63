"""What several replies to one question come to together."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeVar

A = TypeVar("A", bound=Hashable)


def majority(answers: Sequence[A]) -> A:
    """Return the most frequent of at least one answer, of equally frequent ones the first.

    Example:
        >>> majority(["B", "A", "A", "B"])
        'B'
    """
    return Counter(answers).most_common(1)[0][0]
