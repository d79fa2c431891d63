"""Replies to open questions against their key: the reference's numbers, and what a careful reader makes of them."""

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.answer import Reason
from medtasks.extract.failure import failed_reply
from medtasks.extract.multimedeval import clean_head
from medtasks.extract.registry import Kind, extractor_of
from medtasks.metrics.set_overlap import token_overlap


def scoring(rule):
    def score(reply, target):
        answer = extractor_of(rule, Kind.OPEN).extract(reply, Sample({"answer": target}))
        return SimpleNamespace(**answer.facts, reason=answer.reason)

    return score


multimedeval_vqa_head, robust_vqa = scoring("multimedeval_vqa_head"), scoring("robust_vqa")
NOTHING = {"bleu_1": 0, "token_f1": 0, "token_recall": 0, "correct": False}


def test_golden_multimedeval_vqa(golden):
    lines = (golden / "multimedeval_vqa.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= 100
    for case in map(json.loads, lines):
        score = multimedeval_vqa_head(case["prediction"], case["gold"])
        tokens = [set(clean_head(text).split()) for text in (case["prediction"], case["gold"].strip())]
        found = {
            "precision": token_overlap(*tokens).precision,
            "recall": score.token_recall,
            "f1": score.token_f1,
            "bleu1": score.bleu_1,
            "closed": score.closed,
            "correct": score.correct,
        }
        recorded = {name: case[name] for name in found}
        assert found == pytest.approx(recorded, abs=1e-6), case
        assert (found["closed"], found["correct"]) == (recorded["closed"], recorded["correct"]), case


def test_an_answer_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        extractor_of("robust_vqa").extract("left", Sample({"answer": "left"})).value = None


@pytest.mark.parametrize(
    ("reply", "target", "reference", "robust"),
    [
        ("The image shows No", "No", "image shows no", None),
        ("Yes, it is.", "yes", "yes it is", "yes"),
        ("The left lobe.", "lobe", "left lobe", "left lobe"),
    ],
)
def test_value_is_what_was_compared(reply, target, reference, robust):
    sample = Sample({"answer": target})
    assert extractor_of("multimedeval_vqa_head").extract(reply, sample).value == reference
    assert extractor_of("robust_vqa").extract(reply, sample).value == robust


@pytest.mark.parametrize(
    ("reply", "key", "correct"),
    [
        ("It is not seen.", "no", True),
        ("It is not seen.", "yes", False),
        ("yes and no", "yes", True),
        ("yes and no", "no", True),
        ("There is no effusion, yes", "No.", True),
        ("none", "no", False),
        ("left lower lung", "left lower lobe", False),
        ("the left and lower lung lobe", "left lower lung lobe", True),
        ("left lower lung", "the left lower lung lobe", True),
        ("no fracture", "fracture", True),
        ("A", "A", False),
    ],
)
def test_reference_correct(reply, key, correct):
    assert multimedeval_vqa_head(reply, key).correct is correct


@pytest.mark.parametrize(("key", "closed"), [(" Yes", True), ("the no", True), ("No.", True), ("yes no", False)])
def test_reference_closed_is_decided_on_the_cleaned_key(key, closed):
    assert multimedeval_vqa_head("yes", key).closed is closed


def test_reference_overall_recall_does_not_know_not():
    score = multimedeval_vqa_head("not seen", "no")
    assert (score.correct, score.token_recall, score.token_f1, score.bleu_1) == (True, 0, 0, 0)


def test_reference_strips_the_key_and_not_the_reply():
    """Beside a blank a mark is deleted, elsewhere it becomes one."""
    assert multimedeval_vqa_head("low grade", " low-grade- ").token_recall == 1
    assert multimedeval_vqa_head(" low-grade- ", "low grade").token_recall == 0


def test_reference_counts_a_repeated_word_once_in_f1_and_not_in_bleu():
    score = multimedeval_vqa_head("lobe lobe lobe", "lobe")
    assert score.token_f1 == pytest.approx(1)
    assert score.bleu_1 == pytest.approx(1 / 3)


def test_reference_penalises_short_replies_in_bleu():
    assert multimedeval_vqa_head("lobe", "left lower lobe").bleu_1 == pytest.approx(math.exp(-2))


@pytest.mark.parametrize("rule", [multimedeval_vqa_head, robust_vqa])
@pytest.mark.parametrize("key", ["yes", "left lobe"])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, Reason.EMPTY),
        ("", Reason.EMPTY),
        (" \n", Reason.EMPTY),
        (failed_reply("yes: left lobe"), Reason.ADAPTER_FAILED),
    ],
)
def test_no_reply_is_invalid(rule, key, reply, reason):
    assert vars(rule(reply, key)) == {**NOTHING, "closed": key == "yes", "reason": reason}


