"""Reviews of drafts: one file per reviewer, on disk after every change, and the rules that a review has to keep.

Of several reviewers together: the drafts that they accept, and how far they agree by Cohen's kappa of scores and
aspects, with a clustered interval. MedHEval asks its LLM for "an equal number of 'yes' and 'no' answers" (figures 8 and
10); of what it released 41% to 54% are yes.
"""

import itertools
import math
import operator
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from medtasks.curate.drafts import Draft, Drafts
from medtasks.curate.study import REVIEWS, Study, StudyImage, StudyRecord
from medtasks.data.samples import option_index
from medtasks.data.sources.medheval_gold import YES_NO
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of
from medtasks.stats.bootstrap import Floats, Integers, values_with_errors
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import connected_components

LOWEST, HIGHEST = 1, 10
"""Scores of a question; 1 is given if it is not correct (MediConfusion, section 2)."""
PASSING = 5
"""Questions of a lower score are not for the benchmark (as above)."""
ASPECTS = ("correctness", "relevance", "language")
HALLUCINATIONS = ("anatomy", "measurement", "symptom", "technique")
UNSCORED = "not scored by any reviewer"
TOO_LOW = "scored too low"
DISAGREED = "reviewers differ in the wording"
SCORE = "score"
PASSES = f"score >= {PASSING}"
Question = tuple[str, int]  # item and position of its image
Problems = dict[str, str]  # phrases by field


class Judgement(StudyRecord):
    """Scores that a reviewer gives one question on one image, each None if the reviewer has not given it."""

    score: int | None = None  # from 1 to 10
    correctness: bool | None = None
    relevance: bool | None = None
    language: bool | None = None


class ItemReview(StudyRecord):
    """A reviewer's judgement of one draft, and the draft's wording after the reviewer's edits."""

    digest: str  # digest of the draft that was judged
    question: str
    options: tuple[str, ...]
    answers: tuple[str, ...]
    judgements: tuple[Judgement, ...]  # one per image of the draft
    categories: tuple[tuple[str, ...], ...] = ()
    hallucination: str | None = None  # another type than was drafted; None keeps the draft's
    note: str = ""

    @property
    def scores(self) -> tuple[int, ...] | None:
        """The scores of all questions of the draft, in the order of images, or None while one is missing."""
        scores = tuple(
            judgement.score for judgement in self.judgements if judgement.score is not None
        )
        return scores if len(scores) == len(self.judgements) else None

    @property
    def version(self) -> str:
        """Sixteen hexadecimal digits that change with the review."""
        return digest_of(self.model_dump(mode="json"))[:16]


class Review(StudyRecord):
    """All that one reviewer has judged in a study: the content of the reviewer's file."""

    schema_version: int = 1
    study: str  # digest of the study
    reviewer: str
    items: Mapping[str, ItemReview] = {}  # by item id


def review_file(folder: Path, reviewer: str) -> Path:
    """Return the file of a reviewer.

    Raises:
        MedTasksError: The name cannot be that of a file.

    Example:
        >>> review_file(Path("study"), "anna").as_posix()
        'study/reviews/anna.json'
    """
    if not reviewer or not all(letter.isalnum() or letter in "-_" for letter in reviewer):
        raise MedTasksError(
            f"'{reviewer}' cannot name a reviewer's file; take letters, digits, - and _"
        )
    return folder / REVIEWS / f"{reviewer}.json"


def read_review(path: Path, study: Study) -> Review:
    """Return the review in a reviewer's file.

    Raises:
        SourceError: The file is damaged, has a score out of range, or is of another study.
    """
    try:
        review = Review.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise SourceError(
            f"{path} is damaged at '{where}'; fix it, or move it away to begin anew"
        ) from None
    if review.study != study.digest:
        raise SourceError(
            f"{path} is of another study than '{study.name}'; move it to that one's folder {REVIEWS}"
        )
    for item, of_item in review.items.items():
        for field, problem in _score_problems(of_item.judgements).items():
            raise SourceError(f"{path}: at '{field}' of '{item}' {problem}; fix it there")
    return review


