"""MediConfusion's published parser."""

import pytest

from .reading import outcome, reading, recorded, rows

read = reading("mediconfusion_reference")

OPTIONS = ("Aortic arch", "Kidneys")
SPELLINGS = ["L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").']

# fmt: off
EXPECTED = {
    "A": ["The answer is A.", "Option A", "A: CT Scan", "A normal brain", "A A"],
    "B": ["B\n\nthe kidneys", '("B": Kidneys)', "vitamin B"],
    "no_match": [
        "a", "(A)", "A)", "A,", "**A**", "Answer:A", '"A"', "A</s>", "A!", "A;", "A\t", "Kidneys", "C", "A\r\n",
        "A\u00a0b",
    ],
    "ambiguous": ["A or B", "A.\nB is wrong", 'A") B")', "A: x\nB: y"],
}
# fmt: on


def test_golden_mediconfusion_parser(golden):
    cases = recorded(golden, "mediconfusion_parser", 400)
    wrong = [case for case in cases if read(case["reply"], OPTIONS).value != case["letter"]]
    assert not wrong


@pytest.mark.parametrize("letter", ["A", "B"])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("frame", ["{}", "The answer is {} of course", "\n{}\n", " {} ", "Reason\n{}"])
def test_accepted_spellings(letter, spelling, frame):
    assert read(frame.format(spelling.replace("L", letter)), OPTIONS).value == letter


@pytest.mark.parametrize(("reply", "expected"), rows(EXPECTED))
def test_spelling_and_case_count(reply, expected):
    assert outcome(read(reply, OPTIONS)) == expected


def test_options_are_not_looked_at():
    assert read("A", ()) == read("A", ("B", "A")) == read("A", ["x"] * 26)
