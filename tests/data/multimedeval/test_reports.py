"""Reports of MIMIC-CXR, MIMIC-III and CT-RATE: which studies, notes and volumes, which text, and in which order."""

import gzip
from dataclasses import replace

import pytest

from medtasks.data.catalogue import dataset_info
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, recipe_of, verify
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.home import dataset_folder

from ...multimedeval_sources import csv_text, picture, put
from ...nifti_files import put_nifti, scan

MIMIC_CXR, MIMIC_III, CT_RATE = (
    f"multimedeval_{name}" for name in ("mimic_cxr_report", "mimic_iii_summary", "ct_rate_report")
)
OUTSIDE = "2 not in the evaluated set: "
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


@pytest.fixture
def mimic(tmp_path):
    root = tmp_path / "mimic"
    for number, (image, study, patient, _) in enumerate(SPLIT):
        folder = root / "files" / f"p{patient[:2]}" / f"p{patient}"
        put(folder / f"s{study}" / f"{image}.jpg", picture(number))
        put(folder / f"s{study}.txt", REPORTS[study])
    put(root / "mimic-cxr-2.0.0-split.csv", csv_text("dicom_id,study_id,subject_id,split", SPLIT))
    return root


def test_studies_with_findings_show_all_their_images(mimic, prepared):
    manifest, (first, second), shots = prepared("mimic_cxr_report", mimic)
    assert (manifest.rows, manifest.images, manifest.access, shots) == (2, 3, "credentialed", [])
    assert manifest.left_out == (
        "the source holds 2 rows, the evaluated set 2347",
        f"{OUTSIDE}studies whose report has no findings section",
    )
    assert [first[key] for key in ("doc_id", "image_id", "patient_id", "context")] == ["51", "s51", "10000001", None]
    assert first["report"] == "\n Clear\n lungs.\n\n No fluid. "
    assert first["indication"] == " ___ with cough.\n "
    assert (second["doc_id"], second["report"], second["indication"]) == ("54", "Café au lait.\n", "")
    stored = [(dataset_folder(MIMIC_CXR) / file).read_bytes() for file in first["image_files"]]
    assert stored == [picture(0), picture(3)]  # in the order of the table


def test_studies_outside_are_no_damage(mimic, home):
    """They count neither as rows nor as left out; a copy of the right size is complete."""
    manifest = prepare_recipe(replace(dataset_info(MIMIC_CXR), rows=2), recipe_of(MIMIC_CXR), Options(mimic))
    assert manifest.complete
    assert manifest.left_out == (f"{OUTSIDE}studies whose report has no findings section",)


def test_no_message_names_a_patient_or_quotes_a_report(mimic, home, capsys):
    (mimic / "files" / "p10" / "p10000003" / "s54" / "d5.jpg").unlink()
    manifest = prepare(MIMIC_CXR, Options(mimic, allow_incomplete=True))
    assert len(load_documents(MIMIC_CXR)) == 1
    said = " ".join(manifest.left_out) + "".join(capsys.readouterr())
    assert [secret for secret in ("10000003", "s54", "d5", "Café") if secret in said] == []


FULL = 'FINDINGS: A "quoted", Word\n of {0}.\n IMPRESSION: Result {0}.'
NOTES = [  # number, patient, exam, text
    (70, 1, "MR HEAD W/O CONTRAST", FULL),
    (71, 2, "CT HEAD W/O CONTRAST", FULL),
    (72, 2, "CHEST (PORTABLE AP)", FULL),
    (73, 3, "CT HEAD W/O CONTRAST", "FINDINGS: Nothing more."),
    (74, 4, "CT HEAD W/O CONTRAST", FULL),
    (75, 4, "CT HEAD W/O CONTRAST", FULL),
]


@pytest.fixture
def notes(tmp_path):
    before = "[**2999-1-2**] 1:30 AM\n \n                  FINAL REPORT\n "
    rows = [
        (number, patient, "", "Radiology", exam, f"{before}{text.format(number)}\n")
        for number, patient, exam, text in NOTES
    ]
    table = csv_text("ROW_ID,SUBJECT_ID,HADM_ID,CATEGORY,DESCRIPTION,TEXT", rows)
    put(tmp_path / "mimiciii" / "NOTEEVENTS.csv.gz", gzip.compress(table.encode()))
    put(tmp_path / "mimiciii" / "split" / "idsTest.csv", "ids\n70\n71\n72\n73\n75\n")
    return tmp_path / "mimiciii"


def test_notes_group_after_group(notes, prepared):
    manifest, documents, shots = prepared("mimic_iii_summary", notes)
    assert manifest.left_out == (
        "the source holds 3 rows, the evaluated set 13054",
        f"{OUTSIDE}notes of the split without findings and exactly one impression",
    )
    assert (manifest.access, manifest.images, shots) == ("credentialed", 0, [])
    assert [document["doc_id"] for document in documents] == ["71", "75", "70"]  # CT before MR
    assert documents[0] == {
        "doc_id": "71",
        "dataset": MIMIC_III,
        "image_id": None,
        "patient_id": "2",
        "image_files": [],
        "image_sha256": [],
        "context": 'a "quoted", word of 71.',
        "indication": None,
        "report": "result 71.",
    }


def test_head_keeps_case_and_white_space(notes, prepared):
    manifest, documents, _ = prepared("mimic_iii_summary_head", notes)
    assert (manifest.complete, manifest.rows) == (True, 3)
    assert (documents[0]["context"], documents[0]["report"]) == ('A "quoted", Word of 71.', "Result 71. ")


CT_COLUMNS = "VolumeName,ClinicalInformation_EN,Technique_EN,Findings_EN,Impressions_EN"
CT_TABLE = "radiology_text_reports/validation_reports.csv"


def volume(number):
    return f"valid_{number}_a_1.nii.gz"


@pytest.fixture
def volumes(tmp_path):
    folder = tmp_path / "ct_rate" / "dataset"
    for number in (1, 2):
        put_nifti(folder / "valid" / f"valid_{number}" / f"valid_{number}_a" / volume(number), scan(number))
    rows = [(volume(number), "", "", f"Heart {number}.\nNo nodule.", "Normal.") for number in (2, 1, 2)]
    put(folder / CT_TABLE, csv_text(CT_COLUMNS, rows))
    return folder


def test_volumes_are_linked(volumes, home):
    manifest = prepare(CT_RATE, Options(volumes))
    assert (manifest.rows, manifest.images, manifest.complete, manifest.access) == (2, 2, True, "gated")
    first, second = load_documents(CT_RATE)
    assert (first["doc_id"], first["image_id"], first["patient_id"]) == ("valid_2_a_1", "valid_2_a_1", "valid_2")
    assert (first["report"], first["indication"], first["context"]) == ("Heart 2.\nNo nodule.", None, None)
    assert second["doc_id"] == "valid_1_a_1"
    (file,) = first["image_files"]
    linked = dataset_folder(CT_RATE) / file
    assert linked.is_symlink()
    assert linked.resolve() == volumes / "valid" / "valid_2" / "valid_2_a" / volume(2)
    assert list(verify(CT_RATE)) == []