def read_reviews(folder: Path, study: Study) -> list[Review]:
    """Return the reviews of all reviewers of a study, by name.

    Raises:
        SourceError: A file is damaged, or of another study.
    """
    return [read_review(path, study) for path in sorted((folder / REVIEWS).glob("*.json"))]


def current(review: Review, drafts: Drafts) -> dict[str, ItemReview]:
    """Return the reviews of drafts in their present form, without those of drafts that were drafted anew since.

    Args:
        review: Review of one reviewer.
        drafts: Drafts by item id, as they are now.
    """
    return {
        item: of
        for item, of in review.items.items()
        if item in drafts and of.digest == drafts[item].digest
    }


def empty_review(draft: Draft) -> ItemReview:
    """Return the empty review of a draft: its own wording, no scores.

    Example:
        >>> draft = Draft(item_id="p1", images=("a", "b"), question="Which side?", answers=("A", "B"))
        >>> empty_review(draft).judgements == (Judgement(), Judgement())
        True
    """
    wording = {
        name: getattr(draft, name) for name in ("question", "options", "answers", "categories")
    }
    return ItemReview(
        digest=draft.digest, judgements=(Judgement(),) * len(draft.images), **wording
    )


def problems(draft: Draft, review: ItemReview) -> Problems:
    """Return the reasons not to keep a review.

    Args:
        draft: The draft as it is now.
        review: As the reviewer left it, before :func:`complete_review`.

    Returns:
        One phrase by field, such as ``options.0`` or ``judgements.1.score``. The field is empty if the form is wrong.
    """
    images = len(draft.images)
    is_complete = len(review.answers) == len(review.judgements) == images
    has_categories = len(review.categories) in (0, images)
    if len(review.options) != len(draft.options) or not is_complete or not has_categories:
        return {"": "it does not have the options, images or categories of the draft"}
    causes = {}
    if not review.question.strip():
        causes["question"] = "the question is empty"
    causes |= _option_problems(review.options)
    letters = string.ascii_uppercase[: len(draft.options)]
    for number, answer in enumerate(review.answers):
        if letters and answer.strip() not in tuple(letters):
            causes[f"answers.{number}"] = f"the answer is none of {', '.join(letters)}"
        elif not answer.strip():
            causes[f"answers.{number}"] = "the answer is empty"
    if review.hallucination not in (None, *HALLUCINATIONS):
        causes["hallucination"] = f"it is none of {', '.join(HALLUCINATIONS)}"
    elif review.hallucination and not draft.hallucination:
        causes["hallucination"] = "questions of this study have no type"
    return causes | _score_problems(review.judgements)


def _option_problems(options: Sequence[str]) -> Problems:
    """Return a phrase for each option that is empty or repeats an earlier one, by field (``options.0``)."""
    causes = {}
    letters: dict[str, str] = {}  # letter of the first option with a text, by this text
    for number, (letter, option) in enumerate(
        zip(string.ascii_uppercase, options, strict=False)
    ):
        text = " ".join(option.casefold().split())
        if not text:
            causes[f"options.{number}"] = f"option {letter} is empty"
        elif text in letters:
            causes[f"options.{number}"] = (
                f"option {letter} says the same as option {letters[text]}"
            )
        letters.setdefault(text, letter)
    return causes


def _score_problems(judgements: Sequence[Judgement]) -> Problems:
    """Return a phrase for each score that is out of range or contradicts ``correctness``, by field."""
    causes = {}
    for number, judgement in enumerate(judgements):
        field = f"judgements.{number}.score"
        score = judgement.score
        if score is not None and not LOWEST <= score <= HIGHEST:
            causes[field] = f"the score is none of {LOWEST} to {HIGHEST}"
        elif judgement.correctness is False and score not in (None, LOWEST):
            causes[field] = (
                f"a question that is not correct has score {LOWEST}; say first that it is correct"
            )
    return causes


