"""From a choice of questions to tasks of the harness."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.data.dataset_lookup import label_of, provenance
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import verify
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError, UnknownName
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.tasks.own_tasks import select_as, whole_dataset
from medtasks.tasks.task_files import task_file

from ..tables import each_row


@pytest.fixture
def home(sample_home, tmp_path, monkeypatch):
    """A data folder of this test's own, with the drawn sample."""
    shutil.copytree(sample_home / "datasets", tmp_path / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    return tmp_path


def test_part_holds_the_chosen_questions_and_says_so(home):
    manifest, tasks = select_as("mediconfusion", {"categories": ["Cerebral", "spin*"]}, "head_and_spine")
    assert tasks == ["head_and_spine", "head_and_spine_ff", "head_and_spine_gd", "head_and_spine_ps"]
    whole = load_documents("mediconfusion")
    part = load_documents("head_and_spine")
    pairs = {one["pair_id"] for one in whole if {"Cerebral", "Spinal"} & set(one["categories"])}
    assert part == [one for one in whole if one["pair_id"] in pairs]
    assert 0 < len(part) < len(whole)
    assert list(verify("head_and_spine")) == []
    facts = provenance("head_and_spine")
    assert facts["selected_from"] == "mediconfusion"
    assert facts["selection"] == {"categories": ["Cerebral", "spin*"]}
    assert facts["rows"] == len(part) == manifest.rows
    assert facts["sample"] is True
    assert facts["image_conversions"] == {"8 bits as stored": manifest.images}
    assert facts["fingerprint"] != Manifest.read(dataset_folder("mediconfusion")).fingerprint


def test_a_broken_image_is_named(home):
    document = load_documents("mediconfusion")[0]
    image = dataset_folder("mediconfusion") / document["image_file"]
    image.write_bytes(image.read_bytes()[:100])
    with pytest.raises(SourceError, match=f"{image.name} is broken .*medtasks data prepare mediconfusion"):
        select_as("mediconfusion", {"categories": document["categories"]}, "mc_broken")
    assert not dataset_folder("mc_broken").exists()


def test_harness_reads_its_task_file(home):
    from lmms_eval.utils import load_yaml_config

    select_as("mediconfusion", {"categories": ["Cerebral"]}, "mc_head")
    config = load_yaml_config(str(own_tasks_folder() / "mc_head_gd.yaml"), mode="full")
    assert config["dataset_path"] == str(dataset_folder("mc_head"))
    assert config["task_alias"] == "mc_head_gd [SAMPLE DATA]"
    assert config["metadata"]["data"]["selection"] == {"categories": ["Cerebral"]}
    assert "tag" in config
    assert not config["tag"]
    assert task_file("mc_head_gd").dataset == "mc_head"
    assert label_of("mc_head_gd") == "mc_head_gd [SAMPLE DATA]"


@each_row(
    ("name", "message"),
    [
        ("mediconfusion", "there is a task or dataset 'mediconfusion' already; .*--as"),
        ("mme", "there is a task or dataset 'mme' already"),
        ("My part", "'My part' cannot be a task's name"),
        ("../part", "cannot be a task's name"),
    ],
)
def test_refused_names(home, name, message):
    with pytest.raises(MedTasksError, match=message):
        select_as("mediconfusion", {"categories": ["Cerebral"]}, name)
    assert not own_tasks_folder().exists()


def test_parts_and_tasks_of_other_parts_are_left_alone(home):
    select_as("mediconfusion", {"categories": ["Spinal"]}, "mc_head_gd")
    before = Manifest.read(dataset_folder("mc_head_gd"))
    with pytest.raises(MedTasksError, match="there is a task 'mc_head_gd' on your dataset 'mc_head_gd'"):
        select_as("mediconfusion", {"categories": ["Cerebral"]}, "mc_head")
    assert not dataset_folder("mc_head").exists()
    for categories in (["Cerebral"], ["Cerebral", "Cardiac"]):  # a part may be made again
        select_as("mediconfusion", {"categories": categories}, "mc_part")
    assert {name for one in load_documents("mc_part") for name in one["categories"]} >= {"Cerebral", "Cardiac"}
    assert Manifest.read(dataset_folder("mc_head_gd")) == before
    assert task_file("mc_head_gd").dataset == "mc_head_gd"
    with pytest.raises(MedTasksError, match="'mc_part' is itself a part of 'mediconfusion'"):
        whole_dataset("mc_part")
    with pytest.raises(DatasetNotPrepared, match="multimedeval_slake"):
        whole_dataset("multimedeval_slake")
    with pytest.raises(UnknownName, match="did you mean 'mediconfusion'"):
        whole_dataset("mediconfusoin")


def test_command_shows_counts_and_makes_the_task(home):
    runner = CliRunner()
    shown = runner.invoke(app, ["data", "select", "mediconfusion"])
    assert shown.exit_code == 0, shown.output
    assert "32 of 32 questions" in shown.output
    assert "Musculoskeletal" in shown.output
    assert not own_tasks_folder().exists()
    made = runner.invoke(app, ["data", "select", "mediconfusion", "--where", "categories=cerebral", "--as", "mc_head"])
    assert made.exit_code == 0, made.output
    assert "6 of 32 questions with categories=cerebral" in made.output
    assert "lmms_eval --tasks mc_head,mc_head_ff,mc_head_gd,mc_head_ps" in made.output
    assert json.loads((dataset_folder("mc_head") / "manifest.json").read_text())["selection"] == {
        "categories": ["cerebral"]
    }
    assert runner.invoke(app, ["data", "select", "mediconfusion", "--where", "Cerebral"]).exit_code == 2
    ran = runner.invoke(app, ["data", "prepare", "mc_head"])
    assert ran.exit_code == 1
    assert "'mc_head' is a part of 'mediconfusion'; make it again with 'medtasks data select" in str(ran.exception)
