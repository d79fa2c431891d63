"""Scores of MedHEval's closed questions."""

import json
import math

import pytest

from medtasks.extract.published.medheval_closed import listed_options
from medtasks.families.closed_questions import CLOSED_QUESTIONS
from medtasks.families.family import Rule
from medtasks.hooks import closed_questions as hooks
from medtasks.runs.reply_envelope import make_envelope

from ..task_families import score_of, values_of

PROCESS = hooks.process_results
CONSTANTS = {
    "Yes": (0.471, 0.346, 0.369, 0.218, 0.361),
    "No": (0.434, 0.484, 0.563, 0.280, 0.466),
}
TYPES = ("acc_anatomy", "acc_measurement", "acc_symptom", "acc_technique", "accuracy")


def document(number=0, **columns):
    return {
        "doc_id": f"MM-VisHal/{number}",
        "dataset": "medheval_visual_mm",
        "image_id": f"scan{number // 2}",
        "patient_id": None,
        "question": "Is there a mass?",
        "kind": "binary",
        "choices": "",
        "options": ["Yes", "No"],
        "answer": "A",
        "gold": "Yes",
        "flags": [],
        "hallucination": "symptom",
        "source": "slake",
        "modality": "CT",
        "location": "Lung",
        **columns,
    }


def organs(number=0, **columns):
    choices = {
        "kind": "multi-choice",
        "question": "Which organ is it?",
        "choices": "A. Liver, B. Heart, C. Lung",
        "options": ["Liver", "Heart", "Lung"],
        "answer": "B",
        "gold": "Heart",
        "hallucination": "anatomy",
    }
    return document(number, **{**choices, **columns})


def scored(docs, replies, rule):
    return values_of(
        CLOSED_QUESTIONS,
        [
            score_of(CLOSED_QUESTIONS, doc, reply, rule)
            for doc, reply in zip(docs, replies, strict=True)
        ],
    )


def test_a_score():
    entry = score_of(CLOSED_QUESTIONS, organs(3), "B", "medheval_strict")
    assert entry.pop("cluster_id").startswith("image-")
    assert entry == {
        "sample": "MM-VisHal/3",
        "source": "slake",
        "hallucination": "anatomy",
        "kind": "multi-choice",
        "target": "B",
        "value": "B",
        "reason": "ok",
        "correct": 1.0,
        "counted": "scored",
        "always_yes": 0.0,
        "always_no": 0.0,
        "random_choice": pytest.approx(1 / 3),
        "rule": "medheval_strict",
    }


def test_scores_under_both_rules():
    docs = [
        document(0),
        document(1, answer="B", gold="No"),
        organs(2),
        organs(3, answer=None, gold="Liver, Lung"),
        organs(4, choices="A, B, C", options=["A", "B", "C"], answer=None, gold="B"),
    ]
    replies = ["I cannot tell.", "No", "B", "Liver", "B"]
    strict = scored(docs, replies, "medheval_strict")
    assert (strict["accuracy"], strict["acc_symptom"], strict["acc_anatomy"]) == (
        pytest.approx(2 / 3),
        0.5,
        1.0,
    )
    assert math.isnan(strict["acc_technique"])
    assert math.isnan(strict["acc_technique_stderr"])
    assert (strict["invalid_rate"], strict["yes_rate"], strict["unscored_rate"]) == (
        0.2,
        0.0,
        0.4,
    )
    assert (strict["always_yes"], strict["always_no"]) == (
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
    )
    assert strict["random_choice"] == pytest.approx((0.5 + 0.5 + 1 / 3) / 3)
    reference = scored(docs, replies, "medheval_reference")
    assert (reference["yes_rate"], reference["invalid_rate"]) == (
        0.5,
        0.2,
    )  # without options nothing can be chosen
    assert reference["unscored_rate"] == 0.2
    assert reference["acc_symptom"] == 1.0  # the refusal says yes


