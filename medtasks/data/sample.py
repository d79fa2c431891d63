"""The bundled sample: MediConfusion's layout with drawn pictures, so that everything can be tried without any patient.

Pairs are built like the published ones: one question with two options, asked of two pictures with opposite answers.
Scores on it say nothing about a model's medical ability.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from PIL import Image, ImageOps

from medtasks.data import phantoms

_FIRST_PAIR = 90001
_FIRST_IMAGE = 90000
_QUALITY = 90
_TINTS = {"warm": ("#0a0604", "#fff6e6"), "cool": ("#04060c", "#e8f2ff")}

Draw = Callable[[tuple[int, int], int], Image.Image]


@dataclass(frozen=True)
class _Picture:
    draw: Draw
    size: tuple[int, int]
    categories: tuple[str, ...]
    caption: str
    tint: Literal["warm", "cool"] | None = None


@dataclass(frozen=True)
class _Pair:
    first: str
    second: str
    question: str
    options: tuple[str, str]
    first_answer: Literal["A", "B"]


def _picture(
    draw: Callable[..., Image.Image],
    size: tuple[int, int],
    categories: str,
    caption: str,
    tint: Literal["warm", "cool"] | None = None,
    **finding: object,
) -> _Picture:
    return _Picture(partial(draw, **finding), size, tuple(categories.split(", ")), caption, tint)


_HEART = "Cardiac, Pulmonary"
_SPINE = "Spinal, Musculoskeletal"
_PICTURES: Mapping[str, _Picture] = {
    "head_left": _picture(phantoms.head, (256, 300), "Cerebral", "bright spot at the left", spot="left"),
    "head_right": _picture(phantoms.head, (248, 288), "Cerebral", "bright spot at the right", spot="right"),
    "head_plain": _picture(phantoms.head, (264, 300), "Cerebral", "no bright spot, thin ventricles", "cool"),
    "head_wide": _picture(phantoms.head, (240, 280), "Cerebral", "wide ventricles", wide_ventricles=True),
    "vessel_open": _picture(phantoms.vessel, (240, 300), "Vascular", "smooth vessel"),
    "vessel_narrow": _picture(phantoms.vessel, (256, 300), "Vascular", "vessel narrowed half-way", narrowed=True),
    "vessel_bulge": _picture(phantoms.vessel, (248, 288), "Vascular", "vessel with a round bulge", "warm", bulge=True),
    "neck_middle": _picture(phantoms.neck, (256, 280), "Head and Neck", "airway in the middle", airway="middle"),
    "neck_right": _picture(phantoms.neck, (280, 288), "Head and Neck", "airway bent to the right", airway="right"),
    "spine_straight": _picture(phantoms.spine, (224, 320), _SPINE, "straight column"),
    "spine_curved": _picture(phantoms.spine, (232, 320), _SPINE, "column bent sideways", curved=True),
    "spine_slipped": _picture(phantoms.spine, (224, 312), _SPINE, "column with a step", "cool", slipped=True),
    "spine_flat": _picture(phantoms.spine, (240, 320), _SPINE, "one flat vertebra", collapsed=True),
    "bone_whole": _picture(phantoms.long_bone, (224, 320), "Musculoskeletal", "whole bone"),
    "bone_upper": _picture(phantoms.long_bone, (232, 312), "Musculoskeletal", "break above", broken="upper"),
    "bone_lower": _picture(phantoms.long_bone, (224, 304), "Musculoskeletal", "break below", "cool", broken="lower"),
    "chest_plain": _picture(phantoms.chest, (320, 296), _HEART, "small heart, clear lungs"),
    "chest_heart": _picture(phantoms.chest, (304, 288), _HEART, "large heart", large_heart=True),
    "chest_catheter": _picture(phantoms.chest, (312, 304), _HEART, "catheter", "cool", catheter=True),
    "chest_left": _picture(phantoms.chest, (304, 280), "Pulmonary", "nodule at the left", nodule="left"),
    "chest_right": _picture(phantoms.chest, (296, 280), "Pulmonary", "nodule at the right", nodule="right"),
    "stomach_left": _picture(phantoms.stomach, (272, 304), "Gastrointestinal", "bubble at the left", bubble="left"),
    "stomach_right": _picture(phantoms.stomach, (264, 296), "Gastrointestinal", "bubble at the right", bubble="right"),
    "bowel_thin": _picture(phantoms.bowel, (280, 288), "Gastrointestinal", "thin loops", swollen=False),
    "bowel_swollen": _picture(phantoms.bowel, (288, 280), "Gastrointestinal", "swollen loops", "warm", swollen=True),
    "scan_upper": _picture(phantoms.bone_scan, (224, 320), "Nuclear Medicine", "hot spot above", hot_spot="upper"),
    "scan_lower": _picture(
        phantoms.bone_scan, (232, 320), "Nuclear Medicine", "hot spot below", "warm", hot_spot="lower"
    ),
}

_SIDES = ("In the left half of the picture", "In the right half of the picture")
_HALVES = ("In the upper half", "In the lower half")
_PAIRS = (
    _Pair("head_left", "head_right", "Where is the bright spot in the brain of this drawn head phantom?", _SIDES, "A"),
    _Pair(
        "head_plain",
        "head_left",
        "What does the brain of this drawn head phantom show?",
        ("A single bright spot", "No bright spot"),
        "B",
    ),
    _Pair(
        "head_wide",
        "head_plain",
        "How do the two dark ventricles of this drawn head phantom look?",
        ("Wide", "Narrow, like slits"),
        "A",
    ),
    _Pair(
        "vessel_open",
        "vessel_narrow",
        "What is the calibre of the vessel below the fork in this drawn angiogram?",
        ("Narrowed to a thread half-way", "Even all the way"),
        "B",
    ),
    _Pair(
        "vessel_bulge",
        "vessel_open",
        "What is seen beside the trunk of the vessel in this drawn angiogram?",
        ("A round bulge", "Nothing, its wall is smooth"),
        "A",
    ),
    _Pair(
        "neck_right",
        "neck_middle",
        "How does the dark airway run in this drawn neck, seen from the front?",
        ("Straight down the middle", "Bent to the right side of the picture"),
        "B",
    ),
    _Pair(
        "spine_straight",
        "spine_curved",
        "How is the column of vertebrae aligned in this drawn spine?",
        ("Straight", "Bent to one side in an arc"),
        "A",
    ),
    _Pair(
        "spine_flat",
        "spine_slipped",
        "What is wrong with the vertebrae of this drawn spine?",
        ("The upper ones are shifted sideways as a block", "One of them is much flatter than the others"),
        "B",
    ),
    _Pair(
        "bone_upper",
        "bone_whole",
        "Is the bone of this drawn limb broken?",
        ("Yes, a dark line runs through it", "No, it is whole"),
        "A",
    ),
    _Pair("bone_lower", "bone_upper", "Where does the dark line cross the bone in this drawn limb?", _HALVES, "B"),
    _Pair(
        "chest_heart",
        "chest_plain",
        "How wide is the heart in this drawn chest, compared with the chest?",
        ("More than half of it", "Less than half of it"),
        "A",
    ),
    _Pair(
        "chest_plain",
        "chest_catheter",
        "Which foreign body, if any, does this drawn chest show?",
        ("A catheter from the upper left to the heart", "None"),
        "B",
    ),
    _Pair("chest_left", "chest_right", "Where is the round nodule in this drawn chest?", _SIDES, "A"),
    _Pair("stomach_right", "stomach_left", "Where is the dark gas bubble in this drawn belly?", _SIDES, "B"),
    _Pair(
        "bowel_swollen",
        "bowel_thin",
        "How do the dark loops of bowel look in this drawn belly?",
        ("Swollen", "Thin"),
        "A",
    ),
    _Pair("scan_lower", "scan_upper", "Where is the hot spot in this drawn bone scan?", _HALVES, "B"),
)


def write_sample_source(folder: Path) -> None:
    """Write the sample as a folder laid out like the reference repository's ``data/``.

    ``folder`` then holds ``dataset.json`` (16 pairs, 18 fields each) and ``images/<number>.jpg``. The bytes are
    the same at every call with one Pillow version. The two similarity fields are 0.0: nothing was measured.

    Args:
        folder: Created if need be; files of the same names are overwritten.

    Raises:
        OSError: The folder cannot be written.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    numbers = {name: _FIRST_IMAGE + index for index, name in enumerate(_PICTURES)}
    for name, number in numbers.items():
        _render(_PICTURES[name], number).save(images / f"{number}.jpg", quality=_QUALITY)
    records = {str(_FIRST_PAIR + index): _record(pair, numbers) for index, pair in enumerate(_PAIRS)}
    text = json.dumps(records, indent=1, ensure_ascii=False)
    (folder / "dataset.json").write_text(text + "\n", encoding="utf-8")


def _render(picture: _Picture, seed: int) -> Image.Image:
    image = picture.draw(picture.size, seed)
    if picture.tint is None:
        return image
    dark, bright = _TINTS[picture.tint]
    return ImageOps.colorize(image, dark, bright)


def _record(pair: _Pair, numbers: Mapping[str, int]) -> dict[str, object]:
    first, second = _PICTURES[pair.first], _PICTURES[pair.second]
    option_a, option_b = pair.options
    return {
        "im_1": f"drawn/{pair.first}.jpg",
        "im_2": f"drawn/{pair.second}.jpg",
        "im_1_local": numbers[pair.first],
        "im_2_local": numbers[pair.second],
        "cap_1": f"Drawn phantom: {first.caption}.",
        "cap_2": f"Drawn phantom: {second.caption}.",
        "category_1": list(first.categories),
        "category_2": list(second.categories),
        "BiomedCLIP_sim": 0.0,
        "DINO_sim": 0.0,
        "question": pair.question,
        "option_A": option_a,
        "option_B": option_b,
        "im_1_correct": pair.first_answer,
        "im_2_correct": "B" if pair.first_answer == "A" else "A",
        "AI_question": pair.question,
        "AI_option_A": option_a,
        "AI_option_B": option_b,
    }
