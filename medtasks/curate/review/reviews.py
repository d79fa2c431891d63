"""Reviews of drafts: one file per reviewer, on disk after every change, and the rules that a review has to keep."""

import contextlib
import string
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import filelock
from pydantic import ValidationError

from medtasks.curate.drafts import Draft, read_drafts
from medtasks.curate.pairs.pair_drafts import PairReply, broken_rules
from medtasks.curate.study import REVIEWS, Record, Study, StudyImage, read_images, read_study, write_private
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of

LOWEST, HIGHEST = 1, 10
"""Scores of a question; 1 is given if it is not correct (MediConfusion, section 2)."""
PASSING = 5
"""Questions of a lower score are not for the benchmark (as above)."""
ASPECTS = ("correctness", "relevance", "language")
HALLUCINATIONS = ("anatomy", "measurement", "symptom", "technique")


class Judgement(Record):
    """Scores that a reviewer gives one question on one image; None if not given."""

    score: int | None = None  # 1 to 10
    correctness: bool | None = None
    relevance: bool | None = None
    language: bool | None = None


class ItemReview(Record):
    """A reviewer's judgement of one draft, and its wording after their edits."""

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
        scores = tuple(judgement.score for judgement in self.judgements if judgement.score is not None)
        return scores if len(scores) == len(self.judgements) else None

    @property
    def version(self) -> str:
        """Sixteen hexadecimal digits that change with the review."""
        return digest_of(self.model_dump(mode="json"))[:16]


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
        raise SourceError(f"{path} is damaged at '{where}'; fix it, or move it away to begin anew") from None
    if review.study != study.digest:
        raise SourceError(f"{path} is of another study than '{study.name}'; move it to that one's folder {REVIEWS}")
    return review


def read_reviews(folder: Path, study: Study) -> list[Review]:
    """Return the files of all reviewers of a study, by name; errors as above."""
    return [read_review(path, study) for path in sorted((folder / REVIEWS).glob("*.json"))]


def current(review: Review, drafts: Mapping[str, Draft]) -> dict[str, ItemReview]:
    """Return the reviews of drafts in their present form, without those of drafts that were drafted anew since."""
    return {item: of for item, of in review.items.items() if item in drafts and of.digest == drafts[item].digest}


def unjudged(draft: Draft) -> ItemReview:
    """Return the empty review of a draft: its own wording, no scores."""
    wording = {name: getattr(draft, name) for name in ("question", "options", "answers", "categories")}
    return ItemReview(digest=draft.digest, judgements=(Judgement(),) * len(draft.images), **wording)


def problems(draft: Draft, review: ItemReview) -> dict[str, str]:
    """Return the reasons not to keep a review by field, such as ``options.0`` or ``judgements.1.score``."""
    per_image = (review.answers, review.judgements, *([review.categories] if review.categories else []))
    if not (len(review.options) == len(draft.options) and all(len(part) == len(draft.images) for part in per_image)):
        return {"": "it does not have the options, images or categories of the draft"}
    causes: dict[str, str] = {}
    letters = string.ascii_uppercase[: len(draft.options)]
    if not review.question.strip():
        causes["question"] = "the question is empty"
    seen: dict[str, str] = {}
    for number, (letter, option) in enumerate(zip(letters, review.options, strict=True)):
        text = " ".join(option.casefold().split())
        if not text:
            causes[f"options.{number}"] = f"option {letter} is empty"
        elif text in seen:
            causes[f"options.{number}"] = f"option {letter} says the same as option {seen[text]}"
        seen.setdefault(text, letter)
    for number, answer in enumerate(review.answers):
        if draft.options and answer.strip() not in tuple(letters):
            causes[f"answers.{number}"] = f"the answer is none of {', '.join(letters)}"
        elif not answer.strip():
            causes[f"answers.{number}"] = "the answer is empty"
    if review.hallucination not in (None, *HALLUCINATIONS):
        causes["hallucination"] = f"it is none of {', '.join(HALLUCINATIONS)}"
    elif review.hallucination and not draft.hallucination:
        causes["hallucination"] = "questions of this study have no type"
    for number, judgement in enumerate(review.judgements):
        field, score = f"judgements.{number}.score", judgement.score
        if score is not None and not LOWEST <= score <= HIGHEST:
            causes[field] = f"the score is none of {LOWEST} to {HIGHEST}"
        elif judgement.correctness is False and score not in (None, LOWEST):
            causes[field] = f"a question that is not correct has score {LOWEST}; say first that it is correct"
    return causes


def remarks(draft: Draft, review: ItemReview) -> list[str]:
    """List the drafting rules of pairs that the wording breaks, a sentence each."""
    if len(draft.images) != 2:
        return []
    texts = dict(zip(string.ascii_uppercase, review.options, strict=False))
    first, second = (texts.get(answer, answer) for answer in review.answers)
    reply = PairReply(review.question, (review.options[0], review.options[1]), (first, second))
    return [f"{rule[0].upper()}{rule[1:]}." for rule in broken_rules(reply)]


