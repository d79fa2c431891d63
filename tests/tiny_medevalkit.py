"""MedEvalKit's sets in miniature: drawn sources in the published formats, each with a fault or two of the real ones."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.medevalkit import SUBJECTS

from .multimedeval_sources import csv_text, json_lines, picture, put, put_parquet, put_zip

SETS = [name for name, info in CATALOGUE.items() if info.benchmark == "MedEvalKit"]
OMNI = "QA_information/Open-access"
IMAGE = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
_TEXT = pyarrow.string()
MMMU_SCHEMA = pyarrow.schema(
    {
        **dict.fromkeys(("id", "question", "options", "answer", "question_type"), _TEXT),
        **{f"image_{number}": IMAGE for number in range(1, 8)},
    }
)
FRAMES_SCHEMA = pyarrow.schema(
    {
        **dict.fromkeys(
            ("question_id", "question", "correct_answer", "modality", "system", "video_id"),
            _TEXT,
        ),
        "options": pyarrow.list_(_TEXT),
        **{f"image_{number}": IMAGE for number in range(1, 6)},
    }
)


def pmc_vqa(folder: Path) -> None:
    """Six questions, one with a wrong letter before an option and one with a line break."""
    columns = (
        "index,Figure_path,Caption,Question,Choice A,Choice B,Choice C,Choice D,Answer,split"
    )
    rows: list[Sequence[Any]] = []
    for number in range(6):
        second = " C: Inner " if number == 1 else " B:\u00a0White: pale "
        question = " Which one?\r\nChoose." if number == 2 else f" What is {number}?"
        choices = (" A: T: testes ", second, " C: Blue", " D: None ")
        rows.append(
            (
                7 * number,
                f"f{number}.jpg",
                'A "caption"',
                question,
                *choices,
                "ABCD"[number % 4],
                "test",
            )
        )
    put(folder / "test_2.csv", csv_text(columns, rows))
    put_zip(
        folder / "images_2.zip",
        {f"figures/f{number}.jpg": picture(number) for number in range(6)},
    )


def pmc_vqa_clean(folder: Path) -> None:
    """Four questions; the last one's text of the answer is not that of its letter."""
    columns = "Figure_path,Question,Answer,Choice A,Choice B,Choice C,Choice D,Answer_label"
    choices = (" A: red ", " B: white ", " C: blue ", " D: none ")
    texts = ("red", "white", "blue", "red")
    rows = [
        (f"c{number}.jpg", f" What is {number}?", texts[number], *choices, "ABCD"[number])
        for number in range(4)
    ]
    put(folder / "test_clean.csv", csv_text(columns, rows))
    put_zip(
        folder / "images.zip", {f"images/c{number}.jpg": picture(number) for number in range(4)}
    )


def omnimedvqa(folder: Path) -> None:
    """Two parts of three questions; see the comments for what is at fault."""
    texts = {
        f"option_{letter}": text
        for letter, text in zip("ABCD", ("CT", "MR", "PET", "MR"), strict=True)
    }

    def question(part: str, number: int, **fields: Any) -> dict[str, Any]:
        ids = {
            "dataset": part,
            "question_id": f"{part}_{number:04d}",
            "question_type": "Modality Recognition",
        }
        shown = {
            "question": f"What is {number}?",
            "image_path": f"Images/{part}/test (1)/{number // 2}.png",
        }
        return {**ids, **shown, "gt_answer": "CT", **texts, **fields}

    scans = [
        question("Chest CT Scan", number, modality="CT(Computed Tomography)")
        for number in range(3)
    ]
    scans[1]["gt_answer"] = "MR"  # an option that is there twice
    joints = [question("Mura", number, modality_type="X-Ray") for number in range(3)]
    joints[0]["gt_answer"] = "CT "  # an option but for a blank
    joints[1]["gt_answer"] = "X-ray"  # none of them
    joints[2] = {
        name: value for name, value in joints[2].items() if name not in ("option_C", "option_D")
    }
    for part, questions in (("Mura", joints), ("Chest CT Scan", scans)):
        put(folder / OMNI / f"{part}.json", json.dumps(questions, indent=4))
        for number in range(2):
            put(
                folder / f"Images/{part}/test (1)/{number}.png",
                picture(len(part) + number, "PNG"),
            )
    put(folder / "QA_information/Restricted-access/CheXpert.json", "[]")


