"""The three sets of chest X-rays: which rows, which images, which labels."""

import gzip

import pytest

from medtasks.data.multimedeval import chest_xrays

MIMIC = "mimic_cxr_classification"
SPLIT = [
    # dicom, study, subject, split
    ("d1", "51", "10000001", "test"),
    ("d2", "52", "10000002", "train"),
    ("d3", "53", "10000003", "test"),
    ("d4", "51", "10000001", "test"),
    ("d5", "54", "10000004", "validate"),
    *((f"t{number}", f"6{number}", f"1100000{number}", "train") for number in range(9)),
]
FINDINGS = {  # subject, study -> atelectasis, cardiomegaly, consolidation, edema, effusion; in the published order
    ("10000003", "53"): ("", "", "", "", "-1.0"),
    ("10000002", "52"): ("1.0", "1.0", "1.0", "1.0", "1.0"),
    ("10000001", "51"): ("1.0", "0.0", "-1.0", "", "1.0"),
    ("10000004", "54"): ("", "", "", "", ""),
    **{(f"1100000{number}", f"6{number}"): ("", "1.0", "", "", "") for number in range(9)},
}


def csv_of(columns, rows):
    return "".join(",".join(row) + "\n" for row in [columns, *rows])


@pytest.fixture
def mimic(tmp_path, jpeg):
    folder = tmp_path / "mimic"
    for number, (dicom, study, subject, _split) in enumerate(SPLIT):
        path = folder / "files" / f"p{subject[:2]}" / f"p{subject}" / f"s{study}" / f"{dicom}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    (folder / "mimic-cxr-2.0.0-split.csv").write_text(csv_of(("dicom_id", "study_id", "subject_id", "split"), SPLIT))
    rows = [(*key, *values, "0.0") for key, values in FINDINGS.items()]
    columns = ("subject_id", "study_id", *chest_xrays.FIVE_FINDINGS, "Fracture")
    (folder / "mimic-cxr-2.0.0-chexpert.csv").write_text(csv_of(columns, rows))
    return folder


def test_one_row_per_image_in_the_order_of_the_findings(mimic, prepared):
    manifest, documents, shots = prepared(MIMIC, mimic)
    assert manifest.left_out == ("the source holds 3 rows, the evaluated set 5159",)
    assert [document["doc_id"] for document in documents] == ["d3", "d1", "d4"]
    assert [document["labels"] for document in documents] == [[0] * 5, [1, 0, 0, 0, 1], [1, 0, 0, 0, 1]]
    assert [document["patient_id"] for document in documents] == ["10000003", "10000001", "10000001"]
    assert documents[0]["options"][4] == "Pleural Effusion"
    assert [shot["doc_id"] for shot in shots] == ["d2", "t1", "t3", "t5", "t7"]


def test_images_without_findings_are_named(mimic, prepared):
    table = mimic / "mimic-cxr-2.0.0-chexpert.csv"
    table.write_text("".join(line for line in table.read_text().splitlines(True) if not line.startswith("10000001")))
    manifest = prepared(MIMIC, mimic)[0]
    assert (manifest.rows, manifest.complete) == (1, False)
    assert manifest.left_out[:2] == tuple(
        f"mimic-cxr-2.0.0-split.csv row {row}: the findings table has no row for its study" for row in (1, 4)
    )


def test_compressed_tables_in_the_nested_folder(mimic, prepared):
    nested = mimic / "physionet.org" / "files" / "mimic-cxr-jpg" / "2.0.0"
    nested.mkdir(parents=True)
    (mimic / "files").rename(nested / "files")
    for table in mimic.glob("*.csv"):
        (nested / f"{table.name}.gz").write_bytes(gzip.compress(table.read_bytes()))
        table.unlink()
    assert prepared(MIMIC, mimic)[0].rows == 3


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_broken_mimic_sources(mimic, complains):
    table = mimic / "mimic-cxr-2.0.0-chexpert.csv"
    change(table, "1.0,0.0,-1.0", "1.0,0.5,-1.0")
    complains(MIMIC, mimic, "mimic-cxr-2.0.0-chexpert.csv row 3: the label of Cardiomegaly is not")
    change(table, "1.0,0.5,-1.0", "1.0,0.0,-1.0")
    (mimic / "files" / "p10" / "p10000001" / "s51" / "d4.jpg").unlink()
    missing = "row 3: its image files/p10/p10000001/s51/d4.jpg is missing"
    complains(MIMIC, mimic, missing, "--allow-incomplete", allow_incomplete=False)
    change(table, "Edema", "Oedema")
    complains(MIMIC, mimic, "mimic-cxr-2.0.0-chexpert.csv lacks 'Edema'")
    table.unlink()
    complains(MIMIC, mimic, "holds no mimic-cxr-2.0.0-chexpert.csv")


