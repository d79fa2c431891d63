"""``medtasks data prepare --from-folder``."""

import json
import shutil

import pytest
from PIL import Image

from medtasks.data.home import dataset_folder, own_tasks_folder
from medtasks.data.manifest import Manifest

NAME = "multimedeval_ward_rounds"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "Ward rounds"
    path.mkdir()
    samples = [{"question": "Which drug?", "answer": "Aspirin", "options": ["Insulin", "Aspirin"]}] * 3
    (path / "dataset.json").write_text(json.dumps({"taskType": "QA", "modality": "Text", "samples": samples}))
    return path


def listed(ran):
    return [line.split() for line in ran.out.splitlines() if line.startswith(NAME)]


def test_from_folder(medtasks, folder):
    ran = medtasks("data", "prepare", "--from-folder", folder)
    assert (ran.code, ran.err) == (0, "")
    prepared, run, access = ran.out.splitlines()
    assert prepared.startswith(f"Prepared {NAME}: 3 questions, 0 images, fingerprint ")
    assert run == f"Run it with 'lmms_eval --tasks {NAME}'; the task is in {own_tasks_folder() / f'{NAME}.yaml'}"
    assert "credentialed: no judge on another machine may see it" in access
    assert listed(medtasks("data", "list")) == [[NAME, "yes", "credentialed", "3", "from", *str(folder).split()]]
    assert NAME in medtasks("tasks").out
    shown = medtasks("data", "show", NAME).out
    assert f"source:   {folder} at local" in shown
    assert "licence:  of its owner" in shown
    assert medtasks("data", "verify", NAME).out.startswith(f"{NAME} is as prepared: 3 questions, complete")


def test_what_is_done_with_images_is_said(medtasks, folder):
    for name, mode in (("a.png", "I;16"), ("b.png", "L"), ("c.png", "L")):
        Image.linear_gradient("L").convert("I;16").point(lambda value: value * 257).save(folder / name)
        if mode == "L":
            Image.new("L", (6, 4), ord(name[0])).save(folder / name)
    samples = [{"question": "?", "answer": "!", "images": [name]} for name in ("a.png", "b.png", "c.png")]
    (folder / "dataset.json").write_text(json.dumps({"taskType": "VQA", "modality": "X", "samples": samples}))
    flat = "nearly flat: values span less than 32 of 255 (2)"
    said = f"linear: 8 bits as stored (2), {flat}, 16 bits scaled from 0..65535 (1)"
    ran = medtasks("data", "prepare", "--from-folder", folder, "--access", "public")
    assert ran.out.splitlines()[1] == f"Models see its images by the rule {said}"
    assert f"  images:   {said}" in medtasks("data", "show", NAME).out.splitlines()


def test_name_and_access(medtasks, folder):
    ran = medtasks("data", "prepare", "--from-folder", folder, "--name", "rounds", "--access", "public")
    assert ran.out.startswith("Prepared multimedeval_rounds: ")
    assert "credentialed" not in ran.out
    assert Manifest.read(dataset_folder("multimedeval_rounds")).access == "public"


def test_again_by_name(medtasks, fails, folder, tmp_path):
    medtasks("data", "prepare", "--from-folder", folder, "--access", "public")
    first = Manifest.read(dataset_folder(NAME))
    assert medtasks("data", "prepare", NAME).code == 0
    assert Manifest.read(dataset_folder(NAME)) == first
    shutil.move(folder, tmp_path / "moved")
    fails(["data", "prepare", NAME], f"'{NAME}' came from {folder}, which is not there; give its place with --source")
    assert medtasks("data", "prepare", NAME, "--source", tmp_path / "moved").code == 0
    assert Manifest.read(dataset_folder(NAME)).source == str(tmp_path / "moved")


def test_a_damaged_manifest(medtasks, fails, folder):
    medtasks("data", "prepare", "--from-folder", folder, "--access", "public")
    (dataset_folder(NAME) / "manifest.json").write_text("{")
    assert listed(medtasks("data", "list"))[0][1:3] == ["damaged", "credentialed"]
    fails(["data", "prepare", NAME], "give its place with --source")
    assert medtasks("data", "prepare", "--from-folder", folder).code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give the NAME of a dataset"),
        (["mediconfusion", "--from-folder", "FOLDER"], "give the NAME of a dataset"),
        (["--from-folder", "FOLDER", "--source", "FOLDER"], "are for published datasets"),
        (["--from-folder", "FOLDER", "--fetch-images"], "are for published datasets"),
        (["mediconfusion", "--name", "x"], "are for --from-folder"),
        (["mediconfusion", "--access", "public"], "are for --from-folder"),
        (["--from-folder", "FOLDER", "--access", "private"], "public"),
    ],
)
def test_what_does_not_go_together(medtasks, folder, arguments, complaint):
    ran = medtasks("data", "prepare", *(folder if argument == "FOLDER" else argument for argument in arguments))
    assert ran.code == 2
    assert complaint in " ".join(ran.err.replace("│", " ").split())
    assert not dataset_folder(NAME).exists()


def test_what_cannot_be_prepared(fails, folder):
    fails(["data", "prepare", "--from-folder", folder / "nowhere"], "nowhere holds no dataset.json")
    fails(["data", "prepare", "--from-folder", folder, "--name", "medqa"], "'multimedeval_medqa' already", "--name")
    fails(["data", "prepare", "--from-folder", folder, "--name", "x" * 300], "File name too long")