def vlmevalkit(folder: Path) -> None:
    """Fourteen files of two questions, of which the second shows the image of the first."""
    for part in range(1, 15):
        encoded = base64.b64encode(picture(part)).decode()
        rows = [
            f"{part}\t{encoded}\tWhat is it?\tCT\tMR\tB",
            f"{part + 100}\t{part}\tAnd this?\tlung\tliver\tA",
        ]
        put(
            folder / f"part_{part}.tsv",
            "\n".join(["index\timage\tquestion\tA\tB\tanswer", *rows, ""]),
        )


def medxpertqa(folder: Path) -> None:
    """Four questions with one to four images, and three without any."""

    def question(name: str, number: int, letters: str) -> dict[str, Any]:
        options = {letter: f"drug {letter}{number}" for letter in letters}
        repeated = " ".join(f"({letter}) {text}" for letter, text in options.items())
        asked = {
            "id": f"{name}-{number}",
            "question": f"Which {number}?\nAnswer Choices: {repeated}",
        }
        groups = {
            "medical_task": ("Diagnosis", "Treatment")[number % 2],
            "body_system": "Skeletal",
        }
        key = letters[number % len(letters)]
        return {
            **asked,
            "options": options,
            "label": key,
            **groups,
            "question_type": "Reasoning",
        }

    names = [
        [f"MM-{number}-{place}.jpeg" for place in range(number + 1)] for number in range(4)
    ]
    rows = [{**question("MM", number, "ABCDE"), "images": names[number]} for number in range(4)]
    put(folder / "MM/test.jsonl", json_lines(rows))
    put(
        folder / "Text/test.jsonl",
        json_lines(question("Text", number, "ABCDEFGHIJ") for number in range(3)),
    )
    files = [name for some in names for name in some]
    put_zip(
        folder / "images.zip",
        {f"images/{name}": picture(place) for place, name in enumerate(files)},
    )


def mmmu(folder: Path) -> None:
    """Two choices, one of images, and an open question for each subject."""
    for subject in SUBJECTS:
        for split in ("validation", "test"):
            rows = [
                _mmmu_row(
                    subject, split, 1, "['it\\'s plain', \"a 'quoted' one\", 'both ']", "C", 1
                ),
                _mmmu_row(subject, split, 2, "['<image 1>', '<image 2>']", "B", 2),
                _mmmu_row(subject, split, 3, "[]", "['2', 'two']", 1),
            ]
            put_parquet(folder / subject / f"{split}-00000-of-00001.parquet", rows, MMMU_SCHEMA)


def _mmmu_row(
    subject: str, split: str, number: int, options: str, answer: str, images: int
) -> dict[str, Any]:
    first = 10 * SUBJECTS.index(subject) + number
    files = [{"bytes": picture(first + place, "PNG"), "path": None} for place in range(images)]
    asked = {
        "id": f"{split}_{subject}_{number}",
        "question": "<image 1> Which?",
        "options": options,
    }
    kind = "open" if options == "[]" else "multiple-choice"
    key = {"answer": answer if split == "validation" else "?", "question_type": kind}
    return {**asked, **key, **{f"image_{place}": file for place, file in enumerate(files, 1)}}


def medframeqa(folder: Path) -> None:
    """Four questions on two videos, of two to five frames."""
    rows = []
    for number in range(4):
        asked = {"question_id": str(100 + number), "question": f"Which change is {number}?"}
        texts = ["growth", "loss", "none", "new"][: 2 + number % 3]
        options: dict[str, Any] = {"options": texts, "correct_answer": "AB"[number % 2]}
        facts = {
            "modality": ("CT", "MRI")[number % 2],
            "system": "Nervous System",
            "video_id": f"v{number // 2}",
        }
        frames = [
            {"bytes": picture(20 * number + place), "path": None} for place in range(2 + number)
        ]
        images = {f"image_{place}": frame for place, frame in enumerate(frames, 1)}
        rows.append({**asked, **options, **facts, **images})
    put_parquet(folder / "data/test-00000-of-00001.parquet", rows, FRAMES_SCHEMA)


