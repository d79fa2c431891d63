"""The bundled sample: MediConfusion's layout with drawn images, so that everything can be tried without any patient.

Pairs are built like the published ones: one question with two options, asked of two images with opposite answers.
Scores on it say nothing about a model's medical ability.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from PIL import Image, ImageOps

from medtasks.data import phantoms

_FIRST_PAIR = 90001
_FIRST_IMAGE = 90000
_QUALITY = 90
_TINTS = {"warm": ("#0a0604", "#fff6e6"), "cool": ("#04060c", "#e8f2ff")}


class _Drawing:
    """An image: what draws it and which finding, the medical areas, and what is seen."""

    def __init__(
        self,
        draw: Callable[..., None],
        size: tuple[int, int],
        categories: str,
        caption: str,
        tint: Literal["warm", "cool"] | None = None,
        **finding: object,
    ) -> None:
        self._draw, self._size, self._tint = partial(draw, **finding), size, tint
        self.categories, self.caption = categories.split(", "), f"Drawn phantom: {caption}."

    def image(self, seed: int) -> Image.Image:
        sheet = phantoms.Sheet(self._size)
        self._draw(sheet)
        image = sheet.finished(seed)
        return image if self._tint is None else ImageOps.colorize(image, *_TINTS[self._tint])


_HEART = "Cardiac, Pulmonary"
_SPINE = "Spinal, Musculoskeletal"
_DRAWINGS: Mapping[str, _Drawing] = {
    "head_left": _Drawing(phantoms.head, (256, 300), "Cerebral", "bright spot at the left", spot="left"),
    "head_right": _Drawing(phantoms.head, (248, 288), "Cerebral", "bright spot at the right", spot="right"),
    "head_plain": _Drawing(phantoms.head, (264, 300), "Cerebral", "no bright spot, thin ventricles", "cool"),
    "head_wide": _Drawing(phantoms.head, (240, 280), "Cerebral", "wide ventricles", wide_ventricles=True),
    "vessel_open": _Drawing(phantoms.vessel, (240, 300), "Vascular", "smooth vessel"),
    "vessel_narrow": _Drawing(phantoms.vessel, (256, 300), "Vascular", "vessel narrowed half-way", narrowed=True),
    "vessel_bulge": _Drawing(phantoms.vessel, (248, 288), "Vascular", "vessel with a round bulge", "warm", bulge=True),
    "neck_middle": _Drawing(phantoms.neck, (256, 280), "Head and Neck", "airway in the middle", airway="middle"),
    "neck_right": _Drawing(phantoms.neck, (280, 288), "Head and Neck", "airway bent to the right", airway="right"),
    "spine_straight": _Drawing(phantoms.spine, (224, 320), _SPINE, "straight column"),
    "spine_curved": _Drawing(phantoms.spine, (232, 320), _SPINE, "column bent sideways", curved=True),
    "spine_slipped": _Drawing(phantoms.spine, (224, 312), _SPINE, "column with a step", "cool", slipped=True),
    "spine_flat": _Drawing(phantoms.spine, (240, 320), _SPINE, "one flat vertebra", collapsed=True),
    "bone_whole": _Drawing(phantoms.long_bone, (224, 320), "Musculoskeletal", "whole bone"),
    "bone_upper": _Drawing(phantoms.long_bone, (232, 312), "Musculoskeletal", "break above", broken="upper"),
    "bone_lower": _Drawing(phantoms.long_bone, (224, 304), "Musculoskeletal", "break below", "cool", broken="lower"),
    "chest_plain": _Drawing(phantoms.chest, (320, 296), _HEART, "small heart, clear lungs"),
    "chest_heart": _Drawing(phantoms.chest, (304, 288), _HEART, "large heart", large_heart=True),
    "chest_catheter": _Drawing(phantoms.chest, (312, 304), _HEART, "catheter", "cool", catheter=True),
    "chest_left": _Drawing(phantoms.chest, (304, 280), "Pulmonary", "nodule at the left", nodule="left"),
    "chest_right": _Drawing(phantoms.chest, (296, 280), "Pulmonary", "nodule at the right", nodule="right"),
    "stomach_left": _Drawing(phantoms.stomach, (272, 304), "Gastrointestinal", "bubble at the left", bubble="left"),
    "stomach_right": _Drawing(phantoms.stomach, (264, 296), "Gastrointestinal", "bubble at the right", bubble="right"),
    "bowel_thin": _Drawing(phantoms.bowel, (280, 288), "Gastrointestinal", "thin loops", swollen=False),
    "bowel_swollen": _Drawing(phantoms.bowel, (288, 280), "Gastrointestinal", "swollen loops", "warm", swollen=True),
    "scan_upper": _Drawing(phantoms.bone_scan, (224, 320), "Nuclear Medicine", "hot spot above", hot_spot="upper"),
    "scan_lower": _Drawing(
        phantoms.bone_scan, (232, 320), "Nuclear Medicine", "hot spot below", "warm", hot_spot="lower"
    ),
}

# Both images, the right option of the first, and the question; then the options.
_PAIRS = """
head_left head_right A: Where is the bright spot in the brain of this drawn head phantom?
    In the left half of the picture | In the right half of the picture
