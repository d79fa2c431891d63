"""MedHEval's repository and images in miniature: invented questions in every dialect of the published files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options

SETS = [name for name in CATALOGUE if name.startswith("medheval_")]
CLOSED = [
    "medheval_visual_mm",
    "medheval_visual_cxr",
    "medheval_knowledge_closed",
    "medheval_context",
]
SLAKE, RAD = "xmlab{}/source.jpg", "synpic{}.jpg"
IU, MIMIC = "CXR{}_IM-000{}-1001/0.png", "p10/p1000000{0}/s5000000{0}/{0:08d}-feed.jpg"
INSTRUCTION = "Generate a medical report on the given Chest X-ray."

Record = dict[str, Any]
# img_name, hallucination_type, choices (empty for yes/no), question, answer
_Question = tuple[str, int, str, str, str]

MM: tuple[_Question, ...] = (
    (SLAKE.format(1), 1, "", "Is the liver shown?", "Yes"),
    (SLAKE.format(1), 3, "", "Is there a fracture?", "no"),
    (SLAKE.format(1), 4, "A. MRI, B. CT, C. X-ray", "How was it taken?", "CT"),
    (SLAKE.format(2), 2, "A: Large, B: Small", "How large is it?", "B: Small"),
    (SLAKE.format(2), 3, "A) Cyst, B) Stone, C) Mass, left side", "What is it?", "C"),
    (SLAKE.format(2), 1, "A, heart; B, lung; C, liver", "Which organ is it?", "B, lung"),
    (RAD.format(7), 1, "A, B, C", "Which mark is it?", "B"),
    (RAD.format(7), 3, "A. Oedema; B. Infarct", "What is seen?", "B. Infarct"),
    (
        RAD.format(7),
        3,
        "A. Oedema, B. Infarct, C. Tumour",
        "What is seen?",
        "A. Oedema, C. Tumour",
    ),
    (
        RAD.format(7),
        4,
        "A. MRI, B. CT",
        "How was it taken?",
        "Cannot be determined from the image",
    ),
    (
        RAD.format(8),
        2,
        "A. Computed tomography (CT), B. Ultrasound (US)",
        "What measures it?",
        "A. Ultrasound (US)",
    ),
    (RAD.format(8), 3, "", "Is there an infarct?", "No information provided"),
    (RAD.format(8), 3, "", "Is there an infarct?", "No, the brain is normal."),
)
CXR: tuple[_Question, ...] = (
    (IU.format(1, 1), 1, "A. Heart, B. Ribs, C. Spine", "What is enlarged?", "A. Heart"),
    (IU.format(1, 1), 3, "", "Is there an effusion?", "No"),
    (IU.format(2, 2), 4, "A: Frontal, B: Lateral", "Which view is it?", "Lateral"),
    (MIMIC.format(1), 3, "A. Yes, B. No", "Is there a pneumothorax?", "B. No"),
    (MIMIC.format(1), 3, "left or right", "Where is it?", "left"),
    (MIMIC.format(2), 2, "", "Is the heart larger than normal?", "Yes"),
)


def _record(qid: int, name: str, question: str, answer: Any, **fields: Any) -> Record:
    shown = {"img_name": name, "img_id": int(name[5]) if name.startswith("xmlab") else name}
    return {"qid": qid, **shown, "question": question, "answer": answer, **fields}


def _visual(questions: tuple[_Question, ...], *, with_source: bool) -> list[Record]:
    records = []
    for qid, (name, kind, choices, question, answer) in enumerate(questions):
        of_slake = name.startswith("xmlab")
        question_type = (
            "multi-choice" if choices and not choices.endswith("B. No") else "binary"
        )
        kinds = {
            "hallucination_type": f"type_{kind}",
            "question_type": question_type,
            "choices": choices,
        }
        location = "Lung" if of_slake else "HEAD" if name.startswith("synpic") else None
        facts = {"location": location, "modality": "CT" if of_slake else None}
        source = {"source": "SLAKE" if of_slake else "VQA-RAD"} if with_source else {}
        records.append(_record(qid, name, question, answer, **kinds, **facts, **source))
    return records


def _yes_no(answers: list[str]) -> list[Record]:
    asked = "Does finding {} need an operation?".format
    return [
        _record(
            qid,
            MIMIC.format(1 + qid // 2),
            asked(qid),
            answer,
            ground_truth_type="binary",
            choices="",
        )
        for qid, answer in enumerate(answers)
    ]


def _report(qid: int, image: int, report: str, **components: list[str]) -> Record:
    answer = {"anatomy": [], "measurement": [], "symptom": [], **components}
    return _record(qid, MIMIC.format(image), INSTRUCTION, report, structured_answer=answer)


def _knowledge(qid: int, image: int, question: str, answer: str) -> Record:
    more = {"question_type": "type4_Knowledge", "structured_answer": None}
    return _record(qid, MIMIC.format(image), question, answer, **more)


RECORDS: Mapping[str, list[Record]] = {
    "medheval_visual_mm": _visual(MM, with_source=True),
    "medheval_visual_cxr": _visual(CXR, with_source=False),
    "medheval_visual_report": [
        _report(
            0,
            1,
            "The heart is enlarged. No effusion.",
            anatomy=["heart"],
            symptom=["enlarged heart"],
        ),
        _report(
            2,
            2,
            "A nodule of 8 mm in the left lung.",
            anatomy=["left lung"],
            measurement=["8 mm"],
            symptom=["nodule"],
        ),
    ],
    "medheval_knowledge_closed": _yes_no(["No", "yes", "no", "Unclear"]),
    "medheval_knowledge_open": [
        _knowledge(0, 1, "What treats an enlarged heart?", "Drugs that lower blood pressure."),
        _knowledge(1, 2, "What does a nodule call for?", "A scan in three months."),
    ],
    "medheval_context": _yes_no(["Yes", "No", "Yes", "Yes"]),
}


def file_of(name: str) -> str:
    return next(iter(CATALOGUE[name].sha256))


def write_records(clone: Path, name: str, records: list[Record]) -> Path:
    path = clone / file_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")
    return path


def write_source(folder: Path) -> Path:
    """Write the repository with all six files, and beside them a drawn picture for every image they name."""
    clone = folder / "MedHEval"
    for name, records in RECORDS.items():
        write_records(clone, name, records)
        for record in records:
            draw(clone / "images", record["img_name"])
    return clone


def draw(root: Path, name: str) -> None:
    """Draw a picture for an image's name; another name has another picture."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = tuple(sum(map(ord, name[start::3])) % 256 for start in range(3))
    Image.new("RGB", (16 + len(name) % 7, 12), colour).save(
        path, "PNG" if name.endswith("png") else "JPEG"
    )


def prepared_home(folder: Path) -> Path:
    """Prepare all six sets in miniature; return the data folder, below ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        prepare_all(folder)
    return folder / "home"


def prepare_all(folder: Path) -> None:
    """Prepare all six sets under ``MEDTASKS_HOME`` from a source written into ``folder``."""
    clone = write_source(folder)
    for name in SETS:
        prepare(name, Options(clone, allow_changed=True))