def complete_review(draft: Draft, review: ItemReview) -> ItemReview:
    """Return a review without problems in the form of the file.

    A question that is not correct has the lowest score. Aspects that are not given next to a score are met.

    Args:
        draft: The draft as it is now.
        review: Review for which :func:`problems` returns none.
    """
    categories = tuple(
        tuple(name.strip() for name in names if name.strip()) for names in review.categories
    )
    if not draft.categories and not any(categories):
        categories = ()
    hallucination = review.hallucination
    if hallucination == draft.hallucination:
        hallucination = None
    update = {
        "question": review.question.strip(),
        "options": tuple(map(str.strip, review.options)),
        "answers": tuple(map(str.strip, review.answers)),
        "judgements": tuple(map(_complete_judgement, review.judgements)),
        "categories": categories,
        "hallucination": hallucination,
        "note": review.note.strip(),
    }
    return review.model_copy(update=update)


def _complete_judgement(judgement: Judgement) -> Judgement:
    """Return a judgement in the form of the file, see :func:`complete_review`. One without a score stays as it is."""
    update = {}
    if judgement.correctness is False:
        update["score"] = LOWEST
    elif judgement.score is not None:
        update |= {name: True for name in ASPECTS if getattr(judgement, name) is None}
    return judgement.model_copy(update=update)


@dataclass(frozen=True)
class ReviewerAgreement:
    """Agreement of two reviewers on one criterion, over the questions that both judged."""

    what: str  # score, score >= 5 or an aspect
    reviewers: tuple[str, str]
    questions: int
    clusters: int  # groups of questions that share images or patients
    equal: float  # share of questions judged the same; NaN without any
    kappa: float  # NaN if undefined: both judged all questions the same
    low: float  # ends of its 95 % interval; NaN if undefined
    high: float
    constant: tuple[str, ...]  # reviewers who judged all questions the same


def agreements(
    reviews: Sequence[Review],
    drafts: Drafts,
    images: Mapping[str, StudyImage],
) -> list[ReviewerAgreement]:
    """Return the agreement of each two reviewers on scores, on passing and on each aspect.

    Kappa is 1 - observed / expected cost of disagreements. Scores have quadratic weights (Cohen 1968, Psychological
    Bulletin 70), all else the plain kappa (Cohen 1960). Errors are those of a bootstrap over clusters of questions that
    share an image or its group.

    Args:
        reviews: Reviews, one per reviewer.
        drafts: Drafts by item id. Reviews of earlier forms of a draft do not count.
        images: Images of the study by id, for their groups.
    """
    clusters = clusters_of(drafts, images)
    criteria = (SCORE, PASSES, *ASPECTS)
    classes = {}
    for review in reviews:
        for what in criteria:
            classes[review.reviewer, what] = _classes_of(current(review, drafts), what)
    results = []
    for pair in itertools.combinations([review.reviewer for review in reviews], 2):
        for what in criteria:
            first, second = (classes[reviewer, what] for reviewer in pair)
            results.append(_agreement(what, pair, first, second, clusters))
    return results


def _classes_of(reviews: Mapping[str, ItemReview], what: str) -> dict[Question, int]:
    """Return the class of each judged question by a criterion, counted from 0."""
    classes = {}
    for item, review in reviews.items():
        for position, judgement in enumerate(review.judgements):
            value = getattr(judgement, what if what in ASPECTS else "score")
            if value is None:
                continue
            if what == SCORE:
                value -= LOWEST
            elif what == PASSES:
                value = value >= PASSING
            classes[item, position] = int(value)
    return classes


def _constant_reviewers(
    pair: tuple[str, str],
    judged: Sequence[tuple[int, int]],
) -> tuple[str, ...]:
    """Return the reviewers of a pair who judged all questions the same, neither if there are no questions.

    Args:
        pair: Names of the reviewers.
        judged: Classes that the two gave, by question.
    """
    constant = []
    for reviewer, of_reviewer in zip(pair, zip(*judged, strict=True), strict=False):
        if len(set(of_reviewer)) == 1:
            constant.append(reviewer)
    return tuple(constant)


