"""Every state a dataset can be in."""

import json
import shutil

import pytest

from medtasks.audit.doctor.check_results import Scope, State
from medtasks.audit.doctor.datasets import prepared_data
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file

from ...tables import each_row
from .conftest import expect, only

NAME = "mediconfusion"


@pytest.fixture
def home(sample_home, tmp_path, monkeypatch):
    """A copy of the drawn sample to break."""
    shutil.copytree(sample_home, tmp_path / "home")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def change(folder=NAME, /, **fields):
    path = dataset_folder(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def look(name=NAME, verify=False):
    """The findings on the dataset of a task."""
    task = TaskFile(name, "task", own_tasks_folder() / f"{name}.yaml", "", dataset=name)
    return only(prepared_data(Scope((name,), (task,)), verify=verify), name)


def test_sample(home):
    found = expect(look(), State.WARNING, "drawn sample")
    assert found.fix == "medtasks data prepare mediconfusion"


@each_row("verify, word", [(False, "is prepared"), (True, "is verified")])
def test_complete(home, verify, word):
    change(sample=False)
    expect(look(verify=verify), State.OK, word, "32 questions", Manifest.read(dataset_folder(NAME)).fingerprint)


LEFT_OUT = ["pair 3: no image", "pair 4: no image", "pair 5: no image"]


@each_row(
    "fields, state, words",
    [
        (
            *({"sample": False, "complete": False, "left_out": LEFT_OUT}, State.WARNING),
            "incomplete (pair 3: no image; pair 4: no image ...)",
        ),
        ({"rows": 352}, State.PROBLEM, "holds 32 questions, and its manifest says 352"),
    ],
)
def test_what_the_manifest_tells(home, fields, state, words):
    change(**fields)
    expect(look(), state, words)


def test_not_prepared():
    found = look()
    assert (found.state, found.fix) == (State.PROBLEM, "medtasks data prepare mediconfusion")
    assert "not prepared" in found.found


@each_row(
    "name, words",
    [
        ("multimedeval_mednli", "--source DIR, with the data from https://physionet.org"),
        ("multimedeval_cbis_ddsm_mass", "--source DIR, with the data from https://www.kaggle.com"),
        ("gmai_mmbench_val", "accept the terms on https://huggingface.co"),
        ("multimedeval_medqa", "medtasks data prepare multimedeval_medqa"),
    ],
)
def test_how_to_prepare(name, words):
    assert words in look(name).fix


def test_damaged_manifest(home):
    (dataset_folder(NAME) / "manifest.json").write_text("{")
    expect(look(), State.PROBLEM, "damaged", fix="medtasks data prepare mediconfusion")


def test_damaged_documents(home):
    (table,) = (dataset_folder(NAME) / "test").glob("*.arrow")
    table.write_bytes(b"nothing of the kind")
    expect(look(), State.PROBLEM, "damaged")


def test_only_verifying_sees_a_changed_picture(home):
    change(sample=False)
    picture = next((dataset_folder(NAME) / "images").rglob("*.jpg"))
    picture.write_bytes(picture.read_bytes() + b"\0")
    assert look().state is State.OK
    expect(look(verify=True), State.PROBLEM, "1 difference", picture.name)


def test_private_data_show_no_name(home):
    own = "multimedeval_canaryward"
    shutil.move(dataset_folder(NAME), dataset_folder(own))
    change(
        own, name=own, sample=False, complete=False, access="credentialed", left_out=["canary-patient-7.jpg is gone"]
    )
    found = expect(look(own), State.WARNING, "incomplete")
    assert "canary-patient" not in str(found)
    for picture in (dataset_folder(own) / "images").rglob("*.jpg"):
        picture.unlink()
    found = expect(look(own, verify=True), State.PROBLEM, "differences from what was prepared")
    assert ".jpg" not in str(found)


def test_part_without_its_whole(home):
    shutil.copytree(dataset_folder(NAME), dataset_folder("part"))
    change("part", name="part", sample=False, selected_from=NAME)
    assert look("part").state is State.OK
    shutil.rmtree(dataset_folder(NAME))
    found = expect(look("part"), State.PROBLEM, NAME)
    assert found.fix


def test_part_with_a_fault(home):
    shutil.copytree(dataset_folder(NAME), dataset_folder("part"))
    change("part", name="part", selected_from=NAME, rows=5)
    assert look("part").fix == "medtasks data select mediconfusion ... --as part"


def test_own_dataset_that_is_gone():
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: mine\n")
    expect(look("mine"), State.PROBLEM, fix="--from-folder DIR")


def test_unexpected_failure_costs_one_dataset(home, monkeypatch):
    def fail(name):
        raise MemoryError("canary")

    monkeypatch.setattr("medtasks.audit.doctor.datasets.open_documents", fail)
    tasks = (task_file("mediconfusion"), task_file("multimedeval_medqa"))
    first, second = prepared_data(Scope(("a",), tasks), verify=False)
    assert (first.state, "MemoryError" in first.found, "canary" in first.found) == (State.PROBLEM, True, False)
    assert "not prepared" in second.found


def test_without_tasks_one_note_sums_up(home, everything):
    found = list(prepared_data(everything, verify=False))
    assert [(one.name, one.state) for one in found] == [(NAME, State.WARNING), ("not prepared", State.NOTE)]
    assert f"of {len(CATALOGUE)} datasets {len(CATALOGUE) - 1} are not prepared" in found[1].found
