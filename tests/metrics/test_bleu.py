"""BLEU-1 against its formula, against torchmetrics and against the recorded reference."""

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.published.multimedeval import clean_head, clean_v0_1_0
from medtasks.metrics.ngram_metrics import References, bleu1, bleu1_from_counts

from ..tables import each_row

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "b:", "B", "1.2"]), max_size=14).map(" ".join)


def formula(reply, reference):
    words, expected = reply.split(), reference.split()
    matches = sum((Counter(words) & Counter(expected)).values())
    if not matches:
        return 0.0
    return min(1.0, math.exp(1 - len(expected) / len(words))) * matches / len(words)


@each_row("version, clean", [("head", clean_head), ("v0_1_0", clean_v0_1_0)])
def test_golden_multimedeval_choice_scores(golden, version, clean):
    lines = (golden / "multimedeval_choice.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert cases
    for case in cases:
        recorded = case[version]
        scores = References.of([clean(option) for option in case["options"]]).scores(clean(case["reply"]))
        assert scores == pytest.approx(recorded["scores"], rel=0, abs=1e-6), case
        assert scores.index(max(scores)) == recorded["index"], case
        assert (max(scores) == 0) == recorded["all_zero"], case


@each_row(
    "reply, reference, score",
    [
        ("", "", 0),
        ("", "b", 0),
        ("b", "", 0),
        ("b", "c", 0),
        ("b", "B", 0),
        ("b", "b", 1),
        ("b c", "c b", 1),
        ("b b b", "b", 1 / 3),
        ("b b b", "b b c", 2 / 3),
        ("b", "b c d", math.exp(-2)),
        ("b x", "b c d", math.exp(-0.5) / 2),
        ("b\tc\u00a0d\n", " b  c d", 1),
    ],
)
def test_known_scores(reply, reference, score):
    assert bleu1(reply, reference) == pytest.approx(score, abs=1e-6)


@given(TEXTS, TEXTS)
def test_is_the_formula(reply, reference):
    assert bleu1(reply, reference) == pytest.approx(formula(reply, reference), abs=1e-6)


@given(st.lists(TEXTS, max_size=4), st.lists(TEXTS, max_size=4))
def test_every_reply_against_every_option(replies, options):
    references = References.of(options)
    assert all(references.scores(reply) == [bleu1(reply, option) for option in options] for reply in replies)


def test_single_precision():
    assert bleu1_from_counts(3, 10, 1) == 0.29999998211860657
    assert 0 < bleu1_from_counts(1, 1, 104) < 1e-44
    assert bleu1_from_counts(1, 1, 110) == 0


def test_counted_once_for_many_replies():
    references = References.of(["cyst", "cyst mass"])
    assert references.scores("cyst") == [1, pytest.approx(math.exp(-1))]
    assert references.scores("mass cyst") == [0.5, 1]
    assert References.of([]).scores("cyst") == []


def test_is_torchmetrics():
    text = pytest.importorskip("torchmetrics.text")
    score = text.BLEUScore(n_gram=1)
    words = ["b", "b", "c", "1.2", "b:", "d", "e", "c"]
    replies = [" ".join(words[start : start + length]) for start in range(4) for length in range(6)]
    options = [" ".join(words[:length]) + " x" * extra for length in range(5) for extra in (0, 1, 120)]
    references = References.of(options)
    for reply in replies:
        row = references.scores(reply)
        theirs = [score([reply], [[option]]).item() for option in options]
        assert row == pytest.approx(theirs, rel=0, abs=1e-6)
        assert [value == max(row) for value in row] == [value == max(theirs) for value in theirs]