def _agreement(
    what: str,
    pair: tuple[str, str],
    first: Mapping[Question, int],
    second: Mapping[Question, int],
    clusters: Mapping[str, Hashable],
) -> ReviewerAgreement:
    """Return the agreement of a ``pair`` of reviewers on one criterion.

    Args:
        what: The criterion.
        pair: Names of the reviewers.
        first: Classes that the first one gave, from 0, by question.
        second: Classes that the second one gave.
        clusters: Cluster of each draft, by item id.
    """
    common = [question for question in first if question in second]
    judged = [(first[question], second[question]) for question in common]
    cluster_ids = [clusters[item] for item, _ in common]
    count = len(set(cluster_ids))
    equal = kappa = low = high = math.nan
    if judged:
        equal = sum(itertools.starmap(operator.eq, judged)) / len(judged)
        classes = HIGHEST - LOWEST + 1 if what == SCORE else 2
        table = np.zeros((len(judged), classes * classes), dtype=np.int64)
        for row, (of_first, of_second) in zip(table, judged, strict=True):
            row[of_first * classes + of_second] = 1
        values = values_with_errors(table, cluster_ids, partial(_kappa, classes))
        kappa = values.get("kappa", math.nan)
        error = values.get("kappa_stderr", math.nan)
        if not error >= 0:
            error = math.nan
        low, high = interval(kappa, error, count - 1, share=False)
        # A NaN stays, because max and min return their first argument then.
        low = max(low, -1.0)
        high = min(high, 1.0)
    return ReviewerAgreement(
        what=what,
        reviewers=pair,
        questions=len(judged),
        clusters=count,
        equal=equal,
        kappa=kappa,
        low=low,
        high=high,
        constant=_constant_reviewers(pair, judged),
    )


def _kappa(classes: int, counts: Integers) -> dict[str, Floats]:
    """Return kappa of counts of shape (..., classes * classes), NaN where chance alone would make reviewers agree."""
    tables = counts.reshape(*counts.shape[:-1], classes, classes).astype(np.float64)
    scale = np.arange(classes, dtype=np.float64)
    # For two classes the weight is 0 for the same and 1 for the other.
    weights = (scale[:, np.newaxis] - scale) ** 2
    rows = tables.sum(axis=-1)
    columns = tables.sum(axis=-2)
    observed = (tables * weights).sum(axis=(-1, -2))
    # This is the expected cost times the number of questions: nothing is divided before it is known to be defined.
    chance = np.einsum("...i,ij,...j->...", rows, weights, columns)
    with np.errstate(invalid="ignore", divide="ignore"):
        kappa = 1 - observed * rows.sum(axis=-1) / chance
    return {"kappa": np.where(chance > 0, kappa, np.nan)}


def clusters_of(drafts: Drafts, images: Mapping[str, StudyImage]) -> dict[str, Hashable]:
    """Return the cluster of each draft by item id. Drafts that share an image, or an image's group, are one cluster.

    Args:
        drafts: Drafts by item id.
        images: Images of the study by id, for their groups.
    """
    keys = []
    for draft in drafts.values():
        keys_of_draft = []
        for name in draft.images:
            group = images[name].group if name in images else None
            keys_of_draft.append(("image", name) if group is None else ("group", group))
        keys.append(keys_of_draft)
    return dict(zip(drafts, connected_components(keys), strict=True))


def accept_drafts(
    drafts: Drafts,
    reviews: Sequence[Review],
    min_score: int,
    wording: str | None = None,
) -> tuple[dict[str, Draft], Counter[str]]:
    """Return the accepted drafts in the words of their reviewers, and the number of others by reason.

    A draft is accepted if a reviewer scored all its questions and no reviewer gave any of them less than ``min_score``.

    Args:
        drafts: Drafts by item id.
        reviews: Reviews, one per reviewer.
        min_score: Least score of a question, from 1 to 10.
        wording: Name of the reviewer whose words count if they differ. None leaves out drafts with several wordings.
    """
    by_reviewer = {review.reviewer: current(review, drafts) for review in reviews}
    published = {}
    left_out = Counter[str]()
    for item, draft in drafts.items():
        of_draft = {who: items[item] for who, items in by_reviewer.items() if item in items}
        accepted = _accepted_or_reason(draft, of_draft, min_score, wording)
        if isinstance(accepted, str):
            left_out[accepted] += 1
        else:
            published[item] = accepted
    return published, left_out


