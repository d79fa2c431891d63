import json

import pytest

from medtasks.extract.answer import Reason

from .reading import reading

OLD, NEW = reading("vlmevalkit_2024_06"), reading("vlmevalkit_2026_06")
OPTIONS = ("polyp", "gastric ulcer", "normal mucosa", "erosion", "varices")


def test_golden_gmai_extract(golden):
    cases = [json.loads(line) for line in (golden / "gmai_extract.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(cases) >= 400
    for case in cases:
        options = list(case["options"].values())
        for name, rule in (("2024_06", OLD), ("2026_06", NEW)):
            expected = None if case[name] == "Z" else case[name]
            assert rule(case["reply"], options).value == expected, (name, case)


@pytest.mark.parametrize(
    ("reply", "old", "new"),
    [
        ("B", "B", "B"),
        ("(E)", "E", "E"),
        ("It is d.", None, None),  # case counts
        ("A nodule is what this picture shows", "A", None),  # the article; too many words behind it
        ("A nodule is seen", "A", "A"),  # the article is among the last four words
        ("B is in this", "B", "B"),  # the fourth word from the end
        ("B is seen in this", "B", None),  # the fifth
        ("gastric ulcer", "B", "B"),
        ("polyp or erosion", None, None),
        ("A or B", None, None),
        ("The answer is cannot be told", None, "C"),
        ("The answer is evident", None, None),  # e is no letter of the pattern
        ("B" + " is what I see in this picture of the stomach" * 3, "B", None),
        ("It must be a polyp, for " + "the surface is smooth and " * 8, "A", None),  # longer than twice the options
    ],
)
def test_versions(reply, old, new):
    assert OLD(reply, OPTIONS).value == old
    assert NEW(reply, OPTIONS).value == new


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, Reason.EMPTY),
        (" \n", Reason.EMPTY),
        ("I can't process this file.", Reason.REFUSED),
        ("Z", Reason.NO_MATCH),
        ("polyp, erosion", Reason.AMBIGUOUS),
        ("no idea", Reason.NO_MATCH),
    ],
)
@pytest.mark.parametrize("rule", [OLD, NEW])
def test_reasons(rule, reply, reason):
    answer = rule(reply, OPTIONS)
    assert answer.value is None
    assert answer.reason is reason


def test_failed_call_is_read_by_text_alone():
    assert OLD("Failed to obtain answer via API. B", OPTIONS).value is None
    assert OLD("Failed to obtain answer via API. B", ["api", "scan"]).value == "A"
