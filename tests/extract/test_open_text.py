"""Replies to open questions against their key: the reference's numbers, and what a careful reader makes of them.

Last, what that reader compares: words in one spelling, and which of them a text denies.
"""

import math
import random
from types import SimpleNamespace

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import DENIED, stated_words
from medtasks.extract.extractor_registry import AnswerKind, Reason, extractor_of
from medtasks.extract.failure import failed_reply
from medtasks.extract.published.multimedeval import clean_head
from medtasks.metrics.overlaps import token_overlap

from ..tables import each_row, rows_in
from .reading import recorded, rows


def scoring(rule):
    def score(reply, target):
        answer = extractor_of(rule, AnswerKind.OPEN).extract(reply, Sample({"answer": target}))
        return SimpleNamespace(**answer.facts, reason=answer.reason)

    return score


multimedeval_vqa_head, robust_vqa = scoring("multimedeval_vqa_head"), scoring("robust_vqa")
NOTHING = {"bleu_1": 0, "token_f1": 0, "token_recall": 0, "correct": False}


def test_golden_multimedeval_vqa(golden):
    for case in recorded(golden, "multimedeval_vqa", 100):
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
        assert found == pytest.approx({name: case[name] for name in found}, abs=1e-6), case
        assert (found["closed"], found["correct"]) == (case["closed"], case["correct"]), case


# fmt: off
CORRECT = {
    True: [
        ("It is not seen.", "no"), ("yes and no", "yes"), ("yes and no", "no"), ("There is no effusion, yes", "No."),
        ("the left and lower lung lobe", "left lower lung lobe"), ("left lower lung", "the left lower lung lobe"),
        ("no fracture", "fracture"),
    ],
    False: [("It is not seen.", "yes"), ("none", "no"), ("left lower lung", "left lower lobe"), ("A", "A")],
}
# fmt: on


@each_row(("texts", "correct"), rows(CORRECT))
def test_reference_correct(texts, correct):
    assert multimedeval_vqa_head(*texts).correct is correct


@each_row(("key", "closed"), [(" Yes", True), ("the no", True), ("No.", True), ("yes no", False)])
def test_reference_closed_is_decided_on_the_cleaned_key(key, closed):
    assert multimedeval_vqa_head("yes", key).closed is closed


@each_row(
    ("reply", "key", "facts"),
    [
        # The overlap does not know that "not" means "no".
        ("not seen", "no", {"correct": True, "token_recall": 0, "token_f1": 0, "bleu_1": 0}),
        # Keys are stripped, replies are not: beside a blank a mark is deleted, elsewhere it becomes one.
        ("low grade", " low-grade- ", {"token_recall": 1}),
        (" low-grade- ", "low grade", {"token_recall": 0}),
        ("lobe lobe lobe", "lobe", {"token_f1": 1, "bleu_1": 1 / 3}),  # a repeated word counts once in F1, not in BLEU
        ("lobe", "left lower lobe", {"bleu_1": math.exp(-2)}),  # the penalty for short replies
    ],
)
def test_reference_overlaps(reply, key, facts):
    score = vars(multimedeval_vqa_head(reply, key))
    assert {name: score[name] for name in facts} == pytest.approx(facts)


@each_row("rule", [multimedeval_vqa_head, robust_vqa])
@each_row("key", ["yes", "left lobe"])
@each_row(("reply", "reason"), [(" \n", Reason.EMPTY), (failed_reply("yes: left lobe"), Reason.ADAPTER_FAILED)])
def test_no_reply_is_invalid(rule, key, reply, reason):
    assert vars(rule(reply, key)) == {**NOTHING, "closed": key == "yes", "reason": reason}


@each_row("key", ["yes", "no"])
@each_row("reply", ["Yes and no.", "The left lung.", "I cannot determine this from the image."])
def test_robust_closed_without_a_reading_is_invalid_and_wrong(reply, key):
    score = robust_vqa(reply, key)
    assert score.reason is not Reason.OK
    assert (score.correct, score.token_recall, score.bleu_1) == (False, 0, 0)


