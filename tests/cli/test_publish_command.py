"""``medtasks data publish``: a folder for the Hub, read back by the library alone and by medtasks as a task."""

import json
import shutil
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import yaml
from PIL import Image
from setuptools import __version__ as setuptools_version

from medtasks.curate.study import StudyKind
from medtasks.data.images.image_store import pixels_sha256
from medtasks.data.samples import Sample
from medtasks.home import dataset_folder
from medtasks.prompts.images import images
from medtasks.tasks.documents import (
    image_settings,
    task_documents,
    task_problems,
    task_provenance,
    unreadable_images,
)
from medtasks.tasks.task_files import including, task_file, task_files, tasks_of

from ..curate.reviewed_study import detailed_study, even, review
from ..medical_files import put_dicom, put_nifti, scan
from ..processes import run_fresh
from ..tables import each_row

CANARY = "MUELLER"
IDS = ("doc_id", "image_id", "pair_id", "patient_id")
HIDDEN = (*IDS, "dataset", "image_file", "image_files", "image_sha256", "image", "images")
TASK = "task: mine\nfamily: single_choice\ndata: mine.jsonl\nimage: scan\ndescription: Which side?\n"


@pytest.fixture
def source(tmp_path):
    """A folder with a DICOM file, 16 bits and a JPEG file, in which the canary is a patient's name."""
    folder = tmp_path / "source"
    values = np.add.outer(np.arange(40), np.arange(30)).astype(np.uint16)
    put_dicom(folder / f"{CANARY}.dcm", values * 16, fields={"PatientName": CANARY})
    Image.fromarray(values * 900).save(folder / "deep.png")
    exif = Image.Exif()
    exif[315] = CANARY
    Image.fromarray((values * 2).astype(np.uint8)).save(folder / "plain.jpg", exif=exif)
    shown = [[f"{CANARY}.dcm"], ["deep.png", "plain.jpg"], [f"{CANARY}.dcm"], []]
    samples = []
    for number, names in enumerate(shown):
        sample = {
            "question": f"Which {number}?",
            "options": ["left", "right"],
            "answer": "right",
        }
        samples.append({**sample, "images": names})
    content = {"taskType": "QA", "modality": "CT", "samples": samples}
    (folder / "dataset.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def published(medtasks, source, tmp_path):
    command = [
        "data",
        "prepare",
        "--from-folder",
        source,
        "--name",
        "ward",
        "--access",
        "public",
    ]
    assert medtasks(*command).code == 0
    return publish(medtasks, "multimedeval_ward", tmp_path / "toy")


def publish(medtasks, name, folder, *options):
    ran = medtasks("data", "publish", name, "--out", folder, "--licence", "cc-by-4.0", *options)
    assert ran.code == 0, ran.err
    assert f"lmms_eval --tasks {folder.name} --include_path {folder}" in ran.out
    return folder


def pixels_of(task, documents):
    """Return the digests of the images that a model gets of each document."""
    settings = image_settings(task)
    return [[pixels_sha256(image) for image in images(row, settings)] for row in documents]


def texts_of(documents):
    """Return the columns of documents but for ids and files, and without empty ones."""
    return [
        {name: value for name, value in row.items() if name not in HIDDEN and value is not None}
        for row in documents
    ]


def table_of(folder):
    """Return the questions that the library reads, as it does where it has not read a folder of this name before."""
    return datasets.load_dataset(str(folder), cache_dir=str(folder.with_name("cache")))["test"]


def clusters_of(documents):
    """Return the number of the cluster of each document, by first appearance."""
    clusters = [Sample(row).cluster_id for row in documents]
    return [clusters.index(cluster) for cluster in clusters]


def check_equal(old_name, folder, new_name):
    """Check that a published task asks the same of the same images, and can run; return its documents."""
    old = task_file(old_name)
    before = task_documents(old)
    with including([folder]):
        new = task_file(new_name)
        after = task_documents(new)
        assert list(task_problems(new)) == []
        assert list(unreadable_images(new, after)) == []
        assert pixels_of(new, after) == pixels_of(old, before)
        assert new.metric_list == old.metric_list
        assert new.rows == old.rows
        assert new.variants == old.variants
        fingerprint = task_provenance(new, after)["fingerprint"]
    assert f"| fingerprint | {fingerprint} |" in (folder / "README.md").read_text()
    assert clusters_of(after) == clusters_of(before)
    without_images = [name for name in table_of(folder).column_names if "image" not in name]
    assert texts_of(table_of(folder).select_columns(without_images)) == texts_of(before)
    return after


def test_a_folder_that_was_prepared_is_asked_as_before(published):
    after = check_equal("multimedeval_ward", published, "toy")
    assert [row["image_id"] for row in after] == ["1", "2", "1", None]


def test_the_library_reads_it_without_medtasks(published, source):
    table = table_of(published)
    assert table.features["images"] == datasets.List(datasets.Image())
    assert [len(row) for row in table["images"]] == [1, 2, 1, 0]
    assert table["answer"] == ["B"] * 4
    deep = table[1]["images"][0]
    assert np.asarray(deep)[:, :, 0].max() == round(68 * 900 / 65535 * 255)
    assert deep.mode == "RGB"


def test_nothing_of_a_header_or_a_files_name_is_published(published):
    for path in filter(Path.is_file, published.rglob("*")):
        assert CANARY.encode() not in path.read_bytes(), path
        assert b".dcm" not in path.read_bytes(), path


def test_card_and_tasks_are_as_the_hub_wants_them(published):
    card = (published / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head == {
        "license": "cc-by-4.0",
        "pretty_name": "toy",
        "task_categories": ["visual-question-answering"],
        "tags": ["medical"],
        "size_categories": ["n<1K"],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": "test", "path": "data/test-00000-of-00001.parquet"}],
            }
        ],
    }
    for text in ("public access", "@misc{toy", "lmms_eval --model MODEL --tasks toy"):
        assert text in card
    content = yaml.safe_load((published / "eval.yaml").read_text())
    assert content == {
        "name": "toy",
        "description": "Own QA questions, CT",
        "tasks": [{"id": "toy", "config": "default", "split": "test"}],
    }


