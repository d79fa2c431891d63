"""Studies of drawn images and invented texts, reviewers who say what a test wants, and an LLM that drafts questions."""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from medtasks.curate.drafts import (
    Draft,
    DraftOutcome,
    JournalLine,
    read_drafts,
    read_journal_lines,
)
from medtasks.curate.review.reviews import (
    ItemReview,
    Judgement,
    Review,
    empty_review,
    review_file,
)
from medtasks.curate.study import (
    DRAFTS,
    IMAGES,
    PAIRS,
    ImagePair,
    Study,
    StudyImage,
    StudyKind,
    read_images,
    read_study,
    write_lines,
    write_private,
    write_study,
)
from medtasks.data.catalogue import Access

from ..scripted_server import Endpoint, Step

SIDE = 320
SITES = (
    "left lower lobe",
    "right upper lobe",
    "left hilum",
    "right apex",
    "lingula",
    "right base",
)
MADE_WITH = {
    "medical_encoder": {"name": "made-up/medical", "digest": "a" * 16, "dimension": 4},
    "general_encoder": {"name": "made-up/general", "digest": "b" * 16, "dimension": 4},
    "sim_med": 0.9,
    "sim_gen": 0.75,
}
Said = Callable[[Draft], int | ItemReview | None]


def pairs_study(folder: Path, pairs: int = 3) -> Study:
    """Make a study of pairs ``p1``, ``p2``, ... in a folder, and return it; the answers are A and B, or B and A."""
    drafts, listed = [], []
    for number in range(1, pairs + 1):
        ids = (f"im{2 * number - 1}", f"im{2 * number}")
        listed.append(ImagePair(pair_id=f"p{number}", images=ids, sim_med=0.95, sim_gen=0.5))
        first, second = (SITES[(2 * number - 2 + place) % len(SITES)] for place in (0, 1))
        draft = Draft(
            item_id=f"p{number}",
            images=ids,
            question=f"Where is the opacity of size {number}?",
            options=(f"In the {first}", f"In the {second}")
            if number % 2
            else (f"In the {second}", f"In the {first}"),
            answers=("A", "B") if number % 2 else ("B", "A"),
            categories=(("pulmonary",), ("pulmonary", "vascular")),
        )
        drafts.append((f"p{number}", (draft,)))
    write_lines(folder / PAIRS, listed)
    return _written(
        folder,
        StudyKind.PAIRS,
        [_image(folder, number) for number in range(1, 2 * pairs + 1)],
        drafts,
    )


def hallucination_study(folder: Path, kind: StudyKind, images: int = 3) -> Study:
    """Make a study of images ``im1``, ``im2``, ... with two questions of a kind each, and return it."""
    listed = [_image(folder, number) for number in range(1, images + 1)]
    drafts = []
    for image, site in zip(listed, itertools.cycle(SITES), strict=False):
        sites = (site, "nowhere", "everywhere", "the heart")
        questions: list[tuple[str, tuple[str, ...], str]] = [
            (f"Is the {site} clear?", ("Yes", "No"), "B"),
            ("Where is it dense?", sites, "A"),
        ]
        if kind in (StudyKind.VISUAL_OPEN, StudyKind.KNOWLEDGE_OPEN):
            questions = [
                ("Describe it.", (), image.text),
                ("What next?", (), f"A follow-up of the {site}."),
            ]
        made = tuple(
            Draft(
                item_id=f"{image.image_id}/{number}",
                images=(image.image_id,),
                question=question,
                options=options,
                answers=(answer,),
                hallucination="anatomy" if kind is StudyKind.VISUAL_CLOSED else None,
                components={"anatomy": (site,), "symptom": ("opacity",)}
                if kind is StudyKind.VISUAL_OPEN
                else None,
            )
            for number, (question, options, answer) in enumerate(questions, 1)
        )
        drafts.append((image.image_id, made))
    return _written(folder, kind, listed, drafts)


