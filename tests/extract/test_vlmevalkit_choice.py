"""VLMEvalKit's two versions of finding an option."""

import pytest

from .reading import outcome, reading, recorded, rows

OLD, NEW = reading("vlmevalkit_2024_06"), reading("vlmevalkit_2026_06")
OPTIONS = ("polyp", "gastric ulcer", "normal mucosa", "erosion", "varices")

# What the older and the newer version make of replies.
EXPECTED = {
    ("A", "A"): ["A nodule is seen"],  # the article is among the last four words
    ("B", "B"): ["B", "gastric ulcer", "B is in this"],  # the last is the fourth word from the end
    ("E", "E"): ["(E)"],
    ("A", "no_match"): [
        "A nodule is what this picture shows",  # the article; too many words behind it
        "It must be a polyp, for " + "the surface is smooth and " * 8,  # longer than twice the options
    ],
    ("B", "no_match"): [
        "B is seen in this",  # the fifth word from the end
        "B" + " is what I see in this picture of the stomach" * 3,
    ],
    ("no_match", "C"): ["The answer is cannot be told"],
    ("no_match", "no_match"): [
        *("It is d.", "A or B", "Z", "no idea"),  # case counts; two letters
        *("The answer is evident", "Failed to obtain answer via API. B"),  # e is no letter of the pattern
    ],
    ("ambiguous", "ambiguous"): ["polyp or erosion", "polyp, erosion"],
    ("refused", "refused"): ["I can't process this file."],
}


def test_golden_gmai_extract(golden):
    for case in recorded(golden, "gmai_extract", 400):
        options = list(case["options"].values())
        for name, rule in (("2024_06", OLD), ("2026_06", NEW)):
            expected = None if case[name] == "Z" else case[name]
            assert rule(case["reply"], options).value == expected, (name, case)


@pytest.mark.parametrize(("reply", "expected"), rows(EXPECTED))
def test_versions(reply, expected):
    assert (outcome(OLD(reply, OPTIONS)), outcome(NEW(reply, OPTIONS))) == expected


def test_failed_call_is_read_by_text_alone():
    assert OLD("Failed to obtain answer via API. B", ["api", "scan"]).value == "A"
