"""Reading and joining files of report texts."""

import json

import pytest

from medtasks.errors import RepliesError
from medtasks.metrics.report_texts import ReportTexts, pair_texts, read_report_texts

from ..tables import each_row

REPORTS = ["No effusion.", "", 'Heart: "large", size 3,5\n\nSecond paragraph\u2028é 肺', " "]


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def csv_of(rows):
    return "".join(
        ",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in rows
    )


@each_row("name", ["text", "reply", "report"])
def test_the_same_texts_in_all_forms(write, name):
    objects = [{"id": number, name: text} for number, text in enumerate(REPORTS)]
    files = [
        write("a.jsonl", "".join(json.dumps(item) + "\n" for item in objects)),
        write("b.jsonl", "\n".join(json.dumps(item, ensure_ascii=False) for item in objects)),
        write("c.json", json.dumps(objects)),
        write(
            "d.csv",
            csv_of(
                [
                    ["id", "other", name],
                    *([str(n), "x", text] for n, text in enumerate(REPORTS)),
                ]
            ),
        ),
        write(
            "e.CSV",
            b"\xef\xbb\xbf"
            + csv_of(
                [[name, "study_id"], *([t, str(n)] for n, t in enumerate(REPORTS))]
            ).encode(),
        ),
    ]
    for path in files:
        assert read_report_texts(path) == ReportTexts(
            path, tuple(REPORTS), ("0", "1", "2", "3")
        )
    named = write("h.csv", csv_of([["text", "finding"], ["x", "No effusion."]]))
    assert read_report_texts(named, "finding").texts == ("No effusion.",)
    for path in (
        write("f.json", json.dumps(REPORTS)),
        write("g.csv", csv_of([[name], *([text] for text in REPORTS)])),
    ):
        assert read_report_texts(path) == ReportTexts(path, tuple(REPORTS), None)


@each_row("end", ["\n", "\r\n"])
def test_one_text_per_line(write, end):
    path = write("a.txt", f"No effusion.{end}{end}  é\u2028\x0b {end}")
    assert read_report_texts(path).texts == ("No effusion.", "", "  é\u2028\x0b ")
    assert read_report_texts(write("b.txt", f"one{end}two")).texts == ("one", "two")


@each_row(
    "name, content, column, said",
    [
        ("a.jsonl", '{"text": "SECRET', None, r"a\.jsonl line 1 is not JSON"),
        (
            "a.jsonl",
            '{"text": "a"}\n["SECRET"]\n',
            None,
            "line 2 is neither a text nor an object",
        ),
        ("a.jsonl", '{"text": null}', None, "line 1: the text is no text"),
        ("a.jsonl", '{"SECRET": "a"}', None, "line 1 has none of text, reply, report"),
        (
            "a.jsonl",
            '{"text": "SECRET", "reply": "b"}',
            None,
            "has text and reply; choose one of them with --column",
        ),
        ("a.jsonl", '{"text": "SECRET", "id": [1]}', None, "the id is neither"),
        (
            "a.jsonl",
            '{"text": "SECRET", "id": 1}\n{"text": "b", "id": "1"}',
            None,
            "holds id '1' more than once",
        ),
        (
            "a.jsonl",
            '{"text": "SECRET", "id": 1}\n{"text": "b"}',
            None,
            "ids for 1 of its 2 texts",
        ),
        ("a.json", '{"text": "SECRET"}', None, "must hold a list"),
        ("a.json", '["SECRET", 3]', None, "entry 2 is neither"),
        ("a.csv", "SECRET report\nmore\n", None, "row 2 has none of text"),
        ("a.csv", "SECRET report\nmore\n", "txt", "row 2 has no 'txt'"),
        ("a.csv", "id,text\n1,SECRET,more\n", None, "row 2 has 3 columns, the header 2"),
        ("a.csv", 'id,text\n1,"SECRET" more\n', None, "not a table"),
        ("a.txt", b"\xffSECRET", None, r"not UTF-8 text \(byte 1\)"),
        ("a.txt", "", None, "holds no texts"),
        ("a.pdf", "SECRET", None, "must end in one of .jsonl, .json, .csv, .txt"),
    ],
)
def test_what_cannot_be_read_is_said_without_texts(write, name, content, column, said):
    with pytest.raises(RepliesError, match=said) as raised:
        read_report_texts(write(name, content), column)
    assert "SECRET" not in str(raised.value)
    assert "\n" not in str(raised.value)


def texts(path, values, ids=None):
    return ReportTexts(path, tuple(values), None if ids is None else tuple(ids))


def test_texts_are_joined_by_id_if_both_files_have_them():
    ids = ("1", "2", "3")
    for first, second, hypotheses, paired in (
        ("123", "312", ("y", "z", "x"), ids),
        (ids, None, ("x", "y", "z"), ids),
        (None, ids, ("x", "y", "z"), ids),
        (None, None, ("x", "y", "z"), None),
    ):
        pairs = pair_texts(texts("r", "abc", first), texts("h", "xyz", second))
        assert (pairs.references, pairs.hypotheses, pairs.ids) == (
            ("a", "b", "c"),
            hypotheses,
            paired,
        )
    for references, hypotheses, said in (
        (("ab", None), ("xyz", None), "refs holds 2 texts and hyps 3"),
        (("abc", "123"), ("xy", "13"), r"id '2' of refs is not in hyps \(1 such ids\)"),
        (("ab", "12"), ("xyzw", "1234"), r"id '3' of hyps is not in refs \(2 such ids\)"),
    ):
        with pytest.raises(RepliesError, match=said):
            pair_texts(texts("refs", *references), texts("hyps", *hypotheses))
