"""How much a model's answers depend on the order of the options.

Every question is asked once per rotation of its options, so that each option stands once in each place. Every metric
has one value per question and is the mean over questions, each counted once however many options it has. Questions of
which not all rotations were asked have no worst case and no flips.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class RotatedReply:
    """What a model answered to one rotation of a question."""

    question: str
    cluster: str  # its pairs, its patient or its image
    rotation: int  # from 0, the published order
    rotations: int  # how many there are
    score: float  # 1 for a right answer, 0 for a wrong or invalid one, or a share where several options are right
    choice: Hashable | None  # which option it chose, whatever its place, or which options; None for an invalid reply


@dataclass(frozen=True)
class RotatedQuestion:
    """One question, of which all rotations were asked or not; a metric without a value for it is not in ``values``."""

    cluster: str
    complete: bool
    values: Mapping[str, float]


def rotated_questions(replies: Sequence[RotatedReply]) -> list[RotatedQuestion]:
    """Return the questions of rotated replies, whatever the replies' order.

    =================  ================================================================================================
    metric             value of a question
    =================  ================================================================================================
    mean_accuracy      mean score over the rotations that were asked
    published_order    score in the published order
    worst_case         lowest score over all rotations: right in every one
    flip_rate          1 if not every rotation led to the same option, wherever it stood. An invalid reply counts as
                       another answer than any option. A question without a valid reply has no value, or a model that
                       never answers would look like one that never changes its mind
    invalid_rate       share of invalid replies
    =================  ================================================================================================

    Example:
        >>> first = RotatedReply("q", "patient", 0, 2, 1.0, "A")
        >>> second = RotatedReply("q", "patient", 1, 2, 0.0, "B")
        >>> rotated_questions([first, second])[0].values["worst_case"]
        0.0
    """
    asked: dict[str, dict[int, RotatedReply]] = {}
    for reply in replies:
        asked.setdefault(reply.question, {})[reply.rotation] = reply
    return [_question(asked[question]) for question in sorted(asked)]


def _question(replies: Mapping[int, RotatedReply]) -> RotatedQuestion:
    ordered = [replies[rotation] for rotation in sorted(replies)]
    scores, choices = [reply.score for reply in ordered], [reply.choice for reply in ordered]
    complete = len(ordered) == ordered[0].rotations
    values = {
        "mean_accuracy": math.fsum(scores) / len(scores),
        "invalid_rate": sum(choice is None for choice in choices) / len(choices),
    }
    if 0 in replies:
        values["published_order"] = replies[0].score
    if complete:
        values["worst_case"] = min(scores)
        if any(choice is not None for choice in choices):
            values["flip_rate"] = float(len(set(choices)) > 1)
    return RotatedQuestion(ordered[0].cluster, complete, MappingProxyType(values))
