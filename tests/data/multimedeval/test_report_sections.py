"""The sections of a radiology report: recorded behaviour of the official parser, and what must hold for any text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.sources.multimedeval.report_sets import (
    FULL_REPORT,
    LAST_PARAGRAPH,
    first_text,
    report_sections,
    split_at_headers,
)

from ...tables import each_row

HEADERS = ["FINDINGS", "IMPRESSION", "INDICATION", "CHEST, PA AND LATERAL", "FINDNGS", "NDICATION", "XX", " - "]
PIECES = st.sampled_from(["\n", "\n ", "\n \n", " ", "Clear.", "é", "12:30 AM", *(f"\n {name}:" for name in HEADERS)])
REPORTS = st.lists(PIECES, max_size=20).map("".join)


def parts(report):
    return [(section.name, section.text) for section in report_sections(report)]


def test_golden_multimedeval_sections_of_mimic_cxr(golden):
    lines = (golden / "metrics" / "sections.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["kind"] == "mimic_cxr"]
    assert len(cases) > 30
    for case in cases:
        sections = report_sections(case["text"])
        assert [section.text for section in sections] == case["sections"]
        assert [section.name for section in sections] == case["section_names"]
        assert [section.start for section in sections] == case["section_idx"]
        assert first_text(sections, "findings") == case["findings"]
        if case["findings"] is not None:
            assert (first_text(sections, "indication") or "") == case["indication"]


@each_row(
    "header, name",
    [
        ("CONCLUSION", "impression"),
        ("NDICATION", "impression"),
        ("IDICATION", "indication"),
        ("FINDINGS AND IMPRESSION", "impression"),
        ("IMPRESSION/FINDINGS", "impression"),
        ("PERTINENT HISTORY", "history"),
        ("FINDINGS, HISTORY", "findings"),
        ("CHEST, TWO VIEWS", "findings"),
        ("FRONTAL SEMI-UPRIGHT", "findings"),
        ("LEFT RIBS", "findings"),
        ("PFI", "history"),
        (" EXAM ", "examination"),
        ("RECOMMENDATION(S)", "recommendations"),
        ("TECHNIQUES", "techniques"),
    ],
)
def test_names(header, name):
    assert parts(f"x\n {header}: text")[1] == (name, "text")


@each_row(
    "report",
    [
        "",
        " \n",
        "FINDINGS: at the very beginning",
        "no blank\nFINDINGS: x",
        "a tab\n\tFINDINGS: x",
        "lower case\n Findings: x",
        "no white space\n FINDINGS:x",
    ],
)
def test_what_is_no_header(report):
    assert parts(report) == [(FULL_REPORT, report)]


def test_a_header_below_an_empty_one_is_its_text():
    assert parts("x\n INDICATION:\n FINDINGS: Clear.\n IMPRESSION: None.") == [
        ("preamble", "x\n "),
        ("indication", " FINDINGS: Clear."),
        ("impression", "None."),
    ]


def test_empty_findings_are_dropped_and_the_last_paragraph_is_named():
    report = "x\n FINDINGS: \n \n TECHNIQUE: One.\n \n Two.\n \n Three.\n IMPRESSION: \n \n "
    assert parts(report) == [("preamble", "x\n "), ("technique", "One."), (LAST_PARAGRAPH, " Two.\n \n Three.")]
    *_, last = report_sections(report)
    assert report[last.start :].startswith("\n \n Two.")
    assert parts("just one.\n \n another")[1] == (LAST_PARAGRAPH, " another")


@given(REPORTS)
def test_texts_are_cut_out_of_the_report(report):
    sections = split_at_headers(report)
    for section in sections:
        assert report[section.start : section.start + len(section.text)] == section.text
    assert [section.start for section in sections] == sorted(section.start for section in sections)
    assert sections[0].name in (FULL_REPORT, "preamble")


@given(REPORTS)
def test_no_empty_findings_and_never_nothing(report):
    sections = report_sections(report)
    assert sections
    assert all(section.text.strip() for section in sections if section.name in ("findings", "impression"))
    names = [section.name for section in sections]
    assert LAST_PARAGRAPH not in names or not {"findings", "impression"} & set(names)
