"""Tables as people keep them: every cell as written, and a sentence for what is no table."""

import bz2
import codecs
import datetime
import gzip
import json
import lzma
import zipfile

import openpyxl
import pytest

from medtasks.data.table_files import read_table
from medtasks.errors import MedTasksError

from ..tables import each_row

GRID = [
    ["id", "question", "last"],
    ["002", "Köln, 5 °C?", "None"],
    ["12345678901234567890", 'He said "no"', "2.50"],
]
ROWS = [dict(zip(GRID[0], cells, strict=True)) for cells in GRID[1:]]


def written(separator=",", encoding="utf-8", line_end="\n"):
    quoted = [
        separator.join('"' + cell.replace('"', '""') + '"' for cell in cells) for cells in GRID
    ]
    return line_end.join([*quoted, ""]).encode(encoding)


def values(path, **options):
    return [row.values for row in read_table(path, **options).rows]


@each_row(
    "data, name, notes",
    [
        (written(), "q.csv", ()),
        (written(encoding="utf-8-sig", line_end="\r\n"), "q.csv", ()),
        (written("\t"), "q.tsv", ("tabs",)),
        (written(";"), "q.csv", ("';'",)),
        (b"sep=;\r\n" + written(";"), "q.csv", ("';'",)),
        (written("\t"), "q.csv", ("tabs",)),
        (written(encoding="cp1252"), "q.csv", ("Windows-1252",)),
        (written("\t", "utf-16"), "q.txt", ("UTF-16", "tabs")),
        (codecs.BOM_UTF16_BE + written(encoding="utf-16-be"), "q.csv", ("UTF-16",)),
        (written(encoding="utf-16-le"), "q.csv", ("UTF-16",)),
        (written(encoding="utf-16-be"), "q.csv", ("UTF-16",)),
        (gzip.compress(written()), "q.csv.gz", ()),
        (bz2.compress(written()), "q.csv.bz2", ()),
        (lzma.compress(written(";")), "q.csv.xz", ("';'",)),
    ],
)
def test_separator_and_encoding_are_recognised_and_said(tmp_path, data, name, notes):
    path = tmp_path / name
    path.write_bytes(data)
    table = read_table(path)
    assert [row.values for row in table.rows] == ROWS
    assert len(table.notes) == len(notes)
    assert all(word in note for word, note in zip(notes, table.notes, strict=True))


def test_rows_are_counted_as_in_the_sheet_and_empty_ones_left_out(tmp_path):
    (tmp_path / "q.csv").write_text('question,answer\n"two\nlines",A\n\n,\n"x, y", \n')
    rows = read_table(tmp_path / "q.csv").rows
    assert [row.place for row in rows] == [
        f"{tmp_path / 'q.csv'}, row 2",
        f"{tmp_path / 'q.csv'}, row 5",
    ]
    assert [row.values for row in rows] == [
        {"question": "two\nlines", "answer": "A"},
        {"question": "x, y", "answer": None},
    ]
    (tmp_path / "q.jsonl").write_text('\n{"a": 1}\n\n{"a": 2}\n')
    assert [row.place.rpartition(", ")[2] for row in read_table(tmp_path / "q.jsonl").rows] == [
        "line 2",
        "line 4",
    ]


def workbook(path, cells, formats=(), **sheets):
    book = openpyxl.Workbook()
    for row in cells:
        book.active.append(row)
    for name, form in formats:
        book.active[name].number_format = form
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


@each_row("name", ["q.xlsx", "q.csv", "q"])
def test_workbooks_are_known_by_their_content(tmp_path, name):
    workbook(tmp_path / "made.xlsx", [*GRID, [None, None, None]]).rename(tmp_path / name)
    assert values(tmp_path / name) == ROWS


def test_cells_of_a_workbook_as_they_are_shown(tmp_path):
    day = datetime.datetime(2024, 5, 3)
    cells = [list("abcdefgh"), [2, 2.5, 1.0, 0.25, True, day, "NA", None]]
    path = workbook(tmp_path / "q.xlsx", cells, [("A2", "000"), ("B2", "0.00"), ("D2", "0%")])
    assert list(values(path)[0].values()) == [
        "002",
        "2.50",
        "1",
        "25%",
        "TRUE",
        "2024-05-03",
        "NA",
        None,
    ]


def test_formats_that_are_not_read_are_named(tmp_path):
    cells = [list("abcd"), [12, 7, 0.5, "x"], [3, 4, 5, 6]]
    path = workbook(
        tmp_path / "q.xlsx",
        cells,
        [("A2", '0 "mm"'), ("A3", '0 "mm"'), ("B2", "@"), ("C2", "0%")],
    )
    assert read_table(path).notes == [
        "A2 is read as '12', without its format '0 \"mm\"' (so 2 cells)"
    ]
    assert list(values(path)[0].values()) == ["12", "7", "50%", "x"]