def _image(folder: Path, number: int) -> StudyImage:
    """Draw an image of its own, every third as TIFF, which browsers do not show."""
    name = f"im{number}"
    text = f"Radiograph {number} of an invented chest with an opacity in the {SITES[(number - 1) % len(SITES)]}."
    path = folder / "drawn" / f"{name}.{'tif' if number % 3 == 0 else 'png'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = Image.linear_gradient("L").resize((SIDE, SIDE))
    x, y = 60 + 37 * number % 190, 60 + 71 * number % 190
    ImageDraw.Draw(drawn).ellipse((x, y, x + 30, y + 30), fill=230)
    drawn.save(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return StudyImage(
        image_id=name, file=str(path), sha256=digest, text=text, group=f"patient{number}"
    )


def _written(
    folder: Path,
    kind: StudyKind,
    images: Iterable[StudyImage],
    drafts: Iterable[tuple[str, tuple[Draft, ...]]],
) -> Study:
    study = Study(name=f"made_up_{kind}", kind=kind, access=Access.PUBLIC, source="drawn")
    write_study(folder, study)
    write_lines(folder / IMAGES, images)
    about: dict[str, Any] = {"asked": "made up", "outcome": DraftOutcome.DRAFTED}
    write_lines(
        folder / DRAFTS,
        [JournalLine(request=request, drafts=made, **about) for request, made in drafts],
    )
    return study


def detailed_study(
    folder: Path,
    kind: StudyKind = StudyKind.PAIRS,
    *,
    name: str = "made_up",
    access: Access = Access.PUBLIC,
) -> Path:
    """Write a study with settings, licences, a language model, and drafts that came last first; return its folder."""
    made = pairs_study(folder) if kind is StudyKind.PAIRS else hallucination_study(folder, kind)
    write_study(
        folder, made.model_copy(update={"name": name, "access": access, "made_with": MADE_WITH})
    )
    images = enumerate(read_images(folder).values())
    write_lines(
        folder / IMAGES,
        [one.model_copy(update={"licence": "CC0" if n % 2 else None}) for n, one in images],
    )
    told = {"llm": "made-up-llm, temperature 0", "prompt": "made_up v1"}
    write_lines(
        folder / DRAFTS,
        [
            line.model_copy(update=told)
            for line in reversed(read_journal_lines(folder).values())
        ],
    )
    return folder


def review(folder: Path, reviewer: str = "alice", said: Said | None = None) -> None:
    """Write a reviewer's file: what ``said`` returns of each draft, a score for all its questions; 9 without it."""
    items = {}
    for item, draft in read_drafts(folder).items():
        verdict = 9 if said is None else said(draft)
        if verdict is not None:
            items[item] = verdict if isinstance(verdict, ItemReview) else scored(draft, verdict)
    file = Review(study=read_study(folder).digest, reviewer=reviewer, items=items)
    write_private(review_file(folder, reviewer), file.model_dump_json(indent=1) + "\n")


def scored(draft: Draft, score: int, **changes: object) -> ItemReview:
    """Return a review that gives each question of a draft the same score."""
    judgements = (Judgement(score=score),) * len(draft.images)
    review = empty_review(draft).model_copy(update={"judgements": judgements, "categories": ()})
    return review.model_copy(update=changes)


def even(draft: Draft) -> ItemReview:
    """Say that a question is good, and yes to that of the first image, which was drafted with no as all others are."""
    corrected = draft.options == ("Yes", "No") and draft.images[0].endswith("im1")
    return scored(draft, 9, answers=("A",) if corrected else draft.answers)


CAPTION = (
    "Axial contrast-enhanced computed tomography of patient {id}, "
    "which shows a mass on the {side} side of the chest."
)
DRAFT = "Question: On which side is the mass?\nOption1: Left\nOption2: Right\nImage1: {first}\nImage2: {second}"


def caption(image_id: str, side: str, more: str = "") -> str:
    return CAPTION.format(id=image_id, side=side) + more


def captioned_study(
    folder: Path,
    pairs: int = 6,
    access: Access = Access.PUBLIC,
    texts: dict[str, str] | None = None,
) -> Study:
    """Pairs p0, p1, ... of images a0 and b0, a1 and b1, ...; all b are on the right, and p1 shares a0 with p0."""
    study = Study(name="our_pairs", kind=StudyKind.PAIRS, access=access, source="made up")
    folder.mkdir(parents=True, exist_ok=True)
    write_study(folder, study)
    names = [
        (f"{kind}{n}", side)
        for n in range(pairs)
        for kind, side in (("a", "left"), ("b", "right"))
    ]
    captions = {name: caption(name, side) for name, side in names} | (texts or {})
    images = []
    for name, text in captions.items():
        images.append(
            StudyImage(image_id=name, file=f"/nowhere/{name}.png", sha256="0" * 64, text=text)
        )
    write_lines(folder / IMAGES, images)
    made = []
    for n in range(pairs):
        both = ("a0" if n == 1 else f"a{n}", f"b{n}")
        made.append(
            ImagePair(
                pair_id=f"p{n}", images=both, sim_med=0.99 - n / 100, sim_gen=0.5 + n / 50
            )
        )
    write_lines(folder / PAIRS, made)
    return study


class DraftingLLM:
    """Answers each prompt by what it asks; ``said`` are other replies by a text that a prompt holds, in turn."""

    def __init__(self, server: Endpoint, said: dict[str, list[Step]] | None = None) -> None:
        self.server = server
        self.said = said or {}
        server.choose = self

    def __call__(self, body: dict[str, Any]) -> Step:
        user = body["messages"][1]["content"]
        for part, steps in self.said.items():
            if part in user:
                return steps.pop(0) if len(steps) > 1 else steps[0]
        if user.startswith("Here is the description"):
            sides = re.findall(r"on the (left|right) side", user)
            return self.server.reply(
                DRAFT.format(first=sides[0].title(), second=sides[1].title())
            )
        if user.startswith("Caption:"):
            return self.server.reply("Pulmonary")
        return self.server.reply("1. Left and right\n2. Masses")

    def asked(self, start: str) -> list[str]:
        """What it was asked that begins so, in order."""
        users = [body["messages"][1]["content"] for body in self.server.bodies]
        return [user for user in users if user.startswith(start)]
