"""From option log-likelihoods to an answer.

Adapters return the mean negative log-likelihood of each option's tokens: smaller is better. MediConfusion's prefix
score is the geometric mean of the token probabilities, so the smaller mean loss is the larger score. A tie goes to the
first option in MediConfusion's ``greedy`` and to the last in its ``prefix`` (a3045b0). Its code counts NaN, a failed
forward pass, as option B; here the sample failed.
"""

import math
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor


def most_likely(losses: Sequence[float]) -> list[int]:
    """Return the indices of the options with the smallest loss; none if a loss is NaN."""
    if not losses or any(map(math.isnan, losses)):
        return []
    return [index for index, loss in enumerate(losses) if loss == min(losses)]


def _chosen(losses: Sequence[float], position: int) -> Answer:
    best = most_likely(losses)
    return Answer.ok(letter(best[position])) if best else Answer.invalid(Reason.ADAPTER_FAILED)


@extractor("greedy_reference", AnswerKind.LIKELIHOODS, "most likely option, a tie goes to the first")
def greedy_reference(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie goes to the first."""
    return _chosen(losses, 0)


@extractor("prefix_reference", AnswerKind.LIKELIHOODS, "most likely option, a tie goes to the last")
def prefix_reference(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie goes to the last."""
    return _chosen(losses, -1)


@extractor("untied", AnswerKind.LIKELIHOODS, "most likely option, a tie is no answer")
def untied(losses: Sequence[float], sample: Sample) -> Answer:
    """Choose the most likely option; a tie is ``ambiguous``."""
    return Answer.invalid(Reason.AMBIGUOUS) if len(most_likely(losses)) > 1 else _chosen(losses, 0)