def _accepted_or_reason(
    draft: Draft,
    reviews: Mapping[str, ItemReview],
    min_score: int,
    wording: str | None,
) -> Draft | str:
    """Return a draft in the words of its reviewers, or why it is not accepted.

    Args:
        draft: The draft.
        reviews: Reviews of the draft by reviewer, also unfinished ones, in which a low score counts, too.
        min_score: Least score of an accepted draft.
        wording: Name of the reviewer whose words count if they differ. None, or one who did not score the draft,
            leaves out a draft whose reviewers differ.
    """
    scored = {who: review for who, review in reviews.items() if review.scores}
    refusal = _refusal(draft, reviews.values(), list(scored.values()), min_score)
    if refusal:
        return refusal
    deciding = list(scored.values())
    if wording in scored:
        deciding = [scored[wording]]
    in_their_words = _reword(draft, deciding)
    if in_their_words is None:
        return DISAGREED
    if len(draft.images) > 1 and len(set(in_their_words.answers)) == 1:
        return "unusable after review: both images have the same answer"
    return in_their_words


def _refusal(
    draft: Draft,
    reviews: Iterable[ItemReview],
    scored: Sequence[ItemReview],
    min_score: int,
) -> str | None:
    """Return the reason to refuse a draft, or None to accept it.

    Args:
        draft: The draft.
        reviews: All of the draft. A low score in an unfinished one counts, too.
        scored: Those reviews that have a score for every image. Only these are checked for problems.
        min_score: Least score of an accepted draft.
    """
    if not scored:
        return UNSCORED
    causes: dict[str, None] = {}  # each once, in the order of reviews
    for review in scored:
        causes |= dict.fromkeys(problems(draft, review).values())
    if causes:
        return f"unusable after review: {'; '.join(causes)}"
    for review in reviews:
        # Scores in a review of another form than the draft belong to none of its images.
        if len(review.judgements) != len(draft.images):
            continue
        for judgement in review.judgements:
            if judgement.score is not None and judgement.score < min_score:
                return TOO_LOW
    return None


def _reword(draft: Draft, reviews: Sequence[ItemReview]) -> Draft | None:
    """Return a draft in the words of its reviewers, with all categories that any reviewer names.

    Returns:
        None if their words differ.
    """
    wordings = []
    for review in reviews:
        complete = complete_review(draft, review)
        wording = {name: getattr(complete, name) for name in ("question", "options", "answers")}
        wording["hallucination"] = complete.hallucination or draft.hallucination
        wordings.append(wording)
    if wordings.count(wordings[0]) < len(wordings):
        return None
    areas = [review.categories for review in reviews if any(review.categories)]
    categories = []
    for of_image in zip(*(areas or [draft.categories]), strict=True):
        categories.append(tuple(dict.fromkeys(itertools.chain(*of_image))))
    return draft.model_copy(update={**wordings[0], "categories": tuple(categories)})


def balance_answers(drafts: Drafts) -> tuple[set[str], Counter[str]]:
    """Return the ids of drafts with which yes is the answer as often as no, and the number of others by reason.

    Of the more frequent answer, the smallest digests of ids are taken: rewording a question changes nothing, and one
    more draft changes at most one other.

    Args:
        drafts: Drafts by item id. Drafts that are no yes/no questions stay.
    """
    balanced = set[str]()
    by_answer: dict[str, list[str]] = {word: [] for word in YES_NO}
    for item, draft in drafts.items():
        if is_yes_no(draft):
            by_answer[draft.options[option_index(draft.answers[0])]].append(item)
        else:
            balanced.add(item)
    size = min(map(len, by_answer.values()))
    left_out = Counter[str]()
    for word, items in by_answer.items():
        balanced.update(sorted(items, key=digest_of)[:size])
        left_out[f"surplus of {word.lower()}"] = len(items) - size
    return balanced, +left_out


def is_yes_no(draft: Draft) -> bool:
    """Return whether a draft is answered by yes or no, in either order of the options.

    Example:
        >>> draft = Draft(item_id="1", images=("a",), question="?", options=("No", "Yes"), answers=("A",))
        >>> is_yes_no(draft)
        True
    """
    return sorted(draft.options) == sorted(YES_NO)
