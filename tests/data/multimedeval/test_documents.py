"""What the rows of MultiMedEval's sets become: questions, images with labels, reports."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from medtasks.data.catalogue import dataset_info
from medtasks.data.images import image_store
from medtasks.data.images.decoding import decode_image
from medtasks.data.prepare.prepare_dataset import recipe_of, verify
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.data.sources.multimedeval import x_rays
from medtasks.home import dataset_folder

from ...damages import changed, content, lost, parquet_rows, row, text, written
from ...medical_files import noise
from ...multimedeval_sources import (
    WRITERS,
    csv_text,
    json_lines,
    picture,
    put,
    put_parquet,
    put_zip,
)
from ...tables import each_row

pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")

NO_IMAGES = {"image_id": None, "patient_id": None, "image_files": [], "image_sha256": []}
MMLU_TEST = "all/test-00000-of-00001.parquet"


def stored(manifest, document):
    return [
        (dataset_folder(manifest.name) / file).read_bytes() for file in document["image_files"]
    ]


@each_row("name", WRITERS)
def test_every_set_becomes_what_its_source_holds(prepared, tmp_path, name):
    folder, expected = WRITERS[name](tmp_path / "source")
    manifest, documents, shots = prepared(name, folder)
    if (evaluated := dataset_info(manifest.name).rows) is not None:
        assert manifest.left_out == (
            f"the source holds {len(documents)} rows, the evaluated set {evaluated}",
        )
    assert [document["doc_id"] for document in documents] == list(expected.test)
    assert [document["doc_id"] for document in shots] == list(expected.demonstrations)
    (key,) = {"answer", "label", "labels", "report"} & documents[0].keys()
    assert [document[key] for document in documents] == list(expected.keys)
    assert (
        len({file for document in documents for file in document["image_files"]})
        == expected.images
    )
    assert list(verify(manifest.name)) == []


@each_row(
    "name, doc_id, texts, options, answer",
    [
        (
            "medqa",
            "test/3",
            (None, None, "Which 3?"),
            [f"drug {letter}3" for letter in "ABCDE"],
            "D",
        ),
        (
            "medmcqa",
            "q2",
            ("Skin", None, "Which 2"),
            [f"nerve {letter}2" for letter in "abcd"],
            "C",
        ),
        ("pubmedqa", "1", (None, "N=1. So.", "Is it?"), ["yes", "no", "maybe"], "B"),
        (
            "mednli",
            "p2",
            (None, "He has 2.", "He is ill."),
            ["entailment", "contradiction", "neutral"],
            "C",
        ),
    ],
)
def test_questions_with_options(source, prepared, name, doc_id, texts, options, answer):
    manifest, documents, _ = prepared(name, source(name))
    assert next(document for document in documents if document["doc_id"] == doc_id) == {
        "doc_id": doc_id,
        "dataset": f"multimedeval_{name}",
        **NO_IMAGES,
        **dict(zip(("subject", "context", "question"), texts, strict=True)),
        "options": options,
        "answer": answer,
    }
    access = "credentialed" if name == "mednli" else "public"
    assert (manifest.access, manifest.images, manifest.revision) == (access, 0, "local")


def test_a_question_may_have_no_subject(source, prepared):
    folder = source("medmcqa")
    row("data/validation-00000-of-00001.parquet", 1, subject_name=None)(folder)
    assert [document["subject"] for document in prepared("medmcqa", folder)[1][:2]] == [
        None,
        "Skin",
    ]


def test_empty_lines_are_no_rows(source, prepared):
    folder = source("medqa")
    changed(
        "data_clean.zip!data_clean/questions/US/test.jsonl",
        lambda data: data.replace(b"\n", b"\n\n"),
    )(folder)
    assert len(prepared("medqa", folder)[1]) == 6


def test_solved_examples_are_spread_over_the_training_rows(source, prepared):
    folder = source("medqa")
    name = "data_clean/questions/US/train.jsonl"
    members = content(folder / "data_clean.zip")
    line = json.loads(members[name].splitlines()[0])
    twelve = json_lines({**line, "question": f"Question {number}?"} for number in range(12))
    put_zip(folder / "data_clean.zip", {**members, name: twelve})

    _, _, shots = prepared("medqa", folder)

    assert [shot["doc_id"] for shot in shots] == [
        f"train/{number}" for number in (0, 2, 4, 7, 9)
    ]
    assert shots[3]["question"] == "Question 7?"


def test_mmlu_is_the_first_quarter_of_the_medical_subjects(source, prepared):
    """Here of nine questions each; subjects come in alphabetical order, whatever that of the file."""
    folder = source("mmlu")
    (first, *_) = parquet_rows(folder / MMLU_TEST)
    subjects = [
        "marketing",
        "college_medicine",
        "anatomy",
        "abstract_algebra",
        "clinical_knowledge",
    ]
    rows = [
        {**first, "question": f"Question {n}", "subject": name}
        for name in subjects
        for n in range(9)
    ]
    put_parquet(folder / MMLU_TEST, rows)

    manifest, documents, shots = prepared("mmlu", folder)

    assert manifest.left_out == ("the source holds 6 rows, the evaluated set 271",)
    assert [document["subject"] for document in documents[::2]] == [
        "anatomy",
        "clinical_knowledge",
        "college_medicine",
    ]
    assert [document["question"] for document in documents] == ["Question 0", "Question 1"] * 3
    assert [document["doc_id"] for document in documents[:3]] == [
        "test/18",
        "test/19",
        "test/36",
    ]
    assert shots[0]["subject"] == "abstract_algebra"


@each_row(
    "name, third_image, question_type",
    [("vqa_rad", 1, None), ("path_vqa", 1, None), ("slake", 2, "Organ")],
)
def test_questions_on_images_are_those_of_the_source(
    source, prepared, name, third_image, question_type
):
    manifest, (first, second, third, *_), shots = prepared(name, source(name))

    digest = first["image_sha256"][0]
    assert (first["image_id"], first["image_files"]) == (
        digest[:16],
        [f"images/{digest[:16]}.jpg"],
    )
    assert (first["question"], first["patient_id"], first["question_type"]) == (
        "What is 0?",
        None,
        question_type,
    )
    assert (first["image_id"] == second["image_id"]) is (name != "slake")
    assert first["image_id"] != third["image_id"]

    assert stored(manifest, third) == [picture(third_image)]
    assert stored(manifest, shots[4]) == [picture(108 if name == "slake" else 54)]
    assert (manifest.access, list(verify(manifest.name))) == ("public", [])


def test_an_image_of_many_questions_is_decoded_once(source, prepared, monkeypatch):
    """PathVQA asks 6,719 questions on fewer than a thousand images."""
    calls = []
    monkeypatch.setattr(
        image_store,
        "decode_image",
        lambda stream, decoding: (calls.append(stream), decode_image(stream, decoding))[1],
    )
    prepared("path_vqa", source("path_vqa"))
    assert len(calls) == 3 + 5  # tested, demonstrations


def test_cbis_shows_cropped_images_else_undescribed_ones(source, prepared):
    folder = source("cbis_ddsm_mass")
    info = [
        *((0, "1-1", "cropped images"), (0, "2-1", "ROI mask images")),
        *(
            (1, "2-1", ""),
            (2, "2-1", ""),
            (2, "1-1", "cropped images"),
            (2, "3-1", "full mammogram images"),
        ),
        *((number, "1-1", "cropped images") for number in (3, 4, 5, *range(100, 110))),
    ]
    rows = [
        (f"CBIS-DDSM/jpeg/1.3.{number}/{name}.jpg", description)
        for number, name, description in info
    ]
    put(folder / "csv" / "dicom_info.csv", csv_text("image_path,SeriesDescription", rows))

    manifest, documents, _ = prepared("cbis_ddsm_mass", folder)

    assert [stored(manifest, document) for document in documents] == [
        [picture(n)] for n in (0, 127, 2, 3, 4, 5)
    ]
    assert [document["patient_id"] for document in documents] == [
        f"P_{number}" for number in range(6)
    ]
    assert documents[0]["options"] == ["BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK"]


def shown(values):
    grey = values.max() - values
    grey = grey - grey.min()
    return (grey / grey.max() * 255).astype(np.uint8)


@pytest.fixture
def vindr(source, prepared, monkeypatch):
    """Prepare VinDr-Mammo; return manifest, documents, and the names of the images that were read."""
    read, real = [], x_rays.read_dicom
    monkeypatch.setattr(
        x_rays, "read_dicom", lambda path: (read.append(path.stem), real(path))[1]
    )
    manifest, documents, _ = prepared("vindr_mammo", source("vindr_mammo"))
    return manifest, documents, read


def test_vindr_has_one_row_per_graded_finding(vindr):
    manifest, documents, _ = vindr

    assert manifest.left_out == ("the source holds 6 rows, the evaluated set 429",)
    images = [document["image_id"] for document in documents]
    assert images == ["i0", "i1", "i2", "i3", "i4", "i4"]
    patients = [document["patient_id"] for document in documents]
    assert patients == ["s0", "s0", "s0", "s0", "s1", "s1"]
    assert documents[0]["options"] == ["1", "2", "3", "4", "5"]


def test_vindr_reads_each_image_once(vindr):
    _, _, read = vindr
    assert read == [f"i{number}" for number in (*range(5), *range(100, 110, 2))]


def test_vindr_shows_images_in_grey(vindr):
    manifest, documents, _ = vindr

    for document, number in zip(documents, (0, 1, 2, 3, 4, 4), strict=True):
        with Image.open(dataset_folder(manifest.name) / document["image_files"][0]) as image:
            assert image.mode == "L"
            assert np.array_equal(np.asarray(image), shown(noise(number)))


def test_mimic_cxr_has_one_row_per_image_in_the_order_of_the_findings(source, prepared):
    folder = source("mimic_cxr_classification")

    def reverse(data):
        head, *lines = data.splitlines(True)
        return head + b"".join(reversed(lines))

    changed("mimic-cxr-2.0.0-chexpert.csv.gz", reverse)(folder)
    text("mimic-cxr-2.0.0-split.csv.gz", "d100,50,10000050,train", "d100,50,10000050,validate")(
        folder
    )

    manifest, documents, shots = prepared("mimic_cxr_classification", folder)

    assert manifest.left_out == ("the source holds 6 rows, the evaluated set 5159",)
    assert [document["doc_id"] for document in documents] == [
        "d4",
        "d5",
        "d2",
        "d3",
        "d0",
        "d1",
    ]
    assert [document["labels"] for document in documents[::2]] == [
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ]
    assert [document["patient_id"] for document in documents[::2]] == [
        "10000002",
        "10000001",
        "10000000",
    ]
    assert documents[0]["options"][4] == "Pleural Effusion"
    assert [shot["doc_id"] for shot in shots] == ["d108", "d109", "d107", "d105", "d103"]


def test_diff_vqa_shows_every_image_of_the_current_study(source, prepared):
    manifest, (first, second, third, *_), shots = prepared("diff_vqa", source("diff_vqa"))
    assert (manifest.rows, manifest.images, len(shots)) == (6, 6, 5)
    assert manifest.left_out == (
        "mimic_pair_questions.csv: it holds 16 rows, the published table 700703",
    )
    assert first["image_files"] == second["image_files"] != third["image_files"]
    assert stored(manifest, first) == [picture(0), picture(1)]
    assert (first["doc_id"], first["question"], first["answer"]) == (
        "test/0",
        "what is 0?",
        "no",
    )
    assert (second["image_id"], second["patient_id"]) == ("s0", "10000000")
    assert (second["answer"], second["question_type"]) == ("nothing, as before", "presence")


def test_chestxray14_is_in_the_order_of_its_table(source, prepared):
    manifest, documents, shots = prepared("chestxray14", source("chestxray14"))
    assert manifest.left_out == ("the source holds 6 rows, the evaluated set 25596",)
    present = [
        name
        for name, label in zip(documents[1]["options"], documents[1]["labels"], strict=True)
        if label
    ]
    assert present == ["Cardiomegaly", "Hernia"]
    assert documents[0]["options"] == list(x_rays.FOURTEEN_FINDINGS)
    assert [document["patient_id"] for document in documents] == ["0", "0", "1", "1", "2", "2"]
    assert [sum(shot["labels"]) for shot in shots] == [2, 0, 2, 2, 0]


MIMIC_CXR = "multimedeval_mimic_cxr_report"
REPORT = "mimic-cxr-reports.zip!files/p10/p1000000{0}/s{0}.txt"
NOTES, CT = "NOTEEVENTS.csv.gz", "dataset/radiology_text_reports/validation_reports.csv"
OUTSIDE = (
    "2 not in the evaluated set: notes of the split without findings and exactly one impression"
)


NO_FINDINGS = "1 not in the evaluated set: studies whose report has no findings section"


@pytest.fixture
def mimic_reports(source):
    """MIMIC-CXR in miniature: of three studies one has no findings, and images are listed in reverse order."""
    folder = source("mimic_cxr_report")
    written(REPORT.format(1), " x\n IMPRESSION: Normal.\n")(folder)
    written(REPORT.format(2), " x\n FINDINGS: Café au lait.\n")(folder)
    order = b"dicom_id,study_id,subject_id,split\n"
    changed(
        "mimic-cxr-2.0.0-split.csv.gz",
        lambda data: order + b"".join(data.splitlines(True)[:0:-1]),
    )(folder)
    return folder


def test_studies_without_findings_are_left_out(mimic_reports, prepared):
    manifest, _, shots = prepared("mimic_cxr_report", mimic_reports)

    assert (manifest.rows, manifest.images, manifest.access, shots) == (
        2,
        4,
        "credentialed",
        [],
    )
    assert manifest.left_out == ("the source holds 2 rows, the evaluated set 2347", NO_FINDINGS)


def test_a_report_is_its_findings(mimic_reports, prepared):
    _, (second, first), _ = prepared("mimic_cxr_report", mimic_reports)

    assert [first[key] for key in ("doc_id", "image_id", "patient_id", "context")] == [
        "0",
        "s0",
        "10000000",
        None,
    ]
    assert (first["report"], first["indication"]) == (" Clear.\n\n 0 nodules.\n", "Cough.")
    assert (second["doc_id"], second["report"], second["indication"]) == (
        "2",
        "Café au lait.\n",
        "",
    )


def test_a_study_shows_all_its_images_in_the_order_of_the_table(mimic_reports, prepared):
    _, (_, first), _ = prepared("mimic_cxr_report", mimic_reports)

    images = [(dataset_folder(MIMIC_CXR) / file).read_bytes() for file in first["image_files"]]
    assert images == [picture(1), picture(0)]


def test_a_study_without_findings_is_no_damage(mimic_reports, home):
    manifest = prepare_recipe(
        replace(dataset_info(MIMIC_CXR), rows=2), recipe_of(MIMIC_CXR), Options(mimic_reports)
    )
    assert (manifest.complete, manifest.left_out) == (True, (NO_FINDINGS,))


def test_no_message_names_a_patient_or_quotes_a_report(mimic_reports, prepared, capsys):
    lost("files/p10/p10000002/s2/d5.jpg")(mimic_reports)

    manifest, documents, _ = prepared("mimic_cxr_report", mimic_reports)

    messages = " ".join(manifest.left_out) + "".join(capsys.readouterr())
    assert (len(documents), "its image 1 of 2 is missing" in messages) == (1, True)
    assert [secret for secret in ("10000002", "s2", "d5", "Café") if secret in messages] == []


@pytest.fixture
def notes(source):
    folder = source("mimic_iii_summary")
    text(NOTES, "900,0,MR HEAD W/O CONTRAST", "900,0,CHEST (PORTABLE AP)")(folder)
    text(NOTES, "\n IMPRESSION: A nodule, 1", "")(folder)
    text(NOTES, "Nodule 4.", 'A ""quoted"", Word\n of it.')(folder)
    return folder


def test_notes_come_group_after_group(notes, prepared):
    manifest, documents, shots = prepared("mimic_iii_summary", notes)

    assert manifest.left_out == ("the source holds 4 rows, the evaluated set 13054", OUTSIDE)
    assert (manifest.access, manifest.images, shots) == ("credentialed", 0, [])
    # CT before MR.
    assert [document["doc_id"] for document in documents] == ["904", "905", "902", "903"]


def test_notes_are_without_case_and_line_ends(notes, prepared):
    _, documents, _ = prepared("mimic_iii_summary", notes)

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


def test_notes_as_head_has_them_keep_case_and_white_space(notes, prepared):
    manifest, documents, _ = prepared("mimic_iii_summary_head", notes)

    assert manifest.left_out == (
        "idsTest.csv: it holds 6 rows, the published table 13057",
        OUTSIDE,
    )
    assert (documents[0]["context"], documents[0]["report"]) == (
        'A "quoted", Word of it.',
        "A nodule, 4",
    )


def test_volumes_are_linked(source, prepared):
    folder = source("ct_rate_report")
    rows = b"valid_5_a_1.nii.gz,Heart 5.,\nvalid_1_a_1.nii.gz,Heart 1.,\nvalid_5_a_1.nii.gz,Heart 5.,\n"
    changed(CT, lambda data: data.splitlines(True)[0] + rows)(folder)

    manifest, (first, second), _ = prepared("ct_rate_report", folder)

    assert (manifest.rows, manifest.images, manifest.access) == (2, 2, "gated")
    assert (first["doc_id"], first["image_id"], first["patient_id"]) == (
        "valid_5_a_1",
        "valid_5_a_1",
        "valid_5",
    )
    assert (first["report"], first["indication"], first["context"]) == ("Heart 5.", None, None)
    assert second["doc_id"] == "valid_1_a_1"

    linked = dataset_folder(manifest.name) / first["image_files"][0]
    assert linked.is_symlink()
    assert linked.resolve() == folder / "dataset/valid/valid_5/valid_5_a/valid_5_a_1.nii.gz"
    assert list(verify(manifest.name)) == []
