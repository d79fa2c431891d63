"""Tables in JSON and CSV: rows, compression, archives, and files that are none."""

import gzip
import json

import pytest

from medtasks.data.prepare.source_files import SourceFile, csv_table, listed_records
from medtasks.errors import SourceError

from ..multimedeval_sources import put_zip
from ..tables import each_row


@each_row(
    "text", ["[]", " [ ]\n", '[{"a": "]"}]', '\n[ {"a": [1, {"b": ","}]} ,\t{"a": null}\r\n] ', '[{"a": "ü\\u00fc"}]']
)
@each_row("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_are_read_as_json_does(tmp_path, text, encoding):
    path = tmp_path / "list.json"
    path.write_bytes(text.encode(encoding))
    rows = list(listed_records(path.name, path.read_bytes(), ["a"]).rows())
    assert [row.values for row in rows] == json.loads(path.read_bytes())
    assert [row.place for row in rows] == [f"list.json row {number}" for number in range(1, len(rows) + 1)]


@each_row("data", [b"", b'[{"a": 1}', b'[{"a": 1},]', b"[" * 9999, b'[{"a": "\xff"}]'])
def test_what_is_no_json(data):
    with pytest.raises(SourceError, match=r"^list\.json is no JSON \("):
        list(listed_records("list.json", data, ["a"]).rows())


TEXT = 'id,split,note\n1,test,"two\nlines"\n2,train,"a, b"\n3,test,\n4,test\n'


@pytest.fixture
def table(tmp_path):
    def make(data, name="a.csv", columns=("id", "split"), belongs=lambda row: True):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return csv_table(SourceFile(path), columns, belongs)

    return make


def test_rows_that_belong(table):
    rows = table(TEXT, columns=("id", "note"), belongs=lambda row: row["id"] != "2")
    assert rows.count() == 3
    assert [(row.place, row.index, row.values) for row in rows.rows()] == [
        ("a.csv row 1", 0, {"id": "1", "split": "test", "note": "two\nlines"}),
        ("a.csv row 3", 1, {"id": "3", "split": "test", "note": ""}),
        ("a.csv row 4", 2, {"id": "4", "split": "test", "note": ""}),
    ]
    assert [row.place for row in rows.rows({1})] == ["a.csv row 3"]


def test_evenly_spread_rows(table):
    text = "id\n" + "".join(f"{number}\n" for number in range(23))
    spread = [row.values["id"] for row in table(text, columns=("id",)).spread()]
    assert spread == [str(int(i / 5 * 23)) for i in range(5)]


def test_compressed_and_marked(table):
    data = gzip.compress(b"\xef\xbb\xbf" + TEXT.encode().replace(b"\n", b"\r\n"))
    assert [row.values["id"] for row in table(data, "a.csv.gz").rows()] == ["1", "2", "3", "4"]


def test_an_archive_member(tmp_path):
    archive = put_zip(tmp_path / "a.zip", {"inner/a.csv": TEXT})
    (first, *_) = csv_table(SourceFile(archive, "inner/a.csv"), ("id",)).rows()
    assert (first.place, first.text("id")) == ("a.zip/a.csv row 1", "1")


@each_row(
    "data, name, parts",
    [
        ("", "a.csv", ["a.csv lacks 'id', 'split'; it has nothing"]),
        ("id,half\n", "a.csv", ["a.csv lacks 'split'; it has half, id"]),
        (TEXT.encode() + b"\xff", "a.csv", ["a.csv is no UTF-8 text", "download it again"]),
        (gzip.compress(TEXT.encode())[:-12], "a.csv.gz", ["a.csv.gz cannot be unpacked", "download it again"]),
        (TEXT, "a.csv.gz", ["a.csv.gz cannot be unpacked", "download it again"]),
        (TEXT + '5,"' + "x" * 200_000, "a.csv", ["a.csv is no table after row 4", "download it again"]),
    ],
)
def test_broken_files(table, refuses, data, name, parts):
    with refuses(*parts):
        list(table(data, name).rows())