def reviewed_study(folder, kind):
    study = folder / kind / "study"
    review(detailed_study(study, kind, name=f"drawn_{kind}"), "alice", even)
    review(study, "bob", even)
    return study


def check_card(folder, *hidden):
    """Check that the card is the datasheet of a study without names."""
    card = (folder / "README.md").read_text()
    assert "## Datasheet of" in card
    assert "| drafts scored |" in card
    for text in hidden:
        assert text not in card


@each_row("kind", StudyKind)
def test_studies_are_published_as_they_are_asked(kind, medtasks, tmp_path):
    old = f"drawn_{kind}"
    study = reviewed_study(tmp_path, kind)
    assert medtasks("curate", "publish", study).code == 0

    folder = publish(medtasks, old, tmp_path / kind / "toy")

    tasks = [task.name for task in task_files().values() if task.dataset == old]
    for task in tasks:
        after = check_equal(task, folder, f"toy{task.removeprefix(old)}")
    with including([folder]):
        assert len(tasks_of("toy_all")) == len(tasks_of(f"{old}_all"))
    assert table_of(folder).num_rows == len(after)
    check_card(folder, "alice", "bob", "patient1", str(tmp_path))


def test_a_published_study_names_the_command_that_shares_it(medtasks, tmp_path):
    kind = StudyKind.PAIRS
    out = medtasks("curate", "publish", reviewed_study(tmp_path, kind)).out
    assert f"medtasks data publish drawn_{kind} --out FOLDER" in out


@pytest.fixture
def refuse(medtasks, fails, sample_home, tmp_path, monkeypatch):
    """In a home with the sample, check that a dataset is not published."""
    home = shutil.copytree(sample_home, tmp_path / "home")
    monkeypatch.setenv("MEDTASKS_HOME", str(home))

    def run(name, *parts):
        fails(
            ["data", "publish", name, "--out", tmp_path / "toy", "--licence", "cc0-1.0"], *parts
        )
        assert not (tmp_path / "toy").exists()

    return run