def test_one_of_several_sheets(tmp_path):
    path = workbook(tmp_path / "q.xlsx", [["a"], ["x"]], Fragen=[["a"], ["y"]])
    assert read_table(path).notes == ["of its 2 sheets, 'Sheet' is read"]
    assert values(path) == [{"a": "x"}]
    assert values(path, sheet_name="Fragen") == [{"a": "y"}]
    with pytest.raises(MedTasksError, match="has no sheet 'fragen'; it has Sheet, Fragen"):
        values(path, sheet_name="fragen")


OBJECT = {"question": "?", "options": ["1", "2"], "day": "2024-05-03", "n": 3}


@each_row(
    "text, options",
    [
        (json.dumps(OBJECT), {}),
        (json.dumps([OBJECT]), {}),
        (json.dumps([OBJECT], indent=1), {}),
        (json.dumps({"data": [OBJECT]}, indent=1), {"field": "data"}),
        (json.dumps({"info": 1, "data": [OBJECT]}), {"field": "data"}),
    ],
)
def test_json_keeps_its_types_and_dates_stay_texts(tmp_path, text, options):
    (tmp_path / "q.json").write_text(text)
    assert values(tmp_path / "q.json", **options) == [OBJECT]


def test_archives_are_read_file_by_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "q.zip", "w") as archive:
        archive.writestr("in/a.jsonl", '{"a": 1}\n')
        archive.writestr("in/b.csv", "a\n02\n")
        archive.writestr("__MACOSX/in/a.jsonl", "\0")
    assert values(tmp_path / "q.zip") == [{"a": 1}, {"a": "02"}]


@each_row(
    "data, complaint",
    [
        (b"", "q.csv is empty$"),
        (b"\xef\xbb\xbf\n \n", "q.csv is empty$"),
        (b"a,b\n", "is empty: it has names of columns and no row"),
        (b"a,a\n1,2\n", "has several columns called 'a'"),
        (b'a,b\n1,2\n"1,2\n', "row 3: a quotation mark is never closed"),
        (
            b"a,b\n1,2,3\n1,2\n1,2,3,4\n",
            "row 2 has 3 cells, the first row 2.*row 4 has 4 cells",
        ),
        (b"a\n" + b"1,2\n" * 12, "row 11 has 2 cells, the first row 1: [^;]*; and 2 more$"),
        (
            "a,b\nЕсть ли выпот,1\n".encode("cp1251"),
            r"is not text in UTF-8 \(byte 5\); save it as UTF-8, or name its",
        ),
        ("a,b\n左侧肺部有积液吗,1\n".encode("gbk"), "is not text in UTF-8"),
        (b"a,b\n\x81\x8d,1\n", "is not text in UTF-8"),
        (b"\xd0\xcf\x11\xe0" + bytes(99), "is a workbook of an old Excel"),
        (b"<!DOCTYPE html>", "is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is only the pointer to a file"),
        (b"\x1f\x8b" + bytes(9), "cannot be unpacked"),
        (b"PK\x03\x04" + bytes(9), "cannot be unpacked"),
    ],
)
def test_what_is_no_table_is_one_sentence(tmp_path, data, complaint):
    (tmp_path / "q.csv").write_bytes(data)
    with pytest.raises(MedTasksError, match=complaint) as raised:
        read_table(tmp_path / "q.csv")
    assert "codec" not in str(raised.value)


@each_row(
    "text, complaint",
    [
        ('{"a": 1}\n{"a": \n[1]\n', "line 2 is no JSON: .*; .*line 3 is no JSON object like"),
        ('{"a": 1', "line 1 is no JSON|q.json is no JSON"),
        (
            '{"a": 1, "b": [{}]}'.replace(",", ",\n"),
            "is one JSON object with a and b; name the one that holds",
        ),
        ("[]", "is empty"),
        ("3", "holds no list of questions"),
        ('{"data": 3}', "is one JSON object with data; name the one that holds"),
    ],
)
def test_what_is_no_json_is_one_sentence(tmp_path, text, complaint):
    (tmp_path / "q.json").write_text(text)
    with pytest.raises(MedTasksError, match=complaint):
        values(tmp_path / "q.json", field="rows" if "data" in text else "")


def test_formulas_without_a_value_and_errors_in_cells(tmp_path):
    path = workbook(tmp_path / "q.xlsx", [["a", "b"], ["=1+1", "x"], ["y", "#N/A"]])
    with pytest.raises(
        MedTasksError,
        match=r"row 2: A2 holds a formula that was never computed.*row 3: B3 holds #N/A",
    ):
        read_table(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(MedTasksError, match="cannot be unpacked"):
        read_table(path)


def test_a_named_encoding_and_separator(tmp_path):
    (tmp_path / "q.csv").write_bytes("a,b;c\nЕсть ли выпот,1;2\n".encode("cp1251"))
    assert values(tmp_path / "q.csv", encoding="cp1251", sep=";") == [
        {"a,b": "Есть ли выпот,1", "c": "2"}
    ]
    with pytest.raises(MedTasksError, match="no encoding is called 'utf9'"):
        values(tmp_path / "q.csv", encoding="utf9")
