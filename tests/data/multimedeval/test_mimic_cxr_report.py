"""MIMIC-CXR for report generation: which studies, which images, which text, and where the reports may lie."""

import gzip
import shutil
from dataclasses import replace

import pytest

from medtasks.data.catalogue import dataset_info
from medtasks.data.preparation import Options, prepare_recipe
from medtasks.data.preparers import prepare, recipe_of
from medtasks.data.store import load_documents

NAME = "multimedeval_mimic_cxr_report"
SPLIT = [  # image, study, patient, split
    ("d1", "51", "10000001", "test"),
    ("d2", "52", "10000002", "train"),
    ("d3", "53", "10000003", "test"),
    ("d4", "51", "10000001", "test"),
    ("d5", "54", "10000003", "test"),
    ("d6", "55", "11000004", "test"),
]
REPORTS = {
    "51": " FILM\n INDICATION:  ___ with cough.\n \n FINDINGS: \n Clear\n lungs.\n\n No fluid. \n IMPRESSION: None.\n",
    "52": " x\n FINDINGS: Only for training.\n",
    "53": " x\n IMPRESSION: Normal.\n",
    "54": " x\n FINDINGS: Café au lait.\n",
    "55": " no sections at all",
}


def folder_of(root, row):
    return root / "files" / f"p{row[2][:2]}" / f"p{row[2]}"


@pytest.fixture
def mimic(tmp_path, jpeg):
    root = tmp_path / "mimic"
    for number, row in enumerate(SPLIT):
        folder = folder_of(root, row)
        (folder / f"s{row[1]}").mkdir(parents=True, exist_ok=True)
        (folder / f"s{row[1]}" / f"{row[0]}.jpg").write_bytes(jpeg(number))
        (folder / f"s{row[1]}.txt").write_bytes(REPORTS[row[1]].encode())
    write_split(root, SPLIT)
    return root


def write_split(root, rows):
    lines = ["dicom_id,study_id,subject_id,split", *(",".join(row) for row in rows)]
    (root / "mimic-cxr-2.0.0-split.csv").write_text("\n".join(lines) + "\n")


def content(prepared, root):
    return [
        {key: value for key, value in document.items() if key != "image_sha256"}
        for document in prepared("mimic_cxr_report", root)[1]
    ]


def test_documents(mimic, prepared, jpeg):
    manifest, documents, shots = prepared("mimic_cxr_report", mimic)
    assert (manifest.rows, manifest.images, manifest.access, shots) == (2, 3, "credentialed", [])
    assert manifest.left_out == (
        "the source holds 2 rows, the evaluated set 2347",
        "2 not in the evaluated set: studies whose report has no findings section",
    )
    first, second = documents
    assert {key: first[key] for key in ("doc_id", "image_id", "patient_id", "context")} == {
        "doc_id": "51",
        "image_id": "s51",
        "patient_id": "10000001",
        "context": None,
    }
    assert first["report"] == "\n Clear\n lungs.\n\n No fluid. "
    assert first["indication"] == " ___ with cough.\n "
    assert (second["doc_id"], second["report"], second["indication"]) == ("54", "Café au lait.\n", "")
    assert len(first["image_files"]) == 2
    stored = [mimic.parent / "home" / "datasets" / NAME / file for file in first["image_files"]]
    assert [file.read_bytes() for file in stored] == [jpeg(0), jpeg(3)]  # in the order of the table


def test_studies_outside_are_no_damage(mimic, home):
    """They count neither as rows nor as left out; a copy of the right size is complete."""
    manifest = prepare_recipe(replace(dataset_info(NAME), rows=2), recipe_of(NAME), Options(mimic))
    assert manifest.complete
    assert manifest.left_out == ("2 not in the evaluated set: studies whose report has no findings section",)


def test_reports_in_an_archive_or_a_tree_of_their_own(mimic, prepared, write_zip, tmp_path):
    expected = content(prepared, mimic)
    texts = {path.relative_to(mimic).as_posix(): path.read_text() for path in (mimic / "files").rglob("*.txt")}
    for name in texts:
        (mimic / name).unlink()
    archive = write_zip(mimic / "mimic-cxr-reports.zip", texts)
    assert content(prepared, mimic) == expected
    shutil.unpack_archive(archive, mimic / "mimic-cxr-reports")
    archive.unlink()
    assert content(prepared, mimic) == expected
    physionet = tmp_path / "physionet.org" / "files"
    (physionet / "mimic-cxr").mkdir(parents=True)
    (mimic / "mimic-cxr-reports").rename(physionet / "mimic-cxr" / "2.0.0")
    mimic.rename(physionet / "mimic-cxr-jpg")
    (physionet / "mimic-cxr-jpg" / "2.0.0").mkdir()
    for path in list((physionet / "mimic-cxr-jpg").iterdir()):
        if path.name != "2.0.0":
            path.rename(path.parent / "2.0.0" / path.name)
    assert content(prepared, tmp_path) == expected
    assert content(prepared, physionet) == expected
    shutil.rmtree(physionet / "mimic-cxr" / "2.0.0")
    write_zip(
        physionet / "mimic-cxr" / "2.1.0" / "mimic-cxr-reports.zip",
        {f"mimic-cxr-reports/{n}": t for n, t in texts.items()},
    )
    assert content(prepared, tmp_path) == expected


