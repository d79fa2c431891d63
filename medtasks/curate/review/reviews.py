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
"""Scores of a question; 1 is given where it is not correct (MediConfusion, section 2)."""
PASSING = 5
"""Questions of a lower score are not for the benchmark (as above)."""
ASPECTS = ("correctness", "relevance", "language")
HALLUCINATIONS = ("anatomy", "measurement", "symptom", "technique")


class Judgement(Record):
    """Scores that a reviewer gives one question on one image; None is not given."""

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
    """Return the reviews of drafts as they are now, without those of drafts that were drafted anew since."""
    return {item: said for item, said in review.items.items() if item in drafts and said.digest == drafts[item].digest}


def unjudged(draft: Draft) -> ItemReview:
    """Return the empty review of a draft: its own wording, no scores."""
    return ItemReview(
        digest=draft.digest,
        question=draft.question,
        options=draft.options,
        answers=draft.answers,
        judgements=(Judgement(),) * len(draft.images),
        categories=draft.categories,
    )


def letters(draft: Draft) -> str:
    """Return the letters of a draft's options, none for an open question."""
    return string.ascii_uppercase[: len(draft.options)]


def problems(draft: Draft, said: ItemReview) -> dict[str, str]:
    """Return the reasons not to keep a review, a sentence by field; none for one that can be kept.

    Fields are named as in the file, those of lists with their position: ``options.0``, ``judgements.1.score``.
    """
    per_image = (said.answers, said.judgements, *([said.categories] if said.categories else []))
    if not (len(said.options) == len(draft.options) and all(len(part) == len(draft.images) for part in per_image)):
        return {"": "it does not have the options, images or categories of the draft"}
    return dict(_problems(draft, said))


def _problems(draft: Draft, said: ItemReview) -> Iterator[tuple[str, str]]:
    if not said.question.strip():
        yield "question", "the question is empty"
    seen: dict[str, str] = {}
    for number, (letter, option) in enumerate(zip(letters(draft), said.options, strict=True)):
        text = " ".join(option.casefold().split())
        if not text:
            yield f"options.{number}", f"option {letter} is empty"
        elif text in seen:
            yield f"options.{number}", f"option {letter} says the same as option {seen[text]}"
        seen.setdefault(text, letter)
    for number, answer in enumerate(said.answers):
        if draft.options and answer.strip() not in tuple(letters(draft)):
            yield f"answers.{number}", f"the answer is none of {', '.join(letters(draft))}"
        elif not answer.strip():
            yield f"answers.{number}", "the answer is empty"
    if said.hallucination not in (None, *HALLUCINATIONS):
        yield "hallucination", f"it is none of {', '.join(HALLUCINATIONS)}"
    elif said.hallucination and not draft.hallucination:
        yield "hallucination", "questions of this study have no type"
    for number, one in enumerate(said.judgements):
        field = f"judgements.{number}.score"
        if one.score is not None and not LOWEST <= one.score <= HIGHEST:
            yield field, f"the score is none of {LOWEST} to {HIGHEST}"
        elif one.correctness is False and one.score not in (None, LOWEST):
            yield field, f"a question that is not correct has score {LOWEST}; say first that it is correct"


def remarks(draft: Draft, said: ItemReview) -> list[str]:
    """List the drafting rules of pairs that the wording breaks, a sentence each."""
    if len(draft.images) != 2:
        return []
    texts = dict(zip(letters(draft), said.options, strict=True))
    first, second = (texts.get(answer, answer) for answer in said.answers)
    reply = PairReply(said.question, (said.options[0], said.options[1]), (first, second))
    return [f"{rule[0].upper()}{rule[1:]}." for rule in broken_rules(reply)]


def settled(draft: Draft, said: ItemReview) -> ItemReview:
    """Return a review without problems in the form of the file.

    A question that is not correct has the lowest score. Aspects that are not given next to a score are met.
    """
    judgements = []
    for one in said.judgements:
        update: dict[str, object] = {}
        if one.correctness is False:
            update = {"score": LOWEST}
        elif one.score is not None:
            update = {name: True for name in ASPECTS if getattr(one, name) is None}
        judgements.append(one.model_copy(update=update))
    categories = tuple(tuple(name.strip() for name in names if name.strip()) for names in said.categories)
    return said.model_copy(
        update={
            "question": said.question.strip(),
            "options": tuple(option.strip() for option in said.options),
            "answers": tuple(answer.strip() for answer in said.answers),
            "judgements": tuple(judgements),
            "categories": categories if any(categories) or draft.categories else (),
            "hallucination": None if said.hallucination == draft.hallucination else said.hallucination,
            "note": said.note.strip(),
        }
    )


class Unfit(MedTasksError):
    """A review cannot be kept as it is; ``problems`` are sentences by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(problems.values())))
        self.problems = problems


class ChangedElsewhere(MedTasksError):
    """The file no longer holds the version that a change was made from."""


def version_of(said: ItemReview) -> str:
    """Return sixteen hexadecimal digits that change with a review."""
    return digest_of(said.model_dump(mode="json"))[:16]


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
        self._said = current(self._review, self.drafts)
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

    def said(self, item: str) -> ItemReview:
        """Return the review of a draft as it is now."""
        return self._said.get(item) or unjudged(self.drafts[item])

    def version(self, item: str) -> str:
        """Return the version of the review of a draft."""
        return version_of(self.said(item))

    def save(self, said: Mapping[str, ItemReview], made_from: Mapping[str, str]) -> None:
        """Write reviews of drafts into the file, all of them or none.

        ``made_from`` are the versions that the changes were made from. Raises Unfit; ChangedElsewhere where the file
        holds something else; a MedTasksError where it cannot be written, or is closed.
        """
        with self._lock:
            if not self._open:
                raise MedTasksError("the review was ended")
            changed = {}
            for item, review in said.items():
                draft = self.drafts[item]
                if review.digest != draft.digest:
                    raise ChangedElsewhere("this question was drafted anew; load the page again")
                if causes := problems(draft, review):
                    raise Unfit(causes)
                if (new := settled(draft, review)) != self.said(item):
                    changed[item] = new
            if any(made_from[item] != self.version(item) for item in changed):
                raise ChangedElsewhere("this question was changed elsewhere, in another tab for example")
            if changed:
                items = {**self._review.items, **changed}
                for item, new in changed.items():
                    if new == unjudged(self.drafts[item]):
                        del items[item]
                # In the order of the study, so that equal judgements are equal files whatever came first.
                known = {item: items.pop(item) for item in self.drafts if item in items}
                saved = self._review.model_copy(update={"items": {**known, **items}})
                saved.write(self.folder)
                self._review, self._said = saved, {**self._said, **changed}

    def summary(self) -> str:
        """Return the reviewer's progress as one sentence."""
        said = [self.said(item) for item in self.drafts]
        scored = sum(one.scores is not None for one in said)
        low = sum(any(each.score is not None and each.score < PASSING for each in one.judgements) for one in said)
        return f"{self.reviewer}: {scored} of {len(said)} drafts scored, {low} below {PASSING}"

    def close(self) -> None:
        """Wait for a change that is being written, and take no other."""
        with self._lock:
            self._open = False


@contextlib.contextmanager
def opened(folder: Path, reviewer: str) -> Iterator[ReviewerFile]:
    """Yield a reviewer's file that no other process works on meanwhile.

    Raises a MedTasksError where one does, where there is no study or no draft, and for a name no file can have.
    """
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
