"""Scores of paired questions: one question asked of two images with opposite answers (MediConfusion).

Source: ``create_score_table`` and ``print_score`` of https://github.com/AIF4S/MediConfusion at a3045b0, and section 3.1
of the paper (arXiv 2409.15477).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

TOTAL = "total"


@dataclass(frozen=True)
class PairedAnswer:
    """The scored answer to one image of a pair. Pairs may share images."""

    pair_id: str
    position: int  # 1 or 2
    image_id: str  # or the patient, if known
    target: str  # a letter
    value: str | None  # a letter; None for an invalid reply
    categories: tuple[str, ...] = ()  # medical areas of the image

    @property
    def correct(self) -> bool:
        """Whether the right option was chosen."""
        return self.value == self.target


@dataclass(frozen=True)
class ScoredPair:
    """Both answers of one pair."""

    first: PairedAnswer
    second: PairedAnswer

    @property
    def both_correct(self) -> bool:
        """Both images answered correctly."""
        return self.first.correct and self.second.correct

    @property
    def valid(self) -> bool:
        """Both replies have a valid answer."""
        return self.first.value is not None and self.second.value is not None

    @property
    def same_option(self) -> bool:
        """The same option was chosen for both images."""
        return self.valid and self.first.value == self.second.value


@dataclass(frozen=True)
class PairCounts:
    """Raw counts of one category, or of all, with the names of the reference's score table in brackets.

    A pair counts in a category once for each of its images with the category, as published; in the total it counts
    once.
    """

    images: int = 0  # answers (image uses)
    pairs: int = 0  # complete ones
    set_score: int = 0  # pairs with both answers right [set_score]
    individual_score: int = 0  # right answers [individual_score]
    confused: int = 0  # pairs with the same option twice [confused]
    invalid: int = 0  # replies without a valid answer [invalid]
    valid_pairs: int = 0  # pairs with two valid answers [valids]
    resolved_pairs: int = 0  # valid pairs that are not confused [valid_pairs]
    incomplete_pairs: int = 0  # with an answer to one image only; in no pair count

    @property
    def set_accuracy(self) -> float:
        """Share of pairs with both answers right, NaN without pairs."""
        return self.set_score / self.pairs if self.pairs else math.nan

    @property
    def individual_accuracy(self) -> float:
        """Share of right answers, NaN without answers. An invalid reply is wrong."""
        return self.individual_score / self.images if self.images else math.nan

    @property
    def invalid_rate(self) -> float:
        """Share of replies without a valid answer."""
        return self.invalid / self.images if self.images else math.nan

    @property
    def confusion(self) -> float:
        """Share of valid pairs with the same option twice, NaN without a valid pair (the reference prints 0)."""
        return self.confused / self.valid_pairs if self.valid_pairs else math.nan


def distinct_answers(answers: Iterable[PairedAnswer]) -> list[PairedAnswer]:
    """Return one answer per image of a pair, sorted by pair id and position.

    The choice among several answers to one image does not depend on their order.
    """
    chosen: dict[tuple[str, int], PairedAnswer] = {}
    for answer in answers:
        slot = (answer.pair_id, answer.position)
        if slot not in chosen or (answer.value or "") > (chosen[slot].value or ""):
            chosen[slot] = answer
    return [chosen[slot] for slot in sorted(chosen)]


def answers_by_pair(answers: Sequence[PairedAnswer]) -> list[tuple[PairedAnswer, ...]]:
    """Return the one or two answers to each pair, sorted by pair id.

    Args:
        answers: At most one per image of a pair, as from :func:`distinct_answers`, in any order.
    """
    by_pair: dict[str, list[PairedAnswer]] = defaultdict(list)
    for answer in sorted(answers, key=lambda answer: (answer.pair_id, answer.position)):
        by_pair[answer.pair_id].append(answer)
    return list(map(tuple, by_pair.values()))


def complete_pairs(answers: Sequence[PairedAnswer]) -> list[ScoredPair]:
    """Return the pairs with answers to both images, sorted by pair id."""
    return [ScoredPair(*pair) for pair in answers_by_pair(answers) if len(pair) == 2]


def count(answers: Iterable[PairedAnswer]) -> Mapping[str, PairCounts]:
    """Count answers and pairs per category.

    Returns:
        Counts by category, in order of first appearance by pair id, with ``"total"`` last.

    Example:
        >>> right, wrong = PairedAnswer("7", 1, "a", "A", "A"), PairedAnswer("7", 2, "b", "B", "A")
        >>> count([right, wrong])["total"].individual_accuracy
        0.5
    """
    answers = distinct_answers(answers)
    pairs = complete_pairs(answers)
    answers_in: dict[str, list[PairedAnswer]] = defaultdict(list)
    pairs_in: dict[str, list[ScoredPair]] = defaultdict(list)
    for answer in answers:
        for category in answer.categories:
            answers_in[category].append(answer)
    for pair in pairs:
        for category in (*pair.first.categories, *pair.second.categories):
            pairs_in[category].append(pair)
    counts = {
        category: _pair_counts(members, pairs_in[category])
        for category, members in answers_in.items()
    }
    incomplete = len({answer.pair_id for answer in answers}) - len(pairs)
    counts[TOTAL] = replace(_pair_counts(answers, pairs), incomplete_pairs=incomplete)
    return counts


def _pair_counts(
    answers: Sequence[PairedAnswer],
    pairs: Sequence[ScoredPair],
) -> PairCounts:
    """Count answers, and pairs with both answers, of one category."""
    return PairCounts(
        images=len(answers),
        pairs=len(pairs),
        set_score=sum(pair.both_correct for pair in pairs),
        individual_score=sum(answer.correct for answer in answers),
        confused=sum(pair.same_option for pair in pairs),
        invalid=sum(answer.value is None for answer in answers),
        valid_pairs=sum(pair.valid for pair in pairs),
        resolved_pairs=sum(pair.valid and not pair.same_option for pair in pairs),
    )
