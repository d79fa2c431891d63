"""MultiMedEval's text cleaners, and its rules for questions, image classes, and several labels."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.published.multimedeval import CONTRACTIONS, clean_head, clean_v0_1_0

from ..tables import each_row, rows_in
from .reading import reading, recorded

OPTION, CLASS, YES_NO_MAYBE, LABELS = (
    [reading(f"multimedeval_{kind}_{version}") for version in ("head", "v0_1_0")]
    for kind in ("option", "class", "yes_no_maybe", "labels")
)
RULES = dict(zip(("head", "v0_1_0"), zip(OPTION, CLASS, strict=True), strict=True))
VERSIONS = pytest.mark.parametrize("version", RULES)


@VERSIONS
def test_golden_multimedeval_choice(golden, version):
    read_option, read_class = RULES[version]
    for case in recorded(golden, "multimedeval_choice", 400):
        published, options = case[version], case["options"]
        letter = chr(ord("A") + published["index"])
        assert read_class(case["reply"], options) == Answer.ok(letter), case
        answer = read_option(case["reply"], options)
        assert answer.value == (None if published["all_zero"] else letter), case


def test_word_against_a_very_long_option_scores_nothing_in_single_precision():
    assert OPTION[0]("b", ["cyst", "b" + " word" * 102]).value == "B"
    assert OPTION[0]("b", ["cyst", "b" + " word" * 120]).reason is Reason.NO_MATCH


WORDS = st.sampled_from(
    ["Mass", "mass", "Edema,", "a", "the", "Pleural_Thickening", "pleural", "Thickening.", "no"]
)
REPLIES = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=20)
CLEANERS = [*zip(LABELS, (clean_head, clean_v0_1_0), strict=True)]


@pytest.mark.parametrize(("rule", "clean"), CLEANERS)
@given(reply=REPLIES)
def test_a_label_needs_more_than_half_of_the_replys_words(rule, clean, reply):
    """With labels of one word, BLEU-1 is above one half exactly when the reply is that word."""
    assert rule(reply, ["Mass", "Edema"]).value == tuple(
        int(clean(reply).split() == [name]) for name in ("mass", "edema")
    )


PIECES = st.sampled_from(
    [
        *" \t\n\r\u00a0\u2003;/[]\"{}()=+\\_-><@`,?!.:'*#",
        *(
            "a",
            "A ",
            "the",
            "none",
            "Ten",
            "dont",
            "1",
            "2,0",
            "\u0663,\u0664",
            "\u0130",
            "\u03a3",
            "...",
            "\ud800",
        ),
    ]
)
TEXTS = st.text() | st.lists(PIECES, max_size=30).map("".join)


def test_golden_multimedeval_clean(golden):
    cases = recorded(golden, "multimedeval_clean", 400)
    assert not [case for case in cases if clean_head(case["text"]) != case["head"]]
    assert not [case for case in cases if clean_v0_1_0(case["text"]) != case["v0_1_0"]]


@each_row(("text", "cleaned"), rows_in("multimedeval_cleaning_newer_cleaner"))
def test_newer_cleaner(text, cleaned):
    assert clean_head(text) == cleaned


def test_newer_cleaner_deletes_32_periods_and_no_more():
    assert clean_head("." * 40) == "." * 8
    assert clean_head(".5" + ".x" * 33) == ".5" + "x" * 32 + ".x"


@each_row(("text", "cleaned"), rows_in("multimedeval_cleaning_older_cleaner"))
def test_older_cleaner(text, cleaned):
    assert clean_v0_1_0(text) == cleaned


@given(TEXTS)
def test_marks_that_the_cleaners_leave(text):
    newer, older = clean_head(text), clean_v0_1_0(text)
    assert newer == " ".join(newer.split()) == newer.lower()
    assert not set(newer) & set(';/[]"{}()=+\\_-><@`,?!')
    assert older == older.lower()
    assert not set(older) & {*string.punctuation, "\n"}
    assert "  " not in older


def test_contractions_put_one_apostrophe_back():
    restored = {short: full for short, full in CONTRACTIONS.items() if len(full) > len(short)}
    assert {**restored, "somebody'd": "somebodyd"} == CONTRACTIONS
    assert len(restored) == 113
    for short, full in restored.items():
        assert full.count("'") == short.count("'") + 1
        assert full.replace("'", "") == short.replace("'", "")
