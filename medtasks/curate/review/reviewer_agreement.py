"""Agreement of reviewers: Cohen's kappa of scores and aspects, with a clustered interval."""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from medtasks.curate.drafts import Draft
from medtasks.curate.review.reviews import ASPECTS, HIGHEST, LOWEST, PASSING, ItemReview, Review, current
from medtasks.curate.study import StudyImage
from medtasks.stats.bootstrap import Floats, Integers, values_with_errors
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import connected_components

SCORE, PASSES = "score", f"score >= {PASSING}"
Question = tuple[str, int]  # item and place of its image


@dataclass(frozen=True)
class ReviewerAgreement:
    """Agreement of two reviewers on one criterion, over the questions that both judged."""

    what: str  # score, score >= 5 or an aspect
    reviewers: tuple[str, str]
    questions: int
    clusters: int  # groups of questions that share images or patients
    equal: float  # share of questions judged the same; NaN without any
    kappa: float  # NaN if undefined: both judged all questions the same
    low: float  # ends of its 95 % interval; NaN where they are not defined
    high: float
    constant: tuple[str, ...]  # reviewers who judged all questions the same

    @property
    def figures(self) -> tuple[str, str, str]:
        """Share, kappa and interval as texts; what is not defined is said to be so."""
        if not self.questions:
            return "-", "nothing in common", "-"
        kappa = "undefined" if math.isnan(self.kappa) else f"{self.kappa:.2f}"
        span = "undefined" if math.isnan(self.low) else f"{self.low:.2f} to {self.high:.2f}"
        return f"{self.equal:.0%}", kappa, span

    @property
    def remark(self) -> str:
        """Explanation of a kappa that is not defined or tells little, as one sentence; mostly empty."""
        if not self.constant:
            return ""
        undefined = math.isnan(self.kappa)
        who = self.constant[0] if len(self.constant) == 1 else "both" if undefined else "each"
        return f"{self.what}: {who} said the same of every question, so kappa is {'not defined' if undefined else '0'}."


def agreements(
    reviews: Sequence[Review], drafts: Mapping[str, Draft], images: Mapping[str, StudyImage]
) -> list[ReviewerAgreement]:
    """Return the agreement of each two reviewers on scores, on passing and on each aspect; none for fewer than two.

    Scores have quadratic weights (Cohen 1968, Psychological Bulletin 70), all else the plain kappa (Cohen 1960). Errors
    are those of a bootstrap over clusters of questions that share an image or its group.
    """
    said = {review.reviewer: current(review, drafts) for review in reviews}
    clusters = clusters_of(drafts, images)
    return [
        _agreement(what, pair, [_classes(what, said[reviewer]) for reviewer in pair], clusters)
        for pair in itertools.combinations(said, 2)
        for what in (SCORE, PASSES, *ASPECTS)
    ]


def _classes(what: str, said: Mapping[str, ItemReview]) -> dict[Question, int]:
    """Return the class, from 0, that a reviewer put each question in."""
    classes = {}
    for item, review in said.items():
        for place, one in enumerate(review.judgements):
            value = getattr(one, what if what in ASPECTS else "score")
            if value is not None:
                classes_of_score = {SCORE: value - LOWEST, PASSES: value >= PASSING}
                classes[item, place] = int(classes_of_score.get(what, value))
    return classes


def _agreement(
    what: str, pair: tuple[str, str], said: Sequence[Mapping[Question, int]], clusters: Mapping[str, Hashable]
) -> ReviewerAgreement:
    first, second = said
    common = [question for question in first if question in second]
    classes = HIGHEST - LOWEST + 1 if what == SCORE else 2
    places = np.arange(classes, dtype=np.float64)
    weights = (places[:, np.newaxis] - places) ** 2  # for two classes 0 for the same and 1 for the other
    table = np.zeros((len(common), classes * classes), dtype=np.int64)
    for row, question in zip(table, common, strict=True):
        row[first[question] * classes + second[question]] = 1
    units = [clusters[item] for item, _ in common]
    found = values_with_errors(table, units, lambda counts: {"kappa": weighted_kappa(counts, weights)})
    value, error = found.get("kappa", math.nan), found.get("kappa_stderr", math.nan)
    number = len(set(units))
    error = error if error >= 0 else math.nan
    low, high = interval(value, error, number - 1, share=False) if common else (math.nan,) * 2
    constant = [len({values[question] for question in common}) == 1 for values in said]
    return ReviewerAgreement(
        what=what,
        reviewers=pair,
        questions=len(common),
        clusters=number,
        equal=sum(first[one] == second[one] for one in common) / len(common) if common else math.nan,
        kappa=value,
        low=max(low, -1.0) if low == low else low,
        high=min(high, 1.0) if high == high else high,
        constant=tuple(itertools.compress(pair, constant)),
    )


def weighted_kappa(counts: Integers, weights: Floats) -> Floats:
    """Return Cohen's kappa of tables of two raters' classes, NaN where chance alone would make them agree.

    ``counts`` have shape (..., classes * classes), rows of the first rater one after the other; ``weights`` are how bad
    each disagreement is, shape (classes, classes), 0 on the diagonal; kappa is ``1 - observed / expected``.

    Example:
        >>> plain = np.array([[0, 1], [1, 0]])
        >>> float(weighted_kappa(np.array([20, 5, 10, 15]), plain))  # 0.7 equal, 0.5 by chance
        0.4
    """
    classes = len(weights)
    tables = counts.reshape(*counts.shape[:-1], classes, classes).astype(np.float64)
    rows, columns = tables.sum(axis=-1), tables.sum(axis=-2)
    observed = (tables * weights).sum(axis=(-1, -2))
    # Times the number of questions, so that nothing is divided before it is known to be defined.
    chance = np.einsum("...i,ij,...j->...", rows, weights, columns)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(chance > 0, 1 - observed * rows.sum(axis=-1) / chance, np.nan)


def clusters_of(drafts: Mapping[str, Draft], images: Mapping[str, StudyImage]) -> dict[str, Hashable]:
    """Return the cluster of each draft, by item: drafts that share images, or groups of them, are one cluster."""
    keys = []
    for draft in drafts.values():
        known = [(image, images[image].group if image in images else None) for image in draft.images]
        keys.append([("group", group) if group is not None else ("image", image) for image, group in known])
    return dict(zip(drafts, connected_components(keys), strict=True))
