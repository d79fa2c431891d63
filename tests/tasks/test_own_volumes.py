"""Volumes in tasks of the user's own: prompts, variants, the rule in the fingerprint, and models that read volumes."""

import contextlib
import json

import numpy as np
import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.duplicates.image_copies import own_images
from medtasks.data.images.volume_files import GREY
from medtasks.data.prepare.prepare_dataset import verify
from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError, SourceError
from medtasks.hooks import prompts
from medtasks.prompts.images import images, volume_rule
from medtasks.tasks.documents import (
    image_files,
    task_documents,
    task_provenance,
    unreadable_images,
)
from medtasks.tasks.own_tasks import prepare_own
from medtasks.tasks.task_files import including, task_config, task_file
from medtasks.tasks.task_index import resolve_names

from ..medical_files import put_nifti, put_series
from ..tables import each_row

SCANS = ("first.nii.gz", "second", "third.npy")


def scan(number):
    values = np.full((5, 8, 9), -1000)
    values[:, 2:6, number : number + 5] = 60 * number
    return values


def put_scans(folder):
    put_nifti(folder / SCANS[0], scan(0).T.astype(np.int16))
    put_series(folder / SCANS[1], scan(1))
    np.save(folder / SCANS[2], scan(2))


QUESTION = {"question": "Where is it?", "options": ["left", "right"], "answer": "A"}
YAML = """task: own_scans
family: single_choice
data: scans.jsonl
image: image_file
description: Scans
lmms_eval_specific_kwargs:
  default: {{template: "{{{{ images }}}} {{{{ question }}}}", image_mark: "+", {settings}}}
"""


@pytest.fixture
def own(tmp_path):
    """Return the task with settings for its volumes."""
    put_scans(tmp_path)
    rows = [
        {**QUESTION, "image_file": file, "patient_id": str(number)}
        for number, file in enumerate(SCANS)
    ]
    (tmp_path / "scans.jsonl").write_text("\n".join(map(json.dumps, rows)))

    with contextlib.ExitStack() as stack:

        def task(settings="slices: 3"):
            (tmp_path / "own_scans.yaml").write_text(YAML.format(settings=settings))
            stack.close()
            stack.enter_context(including([tmp_path]))
            return task_file("own_scans")

        yield task


def hooks(task):
    config = resolve_names(task_config(task.base or task.name))
    return config, config["lmms_eval_specific_kwargs"]


def test_every_kind_of_volume_is_shown_and_has_its_places(own):
    task = own()
    config, settings = hooks(task)
    documents = task_documents(task)
    assert list(unreadable_images(task, documents)) == []
    for document in documents:
        shown = config["doc_to_visual"](document, settings["default"])
        assert [image.size for image in shown] == [(9, 8)] * 3
        assert prompts.question(document, settings["default"]) == "+++ Where is it?"
    (turn,) = prompts.messages(documents[1], settings["default"])
    assert [part["type"] for part in turn["content"]] == ["image"] * 3 + ["text"]


@each_row("settings, count", [("slices_as: montage", 1), ("window: [lung, bone]", 16)])
def test_places_are_as_many_as_images(own, settings, count):
    task = own(settings)
    config, families = hooks(task)
    document = task_documents(task)[0]
    assert len(config["doc_to_visual"](document, families["default"])) == count
    assert prompts.question(document, families["default"]) == f"{count * '+'} Where is it?"


def test_variants(own):
    own()
    shown = {}
    for variant in ("", "_blind", "_blank", "_swapped", "_degraded"):
        task = task_file(f"own_scans{variant}")
        config, settings = hooks(task)
        documents = task_documents(task)
        shown[variant] = [
            config["doc_to_visual"](each, settings["default"]) for each in documents
        ]
        texts = {prompts.question(each, settings["default"]) for each in documents}
        assert texts == {"Where is it?" if variant == "_blind" else "+++ Where is it?"}
    assert shown["_blind"] == [[]] * 3
    greys = [image.getcolors() for images_of in shown["_blank"] for image in images_of]
    assert greys == [[(72, GREY)]] * 9
    pixels = {
        variant: [[image.tobytes() for image in images_of] for images_of in of_variant]
        for variant, of_variant in shown.items()
    }
    assert sorted(pixels["_swapped"]) == sorted(pixels[""])
    assert all(new != own for new, own in zip(pixels["_swapped"], pixels[""], strict=True))
    assert all(new != own for new, own in zip(pixels["_degraded"], pixels[""], strict=True))
    (document, *_) = task_documents(task_file("own_scans_degraded"))
    config, settings = hooks(task_file("own_scans"))
    again = config["doc_to_visual"](document, settings["default"])
    assert [image.tobytes() for image in again] == pixels["_degraded"][0]


