"""The drawings of the bundled sample, which ``medtasks/data/sources/sample`` holds as files.

Pairs are built like the published ones: one question with two options, asked of two images with opposite answers.
Scores on it say nothing about a model's medical ability. Every drawing function draws one image that looks a little
like radiology; its arguments change exactly the thing a question asks about. Sides are sides of the image. Equal
arguments give equal pixels on one Pillow version.
"""

import json
import random
import tomllib
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import cos, pi, sin
from pathlib import Path
from typing import Literal

from PIL import Image, ImageDraw, ImageFilter, ImageOps

SAMPLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FIRST_PAIR, _FIRST_IMAGE = 90001, 90000
_TINTS = {"warm": ("#0a0604", "#fff6e6"), "cool": ("#04060c", "#e8f2ff")}
Point = tuple[float, float]
Side = Literal["left", "right"]
Level = Literal["upper", "lower"]
_OVERSAMPLING = 3
_SOFTNESS = 1.1  # pixels of Gaussian blur
_GRAIN = 0.025  # share of noise in the image


class Sheet:
    """A grey sheet to draw on; lengths are in per cent of its width, ``y`` grows downwards."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._size, self._scale = size, size[0] * _OVERSAMPLING / 100
        self._image = Image.new("L", (size[0] * _OVERSAMPLING, size[1] * _OVERSAMPLING))
        self._draw = ImageDraw.Draw(self._image)
        self.height = 100 * size[1] / size[0]

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def ground(self, grey: int) -> None:
        """Fill all of it."""
        self._image.paste(grey, (0, 0, *self._image.size))

    def ellipse(self, centre: Point, radii: Point, grey: int) -> None:
        """Fill an ellipse."""
        (x, y), (rx, ry) = centre, radii
        self._draw.ellipse(self._scaled([(x - rx, y - ry), (x + rx, y + ry)]), fill=grey)

    def polygon(self, points: Sequence[Point], grey: int) -> None:
        """Fill a polygon."""
        self._draw.polygon(self._scaled(points), fill=grey)

    def line(self, points: Sequence[Point], width: float, grey: int) -> None:
        """Draw a line with round ends and joints."""
        for x, y in points:
            self.ellipse((x, y), (width / 2, width / 2), grey)
        self._draw.line(
            self._scaled(points), fill=grey, width=round(width * self._scale), joint="curve"
        )

    def tube(self, points: Sequence[Point], widths: Sequence[float], grey: int) -> None:
        """Draw a line whose width changes from point to point."""
        steps = 24
        for (start, end), (thin, thick) in zip(pairwise(points), pairwise(widths), strict=True):
            for step in range(steps + 1):
                at = step / steps
                centre = (
                    start[0] + at * (end[0] - start[0]),
                    start[1] + at * (end[1] - start[1]),
                )
                radius = (thin + at * (thick - thin)) / 2
                self.ellipse(centre, (radius, radius), grey)

    def finished(self, seed: int) -> Image.Image:
        """Return the image at its own size, softened and with grain that depends on ``seed`` alone."""
        image = self._image.resize(self._size, Image.Resampling.LANCZOS)
        image = image.filter(ImageFilter.GaussianBlur(_SOFTNESS))
        coarse = (self._size[0] // 3, self._size[1] // 3)
        grain = Image.frombytes(
            "L", coarse, random.Random(seed).randbytes(coarse[0] * coarse[1])
        )
        return Image.blend(image, grain.resize(self._size, Image.Resampling.BICUBIC), _GRAIN)


def head(sheet: Sheet, spot: Side | None = None, wide_ventricles: bool = False) -> None:
    """Draw a head from above: a skull ring, two hemispheres, two dark ventricles, at most one bright spot."""
    sheet.ground(14)
    middle = sheet.height / 2
    sheet.ellipse((50, middle), (40, 0.45 * sheet.height), 225)
    sheet.ellipse((50, middle), (36, 0.41 * sheet.height), 105)
    sheet.line([(50, middle - 0.38 * sheet.height), (50, middle + 0.38 * sheet.height)], 1, 140)
    for side in (-1, 1):
        radii = (10.0, 21.0) if wide_ventricles else (3.0, 13.0)
        sheet.ellipse((50 + side * (radii[0] + 2), middle), radii, 35)
    if spot:
        sheet.ellipse((29 if spot == "left" else 71, middle + 14), (8, 8), 245)


def vessel(sheet: Sheet, narrowed: bool = False, bulge: bool = False) -> None:
    """Draw a dark vessel that fills from below and forks: smooth, or narrowed half-way, or with a round bulge."""
    sheet.ground(165)
    bottom = sheet.height
    sheet.ellipse((50, 0.5 * bottom), (46, 0.47 * bottom), 185)
    waist = 2.0 if narrowed else 13.0
    trunk = [
        (46.0, bottom),
        (50.0, 0.78 * bottom),
        (52.0, 0.66 * bottom),
        (50.0, 0.54 * bottom),
        (49.0, 0.42 * bottom),
    ]
    sheet.tube(trunk, [13, 13, waist, 13, 12], 45)
    sheet.tube([(49, 0.42 * bottom), (36, 0.26 * bottom), (26, 0.1 * bottom)], [11, 8, 5], 45)
    sheet.tube([(49, 0.42 * bottom), (64, 0.28 * bottom), (76, 0.12 * bottom)], [11, 8, 5], 45)
    if bulge:
        sheet.ellipse((66, 0.6 * bottom), (14, 14), 40)


def neck(sheet: Sheet, airway: Literal["middle", "right"]) -> None:
    """Draw a neck from the front: jaw above, shoulders below, vertebrae in the middle, a dark airway before them."""
    sheet.ground(20)
    bottom = sheet.height
    sheet.polygon(
        [(28, 0), (72, 0), (70, 0.7 * bottom), (100, bottom), (0, bottom), (30, 0.7 * bottom)],
        110,
    )
    sheet.ellipse((50, 0), (27, 14), 200)
    for step in range(6):
        sheet.ellipse((50, (0.24 + 0.12 * step) * bottom), (9, 4), 165)
    shift = 0 if airway == "middle" else 15
    path = [
        (50.0, 0.2 * bottom),
        (50.0 + shift, 0.45 * bottom),
        (50.0 + shift, 0.7 * bottom),
        (50.0, 0.97 * bottom),
    ]
    sheet.tube(path, [7, 8, 8, 7], 22)


def spine(
    sheet: Sheet, curved: bool = False, slipped: bool = False, collapsed: bool = False
) -> None:
    """Draw a column of seven vertebrae: straight, bent sideways, with one step, or with one flat vertebra."""
    sheet.ground(40)
    bottom, pitch = sheet.height, sheet.height / 7.6
    sheet.polygon([(22, 0), (78, 0), (84, bottom), (16, bottom)], 85)
    for number in range(7):
        x = (
            50
            + (16 * sin(pi * (number + 0.5) / 7) - 6 if curved else 0)
            + (13 if slipped and number < 3 else 0)
        )
        y = pitch * (0.8 + number)
        top = y + 0.14 * pitch if collapsed and number == 3 else y - 0.36 * pitch
        corners = [
            (x - 15, top),
            (x + 15, top),
            (x + 15, y + 0.36 * pitch),
            (x - 15, y + 0.36 * pitch),
        ]
        sheet.polygon(corners, 205)


def long_bone(sheet: Sheet, broken: Level | None = None) -> None:
    """Draw a limb with one long bone, whole or broken straight through in its upper or lower half."""
    sheet.ground(25)
    bottom = sheet.height
    sheet.polygon([(18, 0), (82, 0), (74, bottom), (26, bottom)], 80)
    shaft = [(50.0, share * bottom) for share in (0.08, 0.2, 0.5, 0.8, 0.92)]
    sheet.tube(shaft, [32, 20, 16, 20, 32], 215)
    sheet.line([shaft[1], shaft[3]], 6, 165)
    if broken:
        y = (0.32 if broken == "upper" else 0.68) * bottom
        sheet.line([(34, y + 5), (46, y - 1), (53, y + 2), (66, y - 6)], 4.5, 55)


def chest(
    sheet: Sheet, large_heart: bool = False, catheter: bool = False, nodule: Side | None = None
) -> None:
    """Draw a chest from the front: two dark lungs under ribs, a heart, perhaps a catheter or one round nodule."""
    sheet.ground(12)
    bottom = sheet.height
    sheet.ellipse((50, 0.56 * bottom), (48, 0.56 * bottom), 135)
    for x in (28, 72):
        sheet.ellipse((x, 0.52 * bottom), (17, 0.4 * bottom), 40)
        for step in range(6):
            y = (0.2 + 0.12 * step) * bottom
            sheet.line([(x - 15, y + 3), (x, y), (x + 15, y + 3)], 1.6, 85)
    sheet.line([(50, 0.05 * bottom), (50, 0.95 * bottom)], 9, 175)
    sheet.ellipse(
        (56, 0.68 * bottom), (31, 0.2 * bottom) if large_heart else (14, 0.15 * bottom), 190
    )
    if catheter:
        sheet.line(
            [(12, 0.12 * bottom), (34, 0.17 * bottom), (45, 0.3 * bottom), (48, 0.64 * bottom)],
            2.6,
            255,
        )
        sheet.ellipse((12, 0.13 * bottom), (7, 5), 255)
    if nodule:
        sheet.ellipse((25 if nodule == "left" else 75, 0.38 * bottom), (6.5, 6.5), 235)


def stomach(sheet: Sheet, bubble: Side) -> None:
    """Draw a belly from the front with the dark gas bubble of the stomach under one dome of the diaphragm."""
    sheet.ground(15)
    bottom = sheet.height
    sheet.ellipse((50, 0.55 * bottom), (47, 0.53 * bottom), 120)
    sheet.ellipse((50, 0.02 * bottom), (42, 0.16 * bottom), 45)
    sheet.line([(50, 0.05 * bottom), (50, 0.97 * bottom)], 11, 180)
    for side in (-1, 1):
        sheet.ellipse((50 + side * 24, 0.92 * bottom), (17, 12), 165)
    sheet.ellipse((27 if bubble == "left" else 73, 0.36 * bottom), (14, 10), 22)


def bowel(sheet: Sheet, swollen: bool) -> None:
    """Draw a belly with three gas-filled loops of bowel side by side, thin or swollen."""
    sheet.ground(18)
    bottom = sheet.height
    sheet.ellipse((50, 0.5 * bottom), (48, 0.49 * bottom), 140)
    width = 15.0 if swollen else 4.5
    for step in range(3):
        y = (0.27 + 0.23 * step) * bottom
        arch = [(50 - 26 * cos(pi * at / 12), y - 5 * sin(pi * at / 12)) for at in range(13)]
        sheet.tube(arch, [width] * len(arch), 40)


def bone_scan(sheet: Sheet, hot_spot: Level) -> None:
    """Draw a whole-body bone scan, dark uptake on white, with one hot spot next to the chest or in a thigh."""
    sheet.ground(240)
    bottom = sheet.height
    sheet.ellipse((50, 0.08 * bottom), (8, 9), 160)
    sheet.line([(50, 0.15 * bottom), (50, 0.5 * bottom)], 5, 140)
    for step in range(5):
        y = (0.22 + 0.045 * step) * bottom
        sheet.line([(36, y + 3), (50, y), (64, y + 3)], 1.8, 175)
    sheet.ellipse((50, 0.52 * bottom), (15, 6), 165)
    for side in (-1, 1):
        sheet.line([(50 + side * 17, 0.2 * bottom), (50 + side * 26, 0.5 * bottom)], 3.5, 180)
        sheet.line([(50 + side * 10, 0.54 * bottom), (50 + side * 12, 0.95 * bottom)], 4.5, 175)
    sheet.ellipse(
        (61, 0.27 * bottom) if hot_spot == "upper" else (61, 0.7 * bottom), (6, 6), 15
    )


_DRAWINGS: dict[str, Callable[..., None]] = {
    draw.__name__: draw
    for draw in (head, vessel, neck, spine, long_bone, chest, stomach, bowel, bone_scan)
}


def write_sample_source(folder: Path) -> None:
    """Write the sample as a folder laid out like the reference repository's ``data/``.

    ``folder``, created if missing, then holds ``dataset.json`` (16 pairs, 18 fields each) and ``images/<number>.jpg``.
    The two similarity fields are 0.0: nothing was measured.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    facts = SAMPLE["images"]
    numbers = {name: number for number, name in enumerate(facts, _FIRST_IMAGE)}
    for name, image in facts.items():
        sheet = Sheet(tuple(image["size"]))
        _DRAWINGS[image["draw"]](sheet, **image.get("finding", {}))
        drawn = sheet.finished(numbers[name])
        drawn = ImageOps.colorize(drawn, *_TINTS[image["tint"]]) if "tint" in image else drawn
        drawn.save(images / f"{numbers[name]}.jpg", quality=90)
    records = {}
    for number, pair in enumerate(SAMPLE["pairs"], _FIRST_PAIR):
        first, second = pair["images"]
        texts = {
            "question": pair["question"],
            **dict(zip(("option_A", "option_B"), pair["options"], strict=True)),
        }
        records[str(number)] = {
            "im_1": f"drawn/{first}.jpg",
            "im_2": f"drawn/{second}.jpg",
            "im_1_local": numbers[first],
            "im_2_local": numbers[second],
            "cap_1": f"Drawn phantom: {facts[first]['shown']}.",
            "cap_2": f"Drawn phantom: {facts[second]['shown']}.",
            "category_1": facts[first]["areas"],
            "category_2": facts[second]["areas"],
            "BiomedCLIP_sim": 0.0,
            "DINO_sim": 0.0,
            **texts,
            "im_1_correct": pair["answer"],
            "im_2_correct": "B" if pair["answer"] == "A" else "A",
            **{f"AI_{name}": text for name, text in texts.items()},
        }
    (folder / "dataset.json").write_text(
        f"{json.dumps(records, indent=1, ensure_ascii=False)}\n", encoding="utf-8"
    )
