"""MediConfusion's published parser."""

import json

import pytest

from medtasks.extract.answer import Reason

from .reading import reading

read = reading("mediconfusion_reference")

OPTIONS = ("Aortic arch", "Kidneys")
SPELLINGS = ["L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").']


def test_golden_mediconfusion_parser(golden):
    lines = (golden / "mediconfusion_parser.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) >= 400
    wrong = [case for case in cases if read(case["reply"], OPTIONS).value != case["letter"]]
    assert not wrong


@pytest.mark.parametrize("letter", ["A", "B"])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("frame", ["{}", "The answer is {} of course", "\n{}\n", " {} ", "Reason\n{}"])
def test_accepted_spellings(letter, spelling, frame):
    assert read(frame.format(spelling.replace("L", letter)), OPTIONS).value == letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The answer is A.", "A"),
        ("Option A", "A"),
        ("A: CT Scan", "A"),
        ("A normal brain", "A"),
        ("B\n\nthe kidneys", "B"),
        ("A A", "A"),
        ('("B": Kidneys)', "B"),
        ("vitamin B", "B"),
    ],
)
def test_valid_replies(reply, letter):
    assert read(reply, OPTIONS).value == letter


@pytest.mark.parametrize(
    "reply",
    [
        "a",
        "(A)",
        "A)",
        "A,",
        "**A**",
        "Answer:A",
        '"A"',
        "A</s>",
        "A!",
        "A;",
        "A\t",
        "Kidneys",
        "C",
        "A\r\n",
        "A\u00a0b",
    ],
)
def test_invalid_spellings(reply):
    assert read(reply, OPTIONS).reason is Reason.NO_MATCH


@pytest.mark.parametrize("reply", ["A or B", "A.\nB is wrong", 'A") B")', "A: x\nB: y"])
def test_both_letters_are_ambiguous(reply):
    assert read(reply, OPTIONS).reason is Reason.AMBIGUOUS


@pytest.mark.parametrize("reply", [None, "", "  \n\t"])
def test_empty(reply):
    assert read(reply, OPTIONS).reason is Reason.EMPTY


def test_options_are_not_looked_at():
    assert read("A", ()) == read("A", ("B", "A")) == read("A", ["x"] * 26)