def slake(folder: Path) -> None:
    """Four English and four Chinese questions on four images, open and closed in turn."""
    rows = []
    for number in range(8):
        ids: dict[str, Any] = {"qid": number, "img_name": f"xmlab{number // 2}/source.jpg"}
        texts = {
            "question": f"What is {number}?",
            "answer": ("CT", "平扫", "Yes", "不是")[number % 4],
        }
        kinds = {
            "q_lang": ("en", "zh")[number % 2],
            "answer_type": ("OPEN", "OPEN", "CLOSED", "CLOSED")[number % 4],
        }
        rows.append(
            {
                **ids,
                **texts,
                **kinds,
                "content_type": "Organ",
                "location": "Abdomen",
                "modality": "CT",
            }
        )
    put(folder / "test.json", json.dumps(rows, ensure_ascii=False))
    put_zip(
        folder / "imgs.zip",
        {f"imgs/xmlab{number}/source.jpg": picture(number) for number in range(4)},
    )


def chest_reports(folder: Path) -> None:
    """Three studies with one to three images: one without an impression, and one without any text."""
    studies = []
    for number, (findings, impression) in enumerate(
        (("Clear lungs.", "Normal."), ("A nodule.", ""), (" ", "\n"))
    ):
        names = [f"s{number}_{at}.png" for at in range(number + 1)]
        studies.append(
            {"id": number, "findings": findings, "impression": impression, "image": names}
        )
        for name in names:
            put(folder / "images" / name, picture(number))
    put(folder / "test.json", json.dumps(studies))


def chexpert_plus(folder: Path) -> None:
    """The same with one image each, by its name."""
    chest_reports(folder)
    studies = json.loads((folder / "test.json").read_text())
    put(
        folder / "test.json",
        json.dumps([{**study, "image": study["image"][0]} for study in studies]),
    )


def radrestruct(folder: Path) -> None:
    """Two reports with three questions each, the second one with two frontal images."""
    questions: list[Any] = [
        [
            "Is there a mass?",
            ["no"],
            [],
            {"answer_type": "single_choice", "options": ["yes", "no"]},
        ],
        [
            "What is its degree?",
            ["mild"],
            [],
            {"answer_type": "single_choice", "options": ["mild", "severe"]},
        ],
        [
            "Where is it?",
            ["lung", "hilum"],
            [],
            {"answer_type": "multi_choice", "options": ["apex", "lung", "hilum"]},
        ],
    ]
    frontal = {"9": ["CXR9_a"], "10": ["CXR10_a", "CXR10_b"], "11": ["CXR11_a"]}
    put(folder / "id_to_img_mapping_frontal_reports.json", json.dumps(frontal))
    for report in ("9", "10"):
        put(folder / "test_qa_pairs" / f"{report}.json", json.dumps(questions))
        for at, name in enumerate(frontal[report]):
            put(folder / "imgs" / f"{name}.png", picture(int(report) + at))


TEXT_FILES = {  # of the sets without images, by the name of the set
    "mmlu_med": "all/test-00000-of-00001.parquet",
    "pubmedqa": "data/test-00000-of-00001.parquet",
    "medmcqa": "data/validation-00000-of-00001.parquet",
    "medqa_usmle": "phrases_no_exclude_test.jsonl",
    "medbullets_op4": "data/train-00000-of-00001.parquet",
    "medbullets_op5": "data/train-00000-of-00001.parquet",
    "supergpqa_med": "SuperGPQA-all.jsonl",
}


