"""Scores of one reply over sets: the tokens of an open question, the letters of one with several right options.

Sources: MultiMedEval (Royer et al.), ``VQA.evaluate`` in ``multimedeval/task_families.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283. A question is *closed* when its cleaned target is "yes" or
"no", whatever the dataset says of it; all others are *open*, also "left or right?". Chen et al., "GMAI-MMBench", 2024,
equations 2 and 3, for several right options: precision is ``ACC_mcls`` and recall ``Recall_mcls``. How cases are put
together is not stated there; here it is their mean. To list every option has a recall of 1, so that neither number
says enough alone.
"""

from collections.abc import Set
from dataclasses import dataclass

_CLOSED_TARGETS = frozenset(("yes", "no"))
_CLOSED_SHARE = 0.4  # the paper says 0.5; the share can only be 0, 0.5 or 1
_OPEN_RECALL = 0.75
_NO_ZERO_DIVISION = 1e-8


@dataclass(frozen=True, slots=True)
class TokenOverlap:
    """How far two sets of tokens agree; every value is between 0 and 1, and 0 for a set without tokens."""

    precision: float  # share of the reply's tokens that the target has
    recall: float  # share of the target's tokens that the reply has
    f1: float  # harmonic mean of both, with 1e-8 added to its denominator: two equal sets score 0.999999995


def token_overlap(reply: Set[str], target: Set[str]) -> TokenOverlap:
    """Compare the tokens of a reply with those of the target.

    Example:
        >>> token_overlap({"left", "lower", "lobe", "opacity"}, {"left", "lobe"})
        TokenOverlap(precision=0.5, recall=1.0, f1=0.6666666622222223)
    """
    shared = len(reply & target)
    precision = shared / len(reply) if reply else 0.0
    recall = shared / len(target) if target else 0.0
    return TokenOverlap(precision, recall, 2 * (precision * recall) / (precision + recall + _NO_ZERO_DIVISION))


def overlap_f1(first: Set[object], second: Set[object]) -> float:
    """Return the F1 of two sets: 2 |A and B| / (|A| + |B|); 0 if both are empty."""
    size = len(first) + len(second)
    return 2 * len(first & second) / size if size else 0.0


def is_closed(cleaned_target: str) -> bool:
    """Return whether a question is closed, by its target in lower case with single blanks and no punctuation."""
    return cleaned_target in _CLOSED_TARGETS


def closed_correct(reply: Set[str], cleaned_target: str) -> bool:
    """Return whether the tokens of a reply to a closed question are right for the reference: the target is among them.

    For "no" either "no" or "not" will do. A reply with both "yes" and "no" is right whatever the target.
    """
    wanted = {"no", "not"} if cleaned_target == "no" else {cleaned_target}
    return len(reply & wanted) / len(wanted) >= _CLOSED_SHARE


def open_correct(recall: float) -> bool:
    """Return whether a reply to an open question is right: it has at least three quarters of the target's tokens."""
    return recall >= _OPEN_RECALL