head_plain head_left B: What does the brain of this drawn head phantom show?
    A single bright spot | No bright spot
head_wide head_plain A: How do the two dark ventricles of this drawn head phantom look?
    Wide | Narrow, like slits
vessel_open vessel_narrow B: What is the calibre of the vessel below the fork in this drawn angiogram?
    Narrowed to a thread half-way | Even all the way
vessel_bulge vessel_open A: What is seen beside the trunk of the vessel in this drawn angiogram?
    A round bulge | Nothing, its wall is smooth
neck_right neck_middle B: How does the dark airway run in this drawn neck, seen from the front?
    Straight down the middle | Bent to the right side of the picture
spine_straight spine_curved A: How is the column of vertebrae aligned in this drawn spine?
    Straight | Bent to one side in an arc
spine_flat spine_slipped B: What is wrong with the vertebrae of this drawn spine?
    The upper ones are shifted sideways as a block | One of them is much flatter than the others
bone_upper bone_whole A: Is the bone of this drawn limb broken?
    Yes, a dark line runs through it | No, it is whole
bone_lower bone_upper B: Where does the dark line cross the bone in this drawn limb?
    In the upper half | In the lower half
chest_heart chest_plain A: How wide is the heart in this drawn chest, compared with the chest?
    More than half of it | Less than half of it
chest_plain chest_catheter B: Which foreign body, if any, does this drawn chest show?
    A catheter from the upper left to the heart | None
chest_left chest_right A: Where is the round nodule in this drawn chest?
    In the left half of the picture | In the right half of the picture
stomach_right stomach_left B: Where is the dark gas bubble in this drawn belly?
    In the left half of the picture | In the right half of the picture
bowel_swollen bowel_thin A: How do the dark loops of bowel look in this drawn belly?
    Swollen | Thin
scan_lower scan_upper B: Where is the hot spot in this drawn bone scan?
    In the upper half | In the lower half
""".strip().splitlines()


def write_sample_source(folder: Path) -> None:
    """Write the sample as a folder laid out like the reference repository's ``data/``.

    ``folder``, created if need be, then holds ``dataset.json`` (16 pairs, 18 fields each) and ``images/<number>.jpg``.
    The bytes are the same at every call with one Pillow version. The two similarity fields are 0.0: nothing was
    measured.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    numbers = {name: _FIRST_IMAGE + index for index, name in enumerate(_DRAWINGS)}
    for name, number in numbers.items():
        _DRAWINGS[name].image(number).save(images / f"{number}.jpg", quality=_QUALITY)
    pairs = zip(_PAIRS[::2], _PAIRS[1::2], strict=True)
    records = {str(_FIRST_PAIR + index): _record(*pair, numbers) for index, pair in enumerate(pairs)}
    text = json.dumps(records, indent=1, ensure_ascii=False)
    (folder / "dataset.json").write_text(text + "\n", encoding="utf-8")


def _record(pair: str, options: str, numbers: Mapping[str, int]) -> dict[str, object]:
    head, question = pair.split(": ", 1)
    first, second, answer = head.split()
    option_a, option_b = options.strip().split(" | ")
    return {
        "im_1": f"drawn/{first}.jpg",
        "im_2": f"drawn/{second}.jpg",
        "im_1_local": numbers[first],
        "im_2_local": numbers[second],
        "cap_1": _DRAWINGS[first].caption,
        "cap_2": _DRAWINGS[second].caption,
        "category_1": _DRAWINGS[first].categories,
        "category_2": _DRAWINGS[second].categories,
        "BiomedCLIP_sim": 0.0,
        "DINO_sim": 0.0,
        "question": question,
        "option_A": option_a,
        "option_B": option_b,
        "im_1_correct": answer,
        "im_2_correct": "B" if answer == "A" else "A",
        "AI_question": question,
        "AI_option_A": option_a,
        "AI_option_B": option_b,
    }
