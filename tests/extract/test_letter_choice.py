"""Published rules for the chosen option's letter: MediConfusion and VLMEvalKit; single replies are in ``readings/``."""

from ..tables import each_row
from .reading import reading, recorded

read = reading("mediconfusion_reference")
OLD, NEW = reading("vlmevalkit_2024_06"), reading("vlmevalkit_2026_06")
SPELLINGS = ["L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").']


def test_golden_mediconfusion_parser(golden):
    cases = recorded(golden, "mediconfusion_parser", 400)
    wrong = [case for case in cases if read(case["reply"], ("Aortic arch", "Kidneys")).value != case["letter"]]
    assert not wrong


@each_row("frame", ["{}", "The answer is {} of course", "\n{}\n", " {} ", "Reason\n{}"])
def test_accepted_spellings(frame):
    for spelling in SPELLINGS:
        for letter in "AB":
            assert read(frame.format(spelling.replace("L", letter)), ("Aortic arch", "Kidneys")).value == letter


def test_options_do_not_matter_to_mediconfusion():
    assert read("A", ()) == read("A", ("B", "A")) == read("A", ["x"] * 26)


def test_golden_gmai_extract(golden):
    for case in recorded(golden, "gmai_extract", 400):
        options = list(case["options"].values())
        for name, rule in (("2024_06", OLD), ("2026_06", NEW)):
            expected = None if case[name] == "Z" else case[name]
            assert rule(case["reply"], options).value == expected, (name, case)


def test_failed_call_is_read_by_text_alone():
    assert OLD("Failed to obtain answer via API. B", ["api", "scan"]).value == "A"
