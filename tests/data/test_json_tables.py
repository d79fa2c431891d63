import json

import pytest

from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.table_files import listed_records
from medtasks.errors import SourceError

from ..tables import each_row


@each_row(
    "text", ["[]", " [ ]\n", '[{"a": "]"}]', '\n[ {"a": [1, {"b": ","}]} ,\t{"a": null}\r\n] ', '[{"a": "ü\\u00fc"}]']
)
@each_row("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_are_read_as_json_does(tmp_path, text, encoding):
    path = tmp_path / "list.json"
    path.write_bytes(text.encode(encoding))
    rows = list(listed_records(SourceFile(path), ["a"]).rows())
    assert [row.values for row in rows] == json.loads(path.read_bytes())
    assert [row.place for row in rows] == [f"list.json row {number}" for number in range(1, len(rows) + 1)]


@each_row(
    "text",
    [
        "",
        "[",
        '[{"a": 1}',
        '[{"a": 1},]',
        '[{"a": 1} {"a": 2}]',
        '[{"a": 1}] x',
        "[,]",
        '{"a": 1',
        "[" * 9999,
        "\ufffe",
    ],
)
def test_what_is_no_json(tmp_path, text):
    path = tmp_path / "list.json"
    path.write_bytes(text.encode())
    with pytest.raises((ValueError, RecursionError)):
        json.loads(text)
    with pytest.raises(SourceError, match=r"^list\.json is no JSON \("):
        list(listed_records(SourceFile(path), ["a"]).rows())


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "list.json"
    path.write_bytes(b'[{"a": "\xff"}]')
    with pytest.raises(SourceError, match="is no JSON"):
        listed_records(SourceFile(path), ["a"])
