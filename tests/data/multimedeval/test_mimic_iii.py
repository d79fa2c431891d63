"""MIMIC-III for summarisation: which notes, in which order, and broken sources."""

import csv
import gzip
import io

import pyarrow
import pyarrow.parquet
import pytest

NAME = "mimic_iii_summary"
COLUMNS = ("ROW_ID", "SUBJECT_ID", "HADM_ID", "CATEGORY", "DESCRIPTION", "TEXT")


def note(text):
    return f"[**2999-1-2**] 1:30 AM\n \n                  FINAL REPORT\n {text}\n"


FULL = 'FINDINGS: A "quoted", Word\n of {number}.\n IMPRESSION: Result {number}.'
NOTES = {  # ROW_ID: patient, exam, text
    70: (1, "MR HEAD W/O CONTRAST", note(FULL.format(number=70))),
    71: (2, "CT HEAD W/O CONTRAST", note(FULL.format(number=71))),
    72: (2, "CHEST (PORTABLE AP)", note(FULL.format(number=72))),
    73: (3, "CT HEAD W/O CONTRAST", note("FINDINGS: Nothing more.")),
    74: (4, "CT HEAD W/O CONTRAST", note(FULL.format(number=74))),
    75: (4, "CT HEAD W/O CONTRAST", note(FULL.format(number=75))),
}
TEST = (70, 71, 72, 73, 75)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "mimiciii"
    folder.mkdir()
    write_notes(folder, NOTES.items())
    write_split(folder, TEST)
    return folder


def write_notes(folder, notes, cut=None):
    buffer = io.StringIO()
    rows = [(row, patient, "", "Radiology", exam, text) for row, (patient, exam, text) in notes]
    csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows([COLUMNS, *rows])
    (folder / "NOTEEVENTS.csv.gz").write_bytes(gzip.compress(buffer.getvalue().encode(), mtime=0)[:cut])


def write_split(folder, ids):
    (folder / "split").mkdir(exist_ok=True)
    (folder / "split" / "idsTest.csv").write_text("ids\n" + "".join(f"{row}\n" for row in ids))


def test_documents_group_after_group(source, prepared):
    manifest, documents, shots = prepared(NAME, source)
    assert manifest.left_out == (
        "the source holds 3 rows, the evaluated set 13054",
        "2 not in the evaluated set: notes of the split without findings and exactly one impression",
    )
    assert (manifest.access, manifest.images, shots) == ("credentialed", 0, [])
    assert [document["doc_id"] for document in documents] == ["71", "75", "70"]  # CT before MR
    assert documents[0] == {
        "doc_id": "71",
        "dataset": "multimedeval_mimic_iii_summary",
        "image_id": None,
        "patient_id": "2",
        "image_files": [],
        "image_sha256": [],
        "context": 'a "quoted", word of 71.',
        "indication": None,
        "report": "result 71.",
    }


def test_head_keeps_case_and_white_space(source, prepared):
    manifest, documents, _ = prepared("mimic_iii_summary_head", source)
    assert (manifest.complete, manifest.rows) == (True, 3)
    assert (documents[0]["context"], documents[0]["report"]) == ('A "quoted", Word of 71.', "Result 71. ")


def test_other_layouts_are_the_same(source, tmp_path, prepared):
    expected = prepared(NAME, source)[1]
    nested = tmp_path / "physionet.org" / "files" / "mimiciii" / "1.4"
    nested.mkdir(parents=True)
    (nested / "NOTEEVENTS.csv").write_bytes(gzip.decompress((source / "NOTEEVENTS.csv.gz").read_bytes()))
    parquet = tmp_path / "split" / "default" / "test" / "0000.parquet"
    parquet.parent.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.table({"ids": list(TEST)}), parquet)
    assert prepared(NAME, tmp_path)[1] == expected
    (source / "split" / "idsTest.csv").rename(tmp_path / "idsTest.csv")
    assert prepared(NAME, tmp_path)[1] == expected


def test_notes_that_are_not_there_are_named(source, complains, prepared):
    write_split(source, (71, 99))
    complains(NAME, source, "idsTest.csv row 2: its note is not in NOTEEVENTS.csv.gz", allow_incomplete=False)
    manifest = prepared("mimic_iii_summary_head", source)[0]
    assert (manifest.complete, manifest.left_out) == (
        False,
        ("idsTest.csv row 2: its note is not in NOTEEVENTS.csv.gz",),
    )


def test_broken_sources(source, complains):
    (source / "split" / "idsTest.csv").write_text("ids\n71\nseven\n")
    complains(NAME, source, "idsTest.csv row 2: ids is no whole number")
    (source / "split" / "idsTest.csv").write_text("71\n")
    complains(NAME, source, "idsTest.csv lacks 'ids'")
    write_split(source, TEST)
    write_notes(source, [*NOTES.items(), (71, NOTES[71])])
    complains(NAME, source, "NOTEEVENTS.csv.gz row 7 has the id '71' of NOTEEVENTS.csv.gz row 2; ids must be unique")
    write_notes(source, NOTES.items(), cut=-20)
    complains(NAME, source, "NOTEEVENTS.csv.gz cannot be unpacked", "download it again")
    (source / "NOTEEVENTS.csv.gz").write_bytes(b"no gzip")
    complains(NAME, source, "NOTEEVENTS.csv.gz cannot be unpacked")
    (source / "NOTEEVENTS.csv.gz").write_bytes(gzip.compress(b"ROW_ID,TEXT\n"))
    complains(NAME, source, "NOTEEVENTS.csv.gz lacks 'SUBJECT_ID', 'DESCRIPTION'")
    (source / "NOTEEVENTS.csv.gz").unlink()
    complains(NAME, source, "holds no NOTEEVENTS.csv")
    (source / "split" / "idsTest.csv").unlink()
    complains(NAME, source, "holds no split/idsTest.csv", "https://huggingface.co/datasets/croyer/MIMIC-III-split")


def test_no_note_of_the_split(source, complains):
    write_split(source, ())
    complains(NAME, source, "no usable row in the source")
