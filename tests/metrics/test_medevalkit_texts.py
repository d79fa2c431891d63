"""How MedEvalKit compares texts: what the recorded cases do not show."""

import math
import random
import warnings

import pytest

from medtasks.metrics.medevalkit_texts import compare_answer

from ..growth import assert_linear
from ..tables import each_row

nltk = pytest.importorskip("nltk.translate.bleu_score")


def test_bleu_is_nltk_s():
    chance = random.Random(1)
    for _ in range(300):
        reply, gold = (
            " ".join(["d", *chance.choices(["a", "C", ".", "", "e."], k=chance.randrange(9))])
            for _ in "12"
        )
        tokens = [text.lower().replace(".", " .").split(" ") for text in (gold, reply)]
        for order in range(1, 5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = nltk.sentence_bleu(
                    tokens[:1], tokens[1], weights=[1 / order] * order
                )
            assert math.isclose(
                compare_answer(reply, gold).measures[f"bleu_{order}"], expected, rel_tol=1e-12
            )


@each_row(
    "reply, gold, shared, said, wanted",
    [
        (
            "a b. c d",
            "d a b c",
            3,
            4,
            4,
        ),  # c or d: only one of them, by the order in which the table is walked
        ("b a", "a b", 1, 2, 2),
        ("a a a", "a", 1, 1, 1),
        (" . a", "a", 1, 2, 1),  # blanks before a full stop are a word
        ("c. b. a", "a b c", 3, 3, 3),
    ],
)
def test_the_union_of_subsequences(reply, gold, shared, said, wanted):
    precision, recall = shared / said, shared / wanted
    expected = 2 * precision * recall / (precision + recall + 1e-8)
    assert compare_answer(reply, gold).measures["rouge_l"] == pytest.approx(expected, rel=1e-12)


@each_row(
    "reply, gold, stops",
    [
        ("", "ct", "the reply has no words for ROUGE"),
        (" \n", "ct", "the reply has no words for F1"),
        (" . ", "ct", None),
        ("ct", "", "the gold has no words for ROUGE"),
        ("ct", " ", "the gold has no words for F1"),
        ("word " * 990, "ct", None),
        ("word " * 991, "ct", "a sentence is too long for the recursion of ROUGE-L"),
        ("ct " + "word " * 1000, "ct", "a sentence is too long for the recursion of ROUGE-L"),
        ("word " * 1000 + "ct", "ct", None),  # the walk ends where the gold does
    ],
)
def test_where_the_published_code_raises(reply, gold, stops):
    assert compare_answer(reply, gold).stops == stops


def test_a_reply_of_5000_words_has_measures_in_linear_time():
    gold = "the left lung " * 40
    assert_linear(lambda reply: compare_answer(reply, gold), "left ")
    found = compare_answer("left " * 2500 + "lung " * 2500, gold).measures
    assert found["precision"] == 1
    assert found["recall"] == pytest.approx(2 / 3)
    assert found["rouge_l"] == pytest.approx(0.8, abs=1e-7)
