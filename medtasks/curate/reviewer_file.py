"""A reviewer's file while somebody works on it: one process at a time, on disk after every change."""

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import filelock

from medtasks.curate.drafts import Draft, read_drafts
from medtasks.curate.judging import problems, settled, unjudged
from medtasks.curate.reviews import PASSING, ItemReview, Review, current, read_review, review_file
from medtasks.curate.study import Study, StudyImage, read_images, read_study
from medtasks.data.journal import digest_of
from medtasks.errors import MedTasksError

_DIGITS = 16


class Unfit(MedTasksError):
    """A review cannot be kept as it is; ``problems`` are sentences by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(problems.values())))
        self.problems = problems


class ChangedElsewhere(MedTasksError):
    """What a change was made from is no longer what the file holds."""


def version_of(said: ItemReview) -> str:
    """Return sixteen hexadecimal digits that change with what is said of a draft."""
    return digest_of(said.model_dump(mode="json"))[:_DIGITS]


class ReviewerFile:
    """What one reviewer said of a study's drafts; made by :func:`opened`. Threads may share it."""

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
        _check(folder, self.drafts, self.images)

    @property
    def reviewer(self) -> str:
        """The reviewer's name."""
        return self._review.reviewer

    def said(self, item: str) -> ItemReview:
        """Return what was said of a draft as it is now."""
        return self._said.get(item) or unjudged(self.drafts[item])

    def version(self, item: str) -> str:
        """Return the version of what was said of a draft."""
        return version_of(self.said(item))

    def save(self, said: Mapping[str, ItemReview], made_from: Mapping[str, str]) -> None:
        """Write what is said of drafts into the file, all of it or nothing.

        ``made_from`` are the versions that the changes were made from. Raises Unfit; ChangedElsewhere where the file
        holds something else; a MedTasksError where it cannot be written, or is closed.
        """
        with self._lock:
            if not self._open:
                raise MedTasksError("the review was ended")
            changed = {item: new for item, one in said.items() if (new := self._fit(item, one)) != self.said(item)}
            for item in changed:
                if made_from[item] != self.version(item):
                    raise ChangedElsewhere("this question was changed elsewhere, in another tab for example")
            if changed:
                self._write(changed)

    def _fit(self, item: str, said: ItemReview) -> ItemReview:
        draft = self.drafts[item]
        if said.digest != draft.digest:
            raise ChangedElsewhere("this question was drafted anew; load the page again")
        if found := problems(draft, said):
            raise Unfit(found)
        return settled(draft, said)

    def _write(self, changed: Mapping[str, ItemReview]) -> None:
        items = {**self._review.items, **changed}
        for item in changed:
            if changed[item] == unjudged(self.drafts[item]):
                del items[item]
        # In the order of the study, so that equal judgements are equal files whatever came first.
        known = {item: items.pop(item) for item in self.drafts if item in items}
        review = self._review.model_copy(update={"items": {**known, **items}})
        review.write(self.folder)
        self._review, self._said = review, {**self._said, **changed}

    def order(self, seed: int | None = None) -> list[str]:
        """Return the ids of the drafts, as in the study or shuffled."""
        items = list(self.drafts)
        if seed is not None:
            random.Random(seed).shuffle(items)
        return items

    def summary(self) -> str:
        """Return how far the reviewer came, as one sentence."""
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
        lock = filelock.FileLock(path.with_name(f".{reviewer}.lock"), mode=0o600, blocking=False)
        with lock:
            file = ReviewerFile(folder, reviewer)
            try:
                yield file
            finally:
                file.close()
    except filelock.Timeout:
        raise MedTasksError(
            f"{path} is being reviewed by another process; end that one (Ctrl-C), or take another name with --reviewer"
        ) from None


def _check(folder: Path, drafts: Mapping[str, Draft], images: Mapping[str, StudyImage]) -> None:
    if not drafts:
        raise MedTasksError(f"{folder} has no drafts to review yet; make them with 'medtasks curate draft {folder}'")
    if lost := sum(image not in images for draft in drafts.values() for image in draft.images):
        raise MedTasksError(f"{lost} images of drafts are not in {folder}; make the study again in another folder")
