"""From option log-likelihoods to an answer.

Adapters return the mean negative log-likelihood of each option's tokens: smaller is better. MediConfusion's prefix
score is the geometric mean of the token probabilities, so the smaller mean loss is the larger score.
"""

import math
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor


def _failed(losses: Sequence[float]) -> bool:
    # The published code would count NaN as option B; a NaN loss is a failed forward pass and not an opinion.
    return not losses or any(math.isnan(loss) for loss in losses)


@extractor("greedy_reference", kind=Kind.LIKELIHOODS, version=1, summary="most likely option, a tie goes to the first")
def greedy_reference(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie goes to the first (MediConfusion ``greedy``, a3045b0).

    Args:
        losses: Mean negative log-likelihood per option, in order A, B, ...
        sample: Not looked at.

    Returns:
        A letter, or ``adapter_failed`` when a loss is NaN.

    Example:
        >>> greedy_reference([0.5, 0.5], Sample({})).value
        'A'
    """
    if _failed(losses):
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(letter(losses.index(min(losses))))


@extractor("prefix_reference", kind=Kind.LIKELIHOODS, version=1, summary="most likely option, a tie goes to the last")
def prefix_reference(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie goes to the last (MediConfusion ``prefix``, a3045b0).

    Args:
        losses: Mean negative log-likelihood per option, in order A, B, ...
        sample: Not looked at.

    Returns:
        A letter, or ``adapter_failed`` when a loss is NaN.

    Example:
        >>> prefix_reference([0.5, 0.5], Sample({})).value
        'B'
    """
    if _failed(losses):
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(letter(len(losses) - 1 - list(reversed(losses)).index(min(losses))))


@extractor("untied", kind=Kind.LIKELIHOODS, version=1, summary="most likely option, a tie is no answer")
def untied(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie is no answer.

    Args:
        losses: Mean negative log-likelihood per option, in order A, B, ...
        sample: Not looked at.

    Returns:
        A letter, ``ambiguous`` for a tie, or ``adapter_failed`` when a loss is NaN.
    """
    if _failed(losses):
        return Answer.invalid(Reason.ADAPTER_FAILED)
    best = min(losses)
    if list(losses).count(best) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter(list(losses).index(best)))