QUESTIONS = [
    ("51", "10000001", "52", "presence", "is there edema?", "no", "test"),
    ("52", "10000002", "51", "view", "which view?", "ap view", "train"),
    ("51", "10000001", "52", "difference", "what has changed?", "nothing, it is the same", "test"),
    ("53", "10000003", "52", "abnormality", "what is seen?", "edema", "val"),
]


@pytest.fixture
def questions(mimic):
    rows = [(*row[:5], f'"{row[5]}"', row[6]) for row in QUESTIONS]
    columns = ("study_id", "subject_id", "ref_id", "question_type", "question", "answer", "split")
    (mimic / "mimic_pair_questions.csv").write_text(csv_of(columns, rows))
    return mimic


def test_questions_show_every_image_of_the_current_study(questions, prepared):
    manifest, (first, second), _ = prepared("diff_vqa", questions)
    assert (manifest.rows, manifest.images, manifest.complete) == (2, 2, True)
    assert first["image_files"] == second["image_files"]
    assert len(first["image_files"]) == 2
    assert (first["doc_id"], first["question"], first["answer"]) == ("test/0", "is there edema?", "no")
    assert (second["image_id"], second["patient_id"]) == ("s51", "10000001")
    assert second["answer"] == "nothing, it is the same"


def test_a_study_without_images(questions, complains):
    for path in (questions / "files" / "p10" / "p10000001" / "s51").iterdir():
        path.unlink()
    complaint = "mimic_pair_questions.csv row 1: its study s51 has no images"
    complains("diff_vqa", questions, complaint, allow_incomplete=False)


def test_an_empty_answer_is_refused(questions, complains):
    change(questions / "mimic_pair_questions.csv", '"no"', '""')
    complains("diff_vqa", questions, "mimic_pair_questions.csv row 1: answer is empty")


ENTRIES = [
    ("00000001_000.png", "Cardiomegaly|Effusion", "1"),
    ("00000002_000.png", "No Finding", "2"),
    ("00000003_000.png", "Pleural_Thickening", "3"),
    ("00000004_000.png", "Hernia", "4"),
]


@pytest.fixture
def nih(tmp_path, jpeg):
    folder = tmp_path / "nih"
    for number, (name, _findings, _patient) in enumerate(ENTRIES):
        path = folder / f"images_00{1 + number // 2}" / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    (folder / "Data_Entry_2017.csv").write_text(csv_of(("Image Index", "Finding Labels", "Patient ID"), ENTRIES))
    (folder / "test_list.txt").write_text("00000003_000.png\n00000001_000.png\r\n")
    (folder / "train_val_list.txt").write_text("00000002_000.png\n00000004_000.png\n")
    return folder


def test_listed_images_in_the_order_of_the_table(nih, prepared):
    manifest, (first, second), shots = prepared("chestxray14", nih)
    assert manifest.left_out == ("the source holds 2 rows, the evaluated set 25596",)
    assert (first["doc_id"], second["doc_id"]) == ("00000001_000.png", "00000003_000.png")
    present = [name for name, label in zip(first["options"], first["labels"], strict=True) if label]
    assert present == ["Cardiomegaly", "Effusion"]
    assert second["labels"][chest_xrays.FOURTEEN_FINDINGS.index("Pleural_Thickening")] == 1
    assert [sum(shot["labels"]) for shot in shots] == [0, 1]


def test_broken_nih_sources(nih, complains):
    table = nih / "Data_Entry_2017.csv"
    change(table, "Pleural_Thickening", "Pleural Thickening")
    complaint = "Data_Entry_2017.csv row 3: unknown finding 'Pleural Thickening'; known: "
    complains("chestxray14", nih, complaint)
    change(table, "Pleural Thickening", "Hernia|No Finding")
    complains("chestxray14", nih, "row 3: 'No Finding' stands beside findings")
    change(table, "Hernia|No Finding", "Hernia")
    (nih / "images_002" / "images" / "00000003_000.png").write_bytes(b"\x89PNG cut")
    complains("chestxray14", nih, "row 3: its image 00000003_000.png is broken", allow_incomplete=False)
    (nih / "test_list.txt").unlink()
    complains("chestxray14", nih, "holds no test_list.txt")
