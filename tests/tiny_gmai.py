"""GMAI-MMBench in miniature: files with the published columns, drawn images and invented questions."""

import base64
import csv
import io
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

COLUMNS = (
    *(
        "index",
        "image",
        "question",
        "A",
        "B",
        "C",
        "D",
        "E",
        "F",
        "answer",
        "category",
        "clinical VQA task",
    ),
    *("department", "perceptual granularity", "modality", "original task"),
)
TASKS = (
    "Disease Diagnosis",
    "Severity Grading",
    "Organ Recognition - Abdomen",
    "Bone",
    "Counting",
)
DEPARTMENTS = ("Ophthalmology", "None", "Orthopedic Surgery", "Gastroenterology and Hepatology")
MODALITIES = ("Fundus Photography", "CT", "X-ray", "Endoscopy")
KEYWORDS = (
    "early glaucoma",
    "advanced glaucoma",
    "liver",
    "healthy bone",
    "NA",
    'so-called "normal" line',
    "polyp",
)


def png(seed: int, side: int = 12) -> str:
    rng = random.Random(seed)
    image = Image.new(
        "RGB", (side, side), (rng.randrange(256), rng.randrange(256), rng.randrange(256))
    )
    image.putpixel((rng.randrange(side), rng.randrange(side)), (rng.randrange(256), 0, 255))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def rows(number: int, seed: int = 0) -> list[dict[str, str]]:
    """Return rows with 2 to 6 options; every tenth shows the image of an earlier row, and half are twins."""
    rng = random.Random(seed)
    made: list[dict[str, str]] = []
    for index in range(number):
        options = rng.sample(KEYWORDS, rng.randint(2, 6))
        right = rng.randrange(len(options))
        row = {
            "index": str(1000 + index),
            "image": png(seed * 100_000 + index),
            "question": f"What is shown in picture {index}?\nChoose one,\tplease.",
            **dict(zip("ABCDEF", options, strict=False)),
            "answer": "ABCDEF"[right],
            "category": options[right],
            "clinical VQA task": rng.choice(TASKS),
            "department": rng.choice(DEPARTMENTS),
            "perceptual granularity": rng.choice(("Image Level", "Box Level", "Mask Level")),
            "modality": rng.choice(MODALITIES),
            "original task": rng.choice(("classification", "segmentation")),
        }
        if index % 10 == 9:
            row["image"] = made[rng.randrange(len(made))]["index"]
        granularities = [twin["perceptual granularity"] for twin in (*made[-1:], row)]
        if granularities == ["Mask Level", "Image Level"]:
            changes = {"image": png(index + 7), "perceptual granularity": "Contour Level"}
            row = {**made[-1], "index": row["index"], **changes}
        made.append(row)
    return made


def write(
    path: Path, content: Sequence[Mapping[str, str]], columns: Sequence[str] = COLUMNS
) -> Path:
    """Write rows as pandas does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.DictWriter(
            stream,
            columns,
            delimiter="\t",
            lineterminator="\n",
            restval="",
            extrasaction="ignore",
        )
        table.writeheader()
        table.writerows(content)
    return path


def prepare_all(
    folder: Path, validation: Sequence[Mapping[str, str]], several: int, seed: int, unkeyed: int
) -> None:
    """Prepare all parts below ``MEDTASKS_HOME``, from files written into ``folder``.

    They are the rows of the validation part, ``several`` rows drawn from a ``seed`` with several right options, and
    ``unkeyed`` rows in each file of the test part.
    """
    test, mcls = CATALOGUE["gmai_mmbench_test"], CATALOGUE["gmai_mmbench_mcls"]
    write(folder / "val" / "GMAI-MMBench_VAL.tsv", validation)
    for part, name in enumerate(test.md5):
        drawn = [
            {**row, "index": f"{part}{row['index']}", "answer": ""}
            for row in rows(unkeyed, seed=part)
        ]
        write(folder / "test" / name, drawn)
    keyed = [
        {**row, "answer": ",".join({"A", row["answer"]})} for row in rows(several, seed=seed)
    ]
    write(folder / "mcls" / "own.tsv", keyed)
    for info, place in ((CATALOGUE["gmai_mmbench_val"], "val"), (test, "test"), (mcls, "mcls")):
        prepare(info.name, Options(folder / place, allow_changed=True))