@pytest.mark.parametrize(
    ("reply", "key", "correct"),
    [
        ("Yes.", "yes", True),
        ("**No**", "No", True),
        ("yes", "no", False),
        ("Yes, there is an effusion.", "Yes", True),
    ],
)
def test_robust_closed(reply, key, correct):
    score = robust_vqa(reply, key)
    assert (score.closed, score.correct, score.reason) == (True, correct, Reason.OK)
    assert score.token_recall == score.bleu_1 == pytest.approx(score.token_f1) == float(correct)


@pytest.mark.parametrize("key", ["yes", "no"])
@pytest.mark.parametrize("reply", ["Yes and no.", "The left lung.", "I cannot determine this from the image."])
def test_robust_closed_without_a_reading_is_invalid_and_wrong(reply, key):
    score = robust_vqa(reply, key)
    assert score.reason is not Reason.OK
    assert (score.correct, score.token_recall, score.bleu_1) == (False, 0, 0)


@pytest.mark.parametrize(
    "reply", ["I cannot tell which lobe it is.", "As an AI, I am unable to interpret the left lobe."]
)
def test_robust_open_refusals_are_invalid(reply):
    assert vars(robust_vqa(reply, "left lobe")) == {**NOTHING, "closed": False, "reason": Reason.REFUSED}


@pytest.mark.parametrize(
    ("reply", "key", "recall"),
    [
        ("There is no evidence of pneumonia.", "pneumonia", 0),
        ("Pneumonia is not seen.", "pneumonia", 0),
        ("It is not a CT, it is an MRI.", "MRI", 1),
        ("It is not a CT, it is an MRI.", "CT", 0),
        ("No fracture, but pneumonia.", "pneumonia", 1),
        ("Not pneumonia, but pneumonia of the other lobe.", "pneumonia", 1),
        ("There is no abnormality.", "no abnormality", 1),
        ("Abnormality.", "no abnormality", 0),
        ("CT with contrast", "CT without contrast", 1 / 3),
        ("Hepatitis A.", "hepatitis A", 1),
        ("A hepatitis.", "hepatitis A", 0.5),
        ("The answer is A", "A", 1),
        ("a mass", "the mass", 1),
        ("A mass in the lung", "a", 0),
        ("none", "0", 1),
        ("None.", "none", 1),
        ("There are three.", "3", 1),
        ("It measures 1.20 cm", "1.2cm", 1),
        ("1000", "1,000", 1),
        ("1.2", "12", 0),
        ("the third ventricle", "3rd ventricle", 1),
        ("T2 weighted", "T2-weighted", 1),
        ("X-ray", "x ray", 1),
        ("Crohn’s disease", "crohn's disease", 1),
        ("**Left** lobe.</s>right", "left lobe", 1),
        ("Ｌｅｆｔ", "left", 1),
        ("<think>Left or right?</think>Right", "left", 0),
    ],
)
def test_robust_open_recall(reply, key, recall):
    score = robust_vqa(reply, key)
    assert score.token_recall == pytest.approx(recall)
    assert score.correct is (recall >= 0.75)
    assert (score.closed, score.reason) == (False, Reason.OK)


@pytest.mark.parametrize("reply", ["...", "The", "(?)"])
def test_robust_open_without_words_is_invalid(reply):
    assert robust_vqa(reply, "left lobe").reason is Reason.EMPTY


def test_robust_open_counts_all_words_in_precision():
    score = robust_vqa("The left lower lobe", "left lobe")
    assert (score.token_f1, score.bleu_1) == (pytest.approx(2 * 2 / 3 / (1 + 2 / 3)), pytest.approx(2 / 3))
