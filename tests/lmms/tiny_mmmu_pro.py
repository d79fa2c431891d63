"""MMMU-Pro in miniature: drawn images in the published parquet format, medical questions among others."""

from pathlib import Path
from typing import Any

import pyarrow

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.medevalkit import SUBJECTS

from ..multimedeval_sources import picture, put_parquet
from ..tiny_medevalkit import IMAGE

SETS = [name for name, info in CATALOGUE.items() if info.benchmark == "MMMU-Pro"]
_IMAGES = [f"image_{number}" for number in range(1, 8)]
_TEXT = pyarrow.string()
STANDARD = pyarrow.schema(
    {
        **dict.fromkeys(("id", "question", "options", "explanation"), _TEXT),
        **dict.fromkeys(_IMAGES, IMAGE),
        **dict.fromkeys(("img_type", "answer", "topic_difficulty", "subject"), _TEXT),
    }
)
VISION = pyarrow.schema(
    {"id": _TEXT, "image": IMAGE, **dict.fromkeys(("options", "answer", "subject"), _TEXT)}
)


def put_source(folder: Path) -> Path:
    """Write all three settings; the first medical question has images as options, in another order than their names."""
    for subset, most, schema in (
        ("standard (10 options)", 10, STANDARD),
        ("standard (4 options)", 4, STANDARD),
        ("vision", 10, VISION),
    ):
        rows = [row(number, most) for number in range(8)]
        put_parquet(folder / subset / "test-00000-of-00002.parquet", rows[:6], schema)
        put_parquet(folder / subset / "test-00001-of-00002.parquet", rows[6:], schema)
    return folder


def row(number: int, most: int) -> dict[str, Any]:
    """Return one row of all columns; of four, one is about art, and each subject has at least one."""
    subject = "Art" if number % 4 == 3 else SUBJECTS[(number - number // 4) % 5]
    of_images = number == 0
    options = (
        ["<image 2>", "<image 3>", "<image 1>"]
        if of_images
        else [f"{text} it's" for text in "abcdefghij"[:most]]
    )
    files = [
        {"bytes": picture(10 * number + place, "PNG"), "path": None}
        for place in range(3 if of_images else 1)
    ]
    return {
        "id": f"test_{subject}_{number}",
        "question": "Which image?" if of_images else f"What is {number} in <image 1>?",
        "options": str(options),
        "answer": "BAD"[number % 3] if not of_images else "B",
        "subject": subject,
        "image": files[0],
        **dict(zip(_IMAGES, files, strict=False)),
    }


def prepare_all(folder: Path) -> None:
    source = put_source(folder)
    for name in SETS:
        prepare(name, Options(source, allow_incomplete=True))
