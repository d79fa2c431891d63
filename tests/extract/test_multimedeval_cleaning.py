"""MultiMedEval's two text cleaners."""

import string

from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.published.multimedeval import CONTRACTIONS, clean_head, clean_v0_1_0

from ..tables import each
from .reading import recorded

PIECES = st.sampled_from(
    [
        *" \t\n\r\u00a0\u2003;/[]\"{}()=+\\_-><@`,?!.:'*#",
        *("a", "A ", "the", "none", "Ten", "dont", "1", "2,0", "\u0663,\u0664", "\u0130", "\u03a3", "...", "\ud800"),
    ]
)
TEXTS = st.text() | st.lists(PIECES, max_size=30).map("".join)


def test_golden_multimedeval_clean(golden):
    cases = recorded(golden, "multimedeval_clean", 400)
    assert not [case for case in cases if clean_head(case["text"]) != case["head"]]
    assert not [case for case in cases if clean_v0_1_0(case["text"]) != case["v0_1_0"]]


@each(
    ("text", "cleaned"),
    [
        ("", ""),
        ("A", ""),
        ("The  Mass\n", "mass"),
        ("the.", ""),
        ("(B)", "b"),
        ("B: kidney.", "b: kidney"),
        ("well-defined", "well defined"),
        ("well-defined - mass", "welldefined mass"),
        ("well-defined\u00a0-\tmass", "well defined mass"),
        ("x-ray (T1/T2)", "x ray t1 t2"),
        ("1,000 cells/field", "1000 cellsfield"),
        ("1,000 and (well-defined)", "1000 and welldefined"),
        ("\u0663,\u0664 a/b", "\u0663\u0664 ab"),
        ("cyst,mass", "cyst mass"),
        ("cyst, mass,node", "cyst massnode"),
        ("1.2cm .5 e.g. end.", "1.2cm .5 eg end"),
        ("<=5.", "5"),
        ("None, zero one two ten eleven", "0 0 1 2 10 eleven"),
        ("a one an", "1"),
        ("dont isnt she's Im Ive", "don't isn't she's im ive"),
        ("couldnt've couldn'tve couldntve", "couldn't've couldn't've couldntve"),
        ("somebody'd somebodyd've", "somebodyd somebody'd've"),
        ("'ows'at", "'ow's'at"),
        ("**No** 50% #1 & it's", "**no** 50% #1 & it's"),
    ],
)
def test_newer_cleaner(text, cleaned):
    assert clean_head(text) == cleaned


def test_newer_cleaner_deletes_32_periods_and_no_more():
    assert clean_head("." * 40) == "." * 8
    assert clean_head(".5" + ".x" * 33) == ".5" + "x" * 32 + ".x"


@each(
    ("text", "cleaned"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("A", "a"),
        ("+", " "),
        ("(B) It's 1.2cm\n", " b it s 1 2cm"),
        ("a\n\nb", "a b"),
        ("a\t b\u00a0\rc", "a\t b\u00a0\rc"),
        ("BENIGN_WITHOUT_CALLBACK", "benign without callback"),
        ("**Yes**, none.", " yes none "),
        ("Bowen’s – “disease”", "bowen’s – “disease”"),
    ],
)
def test_older_cleaner(text, cleaned):
    assert clean_v0_1_0(text) == cleaned


@given(TEXTS)
def test_newer_cleaner_leaves_words_with_single_blanks(text):
    cleaned = clean_head(text)
    assert cleaned == " ".join(cleaned.split()) == cleaned.lower()
    assert not set(cleaned) & set(';/[]"{}()=+\\_-><@`,?!')


@given(TEXTS)
def test_older_cleaner_leaves_no_punctuation(text):
    cleaned = clean_v0_1_0(text)
    assert not set(cleaned) & {*string.punctuation, "\n"}
    assert "  " not in cleaned
    assert cleaned == cleaned.lower()


def test_contractions_put_one_apostrophe_back():
    restored = {short: full for short, full in CONTRACTIONS.items() if len(full) > len(short)}
    assert {**restored, "somebody'd": "somebodyd"} == CONTRACTIONS
    assert len(restored) == 113
    for short, full in restored.items():
        assert full.count("'") == short.count("'") + 1
        assert full.replace("'", "") == short.replace("'", "")
