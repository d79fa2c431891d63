"""What reviewers said of drafts, one file per reviewer, and what they said together."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from medtasks.curate.drafts import Draft
from medtasks.curate.study import REVIEWS, Record, Study, write_private
from medtasks.errors import MedTasksError, SourceError

LOWEST, HIGHEST = 1, 10
"""Scores of a question; 1 is given where it is not correct (MediConfusion, section 2)."""
PASSING = 5
"""Questions of a lower score are not for the benchmark (as above)."""
ASPECTS = ("correctness", "relevance", "language")


class Judgement(Record):
    """What a reviewer says of one question on one image; None is not said."""

    score: int | None = None  # 1 to 10
    correctness: bool | None = None
    relevance: bool | None = None
    language: bool | None = None


class ItemReview(Record):
    """What a reviewer says of one draft, and its wording after their edits."""

    digest: str  # of the draft that was judged
    question: str
    options: tuple[str, ...]
    answers: tuple[str, ...]
    judgements: tuple[Judgement, ...]  # one per image of the draft
    categories: tuple[tuple[str, ...], ...] = ()
    hallucination: str | None = None  # another than was drafted
    note: str = ""

    @property
    def scores(self) -> tuple[int, ...] | None:
        """The scores of all its questions; None while one is missing."""
        scores = tuple(one.score for one in self.judgements if one.score is not None)
        return scores if len(scores) == len(self.judgements) else None


class Review(Record):
    """The file of one reviewer."""

    schema_version: int = 1
    study: str  # digest of the study
    reviewer: str
    items: Mapping[str, ItemReview] = {}  # by item id

    def write(self, folder: Path) -> None:
        """Write it into the folder of its study, all or nothing."""
        write_private(review_file(folder, self.reviewer), self.model_dump_json(indent=1) + "\n")


def review_file(folder: Path, reviewer: str) -> Path:
    """Return the file of a reviewer; MedTasksError for a name that no file can have."""
    if not reviewer or not all(letter.isalnum() or letter in "-_" for letter in reviewer):
        raise MedTasksError(f"'{reviewer}' cannot name a reviewer's file; take letters, digits, - and _")
    return folder / REVIEWS / f"{reviewer}.json"


def read_review(path: Path, study: Study) -> Review:
    """Return a reviewer's file; SourceError for a damaged one, and for one of another study."""
    try:
        review = Review.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_input=False)[0]["loc"]))
        raise SourceError(f"{path} is damaged at '{where}'; mend it, or move it away to begin anew") from None
    if review.study != study.digest:
        raise SourceError(f"{path} is of another study than '{study.name}'; move it to that one's folder {REVIEWS}")
    return review


def read_reviews(folder: Path, study: Study) -> list[Review]:
    """Return the files of all reviewers of a study, by name; errors as above."""
    return [read_review(path, study) for path in sorted((folder / REVIEWS).glob("*.json"))]


def current(review: Review, drafts: Mapping[str, Draft]) -> dict[str, ItemReview]:
    """Return what a reviewer said of drafts as they are now; what was drafted anew since is not among them."""
    return {item: said for item, said in review.items.items() if item in drafts and said.digest == drafts[item].digest}


def lowest_scores(reviews: Sequence[ItemReview]) -> tuple[int, ...] | None:
    """Return the lowest score that any reviewer gave each question of a draft; None where nobody scored them all.

    A reviewer who scored one of them only counts as well: who found it wrong need not look at the other.
    """
    if not any(one.scores for one in reviews):
        return None
    each = zip(*(one.judgements for one in reviews), strict=True)
    return tuple(min(one.score for one in said if one.score is not None) for said in each)
