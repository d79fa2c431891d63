"""MedNLI from PhysioNet's archive, or what was unpacked from it."""

import json

import pytest

from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.errors import SourceError

FOLDER = "mednli-a-natural-language-inference-dataset-for-the-clinical-domain-1.0.0"
RELATIONS = ["contradiction", "entailment", "neutral"]  # in the order they occur, as the reference lists them


def line(number, **fields):
    return {
        "gold_label": RELATIONS[number % 3],
        "pairID": f"23eb94b8-{number:04d}",
        "sentence1": f"Drawn history {number}.",
        "sentence1_parse": "(ROOT ...)",
        "sentence1_binary_parse": "( ... )",
        "sentence2": f"Drawn statement {number}.",
        "sentence2_parse": "(ROOT ...)",
        "sentence2_binary_parse": "( ... )",
        **fields,
    }


def text(numbers):
    return "".join(json.dumps(line(number)) + "\n" for number in numbers)


@pytest.fixture
def files():
    return {"mli_test_v1.jsonl": text(range(6)), "mli_train_v1.jsonl": text(range(100, 111)), "LICENSE.txt": "..."}


@pytest.fixture
def source(tmp_path, files):
    (tmp_path / "mednli").mkdir()
    for name, content in files.items():
        (tmp_path / "mednli" / name).write_text(content)
    return tmp_path / "mednli"


def test_documents(source, prepared):
    manifest, documents, shots = prepared("mednli", source)
    assert manifest.left_out == ("the source holds 6 rows, the evaluated set 1422",)
    assert (manifest.access, manifest.images, manifest.revision) == ("credentialed", 0, "local")
    assert documents[0] == {
        "doc_id": "23eb94b8-0000",
        "dataset": "multimedeval_mednli",
        "image_id": None,
        "patient_id": None,
        "image_files": [],
        "image_sha256": [],
        "subject": None,
        "context": "Drawn history 0.",
        "question": "Drawn statement 0.",
        "options": ["entailment", "contradiction", "neutral"],
        "answer": "B",
    }
    assert [document["answer"] for document in documents] == ["B", "A", "C"] * 2
    assert [shot["doc_id"] for shot in shots] == [f"23eb94b8-{100 + number:04d}" for number in (0, 2, 4, 6, 8)]


def test_archive_and_nested_folder_are_the_same(tmp_path, files, source, prepared, write_zip):
    first = prepared("mednli", source)
    archive = write_zip(
        tmp_path / "download" / f"{FOLDER}.zip", {f"{FOLDER}/{name}": text for name, text in files.items()}
    )
    source.rename(tmp_path / FOLDER)
    (tmp_path / "unpacked").mkdir()
    (tmp_path / FOLDER).rename(tmp_path / "unpacked" / FOLDER)
    for other in (archive, archive.parent, tmp_path / "unpacked", tmp_path / "unpacked" / FOLDER):
        assert prepared("mednli", other)[1:] == first[1:]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"gold_label": "Entailment"}, "gold_label is none of entailment, contradiction, neutral"),
        ({"gold_label": None}, "gold_label is empty and not a text"),
        ({"sentence1": ["one"]}, "sentence1 is a list and not a text"),
        ({"pairID": "23eb94b8-0001"}, "has the id '23eb94b8-0001' of mli_test_v1.jsonl row 2; ids must be unique"),
    ],
)
def test_rows_that_make_no_sense(source, complains, fields, complaint):
    rows = [line(number) for number in range(6)]
    rows[4] |= fields
    (source / "mli_test_v1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    complains("mednli", source, f"mli_test_v1.jsonl row 5{'' if 'pairID' in fields else ':'} {complaint}")


@pytest.mark.parametrize(
    "row", [line(1, gold_label="Drawn secret"), line(1, sentence2=["Drawn secret"]), ["Drawn secret"]]
)
def test_a_complaint_never_quotes_a_patient_record(source, home, row):
    (source / "mli_test_v1.jsonl").write_text(text([0]) + json.dumps(row))
    with pytest.raises(SourceError, match=r"mli_test_v1.jsonl row 2") as caught:
        prepare("multimedeval_mednli", Options(source))
    assert "secret" not in str(caught.value)
