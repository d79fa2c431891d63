"""Words in a comparable spelling, and which of them a text denies."""

import random

import pytest

from medtasks.extract.open_text import DENIED, stated_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A", "a"),
        ("the answer is a", "answer is a"),
        ("A lesion; a cyst.\nA tumour", "lesion cyst tumor"),
        ("An apple, the pear", "apple pear"),
        ("Group A strep, group a strep", "group a strep group a strep"),
        ("The A lobe", "a lobe"),
        ("A MASS IN A LUNG", "mass in lung"),
        ("A and B, or A", "a and b or a"),
        ("(A) left", "a left"),
        ("None. Zero, TEN, eleven", "0 0 10 eleven"),
        ("first 2nd 4TH", "1st 2nd 4th"),
        ("1,234,567.50 mL 12,34 007", "1234567.5 ml 12 34 7"),
        (".5 0.50 5.0 5.", "0.5 0.5 5 5"),
        ("1.2cm T2-weighted L4/L5", "1.2 cm t2 weighted l4 l5"),
        ("X-ray x rays XRAY", "xray xray xray"),
        ("Crohn’s Crohn's don't", "crohn crohn dont"),
        ("ﬁbrosis ５ Café", "fibrosis 5 café"),
        ("Lungs, nodules, tumours, oedema, mass", "lung nodule tumor edema mass"),
        ("?!", ""),
    ],
)
def test_spelling(text, words):
    assert stated_words(text) == words.split()


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("There is no effusion or oedema.", "effusion edema"),
        ("No fracture, but pneumonia.", "fracture"),
        ("It is not a CT, it is an MRI.", "ct"),
        ("Effusion is not seen. Mass is.", "effusion seen"),
        ("Mass. No mass.", "mass"),
        ("A mass is seen. The left lung is without gas.", "gas"),
        ("non-contrast CT without gas", "contrast gas"),
        ("An effusion cannot be excluded", ""),
        ("Maybe pneumonia or atelectasis", ""),
        ("None of this is seen; yes, it is", "seen"),
    ],
)
def test_denied(text, denied):
    found = [word.removeprefix(DENIED) for word in stated_words(text) if word.startswith(DENIED)]
    assert found == denied.split()


def test_only_words_of_interest_are_told_apart():
    assert stated_words("no mass, no cyst", {"cyst"}) == ["no", "mass", "no", DENIED + "cyst"]


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
