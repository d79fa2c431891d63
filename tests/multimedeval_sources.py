"""MultiMedEval's sources in miniature, each in the format and under the names in which it is published: questions.

Every set has ten training rows and six that are evaluated. The sets of images are in ``multimedeval_image_sources``.
"""

import csv
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

from medtasks.data.sources.multimedeval.question_sets import MMLU_SUBJECTS

TEST, TRAIN = range(6), range(100, 110)
SPREAD = range(100, 110, 2)
RELATIONS = ("entailment", "contradiction", "neutral")
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
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows), schema), buffer, row_group_size=4)
    return put(path, buffer.getvalue())


def csv_text(columns: str, rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([columns.split(","), *rows])
    return buffer.getvalue()


def json_lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def medqa(folder: Path) -> tuple[Path, Expected]:
    """Write the authors' archive."""

    def line(number: int) -> dict[str, Any]:
        options = {letter: f"drug {letter}{number}" for letter in "ABCDE"}
        key = "ABCDE"[number % 5]
        return {"question": f"Which {number}?", "answer": options[key], "options": options, "answer_idx": key}

    texts = {"test": json_lines(map(line, TEST)), "train": json_lines(map(line, TRAIN))}
    members = {f"data_clean/questions/US/{split}.jsonl": text for split, text in texts.items()}
    return put_zip(folder / "data_clean.zip", members), placed("test", "train", "ABCDEA")


def medmcqa(folder: Path) -> tuple[Path, Expected]:
    def row(number: int) -> dict[str, Any]:
        options = {f"op{letter}": f"nerve {letter}{number}" for letter in "abcd"}
        return {"id": f"q{number}", "question": f"Which {number}", **options, "cop": number % 4, "subject_name": "Skin"}

    for split, numbers in (("validation", TEST), ("train", TRAIN)):
        put_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", list(map(row, numbers)))
    return folder, named("q{}", lambda number: "ABCD"[number % 4])


def pubmedqa(folder: Path) -> tuple[Path, Expected]:
    """Write the authors' archive."""

    def entries(numbers: Iterable[int]) -> str:
        found = {}
        for number in numbers:
            decision = ("yes", "no", "maybe")[number % 3]
            found[str(number)] = {"QUESTION": "Is it?", "CONTEXTS": [f"N={number}.", "So."], "final_decision": decision}
        return json.dumps(found)

    members = {"pqal_test_set.json": entries(TEST), "pqal_fold1/train_set.json": entries(TRAIN)}
    return put_zip(folder / "pqal.zip", members), named("{}", lambda number: "ABC"[number % 3])


def mednli(folder: Path) -> tuple[Path, Expected]:
    """Write PhysioNet's archive."""

    def line(number: int) -> dict[str, str]:
        texts = {"sentence1": f"He has {number}.", "sentence2": "He is ill."}
        return {"gold_label": RELATIONS[number % 3], "pairID": f"p{number}", **texts}

    inside = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
    texts = {"test": json_lines(map(line, TEST)), "train": json_lines(map(line, TRAIN))}
    members = {f"{inside}/mli_{split}_v1.jsonl": text for split, text in texts.items()}
    return put_zip(folder / f"{inside}.zip", members), named("p{}", lambda number: "ABC"[number % 3])


def mmlu(folder: Path) -> tuple[Path, Expected]:
    """Write all subjects in one file; of the four questions of each medical subject one is evaluated."""
    subjects = ["abstract_algebra", *sorted(MMLU_SUBJECTS)]
    for split, each in (("test", 4), ("dev", 5)):
        rows = [
            {"question": f"{n}?", "subject": subject, "choices": list("wxyz"), "answer": (n + place) % 4}
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
                put_parquet(folder / "data" / name, np.array_split(np.array(rows), shards)[part].tolist())
        return folder, placed("test", "train", answers * 2, images=3)

    return write


def slake(folder: Path) -> tuple[Path, Expected]:
    """Write the English questions and, after each, a Chinese one."""

    def question(number: int, language: str) -> dict[str, Any]:
        ids = {"qid": 2 * number + (language == "zh"), "img_name": f"xmlab{number}/source.jpg", "q_lang": language}
        texts = {"question": f"What is {number}?", "answer": ("Yes", "CT", "No")[number % 3]}
        return {**ids, **texts, "answer_type": "OPEN", "content_type": "Organ"}

    for split, numbers in (("test", TEST), ("train", TRAIN)):
        questions = [question(number, language) for number in numbers for language in ("en", "zh")]
        put(folder / f"{split}.json", json.dumps(questions, ensure_ascii=False))
    put_zip(folder / "imgs.zip", {f"imgs/xmlab{n}/source.jpg": picture(n) for n in (*TEST, *TRAIN)})
    test, shots = ([str(2 * number) for number in numbers] for numbers in (TEST, SPREAD))
    return folder, Expected(test, shots, ("Yes", "CT", "No") * 2, images=6)


QUESTIONS: dict[str, Writer] = {
    "medqa": medqa,
    "medmcqa": medmcqa,
    "pubmedqa": pubmedqa,
    "mednli": mednli,
    "mmlu": mmlu,
    "vqa_rad": vqa(1),
    "path_vqa": vqa(3),
    "slake": slake,
}
