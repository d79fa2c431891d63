"""Which option the published answer names."""

import pytest

from medtasks.data.medheval.gold import Flag, resolve_choice, resolve_yes_no

SIDES = ["Upper left", "Upper right", "Lower left", "Lower right"]
ORGANS = ["Liver", "Heart", "Lung"]


@pytest.mark.parametrize(
    ("gold", "options", "letter"),
    [
        ("Heart", ORGANS, "B"),
        ("heart.", ORGANS, "B"),
        ("B", ORGANS, "B"),
        ("B.", ORGANS, "B"),
        ("(B)", ORGANS, "B"),
        ("B: Heart", ORGANS, "B"),
        ("B) heart", ORGANS, "B"),
        ("B, Heart", ORGANS, "B"),
        ("T2", ["T1", "T2", "T2*"], "B"),
        ("T2*", ["T1", "T2", "T2*"], "C"),
        ("< 5 mm", ["> 5 mm", "< 5 mm"], "B"),
        ("Cannot specify", ["CT", "MRI", "Cannot specify"], "C"),
        ("A and B", ["A and B", "Neither"], "A"),
    ],
)
def test_plain_answers(gold, options, letter):
    assert resolve_choice(gold, options) == (letter, ())


@pytest.mark.parametrize(
    ("gold", "options", "letter"),
    [
        ("The heart", ORGANS, "B"),
        ("In the heart", ORGANS, "B"),
        ("It is the lower right side of the image.", SIDES, "D"),
        ("B. Heart, seen from the front", ORGANS, "B"),
        ("The liver is larger than the rest.", ["The liver is larger", "The heart is larger"], "A"),
    ],
)
def test_answers_that_a_reader_understands(gold, options, letter):
    assert resolve_choice(gold, options) == (letter, (Flag.GOLD_INTERPRETED,))


@pytest.mark.parametrize(
    ("gold", "options", "flag"),
    [
        ("Liver, heart", ORGANS, Flag.GOLD_SEVERAL),
        ("A. Liver, C. Lung", ORGANS, Flag.GOLD_SEVERAL),
        ("A: Liver, B: Heart, C: Lung", ORGANS, Flag.GOLD_SEVERAL),
        ("GI and IV contrast", ["GI contrast", "IV contrast", "Both"], Flag.GOLD_SEVERAL),
        ("A. Heart", ORGANS, Flag.GOLD_CONTRADICTORY),
        ("A. The heart is shown", ORGANS, Flag.GOLD_CONTRADICTORY),
        ("Cannot be determined from the image", ORGANS, Flag.GOLD_UNRESOLVED),
        ("The modality is not specified.", ["CT", "MRI"], Flag.GOLD_UNRESOLVED),
        ("Not the heart", ORGANS, Flag.GOLD_UNRESOLVED),
        ("No", ORGANS, Flag.GOLD_UNRESOLVED),
        ("D", ORGANS, Flag.GOLD_UNRESOLVED),
        ("", ORGANS, Flag.GOLD_UNRESOLVED),
        (" \n", ORGANS, Flag.GOLD_UNRESOLVED),
        ("Kidney " * 5000, ORGANS, Flag.GOLD_UNRESOLVED),
        ("Left", ["Left", "left"], Flag.GOLD_UNRESOLVED),
    ],
)
def test_answers_that_name_no_single_option(gold, options, flag):
    assert resolve_choice(gold, options) == (None, (flag,))


ASKED = "Is there a fracture?"


@pytest.mark.parametrize(
    ("gold", "choices", "letter"),
    [
        *((form, "", "A") for form in ("Yes", "yes", "YES.", " Yes ")),
        *((form, "", "B") for form in ("No", "no", "No.")),
        ("A. Yes", "A. Yes, B. No", "A"),
        ("B. No", "A. Yes, B. No", "B"),
        ("B", "A. Yes, B. No", "B"),
        ("A", "A. No, B. Yes", "B"),
        ("B. No", "", "B"),
    ],
)
def test_plain_verdicts(gold, choices, letter):
    assert resolve_yes_no(gold, ASKED, choices) == (letter, ())


@pytest.mark.parametrize(
    ("gold", "question", "letter"),
    [
        ("No, the bone is intact.", ASKED, "B"),
        ("Yes, of the rib", ASKED, "A"),
        ("There is no fracture.", ASKED, "B"),
        ("None", ASKED, "B"),
        ("No, it is the lung.", "Which organ is it?", "B"),
    ],
)
def test_verdicts_that_a_reader_understands(gold, question, letter):
    assert resolve_yes_no(gold, question, "") == (letter, (Flag.GOLD_INTERPRETED,))


@pytest.mark.parametrize(
    ("gold", "question"),
    [
        ("Cannot be determined", ASKED),
        ("No information provided", ASKED),
        ("Information not available", ASKED),
        ("Unclear", ASKED),
        ("Equivocal", ASKED),
        ("Abnormal", "What is the condition of the lung?"),
        ("None", "Which organ is enlarged?"),
        ("", ASKED),
        ("\t", ASKED),
    ],
)
def test_answers_that_decide_nothing(gold, question):
    assert resolve_yes_no(gold, question, "") == (None, (Flag.GOLD_UNRESOLVED,))


def test_letter_and_verdict_contradict_each_other():
    assert resolve_yes_no("B. Yes", ASKED, "A. Yes, B. No") == (None, (Flag.GOLD_CONTRADICTORY,))
