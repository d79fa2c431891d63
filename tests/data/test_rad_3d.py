"""3D-RAD's closed questions on made-up volumes in the published layout."""

import csv

import numpy as np
import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.errors import SourceError
from medtasks.extract.published.letter_choice import rad_3d
from medtasks.home import dataset_folder
from medtasks.hooks import prompts, volumes
from medtasks.tasks.prompt_settings import prompt_settings

from ..tables import each_row

NAME = "rad_3d_closed"
HEADER = "Task,Subtask,VolumeName,Question,Answer,QuestionType,AnswerChoice,Choice A,Choice B,Choice C,Choice D"
YES_NO = ["Yes", "No", "-", "-"]
CHANGES = ["Refractory Lesion", "Resolved Lesion", "New Lesion, (now)", "No Abnormality"]


def volume(number):
    """Return a small volume of the published form: bright at the first slice's upper left."""
    values = np.zeros((1, 32, 8, 8), np.float32)
    values[0, number, :2, :3] = 1
    values[0, :, 6:] = 0.5
    return values


def put(source):
    rows = {
        "Task4_Existence_Detection/Lung nodule.csv": [
            [4, 10, "test_1_a_1.nii.gz", "Is a nodule seen?", "No", "Close", "B", *YES_NO],
            [4, 10, "test_2_a_1.nii.gz", "Is a nodule seen?", "Yes", "Close", "A", *YES_NO],
        ],
        "Task1_Image_Observation/Anatomical_observation.csv": [
            [
                1,
                1,
                "test_1_a_1.nii.gz",
                "Where is it?",
                "Left.",
                "Open",
                "-",
                "-",
                "-",
                "-",
                "-",
            ],
        ],
        "Task6_Longitudinal_Temporal_Diagnosis/b.csv": [
            [6, 1, "test_2_a_1.nii.gz", "How?", CHANGES[2], "Close", "C", *CHANGES],
            [6, 1, "test_3_b_1.nii.gz", "How?", CHANGES[3], "Close", "D", *CHANGES],
        ],
    }
    for name, lines in rows.items():
        path = source / "test" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([HEADER.split(","), *lines])
    (source / "Images" / "test").mkdir(parents=True)
    for number, scan in enumerate(("test_1_a_1", "test_2_a_1", "test_3_b_1")):
        np.save(source / "Images" / "test" / f"{scan}.npy", volume(number))
    return source


def prepare_all(source):
    return prepare(NAME, Options(put(source), allow_incomplete=True))


@pytest.fixture
def made_up(home, tmp_path):
    return prepare_all(tmp_path / "source")


def test_closed_questions_are_prepared_and_open_ones_counted(made_up):
    assert (made_up.rows, made_up.images, made_up.image_conversions) == (4, 3, {"volume": 3})
    assert made_up.left_out == (
        "the source holds 4 rows, the evaluated set 29218",
        "1 not in the evaluated set: open questions",
    )
    assert list(verify(NAME)) == []


def test_documents_name_patient_subject_and_options(made_up):
    nodule, *_ = documents = load_documents(NAME)

    assert [document["answer"] for document in documents] == ["B", "A", "C", "D"]
    assert [document["patient_id"] for document in documents] == [
        "test_1",
        "test_2",
        "test_2",
        "test_3",
    ]
    assert (
        nodule["doc_id"],
        nodule["question_type"],
        nodule["subject"],
        nodule["options"],
    ) == (
        "Task4_Existence_Detection/Lung nodule/0",
        "Existence Detection",
        "Lung nodule",
        ["Yes", "No"],
    )


def test_prompts_list_the_published_choices(made_up):
    nodule, _, changed, _ = load_documents(NAME)
    settings = prompt_settings(NAME)
    assert prompts.question(nodule, settings["default"]) == (
        "Is a nodule seen?\nChoices: A. Yes B. No C. - D. -\nAnswer:"
    )
    assert prompts.question(changed, settings["radfm"]) == (
        "<image> How?\nChoices: A. Refractory Lesion B. Resolved Lesion C. New Lesion, (now) D. No Abnormality\nAnswer:"
    )


def test_a_volume_is_shown_as_slices_or_given_whole(made_up):
    changed = load_documents(NAME)[2]
    settings = prompt_settings(NAME)

    slices = volumes.volumes(changed, settings["default"])
    (array,) = volumes.volumes(changed, settings["radfm"])

    greys = [np.asarray(image)[..., 0] for image in slices]
    assert np.stack(greys).tolist() == np.rint(volume(1)[0] * 255).tolist()
    assert (array == volume(1)[0].transpose(1, 2, 0)).all()


@pytest.fixture
def source(tmp_path):
    return put(tmp_path / "source")


def test_a_missing_or_damaged_volume_is_named(home, source):
    (source / "Images" / "test" / "test_1_a_1.npy").unlink()
    (source / "Images" / "test" / "test_3_b_1.npy").write_bytes(b"\x93NUMPY")

    left_out = prepare(NAME, Options(source, allow_incomplete=True)).left_out

    assert "Lung nodule.csv row 1: its image test_1_a_1.npy is missing" in left_out
    assert any("test_3_b_1.npy is broken (it is cut short" in cause for cause in left_out)
    assert dataset_folder(NAME).is_dir()


def test_two_volumes_of_one_name_are_refused(home, source):
    np.save(source / "test_2_a_1.npy", volume(1))
    with pytest.raises(SourceError, match=r"test_2_a_1\.npy have one name; keep one"):
        prepare(NAME, Options(source))


def test_a_folder_without_tables_is_refused(home, tmp_path):
    with pytest.raises(SourceError, match=r"holds no test/\*/\*\.csv"):
        prepare(NAME, Options(tmp_path))


@each_row(
    "reply, answer",
    [
        ("B. No", "B"),
        ("The answer is B.", "B"),
        ("A. Yes, or B. No", "B"),
        ("A. Yes", "A"),
        ("B", None),
        ("No", None),
        ("C. -", None),
    ],
)
def test_the_published_rule(reply, answer):
    sample = Sample({"doc_id": "1", "options": ["Yes", "No"], "answer": "B"})
    assert rad_3d(reply, sample).value == answer