def test_a_model_that_reads_volumes_gets_them(own):
    task = own("slices: 3, window: lung")
    config, settings = hooks(task)
    assert settings["radfm"] == {**settings["default"], "slices": 0}
    documents = task_documents(task)
    ((file,), (series,), (array,)) = (
        config["doc_to_visual"](document, settings["radfm"]) for document in documents
    )
    assert file.endswith(SCANS[0])
    assert (series == scan(1).transpose(1, 2, 0)).all()
    assert (array == scan(2).transpose(1, 2, 0)).all()
    assert prompts.question(documents[1], settings["radfm"]) == "+ Where is it?"
    (blank,) = config["doc_to_visual"]({**documents[1], "variant": "blank"}, settings["radfm"])
    assert (blank.shape, set(blank.ravel())) == ((8, 9, 5), {0.5})
    with pytest.raises(MedTasksError, match="chat models take no files of volumes"):
        prompts.messages(documents[1], settings["radfm"])


def test_the_rule_is_in_the_fingerprint(own):
    fingerprints = {}
    for settings in ("slices: 8", "plane: axial", "slices: 9", "plane: coronal"):
        task = own(settings)
        fingerprints[settings] = task_provenance(task, task_documents(task))["fingerprint"]
    assert fingerprints["slices: 8"] == fingerprints["plane: axial"]
    assert len({*fingerprints.values()}) == 3


def test_volumes_are_no_images_that_may_be_copies(own):
    task = own()
    documents = task_documents(task)
    with pytest.raises(MedTasksError, match="show no images but volumes"):
        own_images("own_scans", documents, image_files(task, documents), ())


def test_a_broken_volume_is_named(own, tmp_path):
    task = own()
    (tmp_path / SCANS[1] / "IM001003").unlink()
    (tmp_path / SCANS[2]).unlink()
    (tmp_path / SCANS[0]).write_bytes(b"x")
    problems = list(unreadable_images(task, task_documents(task)))
    assert len(problems) == 3
    assert f"{SCANS[0]} of sample 0 is broken (it is a text file" in problems[0]
    assert (
        f"{SCANS[1]} of sample 1 is a folder that cannot be shown as a volume: its "
        in problems[1]
    )
    assert f"{SCANS[2]} of sample 2 is missing" in problems[2]


def test_a_folder_of_questions_about_volumes(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    put_scans(tmp_path / "source")
    samples = [{**QUESTION, "answer": "left", "images": [file]} for file in SCANS]
    content = {"taskType": "QA", "modality": "CT", "plane": "coronal", "slices": 2}
    file = tmp_path / "source" / "dataset.json"
    file.write_text(json.dumps({**content, "samples": samples}))
    manifest = prepare_own(tmp_path / "source", "scans")
    assert str(manifest.volume_rule) == "coronal, 2 slices as images, window auto"
    name = "multimedeval_scans"
    assert list(verify(name)) == []
    for document, height in zip(load_documents(name), (5, 10, 5), strict=True):
        assert [image.size for image in images(document)] == [(9, height)] * 2
        assert volume_rule(document, {"slices": 0}).slices == 0
        with pytest.raises(SourceError, match="were prepared to be shown as coronal, 2 slices"):
            images(document, {"slices": 5})
    assert len({Sample(document).images for document in load_documents(name)}) == 3
    before = manifest.fingerprint
    file.write_text(json.dumps({**content, "plane": "axial", "samples": samples}))
    assert prepare_own(tmp_path / "source", "scans").fingerprint != before
    next((tmp_path / "source" / SCANS[1]).iterdir()).unlink()
    assert any("has changed since it was prepared" in problem for problem in verify(name))
    file.write_text(json.dumps({**content, "window": "liver", "samples": samples}))
    with pytest.raises(SourceError, match="window is 'liver'"):
        prepare_own(tmp_path / "source", "scans")