@each_row("reply", ["I cannot tell which lobe it is.", "As an AI, I am unable to interpret the left lobe."])
def test_robust_open_refusals_are_invalid(reply):
    assert vars(robust_vqa(reply, "left lobe")) == {**NOTHING, "closed": False, "reason": Reason.REFUSED}


# Replies and keys by the share of the key's words.
# fmt: off
RECALL = {
    0: [
        ("There is no evidence of pneumonia.", "pneumonia"), ("Pneumonia is not seen.", "pneumonia"),
        ("It is not a CT, it is an MRI.", "CT"), ("Abnormality.", "no abnormality"), ("A mass in the lung", "a"),
        ("1.2", "12"), ("<think>Left or right?</think>Right", "left"),
    ],
    1: [
        ("It is not a CT, it is an MRI.", "MRI"), ("No fracture, but pneumonia.", "pneumonia"),
        ("Not pneumonia, but pneumonia of the other lobe.", "pneumonia"),
        ("There is no abnormality.", "no abnormality"), ("Hepatitis A.", "hepatitis A"), ("The answer is A", "A"),
        ("a mass", "the mass"), ("none", "0"), ("None.", "none"), ("There are three.", "3"),
        ("It measures 1.20 cm", "1.2cm"), ("1000", "1,000"), ("the third ventricle", "3rd ventricle"),
        ("T2 weighted", "T2-weighted"), ("X-ray", "x ray"), ("Crohn’s disease", "crohn's disease"),
        ("**Left** lobe.</s>right", "left lobe"), ("Ｌｅｆｔ", "left"),
    ],
    1 / 3: [("CT with contrast", "CT without contrast")],
    0.5: [("A hepatitis.", "hepatitis A")],
}
# fmt: on


@each_row(("texts", "recall"), rows(RECALL))
def test_robust_open_recall(texts, recall):
    score = robust_vqa(*texts)
    assert score.token_recall == pytest.approx(recall)
    assert score.correct is (recall >= 0.75)
    assert (score.closed, score.reason) == (False, Reason.OK)


@each_row("reply", ["...", "The", "(?)"])
def test_robust_open_without_words_is_invalid(reply):
    assert robust_vqa(reply, "left lobe").reason is Reason.EMPTY


def test_robust_open_counts_all_words_in_precision():
    score = robust_vqa("The left lower lobe", "left lobe")
    assert (score.token_f1, score.bleu_1) == (pytest.approx(2 * 2 / 3 / (1 + 2 / 3)), pytest.approx(2 / 3))


@each_row(("text", "words"), rows_in("open_text_spelling"))
def test_spelling(text, words):
    assert stated_words(text) == words.split()


@each_row(("text", "denied"), rows_in("open_text_denied"))
def test_denied(text, denied):
    found = [word.removeprefix(DENIED) for word in stated_words(text) if word.startswith(DENIED)]
    assert found == denied.split()


def test_any_text_keeps_its_words():
    rng = random.Random(11)
    pieces = [
        *("no", "not", "but", "in", "instead", "and", "or", "mass", "left", "is", "seen", "it", "without", "1.2"),
        *("e.g.", ".", ",", ";", "\n", "(", ")", "?", ":", "'s", "\ud800", "İ", "a", "U.S.", "- ", "possible", "x-ray"),
        "none",
    ]
    for _ in range(3000):
        text = "".join(rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randint(0, 25)))
        assert [word.removeprefix(DENIED) for word in stated_words(text)] == stated_words(text, frozenset())


@each_row(
    ("reply", "key", "correct"),
    [("Yes.", "yes", True), ("**No**", "No", True), ("yes", "no", False), ("Yes, there is an effusion.", "Yes", True)],
)
def test_robust_closed(reply, key, correct):
    score = robust_vqa(reply, key)
    assert (score.closed, score.correct, score.reason) == (True, correct, Reason.OK)
    assert score.token_recall == score.bleu_1 == pytest.approx(score.token_f1) == float(correct)


def test_only_words_of_interest_are_told_apart():
    assert stated_words("no mass, no cyst", {"cyst"}) == ["no", "mass", "no", DENIED + "cyst"]