def settled(draft: Draft, review: ItemReview) -> ItemReview:
    """Return a review without problems in the form of the file.

    A question that is not correct has the lowest score. Aspects that are not given next to a score are met.
    """
    judgements = []
    for judgement in review.judgements:
        update: dict[str, object] = {}
        if judgement.correctness is False:
            update = {"score": LOWEST}
        elif judgement.score is not None:
            update = {name: True for name in ASPECTS if getattr(judgement, name) is None}
        judgements.append(judgement.model_copy(update=update))
    categories = tuple(tuple(name.strip() for name in names if name.strip()) for names in review.categories)
    return review.model_copy(
        update={
            "question": review.question.strip(),
            "options": tuple(option.strip() for option in review.options),
            "answers": tuple(answer.strip() for answer in review.answers),
            "judgements": tuple(judgements),
            "categories": categories if any(categories) or draft.categories else (),
            "hallucination": None if review.hallucination == draft.hallucination else review.hallucination,
            "note": review.note.strip(),
        }
    )


class Unfit(MedTasksError):
    """A review that cannot be kept; ``problems`` are sentences by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(problems.values())))
        self.problems = problems


class ChangedElsewhere(MedTasksError):
    """The file no longer holds the version that a change was made from."""


class ReviewerFile:
    """The review of a study's drafts by one reviewer; made by :func:`opened`. Threads may share it."""

    def __init__(self, folder: Path, reviewer: str) -> None:
        self.folder = folder
        self.study: Study = read_study(folder)
        self.drafts: dict[str, Draft] = read_drafts(folder)
        self.images: dict[str, StudyImage] = read_images(folder)
        self.path = review_file(folder, reviewer)
        self._review = Review(study=self.study.digest, reviewer=reviewer)
        if self.path.exists():
            self._review = read_review(self.path, self.study)
        self._lock = threading.Lock()
        self._open = True
        if not self.drafts:
            raise MedTasksError(
                f"{folder} has no drafts to review yet; make them with 'medtasks curate draft {folder}'"
            )
        if lost := sum(image not in self.images for draft in self.drafts.values() for image in draft.images):
            raise MedTasksError(f"{lost} images of drafts are not in {folder}; make the study again in another folder")

    @property
    def reviewer(self) -> str:
        """The reviewer's name."""
        return self._review.reviewer

    def review(self, item: str) -> ItemReview:
        """Return the review of a draft in its present form."""
        draft, review = self.drafts[item], self._review.items.get(item)
        return review if review and review.digest == draft.digest else unjudged(draft)

    def save(self, item: str, review: ItemReview, made_from: str) -> None:
        """Write the review of a draft that was changed from a version; Unfit, ChangedElsewhere or MedTasksError."""
        with self._lock:
            if not self._open:
                raise MedTasksError("the review was ended")
            draft = self.drafts[item]
            if review.digest != draft.digest:
                raise ChangedElsewhere("this question was drafted anew; load the page again")
            if causes := problems(draft, review):
                raise Unfit(causes)
            new, old = settled(draft, review), self.review(item)
            if new == old:
                return
            if made_from != old.version:
                raise ChangedElsewhere("this question was changed elsewhere, in another tab for example")
            items = {**self._review.items, item: new}
            if new == unjudged(draft):
                del items[item]
            # In the order of the study, so that equal judgements are equal files whatever came first.
            ordered = {item: items.pop(item) for item in self.drafts if item in items}
            saved = self._review.model_copy(update={"items": {**ordered, **items}})
            saved.write(self.folder)
            self._review = saved

    def summary(self) -> str:
        """Describe the reviewer's progress in one sentence."""
        reviews = [self.review(item) for item in self.drafts]
        scored = sum(review.scores is not None for review in reviews)
        low = sum(any(each.score is not None and each.score < PASSING for each in of.judgements) for of in reviews)
        return f"{self.reviewer}: {scored} of {len(reviews)} drafts scored, {low} below {PASSING}"

    def close(self) -> None:
        """Wait for a change that is being written, and take no other."""
        with self._lock:
            self._open = False


@contextlib.contextmanager
def opened(folder: Path, reviewer: str) -> Iterator[ReviewerFile]:
    """Yield a reviewer's file that no other process works on meanwhile, or raise a MedTasksError."""
    path = review_file(folder, reviewer)
    read_study(folder)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with filelock.FileLock(path.with_name(f".{reviewer}.lock"), mode=0o600, blocking=False):
            file = ReviewerFile(folder, reviewer)
            try:
                yield file
            finally:
                file.close()
    except filelock.Timeout:
        raise MedTasksError(
            f"{path} is being reviewed by another process; end that one (Ctrl-C), or take another name with --reviewer"
        ) from None
