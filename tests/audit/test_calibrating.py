"""From recorded losses to calibration: probabilities, keys, units, and what is left out."""

import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from medtasks.audit.task_calibration import task_calibration
from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Reply
from medtasks.tasks.task_files import task_file, task_files

from ..tables import each_row

LIKELIHOODS = [name for name, task in task_files().items() if task.output_type == "multiple_choice"]
GMAI, PAIRS = "gmai_mmbench_val_ll", "mediconfusion_gd"


def question(number, answer="A", options=2, **further):
    return {"doc_id": f"q{number}", "options": ["x", "y", "z", "w"][:options], "answer": answer, **further}


def losses(*values):
    return Reply(losses=values)


def calibrated(documents, replies, name=GMAI):
    by_row = task_calibration(task_file(name), documents, replies)
    assert list(by_row) == list(task_file(name).rows)
    assert len({id(calibration) for calibration in by_row.values()}) == 1
    return next(iter(by_row.values()))


def test_probabilities_are_those_of_the_losses_and_texts_have_none():
    documents = [question(1), question(2, "B"), question(3, "C", options=3)]
    probabilities = [(0.8, 0.2), (0.7, 0.3), (0.25, 0.25, 0.5)]
    replies = {
        document["doc_id"]: losses(*(-math.log(value / 7) for value in row))  # a common factor cancels out
        for document, row in zip(documents, probabilities, strict=True)
    }
    calibration = calibrated(documents, replies)
    assert (calibration.samples, calibration.left_out) == (3, 0)
    assert calibration.accuracy.value == pytest.approx(2 / 3)
    assert calibration.confidence == pytest.approx((0.8 + 0.7 + 0.5) / 3)
    assert calibration.brier.value == pytest.approx((0.08 + 0.98 + 0.375) / 3)
    large = calibrated([question(1)], {"q1": losses(5000.0, 5000.0 + math.log(3))})
    assert large.confidence == pytest.approx(0.75)  # without underflow
    for name in ("mediconfusion", "mediconfusion_ff", GMAI):
        assert task_calibration(task_file(name), [question(1)], {"q1": Reply(text="A")}) == {}
    assert task_calibration(task_file(GMAI), [question(1)], {}) == {}


def test_what_cannot_be_read_is_left_out_and_counted():
    documents = [question(1), question(2), question(3, None), question(4)]
    unreadable = ((math.nan, 1.0), (math.inf, 1.0), (-math.inf, 1.0), (1.0,), (1.0, 2.0, 3.0), ())
    for bad in (*(losses(*values) for values in unreadable), Reply(text="A")):
        calibration = calibrated(documents, {"q1": losses(0.1, 2.0), "q2": bad, "q3": losses(0.1, 2.0)})
        assert (calibration.samples, calibration.left_out) == (1, 2), bad  # q3 has no key, q4 was not asked
        assert calibration.accuracy.value == 1


@each_row("name", LIKELIHOODS)
def test_the_note_says_whether_probabilities_are_the_models_own(name):
    calibration = calibrated([question(1, pair_id="1", image_id="i")], {"q1": losses(0.1, 2.0)}, name)
    letters = name in (PAIRS, GMAI) or name.startswith("medevalkit_")
    assert ("where each letter is one token" in calibration.note) == letters
    assert ("not the model's own probabilities" in calibration.note) == (not letters)
    assert (bool(calibration.bins), math.isnan(calibration.brier.value)) == (letters, not letters)


def test_units_are_patients_and_pairs_connected_by_images(sample):
    replies = {f"q{n}": losses(*((0.1, 2.0) if n % 4 else (2.0, 0.1))) for n in range(40)}
    apart = calibrated([question(n) for n in range(40)], replies).brier
    same = calibrated([question(n, patient_id=str(n % 4)) for n in range(40)], replies).brier
    assert same.value == apart.value
    assert same.high - same.low > 2 * (apart.high - apart.low)  # a patient's answers are all alike
    alone = calibrated([question(n, patient_id="p") for n in range(40)], replies)
    assert math.isnan(alone.brier.low)
    documents = load_documents("mediconfusion")
    replies = {document["doc_id"]: losses(0.2, 1.0) for document in documents}
    chained = [{**item, "image_id": "one" if item["position"] == 1 else item["image_id"]} for item in documents]
    assert math.isnan(calibrated(chained, replies, PAIRS).accuracy.low)  # all are one unit
    by_pair = calibrated([{**item, "image_id": item["doc_id"]} for item in documents], replies, PAIRS)
    # Of each pair one answer is right: pairs do not differ, and count as one answer each.
    assert by_pair.accuracy.value == 0.5
    assert by_pair.accuracy.high - by_pair.accuracy.low == pytest.approx(0.466, abs=0.01)
    tied = calibrated(documents, {document["doc_id"]: losses(1.0, 1.0) for document in documents}, PAIRS)
    rules = ("greedy_reference", "prefix_reference")
    assert [extractor_of(rule).extract([1.0, 1.0], Sample({})).value for rule in rules] == ["A", "B"]
    assert (tied.accuracy.value, tied.ece.value) == (0.5, 0.0)  # a tie is between the rules


def test_classes_have_areas_from_likelihoods_if_all_questions_have_the_same_options():
    draw = np.random.default_rng(2)
    documents = [{"doc_id": f"q{n}", "options": ["x", "y", "z"], "label": n % 3} for n in range(60)]
    probabilities = draw.dirichlet([1.0] * 3, 60)
    replies = {f"q{n}": losses(*(-math.log(value) for value in row)) for n, row in enumerate(probabilities)}
    classes = calibrated(documents, replies).classes
    assert [(area.name, area.samples) for area in classes] == [("x", 20), ("y", 20), ("z", 20)]
    for number, area in enumerate(classes):
        target = [n % 3 == number for n in range(60)]
        assert area.auroc.value == pytest.approx(roc_auc_score(target, probabilities[:, number]))
        assert area.auroc.low < area.auroc.value < area.auroc.high
    documents[0]["options"] = ["x", "y", "other"]
    assert calibrated(documents, replies).classes == ()
