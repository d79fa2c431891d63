"""MultiMedEval's rule for several labels, against its definition and against torchmetrics."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medtasks.extract.multimedeval_cleaning import clean_head, clean_v0_1_0

from .reading import reading

multimedeval_labels_head = reading("multimedeval_labels_head")
multimedeval_labels_v0_1_0 = reading("multimedeval_labels_v0_1_0")

NAMES = [
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
]
WORDS = st.sampled_from(["Mass", "mass", "Edema,", "a", "the", "Pleural_Thickening", "pleural", "Thickening.", "no"])
REPLIES = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=20)
RULES = [(multimedeval_labels_head, clean_head), (multimedeval_labels_v0_1_0, clean_v0_1_0)]


def named(reply, rule=multimedeval_labels_head):
    return [name for name, value in zip(NAMES, rule(reply, NAMES).value, strict=True) if value]


@pytest.mark.parametrize(
    ("reply", "head", "older"),
    [
        ("Mass", ["Mass"], ["Mass"]),
        ("mass.", ["Mass"], ["Mass"]),
        ("A mass.", ["Mass"], []),  # the newer cleaner drops articles; one word of two is not above one half
        ("the mass", ["Mass"], []),
        ("Mass, Edema", [], []),
        ("Mass: ", [], ["Mass"]),  # the newer cleaner keeps the colon
        ("mass mass", [], []),
        ("Pleural_Thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),
        ("Pleural thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),
        ("Pleural", [], []),  # half of the label, and the penalty for shortness
        ("Right pleural thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),  # two words of three
        ("There is pleural thickening", [], []),  # two words of four
        ("No Finding", [], []),
        ("masses", [], []),
        ("", [], []),
        ("...", [], []),
        (None, [], []),
    ],
)
def test_labels_with_more_than_half_of_the_words(reply, head, older):
    assert (named(reply), named(reply, multimedeval_labels_v0_1_0)) == (head, older)


@pytest.mark.parametrize(("rule", "clean"), RULES)
@given(reply=REPLIES)
def test_a_label_needs_more_than_half_of_the_replys_words(rule, clean, reply):
    """With labels of one word, BLEU-1 is above one half exactly when the reply is that word."""
    assert rule(reply, ["Mass", "Edema"]).value == tuple(
        int(clean(reply).split() == [name]) for name in ("mass", "edema")
    )


@pytest.mark.parametrize(("rule", "clean"), RULES)
@given(reply=REPLIES)
@settings(deadline=None)  # the first call imports torch
def test_values_are_those_of_torchmetrics(rule, clean, reply):
    text = pytest.importorskip("torchmetrics.text")
    bleu = text.BLEUScore(n_gram=1)
    expected = tuple(int(bleu([clean(reply)], [[clean(name)]]) > 0.5) for name in NAMES[-3:])
    assert rule(reply, NAMES[-3:]).value == expected
