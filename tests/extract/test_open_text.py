"""Replies to open questions against their key: the reference's numbers, and what a careful reader makes of them.

Last, what that reader compares: words in one spelling, and which of them a text denies.
"""

import random

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import DENIED, stated_words
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.published.multimedeval import clean_head
from medtasks.metrics.ngram_metrics import token_overlap

from ..tables import each_row, rows_in
from .reading import recorded


def test_golden_multimedeval_vqa(golden):
    for case in recorded(golden, "multimedeval_vqa", 100):
        extract, sample = (
            extractor_of("multimedeval_vqa_head").extract,
            Sample({"answer": case["gold"]}),
        )
        facts = extract(case["prediction"], sample).facts
        tokens = [
            set(clean_head(text).split()) for text in (case["prediction"], case["gold"].strip())
        ]
        names = {"recall": "token_recall", "f1": "token_f1", "bleu1": "bleu_1"}
        names |= {name: name for name in ("closed", "correct")}
        found = {
            "precision": token_overlap(*tokens).precision,
            **{name: facts[fact] for name, fact in names.items()},
        }
        assert found == pytest.approx({name: case[name] for name in found}, abs=1e-6), case
        assert (found["closed"], found["correct"]) == (case["closed"], case["correct"]), case


def test_closed_and_open_replies_are_right_as_published():
    for reply, target, is_right in (
        *((reply, "no", True) for reply in ("no", "not seen", "no, not", "yes or no")),
        *((reply, "no", False) for reply in ("none", "a")),
        *((reply, "yes", "yes" in reply) for reply in ("not", "yes", "yes or no")),
        *(
            (reply, "left lower lung lobe", "lung" in reply)
            for reply in ("left lower lung", "left lower")
        ),
    ):
        facts = (
            extractor_of("multimedeval_vqa_head")
            .extract(reply, Sample({"answer": target}))
            .facts
        )
        assert (facts["correct"], facts["closed"]) == (is_right, target in ("yes", "no")), reply


@each_row(("text", "words"), rows_in("open_text_spelling"))
def test_spelling(text, words):
    assert stated_words(text) == words.split()


@each_row(("text", "denied"), rows_in("open_text_denied"))
def test_denied(text, denied):
    found = [
        word.removeprefix(DENIED) for word in stated_words(text) if word.startswith(DENIED)
    ]
    assert found == denied.split()


def test_any_text_keeps_its_words():
    rng = random.Random(11)
    pieces = [
        *(
            "no",
            "not",
            "but",
            "in",
            "instead",
            "and",
            "or",
            "mass",
            "left",
            "is",
            "seen",
            "it",
            "without",
            "1.2",
        ),
        *(
            "e.g.",
            ".",
            ",",
            ";",
            "\n",
            "(",
            ")",
            "?",
            ":",
            "'s",
            "\ud800",
            "İ",
            "a",
            "U.S.",
            "- ",
            "possible",
            "x-ray",
        ),
        "none",
    ]
    for _ in range(3000):
        text = "".join(
            rng.choice(pieces) + rng.choice(["", " "]) for _ in range(rng.randint(0, 25))
        )
        assert [word.removeprefix(DENIED) for word in stated_words(text)] == stated_words(
            text, frozenset()
        )


def test_only_words_of_interest_are_told_apart():
    assert stated_words("no mass, no cyst", {"cyst"}) == ["no", "mass", "no", DENIED + "cyst"]