def test_likelihoods():
    def preferring(doc, losses):
        return score_of(CLOSED_QUESTIONS, doc, losses, "untied")

    entry = preferring(organs(), [2.0, 1.0, 3.0])
    assert (entry["value"], entry["correct"], entry["rule"]) == ("B", 1.0, "untied")
    assert preferring(document(), [2.0, 1.0])["correct"] == 0.0
    assert preferring(document(), [1.0, 1.0])["reason"] == "ambiguous"
    assert preferring(document(), [math.nan, 1.0])["reason"] == "adapter_failed"
    unparsed = preferring(organs(options=[], choices="left or right", answer=None), [1.0])
    assert (unparsed["counted"], unparsed["correct"]) == ("left_out", 0.0)
    raw = PROCESS(organs(), ["(2.0, False)", "(1.0, False)", "(3.0, False)"])["accuracy"]
    assert (raw["value"], raw["rule"]) == ("B", "untied")


def test_credentialed_text_is_withheld():
    secret = {
        "dataset": "medheval_context",
        "doc_id": "MIMIC-CXR_pairs/7",
        "patient_id": "10000007",
        "question": "CANARY question?",
        "gold": "CANARY gold",
        "choices": "CANARY choices",
        "answer": None,
    }
    found = PROCESS(
        document(**secret), [make_envelope("CANARY reply", Rule("medheval_reference"))]
    )
    assert "CANARY" not in json.dumps(found)
    assert "10000007" not in json.dumps(found)
    assert found["accuracy"]["sample"].startswith("doc-")
    assert "withheld" in found["doc"]


@pytest.fixture(scope="module")
def published(tmp_path_factory, test_data):
    """The documents of the published set."""
    from medtasks.data.document_store import load_documents
    from medtasks.data.prepare.prepare_dataset import prepare
    from medtasks.data.prepare.source_recipe import Options

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(tmp_path_factory.mktemp("medheval")))
        prepare("medheval_visual_mm", Options(test_data / "medheval"))
        return load_documents("medheval_visual_mm")


@pytest.mark.parametrize("reply", CONSTANTS)
def test_golden_medheval_constant_answers(published, reply):
    found = scored(published, [reply] * len(published), "medheval_reference")
    assert tuple(round(found[name], 3) for name in TYPES) == CONSTANTS[reply]
    assert found["always_yes" if reply == "Yes" else "always_no"] == found["accuracy"]
    assert found["unscored_rate"] == 8 / 3610


def test_golden_medheval_published_answers(published):
    found = scored(published, [doc["gold"] for doc in published], "medheval_reference")
    assert [found[name] for name in TYPES] == [1.0] * 5
    # A random option with one seed scored .447 there; this is what all seeds score on average.
    assert found["random_choice"] == pytest.approx(0.447, abs=0.01)


def test_golden_medheval_right_letters_and_texts_are_right(published):
    """Keys come from the published answers, not from the evaluator, which misreads ten of them."""
    docs = [doc for doc in published if doc["kind"] == "multi-choice"]
    letters = scored(docs, [doc["answer"] or "A" for doc in docs], "medheval_strict")
    assert letters["accuracy"] == 1.0
    assert letters["unscored_rate"] == 46 / 969
    keyed = [doc for doc in docs if doc["answer"] and len(listed_options(doc["choices"])) > 1]
    assert len(keyed) == 921
    found = scored(keyed, [doc["answer"] for doc in keyed], "medheval_reference")
    assert round(found["accuracy"], 3) == 0.913
    binary = {"A": "yes", "B": "no", None: "yes"}
    right = [
        binary[doc["answer"]] if doc["kind"] == "binary" else doc["answer"] or "A"
        for doc in published
    ]
    everything = scored(published, right, "medheval_strict")
    assert [everything[name] for name in TYPES] == [1.0] * 5
    docs = [doc for doc in docs if doc["answer"]]
    replies = [doc["options"]["ABCDEF".index(doc["answer"])] for doc in docs]
    assert (
        scored(docs, [reply.lower() for reply in replies], "medheval_strict")["accuracy"] == 1.0
    )
    said = scored(docs, [f"The answer is {reply}." for reply in replies], "medheval_strict")
    assert said["accuracy"] >= 922 / 923  # in a sentence, T2 and T2* cannot be told apart
