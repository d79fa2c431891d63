"""Findings and impression of MIMIC-III's notes: recorded behaviour of the reference, and both of its protocols."""

import json

from medtasks.data.sources.multimedeval.report_sets import groups, summary_of

from ...tables import each_row

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
        group = groups().by_exam.get(case["description"])
        found = summary_of(case["text"], group, "head") if group else None
        if case["result"] is None:
            assert found is None
        else:
            wanted = case["result"]
            assert found == (wanted["findings"], wanted["impression"])
            assert group == f"{wanted['modality']}_{wanted['anatomy']}"


def test_groups():
    known = groups()
    assert len(known.findings) == 11
    assert set(known.by_exam.values()) == set(known.findings)
    assert all(names[0] == "findings" for names in known.findings.values())
    assert known.spellings["imrpession"] == "impression"


def test_the_two_protocols():
    text = note("FINDINGS:  No Bleed is\nseen.\n Ventricles  normal.", "IMPRESSION: Normal [**Name (STitle) 3**] CT.\n")
    paper, head = both(text)
    assert paper == ("no bleed isseen. ventricles normal.", "normal ___ ct.")
    assert head == (" No Bleed is seen. Ventricles normal.", "Normal ___ CT. ")


def test_the_first_name_with_a_text_counts():
    text = note("CT HEAD: One.", "NON-CONTRAST HEAD CT: Two.", "IMPRESSION: Three.")
    assert both(text)[0].findings == "two."
    empty = note("CT HEAD: One.", "NON-CONTRAST HEAD CT: \n ", "IMPRESSION: Three.")
    assert both(empty)[0].findings == "one."
    # Head does not strip, so that white space is a text.
    assert both(empty)[1].findings == " "


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
    assert both(text)[1].findings == "One two three."
    assert both(note("FINDINGS: One (Over) two.", "IMPRESSION: Four."))[1].findings == "One (Over) two."
    # Here the reference does not come to an end.
    assert both(note("FINDINGS: (Cont) one (Over) x (Cont) two.", "IMPRESSION: Four."))[1].findings == "(Cont) one two."
    assert both(note("FINDINGS: (Cont) one (Over) two.", "IMPRESSION: Four."))[1].findings == "(Cont) one (Over) two."


def test_placeholders_within_placeholders():
    text = note("FINDINGS: [**b**] [**a [**b**] c**] [****]", "IMPRESSION: Four.")
    assert both(text)[1].findings == "___ [**a ___ c**] ___"


def test_names_as_each_protocol_spells_them():
    # Head reads a view as findings; the other protocol only knows its own list.
    text = note("CHEST, PORTABLE: One.", "IMPRESSION: Two.")
    assert both(text, "CT_chest") == (None, ("One.", "Two."))