def put_texts(name: str, rows: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    """Write rows as the set's file on the Hub, and return the folder."""
    file = folder / TEXT_FILES[name]
    if file.suffix == ".jsonl":
        put(file, json_lines(rows))
    else:
        put_parquet(file, rows)
    return folder


def _lettered_row(number: int, letters: str = "ABCD") -> dict[str, Any]:
    options = {letter: f"drug {letter}{number}" for letter in letters}
    return {
        "question": f"Which {number}?",
        "options": options,
        "answer_idx": letters[number % len(letters)],
    }


def mmlu_med(folder: Path) -> None:
    """Two questions of each of three subjects, the second of which is not asked."""
    subjects = [subject for subject in ("anatomy", "astronomy", "virology") for _ in range(2)]
    rows = [
        {
            "question": f"{number}?",
            "subject": subject,
            "choices": ["one", "two", "one", "A. B"],
            "answer": number % 4,
        }
        for number, subject in enumerate(subjects)
    ]
    put_texts("mmlu_med", rows, folder)


def pubmedqa(folder: Path) -> None:
    """Three questions, with one to three paragraphs."""
    rows = []
    for number in range(3):
        asked = {"Question": f"Does {number} help?", "Context": ["AIM: To see."] * (number + 1)}
        options = {
            "Options": {"A": "yes", "B": "no", "C": "maybe"},
            "Correct Option": "ABC"[number],
        }
        rows.append({"id": str(number), "data": {**asked, **options}, "subject_name": None})
    put_texts("pubmedqa", rows, folder)


def medqa_usmle(folder: Path) -> None:
    """Five questions with four options."""
    put_texts(
        "medqa_usmle",
        [{**_lettered_row(number), "meta_info": "step1"} for number in range(5)],
        folder,
    )


def medbullets_op4(folder: Path) -> None:
    """Five questions with four options."""
    put_texts("medbullets_op4", [_lettered_row(number) for number in range(5)], folder)


def medbullets_op5(folder: Path) -> None:
    """Five questions with a column for each of five options, the last of which is null once."""
    rows = []
    for number in range(5):
        row = _lettered_row(number, "ABCDE")
        texts = dict(
            zip(("opa", "opb", "opc", "opd", "ope"), row["options"].values(), strict=True)
        )
        if number == 0:
            texts["ope"] = None
        rows.append({**texts, "question": row["question"], "answer_idx": row["answer_idx"]})
    put_texts("medbullets_op5", rows, folder)


def supergpqa_med(folder: Path) -> None:
    """Four questions of medicine with four to ten options, and one of another discipline."""
    rows = []
    for number in range(5):
        groups = {
            "discipline": "Medicine" if number else "Law",
            "field": "Stomatology",
            "difficulty": "hard",
        }
        options = [f"term {place}" for place in range(2 + 2 * number)]
        asked = {
            "uuid": f"u{number}",
            "question": f"Which {number}?",
            "options": options,
            "answer_letter": "B",
        }
        rows.append({**asked, **groups})
    put_texts("supergpqa_med", rows, folder)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "medevalkit_pmc_vqa": pmc_vqa,
    "medevalkit_pmc_vqa_clean": pmc_vqa_clean,
    "medevalkit_omnimedvqa": omnimedvqa,
    "medevalkit_omnimedvqa_vlmevalkit": vlmevalkit,
    "medevalkit_medxpertqa_mm": medxpertqa,
    "medevalkit_medxpertqa_text": medxpertqa,
    "medevalkit_mmmu_med_val": mmmu,
    "medevalkit_mmmu_med_test": mmmu,
    "medevalkit_medframeqa": medframeqa,
    "medevalkit_slake": slake,
    "medevalkit_slake_en": slake,
    "medevalkit_mimic_cxr_report": chest_reports,
    "medevalkit_iu_xray_report": chest_reports,
    "medevalkit_chexpert_plus_report": chexpert_plus,
    "medevalkit_radrestruct": radrestruct,
    "medevalkit_mmlu_med": mmlu_med,
    "medevalkit_pubmedqa": pubmedqa,
    "medevalkit_medqa_usmle": medqa_usmle,
    "medevalkit_medbullets_op4": medbullets_op4,
    "medevalkit_medbullets_op5": medbullets_op5,
    "medevalkit_supergpqa_med": supergpqa_med,
}


def put_source(name: str, folder: Path) -> Path:
    source = folder / WRITERS[name].__name__
    if not source.exists():
        WRITERS[name](source)
    return source


def prepare_all(folder: Path) -> None:
    for name in SETS:
        prepare(name, Options(put_source(name, folder), allow_incomplete=True))
