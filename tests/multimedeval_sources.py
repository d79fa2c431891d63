"""MultiMedEval's sources in miniature, each in the format and under the names in which it is published.

Every set has ten training rows and six that are evaluated.
"""

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from medtasks.data.sources.multimedeval import x_rays as chest
from medtasks.data.sources.multimedeval.classification_sets import CLASSES
from medtasks.data.sources.multimedeval.classification_sets import SKIN_CLASSES as SKIN
from medtasks.data.sources.multimedeval.question_sets import MMLU_SUBJECTS

from .medical_files import noise, put_dicom, put_nifti, scan

TEST, TRAIN = range(6), range(100, 110)
SPREAD = range(100, 110, 2)
RELATIONS = ("entailment", "contradiction", "neutral")
PATHOLOGIES = ("BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK")
BOTH = (*TEST, *TRAIN)
Writer = Callable[[Path], tuple[Path, "Expected"]]


@dataclass(frozen=True)
class Expected:
    """What a source has to become."""

    test: Sequence[str]  # ids of the evaluated documents, in order
    demonstrations: Sequence[str]  # ids of the solved examples, in order
    keys: Sequence[Any]  # answer, label or labels of each evaluated document
    images: int = 0  # how many images these documents show together, each counted once


def named(pattern: str, keys: Callable[[int], Any], images: int = 0) -> Expected:
    """Expect documents that are called after their number."""
    test, shots = ([pattern.format(number) for number in numbers] for numbers in (TEST, SPREAD))
    return Expected(test, shots, [keys(number) for number in TEST], images)


def placed(split: str, train: str, keys: Iterable[Any], images: int = 0) -> Expected:
    """Expect documents that are called after their place in the file."""
    keys = list(keys)
    test = [f"{split}/{row}" for row in range(len(keys))]
    return Expected(test, [f"{train}/{row}" for row in (0, 2, 4, 6, 8)], keys, images)


def picture(number: int, kind: str = "JPEG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 8), (2 * number, 40, 255 - number)).save(buffer, kind)
    return buffer.getvalue()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def put_zip(path: Path, members: Mapping[str, bytes | str]) -> Path:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return put(path, buffer.getvalue())


def put_parquet(path: Path, rows: Sequence[Mapping[str, Any]], schema: Any = None) -> Path:
    """Write rows in many row groups, as the Hub has them."""
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(list(rows), schema), buffer, row_group_size=4
    )
    return put(path, buffer.getvalue())


