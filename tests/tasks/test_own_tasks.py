"""Tasks of the user's own: from a folder of questions, and from a choice of a dataset's."""

import json
import shutil
from types import SimpleNamespace

import pytest
from PIL import Image
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import prepared_folder, provenance
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import verify
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError, UnknownName
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.lmms.plugin import download_and_check
from medtasks.prompts.template import messages, prompt
from medtasks.tasks import own_tasks
from medtasks.tasks.own_tasks import own_name, prepare_own, select_as, whole_dataset
from medtasks.tasks.task_files import task_config, task_file, task_files, tasks_of

from ..tables import each_row

VQA = [
    {"question": "Which side?", "answer": "left", "images": ["a.png", "b.png"]},
    {"question": "Is it normal?", "answer": "no", "images": ["a.png"]},
    {"question": "Which organ?", "answer": "the heart"},
]
QA = [
    {"question": "Which drug?", "answer": "Aspirin", "options": ["Insulin", "Aspirin"]},
    {
        "question": "Which view?",
        "answer": "lateral",
        "options": ["Frontal", "Lateral"],
        "images": ["b.png", "a.png"],
    },
]


@pytest.fixture
def own(tmp_path):
    def write(name, kind, samples):
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, shade in (("a.png", 10), ("b.png", 200)):
            Image.new("L", (6, 4), shade).save(folder / file)
        content = {"taskType": kind, "modality": "Radiology", "samples": samples}
        (folder / "dataset.json").write_text(json.dumps(content))
        return folder

    return write


@pytest.fixture
def config():
    from lmms_eval.utils import load_yaml_config

    def read(name):
        return load_yaml_config(str(own_tasks_folder() / f"{name}.yaml"), mode="full")

    return read


@each_row(
    ("text", "name"),
    [
        ("chest", "multimedeval_chest"),
        ("Chest X-rays (2024)", "multimedeval_chest_x_rays_2024"),
        ("MultiMedEval_Chest", "multimedeval_chest"),
        ("__a__", "multimedeval_a"),
    ],
)
def test_names(text, name):
    assert own_name(text) == own_name(name) == name


def test_dataset_and_task(own, config):
    manifest = prepare_own(own("My scans", "VQA", VQA))
    name = "multimedeval_my_scans"
    assert (manifest.name, manifest.access, manifest.rows) == (name, "credentialed", 3)
    assert (manifest.images, manifest.complete, manifest.sample) == (2, True, False)
    assert [document["dataset"] for document in load_documents(name)] == [name] * 3
    task, like = task_file(name), task_file("multimedeval_vqa_rad")
    assert (task.kind, task.dataset, task.output_type) == ("task", name, "generate_until")
    assert (task.rows, task.tags) == (like.rows, ("multimedeval_own",))
    assert task.description == "Own VQA questions, Radiology"
    assert list(own_tasks_folder().iterdir()) == [task.path]
    # An included file that has moved would keep the harness from listing any task at all.
    assert "include" not in task.path.read_text()
    read = config(name)
    assert (read["dataset_path"], read["task_alias"]) == (str(dataset_folder(name)), name)
    assert read["metadata"]["data"]["fingerprint"] == manifest.fingerprint
    assert read["process_results"] == like.process_results.resolve()
    assert read["metric_list"] == like.metric_list.resolve()


def test_prompts_are_the_references(own, config):
    """``<img> <img> {question}``, then the options without letters: ``multimedeval/dynamic_datasets.py``."""
    name = prepare_own(own("scans", "VQA", VQA)).name
    settings = config(name)["lmms_eval_specific_kwargs"]
    two, one, none = load_documents(name)
    assert prompt(two, settings["llava"]) == "<image> <image> Which side?"
    # Own questions with the answer "no" get no hint that they are closed ones.
    assert prompt(one, settings["llava"]) == "<image> Is it normal?"
    assert prompt(none, settings["llava"]) == " Which organ?"
    assert prompt(two, settings["default"]) == "Which side?"
    (turn,) = messages(two, settings["default"])
    assert [part["type"] for part in turn["content"]] == ["image", "text", "image", "text"]
    name = prepare_own(own("choices", "QA", QA)).name
    settings = config(name)["lmms_eval_specific_kwargs"]
    text, pictured = load_documents(name)
    assert prompt(text, settings["default"]) == " Which drug? Insulin Aspirin"
    assert (
        prompt(pictured, settings["llava_hf"]) == "<image> <image> Which view? Frontal Lateral"
    )


def test_preparing_again_overwrites_its_own(own, config):
    folder = own("scans", "VQA", VQA)
    first = prepare_own(folder, access=Access.PUBLIC)
    assert first.access == "public"
    own("scans", "QA", QA)
    second = prepare_own(folder)
    assert (second.name, second.rows, second.access) == (first.name, 2, "credentialed")
    assert task_file(first.name).rows["reference"].extractor == "multimedeval_option_head"
    assert len([name for name in task_files() if "scans" in name]) == 1


def test_incomplete_folders_are_refused(own):
    folder = own("scans", "VQA", [*VQA, {"question": "?", "answer": "!", "images": ["c.png"]}])
    with pytest.raises(
        SourceError,
        match=r"dataset.json sample 4: its image c.png is missing.*--allow-incomplete",
    ):
        prepare_own(folder)
    assert not own_tasks_folder().exists()
    manifest = prepare_own(folder, allow_incomplete=True)
    assert (manifest.rows, manifest.complete) == (3, False)


@each_row(
    "name", ["medqa", "multimedeval_vqa_rad", "vqa-rad 5shot", "own", "vqa", "pad_ufes_20"]
)
def test_names_of_ours_are_taken(own, name):
    with pytest.raises(
        MedTasksError, match=f"there is a task or dataset '{own_name(name)}' already; .*--name"
    ):
        prepare_own(own("scans", "VQA", VQA), name)
    assert not own_tasks_folder().exists()


