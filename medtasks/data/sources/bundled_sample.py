"""The bundled sample: MediConfusion's layout with drawn images, so that everything can be tried without any patient.

Pairs are built like the published ones: one question with two options, asked of two images with opposite answers.
Scores on it say nothing about a model's medical ability.
"""

import json
from pathlib import Path

from PIL import ImageOps

from medtasks.data.sources import synthetic_images
from medtasks.home import packaged_facts

_FIRST_PAIR = 90001
_FIRST_IMAGE = 90000
_QUALITY = 90
_TINTS = {"warm": ("#0a0604", "#fff6e6"), "cool": ("#04060c", "#e8f2ff")}


def write_sample_source(folder: Path) -> None:
    """Write the sample as a folder laid out like the reference repository's ``data/``.

    ``folder``, created if need be, then holds ``dataset.json`` (16 pairs, 18 fields each) and ``images/<number>.jpg``.
    The bytes are the same at every call with one Pillow version. The two similarity fields are 0.0: nothing was
    measured.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    sample = packaged_facts(__package__, "sample")
    shown = sample["images"]
    numbers = {name: _FIRST_IMAGE + index for index, name in enumerate(shown)}
    for name, number in numbers.items():
        image = shown[name]
        sheet = synthetic_images.Sheet(tuple(image["size"]))
        getattr(synthetic_images, image["draw"])(sheet, **image.get("finding", {}))
        drawn = sheet.finished(number)
        drawn = ImageOps.colorize(drawn, *_TINTS[image["tint"]]) if "tint" in image else drawn
        drawn.save(images / f"{number}.jpg", quality=_QUALITY)
    records = {}
    for index, pair in enumerate(sample["pairs"]):
        first, second = pair["images"]
        asked = {"question": pair["question"], **dict(zip(("option_A", "option_B"), pair["options"], strict=True))}
        records[str(_FIRST_PAIR + index)] = {
            "im_1": f"drawn/{first}.jpg",
            "im_2": f"drawn/{second}.jpg",
            "im_1_local": numbers[first],
            "im_2_local": numbers[second],
            "cap_1": f"Drawn phantom: {shown[first]['shown']}.",
            "cap_2": f"Drawn phantom: {shown[second]['shown']}.",
            "category_1": shown[first]["areas"],
            "category_2": shown[second]["areas"],
            "BiomedCLIP_sim": 0.0,
            "DINO_sim": 0.0,
            **asked,
            "im_1_correct": pair["answer"],
            "im_2_correct": "B" if pair["answer"] == "A" else "A",
            **{f"AI_{name}": text for name, text in asked.items()},
        }
    text = json.dumps(records, indent=1, ensure_ascii=False)
    (folder / "dataset.json").write_text(text + "\n", encoding="utf-8")
