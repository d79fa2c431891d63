"""Reports of MIMIC-CXR, MIMIC-III and CT-RATE: which studies, notes and volumes, which text, and in which order."""

from dataclasses import replace

import pytest

from medtasks.data.catalogue import dataset_info
from medtasks.data.prepare.prepare_dataset import recipe_of, verify
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.home import dataset_folder

from ...damages import changed, lost, text, written
from ...multimedeval_sources import picture

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")

MIMIC_CXR = "multimedeval_mimic_cxr_report"
REPORT = "mimic-cxr-reports.zip!files/p10/p1000000{0}/s{0}.txt"
NOTES, CT = "NOTEEVENTS.csv.gz", "dataset/radiology_text_reports/validation_reports.csv"
OUTSIDE = "2 not in the evaluated set: notes of the split without findings and exactly one impression"


def test_studies_with_findings_show_all_their_images(source, prepared, capsys):
    folder = source("mimic_cxr_report")
    written(REPORT.format(1), " x\n IMPRESSION: Normal.\n")(folder)
    written(REPORT.format(2), " x\n FINDINGS: Café au lait.\n")(folder)
    order = b"dicom_id,study_id,subject_id,split\n"  # images are in the order of the table
    changed("mimic-cxr-2.0.0-split.csv.gz", lambda data: order + b"".join(data.splitlines(True)[:0:-1]))(folder)
    manifest, (second, first), shots = prepared("mimic_cxr_report", folder)
    assert (manifest.rows, manifest.images, manifest.access, shots) == (2, 4, "credentialed", [])
    outside = "1 not in the evaluated set: studies whose report has no findings section"
    assert manifest.left_out == ("the source holds 2 rows, the evaluated set 2347", outside)
    assert [first[key] for key in ("doc_id", "image_id", "patient_id", "context")] == ["0", "s0", "10000000", None]
    assert (first["report"], first["indication"]) == (" Clear.\n\n 0 nodules.\n", "Cough.")
    assert (second["doc_id"], second["report"], second["indication"]) == ("2", "Café au lait.\n", "")
    images = [(dataset_folder(MIMIC_CXR) / file).read_bytes() for file in first["image_files"]]
    assert images == [picture(1), picture(0)]

    # A study outside is no damage: a copy of the right size is complete.
    manifest = prepare_recipe(replace(dataset_info(MIMIC_CXR), rows=2), recipe_of(MIMIC_CXR), Options(folder))
    assert (manifest.complete, manifest.left_out) == (True, (outside,))

    # No message names a patient or quotes a report.
    lost("files/p10/p10000002/s2/d5.jpg")(folder)
    manifest, documents, _ = prepared("mimic_cxr_report", folder)
    messages = " ".join(manifest.left_out) + "".join(capsys.readouterr())
    assert (len(documents), "its image 1 of 2 is missing" in messages) == (1, True)
    assert [secret for secret in ("10000002", "s2", "d5", "Café") if secret in messages] == []


def test_notes_group_after_group(source, prepared):
    folder = source("mimic_iii_summary")
    text(NOTES, "900,0,MR HEAD W/O CONTRAST", "900,0,CHEST (PORTABLE AP)")(folder)
    text(NOTES, "\n IMPRESSION: A nodule, 1", "")(folder)
    text(NOTES, "Nodule 4.", 'A ""quoted"", Word\n of it.')(folder)
    manifest, documents, shots = prepared("mimic_iii_summary", folder)
    assert manifest.left_out == ("the source holds 4 rows, the evaluated set 13054", OUTSIDE)
    assert (manifest.access, manifest.images, shots) == ("credentialed", 0, [])
    assert [document["doc_id"] for document in documents] == ["904", "905", "902", "903"]  # CT before MR
    assert documents[0] == {
        "doc_id": "904",
        "dataset": "multimedeval_mimic_iii_summary",
        "image_id": None,
        "patient_id": "2",
        "image_files": [],
        "image_sha256": [],
        "context": 'a "quoted", word of it.',
        "indication": None,
        "report": "a nodule, 4",
    }
    _, documents, _ = prepared("mimic_iii_summary_head", folder)  # keeps case and white space
    assert (documents[0]["context"], documents[0]["report"]) == ('A "quoted", Word of it.', "A nodule, 4")


def test_volumes_are_linked(source, prepared):
    folder = source("ct_rate_report")
    rows = b"valid_5_a_1.nii.gz,Heart 5.,\nvalid_1_a_1.nii.gz,Heart 1.,\nvalid_5_a_1.nii.gz,Heart 5.,\n"
    changed(CT, lambda data: data.splitlines(True)[0] + rows)(folder)
    manifest, (first, second), _ = prepared("ct_rate_report", folder)
    assert (manifest.rows, manifest.images, manifest.access) == (2, 2, "gated")
    assert (first["doc_id"], first["image_id"], first["patient_id"]) == ("valid_5_a_1", "valid_5_a_1", "valid_5")
    assert (first["report"], first["indication"], first["context"]) == ("Heart 5.", None, None)
    assert second["doc_id"] == "valid_1_a_1"
    linked = dataset_folder(manifest.name) / first["image_files"][0]
    assert linked.is_symlink()
    assert linked.resolve() == folder / "dataset/valid/valid_5/valid_5_a/valid_5_a_1.nii.gz"
    assert list(verify(manifest.name)) == []