def test_windows_line_ends_and_a_compressed_table(mimic, prepared):
    expected = content(prepared, mimic)
    for path in (mimic / "files").rglob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    table = mimic / "mimic-cxr-2.0.0-split.csv"
    (mimic / f"{table.name}.gz").write_bytes(gzip.compress(table.read_bytes()))
    table.unlink()
    assert content(prepared, mimic) == expected


def test_missing_and_broken_files(mimic, complains):
    table = "mimic-cxr-2.0.0-split.csv"
    study = folder_of(mimic, SPLIT[0])
    (study / "s51" / "d4.jpg").write_bytes((study / "s51" / "d4.jpg").read_bytes()[:60])
    complains(
        "mimic_cxr_report",
        mimic,
        f"{table} row 1: its image 2 of 2 is broken",
        "--allow-incomplete",
        allow_incomplete=False,
    )
    (study / "s51" / "d4.jpg").unlink()
    complains("mimic_cxr_report", mimic, f"{table} row 1: its image 2 of 2 is missing", allow_incomplete=False)
    (study / "s51.txt").write_bytes(b" x\n FINDINGS: caf\xe9\n")
    complains("mimic_cxr_report", mimic, "the report of its study is no UTF-8 text", allow_incomplete=False)
    (study / "s51.txt").unlink()
    complains(
        "mimic_cxr_report",
        mimic,
        f"{table} row 1: the report of its study is missing (mimic-cxr-reports.zip of MIMIC-CXR has it)",
        allow_incomplete=False,
    )


def test_a_source_without_any_report_says_where_they_are(mimic, complains):
    for path in (mimic / "files").rglob("*.txt"):
        path.unlink()
    complains("mimic_cxr_report", mimic, "no usable row in the source", "mimic-cxr-reports.zip of MIMIC-CXR has it")


def test_what_is_left_out_is_counted(mimic, prepared):
    (folder_of(mimic, SPLIT[0]) / "s51.txt").unlink()
    manifest, documents, _ = prepared("mimic_cxr_report", mimic)
    assert (len(documents), manifest.complete) == (1, False)
    assert manifest.left_out[0].startswith("mimic-cxr-2.0.0-split.csv row 1: the report of its study is missing")


@pytest.mark.parametrize("row", [SPLIT[0], ("d9", "51", "10000003", "test")], ids=["image twice", "two patients"])
def test_an_image_twice_or_a_study_of_two_patients(mimic, complains, row):
    write_split(mimic, [*SPLIT, row])
    complains(
        "mimic_cxr_report", mimic, "row 7: its image stands in an earlier row, or its study belongs to two patients"
    )


def test_damaged_archive_and_tables(mimic, complains, write_zip):
    for path in (mimic / "files").rglob("*.txt"):
        path.unlink()
    archive = mimic / "mimic-cxr-reports.zip"
    archive.write_bytes(b"PK\x03\x04 cut")
    complains("mimic_cxr_report", mimic, "mimic-cxr-reports.zip cannot be unpacked", "download it again")
    archive.unlink()
    write_split(mimic, [])
    complains("mimic_cxr_report", mimic, "no usable row in the source (")
    (mimic / "mimic-cxr-2.0.0-split.csv").unlink()
    complains("mimic_cxr_report", mimic, "holds no mimic-cxr-2.0.0-split.csv")


def test_no_message_names_a_patient_or_quotes_a_report(mimic, home, capsys):
    (folder_of(mimic, SPLIT[4]) / "s54" / "d5.jpg").unlink()
    manifest = prepare(NAME, Options(mimic, allow_incomplete=True))
    assert len(load_documents(NAME)) == 1
    said = " ".join(manifest.left_out) + "".join(capsys.readouterr())
    assert [secret for secret in ("10000003", "s54", "d5", "Café") if secret in said] == []
