"""MultiMedEval's datasets in miniature: a handful of made-up documents each, prepared without any published source."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from medtasks.data.catalogue import dataset_info
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.prepare_dataset import recipe_of
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    SourceRecipe,
    prepare_recipe,
)
from medtasks.data.schema import CHOICE, OPEN_QUESTION, REPORT, Columns
from medtasks.data.sources.multimedeval.classification_sets import CLASSES, SKIN_CLASSES
from medtasks.home import home

from .medical_files import put_nifti, scan

SKIN = list(SKIN_CLASSES.values())
PATHOLOGY = ["BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK"]
FIVE_FINDINGS = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]
HISTORY = "Patient history: smokes False, age 55, gender FEMALE"
MNIST = {name: list(names) for name, names in CLASSES.items()}
TEST_ROWS, DEMONSTRATION_ROWS = 4, 5


def columns(name: str) -> Columns:
    return recipe_of(f"multimedeval_{name}").columns


def own_columns(name: str, number: int) -> dict[str, Any]:
    """Return made-up columns of one row, without its ids and images."""
    if columns(name) is CHOICE:
        row = {
            "subject": None,
            "context": None,
            "question": f"Which {number}?",
            "answer": "ABC"[number % 3],
        }
        if name == "pubmedqa":
            return row | {
                "context": f"Abstract {number}.",
                "question": "Is it so?",
                "options": ["yes", "no", "maybe"],
            }
        if name == "mednli":
            options = ["entailment", "contradiction", "neutral"]
            return row | {
                "context": f"He has {number}.",
                "question": "He is ill.",
                "options": options,
            }
        options = ["Aspirin", "Heparin", "Warfarin", "Insulin", "Morphine"][
            : 5 if name == "medqa" else 4
        ]
        return row | {"subject": "drugs", "options": options, "answer": "ABCD"[number % 4]}
    if columns(name) is REPORT:
        return {
            "context": f"there is {number} mm of fluid."
            if name.startswith("mimic_iii")
            else None,
            "indication": f" Cough since {number} days.\n"
            if name.startswith("mimic_cxr")
            else None,
            "report": f"Heart of normal size. {number} nodules.\n \n No effusion.",
        }
    if columns(name) is OPEN_QUESTION:
        yes, no = ("Yes", "No") if name == "slake" else ("yes", "no")
        answer = (yes, "left lung", no, "an {MRI}", "CT")[number % 5]
        return {"question": f"What is {number}?", "answer": answer, "question_type": None}
    if name == "mimic_cxr_classification":
        # PublishedRow 3 has all findings, row 7 none.
        return {
            "options": FIVE_FINDINGS,
            "labels": [int(number in (position, 3)) for position in range(5)],
        }
    if name == "chestxray14":
        labels = [int(number % 3 == position) for position in range(3)]
        return {"options": ["Mass", "Nodule", "Edema"], "labels": labels}
    options = {
        "vindr_mammo": list("12345"),
        "cbis_ddsm_mass": PATHOLOGY,
        "cbis_ddsm_calcification": PATHOLOGY,
    }.get(name, SKIN if name.startswith("pad") else MNIST.get(name, []))
    details = HISTORY if name.startswith("pad") else None
    return {"details": details, "options": options, "label": number % len(options)}


def pictures(name: str, number: int) -> list[Image.Image]:
    """Return the images of one row; every one has its own width, so that a test can tell them apart."""
    if columns(name) is CHOICE or name.startswith("mimic_iii"):
        return []
    count = 2 if name in ("diff_vqa", "mimic_cxr_report") else 1
    return [
        Image.new("L", (10 + 2 * number + position, 8), 20 * number)
        for position in range(count)
    ]


def prepare(name: str, *, demonstrations: bool = True) -> Mapping[str, Any]:
    """Prepare one dataset under ``MEDTASKS_HOME``, by its short name; rows 0-3 are tested, 4-8 are demonstrations."""
    demonstrations = demonstrations and columns(name) is not REPORT

    def rows(first: int, count: int, images: ImageStore) -> Iterator[PublishedRow]:
        for number in range(first, first + count):
            if name == "ct_rate_report":
                path = put_nifti(home() / "volumes" / f"{number}.nii.gz", scan(number))
                stored = [images.add_volume(path)]
            else:
                stored = [images.add_pixels(picture) for picture in pictures(name, number)]
            ids = {"doc_id": f"{number}", "image_id": None, "patient_id": f"p{number // 2}"}
            yield PublishedRow(f"row {number}", {**ids, **own_columns(name, number)}, stored)

    recipe = SourceRecipe(
        columns=columns(name),
        test_rows=lambda _, images: rows(0, TEST_ROWS, images),
        layout="nothing",
        demonstrations=(lambda _, images: rows(TEST_ROWS, DEMONSTRATION_ROWS, images))
        if demonstrations
        else None,
    )
    info = dataset_info(f"multimedeval_{name}")
    return prepare_recipe(
        info, recipe, Options(source=Path(__file__), sample=True)
    ).model_dump()


def prepare_all(folder: Path, names: list[str]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder))
        for name in names:
            prepare(name)
    return folder
