"""From recorded losses to calibration: probabilities, keys, units, and what is left out."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from medtasks.audit.task_calibration import task_calibration
from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Reply
from medtasks.runs.replies import read_replies
from medtasks.tasks.task_files import task_file, task_files

from ..tables import each_row

LIKELIHOODS = [name for name, task in task_files().items() if task.output_type == "multiple_choice"]


def question(number, answer="A", options=2, **further):
    return {"doc_id": f"q{number}", "options": ["x", "y", "z", "w"][:options], "answer": answer, **further}


def losses(*values):
    return Reply(losses=values)


def only(found):
    assert len({id(one) for one in found.values()}) == 1
    return next(iter(found.values()))


@pytest.fixture
def gmai():
    return task_file("gmai_mmbench_val_ll")


def test_probabilities_are_those_of_the_losses(gmai):
    documents = [question(1), question(2, "B"), question(3, "C", options=3)]
    probabilities = [(0.8, 0.2), (0.7, 0.3), (0.25, 0.25, 0.5)]
    replies = {
        document["doc_id"]: losses(*(-math.log(value / 7) for value in row))  # a common factor cancels out
        for document, row in zip(documents, probabilities, strict=True)
    }
    found = task_calibration(gmai, documents, replies)
    assert list(found) == ["reference", "robust"]
    one = only(found)
    assert (one.samples, one.left_out) == (3, 0)
    assert one.accuracy.value == pytest.approx(2 / 3)
    assert one.confidence == pytest.approx((0.8 + 0.7 + 0.5) / 3)
    assert one.brier.value == pytest.approx((0.08 + 0.98 + 0.375) / 3)
    large = only(task_calibration(gmai, [question(1)], {"q1": losses(5000.0, 5000.0 + math.log(3))}))
    assert large.confidence == pytest.approx(0.75)  # without underflow


@each_row(
    "bad",
    [
        losses(math.nan, 1.0),
        losses(math.inf, 1.0),
        losses(-math.inf, 1.0),
        losses(1.0),
        losses(1.0, 2.0, 3.0),
        losses(),
        Reply(text="A"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_counted(gmai, bad):
    documents = [question(1), question(2), question(3, None), question(4)]
    replies = {"q1": losses(0.1, 2.0), "q2": bad, "q3": losses(0.1, 2.0)}
    found = only(task_calibration(gmai, documents, replies))
    assert (found.samples, found.left_out) == (1, 2)  # q3 has no key, q4 was not asked
    assert found.accuracy.value == 1


@each_row("task", ["mediconfusion", "mediconfusion_ff", "gmai_mmbench_val_ll"])
def test_texts_have_no_calibration(task):
    assert task_calibration(task_file(task), [question(1)], {"q1": Reply(text="A")}) == {}
    assert task_calibration(task_file("gmai_mmbench_val_ll"), [question(1)], {}) == {}


@each_row("name", LIKELIHOODS)
def test_the_note_says_whether_probabilities_are_the_models_own(name):
    found = task_calibration(task_file(name), [question(1, pair_id="1", image_id="i")], {"q1": losses(0.1, 2.0)})
    assert list(found) == list(task_file(name).rows)
    letters = name in ("mediconfusion_gd", "gmai_mmbench_val_ll") or name.startswith("medevalkit_")
    assert ("where each letter is one token" in only(found).note) == letters
    assert ("not the model's own probabilities" in only(found).note) == (not letters)
    assert bool(only(found).bins) == letters
    assert math.isnan(only(found).brier.value) == (not letters)


def width(found):
    return found.brier.high - found.brier.low


def test_units_are_patients(gmai):
    replies = {f"q{n}": losses(*((0.1, 2.0) if n % 4 else (2.0, 0.1))) for n in range(40)}
    apart = only(task_calibration(gmai, [question(n) for n in range(40)], replies))
    same = only(task_calibration(gmai, [question(n, patient_id=str(n % 4)) for n in range(40)], replies))
    assert same.brier.value == apart.brier.value
    assert width(same) > 2 * width(apart)  # a patient's answers are all alike
    alone = only(task_calibration(gmai, [question(n, patient_id="p") for n in range(40)], replies))
    assert math.isnan(alone.brier.low)


def test_units_of_pairs_are_connected_by_pictures(sample):
    documents = load_documents("mediconfusion")
    task = task_file("mediconfusion_gd")
    replies = {one["doc_id"]: losses(0.2, 1.0) for one in documents}
    chained = [{**one, "image_id": "one" if one["position"] == 1 else one["image_id"]} for one in documents]
    assert math.isnan(only(task_calibration(task, chained, replies)).accuracy.low)  # all are one unit
    apart = [{**one, "image_id": one["doc_id"]} for one in documents]
    by_pair = only(task_calibration(task, apart, replies))
    # Of each pair one answer is right: pairs do not differ, and count as one answer each.
    assert by_pair.accuracy.value == 0.5
    assert by_pair.accuracy.high - by_pair.accuracy.low == pytest.approx(0.466, abs=0.01)


def test_a_tie_is_between_the_rules(sample):
    documents = load_documents("mediconfusion")
    replies = {one["doc_id"]: losses(1.0, 1.0) for one in documents}
    found = only(task_calibration(task_file("mediconfusion_gd"), documents, replies))
    values = {
        name: extractor_of(name).extract([1.0, 1.0], Sample({})).value
        for name in ("greedy_reference", "prefix_reference")
    }
    assert values == {"greedy_reference": "A", "prefix_reference": "B"}
    assert (found.accuracy.value, found.ece.value) == (0.5, 0.0)


def test_likelihoods_of_a_samples_file(sample, tmp_path):
    documents = load_documents("mediconfusion")
    lines = [
        {"doc_id": n, "target": one["answer"], "resps": [["(0.25, False)"], ["(1.25, False)"]], "filtered_resps": []}
        for n, one in enumerate(documents)
    ]
    path = tmp_path / "x_samples_mediconfusion_gd.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    found = only(task_calibration(task_file("mediconfusion_gd"), documents, read_replies(path, documents)))
    assert (found.samples, found.left_out) == (32, 0)
    assert found.confidence == pytest.approx(1 / (1 + math.exp(-1)))


def test_classes_have_areas_from_likelihoods_if_all_questions_have_the_same_options(gmai):
    draw = np.random.default_rng(2)
    documents = [{"doc_id": f"q{n}", "options": ["x", "y", "z"], "label": n % 3} for n in range(60)]
    probabilities = draw.dirichlet([1.0] * 3, 60)
    replies = {f"q{n}": losses(*(-math.log(value) for value in row)) for n, row in enumerate(probabilities)}
    found = only(task_calibration(gmai, documents, replies))
    assert [(area.name, area.samples) for area in found.classes] == [("x", 20), ("y", 20), ("z", 20)]
    for number, area in enumerate(found.classes):
        target = [n % 3 == number for n in range(60)]
        assert area.auroc.value == pytest.approx(roc_auc_score(target, probabilities[:, number]))
        assert area.auroc.low < area.auroc.value < area.auroc.high
    documents[0]["options"] = ["x", "y", "other"]
    assert only(task_calibration(gmai, documents, replies)).classes == ()