def test_credentialed_data_are_not_published(refuse, medtasks, source):
    assert medtasks("data", "prepare", "--from-folder", source, "--name", "ward").code == 0
    refuse("multimedeval_ward", "is credentialed", "prepare it again with --access public")


def test_data_of_others_are_not_published(refuse, medtasks):
    for name in ("mediconfusion", "mediconfusion_gd", "nowhere"):
        refuse(name, f"unknown dataset of your own '{name}'")
    part = ["data", "select", "mediconfusion", "--where", "categories=*", "--as", "a"]
    assert medtasks(*part).code == 0
    refuse("a", "'a' is a part of 'mediconfusion', a set of others")


@pytest.fixture
def refused(fails, tmp_path):
    """Check that a dataset is not published into a folder, of which nothing is left."""

    def run(folder, *parts, name="multimedeval_ward"):
        fails(["data", "publish", name, "--out", folder, "--licence", "cc0-1.0"], *parts)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

    return run


def test_the_folder_to_publish_has_the_name_of_a_new_task(refused, published, tmp_path):
    refused(tmp_path / "A-b", "'A-b' cannot be a task's name")
    refused(tmp_path / "mediconfusion_gd", "there is a task 'mediconfusion_gd' in ")
    refused(tmp_path / "mmmu_val", "there is a task 'mmmu_val' in ")
    refused(published, f"{published} exists already")


def test_broken_images_are_not_published(refused, published, tmp_path):
    (image,) = dataset_folder("multimedeval_ward").rglob("*.jpg")
    image.write_bytes(b"cut")
    refused(tmp_path / "cut", "is broken")


def test_volumes_are_not_published(refused, medtasks, tmp_path):
    put_nifti(tmp_path / "scans" / "scan.nii.gz", scan(1))
    sample = {"question": "Where?", "answer": "left", "images": ["scan.nii.gz"]}
    content = {"taskType": "VQA", "modality": "CT", "samples": [sample]}
    (tmp_path / "scans" / "dataset.json").write_text(json.dumps(content))
    prepare = ["data", "prepare", "--from-folder", tmp_path / "scans", "--access", "public"]
    assert medtasks(*prepare).code == 0

    name = "multimedeval_scans"
    refused(tmp_path / "volumes", f"'{name}' shows volumes", name=name)


def test_a_licence_of_ones_own(medtasks, published):
    command = ["data", "publish", "multimedeval_ward", "--out", published.with_name("own")]
    assert medtasks(*command, "--licence", "Hospital terms 3").code == 0
    card = (published.with_name("own") / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert (head["license"], head["license_name"]) == ("other", "Hospital terms 3")


@pytest.mark.slow
@pytest.mark.skipif(int(setuptools_version.split(".")[0]) < 71, reason="it builds no wheels")
def test_pip_installs_it_and_the_harness_finds_its_task(published, tmp_path):
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(site), str(published)]
    assert run_fresh(command, tmp_path).returncode == 0
    home = str(tmp_path / "of a colleague")
    variables = {"PYTHONPATH": str(site), "MEDTASKS_HOME": home}
    asked = ["--model", "medtasks_tiny", "--tasks", "toy", "--gen_kwargs", "max_new_tokens=4"]
    command = ["lmms_eval", *asked, "--output_path", "results", "--log_samples"]
    ran = run_fresh(command, tmp_path, **variables)
    assert ran.returncode == 0, ran.stderr[-3000:]
    (samples,) = (tmp_path / "results").rglob("*_samples_toy.jsonl")
    assert len(samples.read_text().splitlines()) == 2 * 4  # under each rule
    scored = run_fresh(["medtasks", "score", "toy", "results"], tmp_path, **variables)
    assert scored.returncode == 0, scored.stderr
