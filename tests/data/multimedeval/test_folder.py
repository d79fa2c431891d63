"""A user's own questions, in the format of MultiMedEval's additional datasets."""

import json

import pytest

from medtasks.data.images.image_store import ImageStore
from medtasks.data.sources.multimedeval.question_sets import OwnQuestions
from medtasks.errors import SourceError

from ...multimedeval_sources import picture, put
from ...tables import each_row


@pytest.fixture
def folder(tmp_path):
    for number in range(3):
        put(tmp_path / "own" / "scans" / f"{number}.jpg", picture(number))
    return tmp_path / "own"


@pytest.fixture
def rows(folder, tmp_path):
    """Write questions of a kind, and read them."""

    def run(kind, *samples):
        content = {"taskType": kind, "modality": "Radiology", "samples": samples}
        (folder / "dataset.json").write_text(json.dumps(content))
        return list(
            OwnQuestions(folder).own_recipe().test_rows(folder, ImageStore(tmp_path / "work"))
        )

    return run


def vqa(**fields):
    return {"question": "Where?", "answer": "Left lung", "images": ["scans/0.jpg"], **fields}


def qa(**fields):
    return {
        "question": "Which?",
        "answer": " ASPIRIN ",
        "options": ["Insulin", "Aspirin", "aspirin"],
        **fields,
    }


@pytest.fixture
def open_rows(rows):
    """Rows of open questions with one image, two, none, and without a list of images."""
    samples = [
        vqa(),
        vqa(images=["scans/1.jpg", "scans/0.jpg"]),
        vqa(images=[]),
        {"question": "?", "answer": "yes"},
    ]
    return rows("VQA", *samples)


def test_open_questions_have_any_number_of_images(open_rows):
    one, two, none, unnamed = open_rows

    assert [len(row.images) for row in (one, two, none, unnamed)] == [1, 2, 0, 0]
    first, second = two.images
    assert one.images == [second]
    assert two.document["image_id"] == f"{first.image_id}+{second.image_id}"
    assert none.document["image_id"] is None


def test_open_questions_are_numbered_by_their_place(open_rows):
    one, _, _, unnamed = open_rows

    assert [row.place for row in (one, unnamed)] == [
        "dataset.json sample 1",
        "dataset.json sample 4",
    ]
    assert unnamed.document["doc_id"] == "test/3"


def test_an_open_question_is_asked_as_written(open_rows):
    one, two, *_ = open_rows

    assert one.document == {
        "doc_id": "test/0",
        "image_id": two.images[1].image_id,
        "patient_id": None,
        "question": "Where?",
        "answer": "Left lung",
        "question_type": None,
    }


def test_questions_with_options(rows):
    text, pictured = rows("QA", qa(), qa(images=["scans/2.jpg"], answer="insulin"))
    # The reference compares texts without case; of equal options it can only choose the first.
    assert (text.document["answer"], text.document["options"]) == (
        "B",
        ["Insulin", "Aspirin", "aspirin"],
    )
    assert (text.document["subject"], text.document["context"]) == ("Radiology", None)
    assert (pictured.document["answer"], pictured.document["image_id"]) == (
        "A",
        pictured.images[0].image_id,
    )


def test_samples_that_cannot_be_used_say_why(rows, folder):
    (folder / "scans" / "1.jpg").write_bytes(b"[no image]")
    names = ("scans/9.jpg", "scans/1.jpg", "scans", "scans/0.jpg/x")
    samples = [vqa(images=["scans/0.jpg", name]) for name in names]
    fix = "; put the image in its place"
    assert [(row.document, row.cause) for row in rows("VQA", *samples)] == [
        (None, "its image scans/9.jpg is missing"),
        (
            None,
            f"its image scans/1.jpg is broken (it is no image that can be read, but a text file{fix})",
        ),
        (
            None,
            "its image scans is broken (it holds no DICOM files; list its images in 'image_files')",
        ),
        (None, "its image scans/0.jpg/x is missing"),
    ]
    (row,) = rows("QA", qa(answer="option 4"))
    assert (row.document, row.cause) == (
        None,
        "its answer is none of its options, so that no reply could be right",
    )


@each_row(
    "kind, sample, complaint",
    [
        (
            "VQA",
            vqa(images="scans/0.jpg"),
            "dataset.json sample 2: images is a text and not a list of texts",
        ),
        ("VQA", {"question": "?"}, "dataset.json sample 2 lacks 'answer'; it has question"),
        ("QA", vqa(), "dataset.json sample 2 lacks 'options'; it has answer, images, question"),
        (
            "QA",
            qa(options=["aspirin"] * 27),
            "dataset.json sample 2: it has 27 options; 2 to 26 are possible",
        ),
    ],
)
def test_samples_of_another_form(rows, kind, sample, complaint, refuses):
    with refuses(complaint, kind=SourceError):
        rows(kind, {"VQA": vqa(), "QA": qa()}[kind], sample)


@each_row(
    "content, complaint",
    [
        ("[]", "dataset.json is not an object with taskType, modality and samples"),
        (
            '{"taskType": "ReportComparison", "modality": "", "samples": [1]}',
            "taskType is 'ReportComparison', and only QA",
        ),
        (
            '{"taskType": "QA", "modality": "", "samples": []}',
            "samples is not a list of questions",
        ),
    ],
)
def test_files_of_another_form(folder, content, complaint, refuses):
    (folder / "dataset.json").write_text(content)
    with refuses(complaint, kind=SourceError):
        OwnQuestions(folder)
