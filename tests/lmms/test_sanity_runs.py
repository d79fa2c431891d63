"""Whole runs of sanity variants: by name and by tag, with every kind of task, and without a word of a record."""

import json
import math

import pytest

from medtasks.cli.data import write_sample_home
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError
from medtasks.runs.replies import read_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from .. import tiny_multimedeval
from ..model_adapters import llava_med_toy, med_flamingo_toy, radfm_toy, tiny_hf_models
from ..tables import each_row
from .conftest import PAIRED
from .whole_runs import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared")]

MC, GD = "mediconfusion", "mediconfusion_gd"
QUESTIONS = 32
FEW = {"gen_kwargs": "max_new_tokens=4", "log_samples": True}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Per adapter its arguments for a small random checkpoint in the published format."""
    folder = tmp_path_factory.mktemp("checkpoints")
    (folder / "radfm").mkdir()
    llava_med_toy.write_tower(folder / "clip")
    llava = llava_med_toy.write_v15(folder / "llava")
    radfm = radfm_toy.write_toy(folder / "radfm")
    flamingo = med_flamingo_toy.write_toy(folder / "flamingo")
    exact = "dtype=float32,journal=false"
    return {
        "llava_med": f"pretrained={llava},vision_tower={folder / 'clip'},max_length=512,{exact}",
        "radfm": f"pretrained={radfm},{exact}",
        "med_flamingo": f"pretrained={flamingo},llama={flamingo / 'llama'},clip={flamingo / 'clip'},{exact}",
        "hf_vlm": f"pretrained={tiny_hf_models.build('llava', folder / 'vlm')},{exact}",
    }


@pytest.fixture(scope="module")
def home_with_demonstrations(tmp_path_factory):
    """The drawn sample, with pictures for the demonstrations of Med-Flamingo's prompts, which it does without."""
    home = tmp_path_factory.mktemp("data")
    write_sample_home(home)
    folder = home / "datasets" / "mediconfusion" / DEMONSTRATIONS_FOLDER
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(("PMC1064097_F2.jpg", "PMC1065025_F1.jpg", "PMC1087855_F3.jpg")):
        med_flamingo_toy.scan(seed).save(folder / name)
    return home


@pytest.fixture(scope="module")
def losses(finished, every_dataset):
    """Losses of GD by task and document."""
    losses = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(every_dataset))
        for task in PAIRED[len(PAIRED) // 2 :]:
            (file,) = finished.rglob(f"*_samples_{task}.jsonl")
            replies = read_replies(file, task_documents(task_file(task)))
            losses[task] = {name: reply.losses or () for name, reply in replies.items()}
    return losses


def test_without_the_image_both_questions_of_a_pair_are_one(results, losses):
    for variant in ("blind", "blank"):
        found = losses[f"{GD}_{variant}"]
        assert len(found) == QUESTIONS
        for pair in {name.partition("/")[0] for name in found}:
            assert found[f"{pair}/1"] == pytest.approx(found[f"{pair}/2"], rel=1e-5)
        assert results["results"][f"{GD}_{variant}"]["confusion,reference"] == 1
        assert results["results"][f"{GD}_{variant}"]["set_accuracy,reference"] == 0
    assert losses[f"{GD}_blind"] != losses[f"{GD}_blank"] != losses[GD]


def test_swapped_questions_see_the_other_image(results, losses):
    for name, found in losses[f"{GD}_swapped"].items():
        pair, _, position = name.partition("/")
        assert found == pytest.approx(losses[GD][f"{pair}/{3 - int(position)}"], rel=1e-5)
    assert losses[f"{GD}_swapped"] != losses[GD]
    shares = [results["results"][task]["individual_accuracy,reference"] for task in (GD, f"{GD}_swapped")]
    assert sum(shares) == 1  # of a pair, one question's right option is the other's wrong one


def test_rotation_zero_is_the_published_order(results, losses):
    found = losses[f"{GD}_rotated"]
    for name, published in losses[GD].items():
        assert found[f"{name}~r0"] == pytest.approx(published, rel=1e-5)
    rotated, published = results["results"][f"{GD}_rotated"], results["results"][GD]
    assert rotated["published_order,reference"] == published["individual_accuracy,reference"]
    assert rotated["incomplete_rotations,reference"] == 0
    answers = {
        name: [("A", "B")[pair[0] > pair[1]] for pair in (found[f"{name}~r0"], found[f"{name}~r1"][::-1])]
        for name in losses[GD]
    }
    key = {one["doc_id"]: one["answer"] for one in task_documents(task_file(GD))}
    right = [[answer == key[name] for answer in pair] for name, pair in answers.items()]
    assert rotated["mean_accuracy,robust"] == sum(map(sum, right)) / (2 * QUESTIONS)
    assert rotated["worst_case,robust"] == sum(map(all, right)) / QUESTIONS
    assert rotated["flip_rate,robust"] == sum(first != second for first, second in answers.values()) / QUESTIONS


def test_a_shared_journal_replays_nothing_of_another_variant(finished):
    anew = evaluate([f"{MC}_sanity", f"{GD}_sanity"], **FEW)["samples"]
    assert set(anew) == set(PAIRED)
    for task in PAIRED:
        (file,) = finished.rglob(f"*_samples_{task}.jsonl")
        lines = map(json.loads, file.read_text().splitlines())
        assert [(line["doc_id"], line["score"]) for line in lines] == [
            (sample["doc_id"], json.loads(json.dumps(sample["score"]))) for sample in anew[task]
        ]
    assert len({repr([sample["resps"] for sample in anew[task]]) for task in PAIRED}) == len(PAIRED)


def test_a_limit_cuts_a_question():
    found = evaluate([f"{GD}_rotated"], limit=7, **FEW)["results"]
    assert found[f"{GD}_rotated"]["incomplete_rotations,reference"] == 1  # three whole questions and half a fourth


def test_images_of_one_patient_cannot_be_swapped(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(tiny_multimedeval, "TEST_ROWS", 2)  # of the same patient
    tiny_multimedeval.prepare("vqa_rad")
    with pytest.raises(MedTasksError, match="'multimedeval_vqa_rad' holds images of one patient or case only"):
        evaluate(["multimedeval_vqa_rad_swapped"])


@each_row("model", ["llava_med", "radfm", "med_flamingo", "hf_vlm"])
def test_every_adapter_answers_without_the_questions_image(checkpoints, home_with_demonstrations, monkeypatch, model):
    monkeypatch.setenv("MEDTASKS_HOME", str(home_with_demonstrations))
    tasks = [GD, *(f"{GD}_{variant}" for variant in VARIANTS), f"{MC}_blind"]
    found = evaluate(tasks, model, model_args=checkpoints[model], limit=4, **FEW)
    read = {
        task: {one["score"]["sample"]: [option["loss"] for option in one["filtered_resps"]] for one in rows}
        for task, rows in found["samples"].items()
        if task.startswith(GD)
    }
    for task, losses_by_name in read.items():
        assert not any(math.isnan(loss) for options in losses_by_name.values() for loss in options), task
        if task.endswith("_blind"):
            for pair in {name.partition("/")[0] for name in losses_by_name}:
                assert losses_by_name[f"{pair}/1"] == pytest.approx(losses_by_name[f"{pair}/2"], rel=1e-4)
    assert len({repr(sorted(options.values())) for options in read.values()}) == len(read)
    assert "adapter_failed" not in str(found["samples"][f"{MC}_blind"])