def test_names_that_cannot_be(own, monkeypatch):
    with pytest.raises(
        MedTasksError,
        match="'肝' gives no task name; choose one of letters and digits with --name",
    ):
        prepare_own(own("肝", "VQA", VQA))
    for prefix, name in (
        ("videomme_", "long"),
        ("mmlu_", "anatomy"),
    ):  # of the harness, which quotes the second
        monkeypatch.setattr(own_tasks, "_PREFIX", prefix)  # it has no task with ours
        with pytest.raises(
            MedTasksError, match=f"there is a task or dataset '{prefix}{name}' already"
        ):
            prepare_own(own("scans", "VQA", VQA), name)


def test_another_folder_does_not_replace_a_dataset(own, tmp_path):
    first = prepare_own(own("one/scans", "VQA", VQA))
    other = own("two/scans", "QA", QA)
    with pytest.raises(
        MedTasksError, match=r"from .*one/scans already; .* --name, or replace it: medtasks"
    ):
        prepare_own(other)
    assert Manifest.read(dataset_folder(first.name)) == first
    assert prepare_own(other, first.name, again=True).source == str(other)
    (dataset_folder(first.name) / "manifest.json").write_text("{")
    assert prepare_own(tmp_path / "one" / "scans").rows == 3


def test_files_of_others_are_not_overwritten(own):
    name = prepare_own(own("scans", "VQA", VQA)).name
    path = own_tasks_folder() / f"{name}.yaml"
    theirs = path.read_text().replace("#", "# Mine.", 1)
    path.write_text(theirs)
    with pytest.raises(MedTasksError, match=f"{path} was not written by this command"):
        prepare_own(own("scans", "VQA", VQA))
    assert path.read_text() == theirs
    path.rename(path.with_name("renamed.yaml"))
    with pytest.raises(MedTasksError, match=f"there is a task or dataset '{name}' already"):
        prepare_own(own("scans", "VQA", VQA))


def test_a_dataset_that_was_deleted(own, config):
    name = prepare_own(own("scans", "VQA", VQA)).name
    shutil.rmtree(dataset_folder(name))
    with pytest.raises(
        MedTasksError,
        match=rf"own dataset '{name}' is not in .* --from-folder DIR --name {name}'",
    ):
        prepared_folder(name)
    task = SimpleNamespace(
        config=SimpleNamespace(task=name, dataset_path=config(name)["dataset_path"])
    )
    with pytest.raises(MedTasksError, match="your own dataset"):  # before the harness loads it
        download_and_check(None, task)


@pytest.fixture
def home(sample_home, tmp_path, monkeypatch):
    shutil.copytree(sample_home / "datasets", tmp_path / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    return tmp_path


def test_part_holds_the_chosen_questions_and_says_so(home):
    manifest, tasks, groups = select_as(
        "mediconfusion", {"categories": ["Cerebral", "spin*"]}, "head_and_spine"
    )
    assert tasks == [
        "head_and_spine",
        "head_and_spine_ff",
        "head_and_spine_gd",
        "head_and_spine_ps",
    ]
    assert groups == ["head_and_spine_all", "head_and_spine_all_ff"]
    modes = ["head_and_spine", "head_and_spine_gd", "head_and_spine_ps"]
    assert tasks_of("head_and_spine_all") == modes
    assert tasks_of("head_and_spine_all_ff") == [*modes, "head_and_spine_ff"]
    own, published = task_config("head_and_spine_all_ff"), task_config("mediconfusion_all_ff")
    assert own["aggregate_metric_list"] == published["aggregate_metric_list"]
    assert own["metadata"]["description"].endswith(
        "needs a judge; only categories=Cerebral|spin*"
    )
    whole = load_documents("mediconfusion")
    part = load_documents("head_and_spine")
    pairs = {
        document["pair_id"]
        for document in whole
        if {"Cerebral", "Spinal"} & set(document["categories"])
    }
    assert part == [document for document in whole if document["pair_id"] in pairs]
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
    with pytest.raises(
        SourceError, match=f"{image.name} is broken .*medtasks data prepare mediconfusion"
    ):
        select_as("mediconfusion", {"categories": document["categories"]}, "mc_broken")
    assert not dataset_folder("mc_broken").exists()


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
    with pytest.raises(
        MedTasksError, match="there is a task 'mc_head_gd' on your dataset 'mc_head_gd'"
    ):
        select_as("mediconfusion", {"categories": ["Cerebral"]}, "mc_head")
    assert not dataset_folder("mc_head").exists()
    for categories in (["Cerebral"], ["Cerebral", "Cardiac"]):  # a part may be made again
        select_as("mediconfusion", {"categories": categories}, "mc_part")
    assert {name for one in load_documents("mc_part") for name in one["categories"]} >= {
        "Cerebral",
        "Cardiac",
    }
    assert Manifest.read(dataset_folder("mc_head_gd")) == before
    assert task_file("mc_head_gd").dataset == "mc_head_gd"
    ran = CliRunner().invoke(app, ["data", "prepare", "mc_part"])
    assert (
        "'mc_part' is a part of 'mediconfusion'; make it again with 'medtasks data select"
        in str(ran.exception)
    )
    with pytest.raises(MedTasksError, match="'mc_part' is itself a part of 'mediconfusion'"):
        whole_dataset("mc_part")
    with pytest.raises(DatasetNotPrepared, match="multimedeval_slake"):
        whole_dataset("multimedeval_slake")
    with pytest.raises(UnknownName, match="did you mean 'mediconfusion'"):
        whole_dataset("mediconfusoin")
