"""A study of made-up pairs, and an LLM on the loopback that drafts their questions."""

import re
from pathlib import Path
from typing import Any

from medtasks.curate.study import IMAGES, PAIRS, ImagePair, Study, StudyImage, StudyKind, write_lines
from medtasks.curate.study import write_study as write_description
from medtasks.data.catalogue import Access

from ..scripted_server import Endpoint, Step

CAPTION = (
    "Axial contrast-enhanced computed tomography of patient {id}, which shows a mass on the {side} side of the chest."
)
DRAFT = "Question: On which side is the mass?\nOption1: Left\nOption2: Right\nImage1: {first}\nImage2: {second}"


def caption(image_id: str, side: str, more: str = "") -> str:
    return CAPTION.format(id=image_id, side=side) + more


def write_study(
    folder: Path, pairs: int = 6, access: Access = Access.PUBLIC, texts: dict[str, str] | None = None
) -> Study:
    """Pairs p0, p1, ... of images a0 and b0, a1 and b1, ...; all b are on the right, and p1 shares a0 with p0."""
    study = Study(name="our_pairs", kind=StudyKind.PAIRS, access=access, source="made up")
    folder.mkdir(parents=True, exist_ok=True)
    write_description(folder, study)
    names = [(f"{kind}{n}", side) for n in range(pairs) for kind, side in (("a", "left"), ("b", "right"))]
    captions = {name: caption(name, side) for name, side in names} | (texts or {})
    images = []
    for name, text in captions.items():
        images.append(StudyImage(image_id=name, file=f"/nowhere/{name}.png", sha256="0" * 64, text=text))
    write_lines(folder / IMAGES, images)
    made = []
    for n in range(pairs):
        both = ("a0" if n == 1 else f"a{n}", f"b{n}")
        made.append(ImagePair(pair_id=f"p{n}", images=both, sim_med=0.99 - n / 100, sim_gen=0.5 + n / 50))
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
            return self.server.reply(DRAFT.format(first=sides[0].title(), second=sides[1].title()))
        if user.startswith("Caption:"):
            return self.server.reply("Pulmonary")
        return self.server.reply("1. Left and right\n2. Masses")

    def asked(self, start: str) -> list[str]:
        """What it was asked that begins so, in order."""
        users = [body["messages"][1]["content"] for body in self.server.bodies]
        return [user for user in users if user.startswith(start)]
