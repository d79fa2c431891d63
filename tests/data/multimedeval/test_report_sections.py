"""Sections of reports: recorded behaviour of the official parser and of the reference, and laws for any text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.sources.multimedeval.report_sets import (
    FULL_REPORT,
    GROUP_OF,
    LAST_PARAGRAPH,
    SPELLINGS,
    report_sections,
    split_at_headers,
    summary_of,
)

from ...tables import each_row, tables_of

TABLES = tables_of(__file__)
HEADERS = [
    "FINDINGS",
    "IMPRESSION",
    "INDICATION",
    "CHEST, PA AND LATERAL",
    "FINDNGS",
    "NDICATION",
    "XX",
    " - ",
]
PIECES = st.sampled_from(
    ["\n", "\n ", "\n \n", " ", "Clear.", "é", "12:30 AM", *(f"\n {name}:" for name in HEADERS)]
)
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
        first = {section.name: section.text for section in reversed(sections)}
        assert first.get("findings") == case["findings"]
        if case["findings"] is not None:
            assert first.get("indication", "") == case["indication"]


@each_row("header, name", TABLES["names"])
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
    assert parts(report) == [
        ("preamble", "x\n "),
        ("technique", "One."),
        (LAST_PARAGRAPH, " Two.\n \n Three."),
    ]
    *_, last = report_sections(report)
    assert report[last.start :].startswith("\n \n Two.")
    assert parts("just one.\n \n another")[1] == (LAST_PARAGRAPH, " another")


@given(REPORTS)
def test_texts_are_cut_out_of_the_report(report):
    sections = split_at_headers(report)
    for section in sections:
        assert report[section.start : section.start + len(section.text)] == section.text
    assert [section.start for section in sections] == sorted(
        section.start for section in sections
    )
    assert sections[0].name in (FULL_REPORT, "preamble")


HEAD = "[**2999-1-2**] 1:30 AM\n CT HEAD\n Reason: fall\n ____\n"


def note(*sections, start="                             FINAL REPORT"):
    return HEAD + start + "".join(f"\n {section}" for section in sections)


def both(text, group="CT_head"):
    return summary_of(text, group, "paper"), summary_of(text, group, "head")


def test_golden_multimedeval_sections_of_mimic_iii(golden):
    lines = (golden / "metrics" / "sections.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if case["kind"] == "mimic_iii"]
    assert len(cases) > 10
    for case in cases:
        group = GROUP_OF.get(case["description"])
        summary = summary_of(case["text"], group, "head") if group else None
        if case["result"] is None:
            assert summary is None
        else:
            expected = case["result"]
            assert summary == (expected["findings"], expected["impression"])
            assert group == f"{expected['modality']}_{expected['anatomy']}"


def test_the_two_protocols():
    text = note(
        "FINDINGS:  No Bleed is\nseen.\n Ventricles  normal.",
        "IMPRESSION: Normal [**Name (STitle) 3**] CT.\n",
    )
    paper, head = both(text)
    assert paper == ("no bleed isseen. ventricles normal.", "normal ___ ct.")
    assert head == (" No Bleed is seen. Ventricles normal.", "Normal ___ CT. ")


def test_the_first_name_with_a_text_counts():
    text = note("CT HEAD: One.", "NON-CONTRAST HEAD CT: Two.", "IMPRESSION: Three.")
    assert both(text)[0][0] == "two."
    empty = note("CT HEAD: One.", "NON-CONTRAST HEAD CT: \n ", "IMPRESSION: Three.")
    assert both(empty)[0][0] == "one."
    # Head does not strip, so that white space is a text.
    assert both(empty)[1][0] == " "


def test_a_section_behind_the_impression_is_read_one_too_early():
    text = note("TECHNIQUE: One.", "IMPRESSION: Two.", "FINDINGS: Three.")
    assert both(text) == (("two.", "two."), ("Two.", "Two."))


@each_row(
    "text",
    [
        "",
        note("FINDINGS: One.", "IMPRESSION: Two.", start=" PRELIMINARY REPORT"),
        note("FINDINGS: One."),
        note("IMPRESSION: Two."),
        note("FINDINGS: One.", "IMPRESSION: Two.", "IMPRESION: Three."),
        note("TECHNIQUE: One.", "IMPRESSION: Two."),
    ],
)
def test_notes_that_are_left_out(text):
    assert both(text) == (None, None)


def test_page_breaks():
    page = "(Over)\n\n [**2999-1-2**] CT HEAD\n  (Cont)\n"
    text = note(f"FINDINGS: One {page} two {page} three.", "IMPRESSION: Four.")
    assert both(text)[1][0] == "One two three."
    assert (
        both(note("FINDINGS: One (Over) two.", "IMPRESSION: Four."))[1][0] == "One (Over) two."
    )
    # Here the reference does not come to an end.
    assert (
        both(note("FINDINGS: (Cont) one (Over) x (Cont) two.", "IMPRESSION: Four."))[1][0]
        == "(Cont) one two."
    )
    assert (
        both(note("FINDINGS: (Cont) one (Over) two.", "IMPRESSION: Four."))[1][0]
        == "(Cont) one (Over) two."
    )


def test_placeholders_within_placeholders():
    text = note("FINDINGS: [**b**] [**a [**b**] c**] [****]", "IMPRESSION: Four.")
    assert both(text)[1][0] == "___ [**a ___ c**] ___"


def test_names_as_each_protocol_spells_them():
    assert SPELLINGS["imrpession"] == "impression"
    # Head reads a view as findings; the other protocol only knows its own list.
    text = note("CHEST, PORTABLE: One.", "IMPRESSION: Two.")
    assert both(text, "CT_chest") == (None, ("One.", "Two."))