def csv_text(columns: str, rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([columns.split(","), *rows])
    return buffer.getvalue()


def json_lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def medqa(folder: Path) -> tuple[Path, Expected]:
    def line(number: int) -> dict[str, Any]:
        options = {letter: f"drug {letter}{number}" for letter in "ABCDE"}
        key = "ABCDE"[number % 5]
        return {
            "question": f"Which {number}?",
            "answer": options[key],
            "options": options,
            "answer_idx": key,
        }

    texts = {"test": json_lines(map(line, TEST)), "train": json_lines(map(line, TRAIN))}
    members = {f"data_clean/questions/US/{split}.jsonl": text for split, text in texts.items()}
    return put_zip(folder / "data_clean.zip", members), placed("test", "train", "ABCDEA")


def medmcqa(folder: Path) -> tuple[Path, Expected]:
    def row(number: int) -> dict[str, Any]:
        options = {f"op{letter}": f"nerve {letter}{number}" for letter in "abcd"}
        return {
            "id": f"q{number}",
            "question": f"Which {number}",
            **options,
            "cop": number % 4,
            "subject_name": "Skin",
        }

    for split, numbers in (("validation", TEST), ("train", TRAIN)):
        put_parquet(
            folder / "data" / f"{split}-00000-of-00001.parquet", list(map(row, numbers))
        )
    return folder, named("q{}", lambda number: "ABCD"[number % 4])


def pubmedqa(folder: Path) -> tuple[Path, Expected]:
    def entries(numbers: Iterable[int]) -> str:
        found = {}
        for number in numbers:
            decision = ("yes", "no", "maybe")[number % 3]
            found[str(number)] = {
                "QUESTION": "Is it?",
                "CONTEXTS": [f"N={number}.", "So."],
                "final_decision": decision,
            }
        return json.dumps(found)

    members = {"pqal_test_set.json": entries(TEST), "pqal_fold1/train_set.json": entries(TRAIN)}
    return put_zip(folder / "pqal.zip", members), named("{}", lambda number: "ABC"[number % 3])


def mednli(folder: Path) -> tuple[Path, Expected]:
    def line(number: int) -> dict[str, str]:
        texts = {"sentence1": f"He has {number}.", "sentence2": "He is ill."}
        return {"gold_label": RELATIONS[number % 3], "pairID": f"p{number}", **texts}

    inside = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
    texts = {"test": json_lines(map(line, TEST)), "train": json_lines(map(line, TRAIN))}
    members = {f"{inside}/mli_{split}_v1.jsonl": text for split, text in texts.items()}
    return put_zip(folder / f"{inside}.zip", members), named(
        "p{}", lambda number: "ABC"[number % 3]
    )


def mmlu(folder: Path) -> tuple[Path, Expected]:
    """Write all subjects in one file; of the four questions of each medical subject one is evaluated."""
    subjects = ["abstract_algebra", *sorted(MMLU_SUBJECTS)]
    for split, each in (("test", 4), ("dev", 5)):
        rows = [
            {
                "question": f"{n}?",
                "subject": subject,
                "choices": list("wxyz"),
                "answer": (n + place) % 4,
            }
            for place, subject in enumerate(subjects)
            for n in range(each)
        ]
        put_parquet(folder / "all" / f"{split}-00000-of-00001.parquet", rows)
    test = [f"test/{4 * place}" for place in range(1, 7)]
    return folder, Expected(test, [f"dev/{row}" for row in (0, 7, 14, 21, 28)], list("BCDABC"))


def vqa(shards: int) -> Writer:
    """Return what writes the Hub's parquet files; two questions share an image."""

    def write(folder: Path) -> tuple[Path, Expected]:
        answers = ("yes", "left lung", "no")
        for split, numbers in (("test", TEST), ("train", TRAIN)):
            rows = [
                {
                    "image": {"bytes": picture(number // 2), "path": None},
                    "question": f"What is {number}?",
                    "answer": answers[number % 3],
                }
                for number in numbers
            ]
            for part in range(shards):
                name = f"{split}-{part:05d}-of-{shards:05d}-e5bc3d208bb4deeb.parquet"
                put_parquet(
                    folder / "data" / name,
                    np.array_split(np.array(rows), shards)[part].tolist(),
                )
        return folder, placed("test", "train", answers * 2, images=3)

    return write


def slake(folder: Path) -> tuple[Path, Expected]:
    """Write the English questions and, after each, a Chinese one."""

    def question(number: int, language: str) -> dict[str, Any]:
        ids = {
            "qid": 2 * number + (language == "zh"),
            "img_name": f"xmlab{number}/source.jpg",
            "q_lang": language,
        }
        texts = {"question": f"What is {number}?", "answer": ("Yes", "CT", "No")[number % 3]}
        return {**ids, **texts, "answer_type": "OPEN", "content_type": "Organ"}

    for split, numbers in (("test", TEST), ("train", TRAIN)):
        questions = [
            question(number, language) for number in numbers for language in ("en", "zh")
        ]
        put(folder / f"{split}.json", json.dumps(questions, ensure_ascii=False))
    put_zip(
        folder / "imgs.zip", {f"imgs/xmlab{n}/source.jpg": picture(n) for n in (*TEST, *TRAIN)}
    )
    test, shots = ([str(2 * number) for number in numbers] for numbers in (TEST, SPREAD))
    return folder, Expected(test, shots, ("Yes", "CT", "No") * 2, images=6)


def mnist(name: str) -> Writer:
    """Return what writes a set of MedMNIST; of Tissue a quarter is evaluated."""

    def write(folder: Path) -> tuple[Path, Expected]:
        classes = len(CLASSES[name])
        shape = (
            (28, 28, 3)
            if name in ("pathmnist", "bloodmnist", "dermamnist", "retinamnist")
            else (28, 28)
        )
        arrays: dict[str, Any] = {}
        for split, rows in (
            ("train", 10),
            ("val", 2),
            ("test", 24 if name == "tissuemnist" else 6),
        ):
            noise = np.random.default_rng(rows)
            arrays[f"{split}_images"] = noise.integers(0, 256, (rows, *shape), np.uint8)
            arrays[f"{split}_labels"] = (np.arange(rows) % classes).astype(np.uint8)[:, None]
        folder.mkdir(parents=True)
        np.savez_compressed(folder / f"{name}.npz", **arrays)
        return folder, placed("test", "train", [number % classes for number in TEST], images=6)

    return write


def pad_ufes(evaluated: Sequence[int]) -> Writer:
    """Return what writes the table, three archives of images and the split; a lesion has two images."""

    def write(folder: Path) -> tuple[Path, Expected]:
        known = "smoke,drink,background_father,background_mother,pesticide,gender,skin_cancer_history,cancer_history"
        known += ",has_piped_water,has_sewage_system"
        columns = f"patient_id,lesion_id,{known},age,region,diagnostic,img_id"
        unknown = [""] * known.count(",")
        names = {number: f"PAT_{number // 4}_{number // 2}_{number}" for number in BOTH}
        rows = [
            (
                f"PAT_{number // 4}",
                number // 2,
                "False",
                *unknown,
                40,
                "ARM",
                list(SKIN)[number % 7],
                f"{name}.png",
            )
            for number, name in names.items()
        ]
        put(folder / "metadata.csv", csv_text(columns, rows))
        for part in (1, 2, 3):
            chosen = [number for number in BOTH if number % 3 == part - 1]
            members = {
                f"imgs_part_{part}/{names[number]}.png": picture(number, "PNG")
                for number in chosen
            }
            put_zip(folder / f"imgs_part_{part}.zip", members)
        for split, numbers in (("test", TEST), ("train", TRAIN)):
            lesions = [{"ids": number // 2} for number in numbers[::2]]
            put_parquet(folder / "split" / "data" / f"{split}-00000-of-00001.parquet", lesions)
        test, shots = ([names[number] for number in numbers] for numbers in (evaluated, SPREAD))
        return folder, Expected(
            test, shots, [number % 7 for number in evaluated], len(evaluated)
        )

    return write


def vindr(folder: Path) -> tuple[Path, Expected]:
    """Write findings, the last two of the tested ones on one image, and rows without a grade between them."""
    rows = []
    for number in BOTH:
        image = 4 if number == 5 else number
        split = "test" if number in TEST else "training"
        rows += [
            (f"s{image // 4}", f"i{image}", grade, split)
            for grade in (f"BI-RADS {1 + number % 5}", "")
        ]
        put_dicom(
            folder / "images" / f"s{image // 4}" / f"i{image}.dicom",
            noise(image),
            "MONOCHROME1",
        )
    put(
        folder / "finding_annotations.csv",
        csv_text("study_id,image_id,finding_birads,split", rows),
    )
    shots = [f"i{number}/1" for number in SPREAD]
    test = ["i0/1", "i1/1", "i2/1", "i3/1", "i4/1", "i4/2"]
    return folder, Expected(test, shots, [number % 5 for number in TEST], images=5)


def cbis(abnormality: str) -> Writer:
    """Return what writes the Kaggle copy; each series has a cropped image and a mask, which is not shown."""

    def write(folder: Path) -> tuple[Path, Expected]:
        info = []
        for number in BOTH:
            for name, description in (
                ("1-1.jpg", "cropped images"),
                ("2-1.jpg", "ROI mask images"),
            ):
                put(
                    folder / "jpeg" / f"1.3.{number}" / name,
                    picture(number if name[0] == "1" else 127),
                )
                info.append((f"CBIS-DDSM/jpeg/1.3.{number}/{name}", description))
        put(folder / "csv" / "dicom_info.csv", csv_text("image_path,SeriesDescription", info))
        columns = "patient_id,pathology,image file path,cropped image file path"
        for split, numbers in (("test", TEST), ("train", TRAIN)):
            rows = [
                (f"P_{n}", PATHOLOGIES[n % 3], "x", f"case_{n}/1.2/1.3.{n}/000000.dcm\n")
                for n in numbers
            ]
            put(
                folder / "csv" / f"{abnormality}_case_description_{split}_set.csv",
                csv_text(columns, rows),
            )
        return folder, named("case_{}", lambda number: number % 3, images=6)

    return write


def put_mimic(folder: Path) -> None:
    images = [(f"d{number}", number // 2, 10000000 + number // 2, number) for number in BOTH]
    for dicom_id, study, subject, number in images:
        put(
            folder
            / "files"
            / f"p{subject}"[:3]
            / f"p{subject}"
            / f"s{study}"
            / f"{dicom_id}.jpg",
            picture(number),
        )
    rows = [(*ids, "test" if number in TEST else "train") for *ids, number in images]
    put_gzip(
        folder / "mimic-cxr-2.0.0-split.csv.gz",
        csv_text("dicom_id,study_id,subject_id,split", rows),
    )
    findings = [(image[2], image[1], *finding_values(image[1]), "") for image in images[::2]]
    columns = f"subject_id,study_id,{','.join(chest.FIVE_FINDINGS)},Fracture"
    put_gzip(folder / "mimic-cxr-2.0.0-chexpert.csv.gz", csv_text(columns, findings))


def finding_values(study: int) -> list[str]:
    """Return one finding that is there, one that is uncertain, one that is not, and two without a word."""
    values = ["1.0", "-1.0", "0.0", "", ""]
    return values[study % 5 :] + values[: study % 5]


def put_gzip(path: Path, text: str) -> None:
    put(path, gzip.compress(text.encode()))


def mimic_classification(folder: Path) -> tuple[Path, Expected]:
    put_mimic(folder)
    return folder, named(
        "d{}", lambda n: [int(value == "1.0") for value in finding_values(n // 2)], images=6
    )


def mimic_reports(folder: Path) -> tuple[Path, Expected]:
    put_mimic(folder)
    texts = {
        study: f" FILM\n INDICATION: Cough.\n FINDINGS:\n Clear.\n\n {study} nodules.\n"
        for study in range(60)
    }
    members = {
        f"files/p10/p{10000000 + study}/s{study}.txt": text for study, text in texts.items()
    }
    put_zip(folder / "mimic-cxr-reports.zip", members)
    keys = [f" Clear.\n\n {study} nodules.\n" for study in (0, 1, 2)]
    return folder, Expected(["0", "1", "2"], [], keys, images=6)


def mimic_summaries(lower_case: bool) -> Writer:
    """Return what writes the notes; the last two of the tested ones come first, because CT goes before MR."""

    def write(folder: Path) -> tuple[Path, Expected]:
        exams = ["MR HEAD W/O CONTRAST"] * 4 + ["CT HEAD W/O CONTRAST"] * 2
        report = " CT\n  FINAL REPORT\n FINDINGS: Nodule {0}.\n IMPRESSION: A nodule, {0}"
        notes = [(900 + n, n // 2, exams[n % 6], report.format(n)) for n in BOTH]
        put_gzip(
            folder / "NOTEEVENTS.csv.gz", csv_text("ROW_ID,SUBJECT_ID,DESCRIPTION,TEXT", notes)
        )
        put(
            folder / "split" / "idsTest.csv",
            csv_text("ids", [(900 + number,) for number in TEST]),
        )
        order = (4, 5, 0, 1, 2, 3)
        keys = [f"{'a' if lower_case else 'A'} nodule, {number}" for number in order]
        return folder, Expected([str(900 + number) for number in order], [], keys)

    return write


def ct_rate(folder: Path) -> tuple[Path, Expected]:
    rows = [
        (f"valid_{number}_a_1.nii.gz", f"Nodule\n{number}.", "A nodule.") for number in TEST
    ]
    top = folder / "dataset"
    put(
        top / "radiology_text_reports" / "validation_reports.csv",
        csv_text("VolumeName,Findings_EN,Impressions_EN", rows),
    )
    for number in TEST:
        place = top / "valid" / f"valid_{number}" / f"valid_{number}_a"
        put_nifti(place / f"valid_{number}_a_1.nii.gz", scan(number))
    return folder, Expected(
        [f"valid_{number}_a_1" for number in TEST], [], [row[1] for row in rows], images=6
    )


def diff_vqa(folder: Path) -> tuple[Path, Expected]:
    """Write MIMIC-CXR-JPG and questions on it."""
    put_mimic(folder)
    answers = ("no", "nothing, as before", "edema")
    rows = [
        (
            number // 2,
            10000000 + number // 2,
            "presence",
            f"what is {number}?",
            answers[number % 3],
            split,
        )
        for split, numbers in (("test", TEST), ("train", TRAIN))
        for number in numbers
    ]
    put(
        folder / "mimic_pair_questions.csv",
        csv_text("study_id,subject_id,question_type,question,answer,split", rows),
    )
    return folder, placed("test", "train", [answers[number % 3] for number in TEST], images=6)


def chest_xrays(folder: Path) -> tuple[Path, Expected]:
    """Write the NIH's tables and images; every third image shows nothing."""

    def labels(number: int) -> list[int]:
        return [int(number % 3 > 0 and place in (number % 14, 13)) for place in range(14)]

    def row(number: int) -> tuple[Any, ...]:
        present = [
            name
            for name, label in zip(chest.FOURTEEN_FINDINGS, labels(number), strict=True)
            if label
        ]
        return f"{number:08d}_000.png", "|".join(present) or "No Finding", number // 2

    for number in BOTH:
        put(
            folder / f"images_{1 + number % 2:03d}" / "images" / f"{number:08d}_000.png",
            picture(number, "PNG"),
        )
    put(
        folder / "Data_Entry_2017.csv",
        csv_text("Image Index,Finding Labels,Patient ID", map(row, BOTH)),
    )
    lists: tuple[tuple[str, Iterable[int]], ...] = (
        ("test_list", TEST),
        ("train_val_list", TRAIN),
    )
    for name, numbers in lists:
        put(folder / f"{name}.txt", "\n".join(f"{number:08d}_000.png" for number in numbers))
    return folder, named("{:08d}_000.png", labels, images=6)


WRITERS: dict[str, Writer] = {
    "medqa": medqa,
    "medmcqa": medmcqa,
    "pubmedqa": pubmedqa,
    "mednli": mednli,
    "mmlu": mmlu,
    "vqa_rad": vqa(1),
    "path_vqa": vqa(3),
    "slake": slake,
    "diff_vqa": diff_vqa,
    **{name: mnist(name) for name in CLASSES},
    "pad_ufes_20": pad_ufes(BOTH),
    "pad_ufes_20_disjoint": pad_ufes(TEST),
    "vindr_mammo": vindr,
    "cbis_ddsm_mass": cbis("mass"),
    "cbis_ddsm_calcification": cbis("calc"),
    "mimic_cxr_classification": mimic_classification,
    "mimic_cxr_report": mimic_reports,
    "mimic_iii_summary": mimic_summaries(lower_case=True),
    "mimic_iii_summary_head": mimic_summaries(lower_case=False),
    "ct_rate_report": ct_rate,
    "chestxray14": chest_xrays,
}
