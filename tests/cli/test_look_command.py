"""``medtasks data look``: images as a model gets them, headers of their files, and nothing about a patient."""

import json

import numpy as np
import pytest
from PIL import Image

from medtasks.data.images.image_store import pixels_sha256
from medtasks.data.privacy import hidden_id
from medtasks.prompts.images import images
from medtasks.tasks.documents import image_settings, task_documents
from medtasks.tasks.task_files import including, task_file

from ..medical_files import put_dicom, put_nifti, scan

CANARY = "MUELLER"
TASK = "task: mine\nfamily: yes_no\ndata: mine.jsonl\nimage: [image_files]\ndescription: Mine\n"
DEEP = np.add.outer(np.arange(40), np.arange(30)).astype(np.uint16) * 900
PATIENT = {
    "PatientName": f"{CANARY}^Hans",
    "PatientID": CANARY,
    "InstitutionName": CANARY,
    "SeriesDescription": f"{CANARY} chest",
    "WindowCenterWidthExplanation": CANARY,
    "Modality": "CT",
    "ViewPosition": CANARY,
    "WindowCenter": "1000",
    "WindowWidth": "400",
    "RescaleSlope": "2",
    "RescaleIntercept": "-1024",
    "PixelSpacing": ["0.5", "1.0"],
    "ImageOrientationPatient": ["1", "0", "0", "0", "1", "0"],
}


