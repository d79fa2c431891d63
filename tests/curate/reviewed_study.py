"""Made-up studies with all that a datasheet tells, and reviewers who say what a test wants them to say."""

from collections.abc import Callable
from pathlib import Path

from medtasks.curate.drafts import Draft, read_drafted, read_drafts
from medtasks.curate.review.reviews import ItemReview, Judgement, Review, review_file
from medtasks.curate.study import DRAFTS, IMAGES, StudyKind, read_images, read_study, write_lines, write_private
from medtasks.data.catalogue import Access

from .made_up_study import hallucination_study, pairs_study

MADE_WITH = {
    "medical_encoder": {"name": "made-up/medical", "digest": "a" * 16, "dimension": 4},
    "general_encoder": {"name": "made-up/general", "digest": "b" * 16, "dimension": 4},
    "sim_med": 0.9,
    "sim_gen": 0.75,
}
Said = Callable[[Draft], int | ItemReview | None]


def detailed_study(
    folder: Path, kind: StudyKind = StudyKind.PAIRS, *, name: str = "made_up", access: Access = Access.PUBLIC
) -> Path:
    """Write a study with settings, licences, a language model, and drafts that came last first; return its folder."""
    made = pairs_study(folder) if kind is StudyKind.PAIRS else hallucination_study(folder, kind)
    made.model_copy(update={"name": name, "access": access, "made_with": MADE_WITH}).write(folder)
    images = enumerate(read_images(folder).values())
    write_lines(folder / IMAGES, [one.model_copy(update={"licence": "CC0" if n % 2 else None}) for n, one in images])
    told = {"llm": "made-up-llm, temperature 0", "prompt": "made_up v1"}
    write_lines(folder / DRAFTS, [line.model_copy(update=told) for line in reversed(read_drafted(folder).values())])
    return folder


def review(folder: Path, reviewer: str = "alice", said: Said | None = None) -> None:
    """Write a reviewer's file: what ``said`` returns of each draft, a score for all its questions; 9 without it."""
    items = {}
    for item, draft in read_drafts(folder).items():
        found = 9 if said is None else said(draft)
        if found is not None:
            items[item] = found if isinstance(found, ItemReview) else scored(draft, found)
    file = Review(study=read_study(folder).digest, reviewer=reviewer, items=items)
    write_private(review_file(folder, reviewer), file.model_dump_json(indent=1) + "\n")


def scored(draft: Draft, score: int, **changes: object) -> ItemReview:
    """Return a review that gives each question of a draft the same score."""
    said = ItemReview(
        digest=draft.digest,
        question=draft.question,
        options=draft.options,
        answers=draft.answers,
        judgements=(Judgement(score=score),) * len(draft.images),
    )
    return said.model_copy(update=changes)


def even(draft: Draft) -> ItemReview:
    """Say that a question is good, and yes to that of the first image, which was drafted with no as all others are."""
    corrected = draft.options == ("Yes", "No") and draft.images[0].endswith("im1")
    return scored(draft, 9, answers=("A",) if corrected else draft.answers)
