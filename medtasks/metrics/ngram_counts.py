"""N-grams that two texts share: what BLEU and ROUGE are made of."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Overlap:
    """N-grams of one order in two texts, or in two sides of a corpus.

    Attributes:
        matches: N-grams that both have, each counted at most as often as in either text.
        reference: N-grams of the reference.
        hypothesis: N-grams of the hypothesis.
    """

    matches: int
    reference: int
    hypothesis: int

    def __add__(self, other: "Overlap") -> "Overlap":
        return Overlap(
            self.matches + other.matches, self.reference + other.reference, self.hypothesis + other.hypothesis
        )


def _ngrams(tokens: Sequence[str], order: int) -> Counter[Any]:
    if order == 1:
        return Counter(tokens)
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def overlap(reference: Sequence[str], hypothesis: Sequence[str], order: int) -> Overlap:
    """Count the n-grams of one order in two texts.

    Args:
        reference: Tokens.
        hypothesis: Tokens.
        order: Words of an n-gram, 1 or more.

    Example:
        >>> overlap("no acute effusion".split(), "no effusion".split(), 1)
        Overlap(matches=2, reference=3, hypothesis=2)
    """
    expected, found = _ngrams(reference, order), _ngrams(hypothesis, order)
    matches = sum(min(count, found[gram]) for gram, count in expected.items() if gram in found)
    return Overlap(matches, max(0, len(reference) - order + 1), max(0, len(hypothesis) - order + 1))


def overlaps(reference: Sequence[str], hypothesis: Sequence[str], orders: int) -> tuple[Overlap, ...]:
    """Count the n-grams of orders 1 to ``orders`` in two texts, shape (orders,)."""
    return tuple(overlap(reference, hypothesis, order) for order in range(1, orders + 1))