@pytest.fixture
def folder(tmp_path):
    """A task on images of many kinds, one sample each; two of them cannot be shown."""
    folder = tmp_path / "mine"
    folder.mkdir()
    Image.fromarray(DEEP).save(folder / "deep.png")
    Image.fromarray(DEEP).save(folder / "deep.tif")
    turned = Image.fromarray((DEEP // 256).astype(np.uint8))
    exif = Image.Exif()
    exif[274] = 6
    exif[315] = CANARY  # the artist
    turned.save(folder / "turned.jpg", exif=exif)
    put_dicom(folder / "scan.dcm", (DEEP // 16).astype(np.uint16), fields=PATIENT)
    put_dicom(folder / "frames.dcm", np.zeros((3, 8, 6), np.uint16), fields=PATIENT)
    Image.fromarray((DEEP // 64).astype(np.uint16)).save(folder / "dark.png")
    put_nifti(folder / "volume.nii.gz", scan(1))
    names = ["deep.png", "deep.tif", "turned.jpg", "scan.dcm", "frames.dcm", "dark.png"]
    names.append("volume.nii.gz")
    rows = [
        {"doc_id": name, "question": "Is it?", "answer": "yes", "image_files": [name]}
        for name in names
    ]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.yaml").write_text(TASK)
    return folder


def facts_of(out, file):
    """Return the facts printed below a file's name."""
    lines = out.split(f"  {file}\n", 1)[1].splitlines()
    facts = {}
    for line in lines:
        if not line.startswith("     "):
            break
        name, _, value = line.strip().partition("  ")
        facts[name] = value.strip()
    return facts


@pytest.fixture
def looked(medtasks, folder, tmp_path):
    """Look at all samples; return what was printed."""
    options = ["--include_path", folder, "--sample", 9, "--out", tmp_path / "look"]
    ran = medtasks("data", "look", "mine", *options)
    assert ran.code == 0, ran.err
    return ran.out


def test_png_files_are_what_the_model_gets(looked, folder, tmp_path):
    with including([folder]):
        task = task_file("mine")
        documents = task_documents(task)
        settings = image_settings(task)
    assert len(documents) == 7

    for number, document in enumerate(documents[:4], 1):
        (expected,) = images(document, settings)
        with Image.open(tmp_path / "look" / f"{number}_1.png") as seen:
            assert list(seen.get_flattened_data()) == list(expected.get_flattened_data())
        facts = facts_of(looked, f"{number}_1.png")
        assert facts["size"] == f"{expected.width} x {expected.height}"
        assert facts["pixels"] == pixels_sha256(expected)[:12]


def test_images_that_cannot_be_shown_have_no_png_file(looked, tmp_path):
    assert not list((tmp_path / "look").glob("[56]_*"))


def test_a_page_shows_the_images(looked, tmp_path):
    page = (tmp_path / "look" / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 4 + 8
    assert page.count('href="1_1.png"') == 1


@pytest.fixture
def printed(medtasks, folder):
    return medtasks("data", "look", "mine", "--include_path", folder, "--sample", 9).out


def test_images_of_16_bits_are_shown_by_their_range(printed):
    deep = {
        "size": "30 x 40",
        "bits": "16, 1 channel",
        "values": "0 to 61200",
        "rule": "linear",
    }
    done = {"done": "16 bits scaled from 0..65535"}
    assert facts_of(printed, "deep.png") == {"kind": "PNG", **deep, **done}
    assert facts_of(printed, "deep.tif") == {"kind": "TIFF", **deep, **done}


def test_an_orientation_is_told_when_it_is_applied(printed):
    turned = facts_of(printed, "turned.jpg")
    assert turned["orientation"] == "EXIF 6"
    assert turned["done"] == "EXIF orientation applied"


def test_headers_of_dicom_are_told_without_the_patient(printed):
    assert facts_of(printed, "scan.dcm") == {
        "kind": "DICOM, Explicit VR Little Endian",
        "size": "30 x 40",
        "bits": "12 of 16, unsigned",
        "modality": "CT",
        "values stand for": "PhotometricInterpretation MONOCHROME2",
        "window": "WindowCenter 1000, WindowWidth 400",
        "rescale": "RescaleSlope 2, RescaleIntercept -1024",
        "spacing": "PixelSpacing 0.5\\1",
        "orientation": "ImageOrientationPatient 1\\0\\0\\0\\1\\0, ViewPosition withheld",
        "values": "-1024 to 6626",
        "rule": "linear",
        "done": "DICOM window applied, pixels made square by PixelSpacing",
    }


def test_an_image_that_would_be_flat_is_not_shown(printed):
    dark = facts_of(printed, "dark.png")
    assert dark["values"] == "0 to 956"
    assert "almost flat" in dark["not shown"]
    assert "say which values are black and white" in printed


def test_frames_without_a_position_are_not_shown(printed):
    frames = facts_of(printed, "frames.dcm")
    assert frames["frames"] == "3"
    assert "it has no ImagePositionPatient" in frames["not shown"]
    assert "frames.dcm of sample frames.dcm is broken" in printed


def test_a_volume_is_told_with_its_axes(printed):
    volume = facts_of(printed, "volume.nii.gz")
    assert volume["voxels, as stored"] == "10 x 9 x 6"
    assert volume["axes run towards"] == "RAS"
    assert volume["done"].startswith("volume, axial, 8 slices")


def test_images_of_each_sample_are_counted(printed):
    assert "sample volume.nii.gz: the model gets 8 images" in printed
    assert printed.count("the model gets 1 image\n") == 4
    assert printed.count("the model gets 0 images\n") == 2


def test_nothing_about_a_patient_is_printed_or_written(medtasks, folder, tmp_path):
    options = ["--include_path", folder, "--sample", 9, "--out", tmp_path / "look"]
    ran = medtasks("data", "look", "mine", *options)
    assert CANARY not in ran.out + ran.err
    for path in (tmp_path / "look").iterdir():
        assert CANARY.encode() not in path.read_bytes()


def test_the_same_samples_are_drawn_again(medtasks, folder):
    look = ["data", "look", "mine", "--include_path", folder]
    first = medtasks(*look).out
    assert sum(line.startswith("sample ") for line in first.splitlines()) == 3
    assert medtasks(*look).out == first


def test_samples_are_shown_by_id_in_the_order_asked_for(medtasks, folder):
    named = medtasks(
        *("data", "look", "mine", "--id", "turned.jpg", "--id", "deep.png"),
        *("--include_path", folder),
    ).out
    assert named.index("sample turned.jpg") < named.index("sample deep.png")


def test_unknown_samples_and_tasks_are_refused(fails, folder):
    look = ["data", "look", "mine", "--include_path", folder]
    fails([*look, "--id", "deep.pgn"], "did you mean 'deep.png'?")
    fails(["data", "look", "nowhere"], "unknown task 'nowhere'")


def test_a_variant_is_shown_as_the_model_gets_it(medtasks, folder, tmp_path):
    options = ["--id", "deep.png", "--include_path", folder, "--out", tmp_path / "look"]
    assert medtasks("data", "look", "mine_blank", *options).code == 0
    with Image.open(tmp_path / "look" / "1_1.png") as seen:
        assert set(seen.get_flattened_data()) == {(128, 128, 128)}


@pytest.fixture
def ward(medtasks, tmp_path):
    """A prepared set whose only sample is of a patient."""
    folder = tmp_path / "source"
    put_dicom(folder / f"{CANARY}.dcm", (DEEP // 16).astype(np.uint16), fields=PATIENT)
    sample = {"question": "Is it?", "answer": "yes", "images": [f"{CANARY}.dcm"]}
    content = {"taskType": "VQA", "modality": "CT", "samples": [sample]}
    (folder / "dataset.json").write_text(json.dumps(content))
    assert medtasks("data", "prepare", "--from-folder", folder, "--name", "ward").code == 0


def test_a_look_at_private_data_writes_nothing(ward, medtasks, tmp_path):
    before = set(tmp_path.rglob("*"))
    medtasks("data", "look", "multimedeval_ward")
    assert set(tmp_path.rglob("*")) == before


def test_private_samples_are_shown_by_hidden_ids(ward, medtasks):
    ran = medtasks("data", "look", "multimedeval_ward")

    assert f"sample {hidden_id('doc', 'test/0')}: the model gets 1 image" in ran.out
    assert "done              DICOM window applied" in ran.out
    assert medtasks("data", "look", "multimedeval_ward", "--id", "test/0").out == ran.out


def test_files_of_private_data_tell_nothing_and_are_their_owners(ward, medtasks, tmp_path):
    ran = medtasks("data", "look", "multimedeval_ward", "--out", tmp_path / "look")

    files = {path: path.read_bytes() for path in (tmp_path / "look").iterdir()}
    for text in (CANARY, ".dcm", "test/0"):
        assert text not in ran.out
        assert not any(text.encode() in content for content in files.values())
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "look", *files)} == {0}


def test_a_prepared_dataset(medtasks, sample):
    ran = medtasks("data", "look", "mediconfusion", "--sample", 1)
    assert ran.code == 0
    assert "rule    reference" in ran.out
    assert "done    8 bits as stored" in ran.out
