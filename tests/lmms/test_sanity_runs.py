"""Whole runs of sanity variants: by name and by tag, with every kind of task, and without a word of a record."""

import pytest

from medtasks.runs.replies import read_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from .conftest import PAIRED

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared")]

MC, GD = "mediconfusion", "mediconfusion_gd"
QUESTIONS = 32


@pytest.fixture(scope="module")
def losses(finished, every_dataset):
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
    shares = [
        results["results"][task]["individual_accuracy,reference"]
        for task in (GD, f"{GD}_swapped")
    ]
    assert sum(shares) == 1  # of a pair, one question's right option is the other's wrong one


def test_rotation_zero_is_the_published_order(results, losses):
    found = losses[f"{GD}_rotated"]
    for name, published in losses[GD].items():
        assert found[f"{name}~r0"] == pytest.approx(published, rel=1e-5)
    rotated, published = results["results"][f"{GD}_rotated"], results["results"][GD]
    assert rotated["published_order,reference"] == published["individual_accuracy,reference"]
    assert rotated["incomplete_rotations,reference"] == 0
    answers = {
        name: [
            ("A", "B")[pair[0] > pair[1]]
            for pair in (found[f"{name}~r0"], found[f"{name}~r1"][::-1])
        ]
        for name in losses[GD]
    }
    key = {one["doc_id"]: one["answer"] for one in task_documents(task_file(GD))}
    right = [[answer == key[name] for answer in pair] for name, pair in answers.items()]
    assert rotated["mean_accuracy,robust"] == sum(map(sum, right)) / (2 * QUESTIONS)
    assert rotated["worst_case,robust"] == sum(map(all, right)) / QUESTIONS
    assert (
        rotated["flip_rate,robust"]
        == sum(first != second for first, second in answers.values()) / QUESTIONS
    )
