"""Reading the published question files: every malformed one is refused in one sentence that names the place."""

import csv
import json

import pytest

from medtasks.data.mediconfusion import FIELDS, Options, find_question_file, prepare, read_links, read_pairs
from medtasks.errors import SourceError

PAIR = {
    "question": "Where?",
    "option_A": "Here, there",
    "option_B": 'The "other" side',
    "im_1_correct": "A",
    "im_2_correct": "B",
    "im_1": "drawn/a.jpg",
    "im_2": "drawn/b.jpg",
    "im_1_local": 1,
    "im_2_local": 2,
    "category_1": ["Cerebral"],
    "category_2": ["Cerebral", "Vascular"],
}


@pytest.fixture
def read(tmp_path):
    """Read a JSON file of these contents: text, bytes, or anything JSON can say."""

    def run(contents, name="dataset.json"):
        path = tmp_path / name
        if isinstance(contents, bytes):
            path.write_bytes(contents)
        else:
            path.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
        return read_pairs(path)

    return run


@pytest.fixture
def read_csv(read):
    """Read a CSV file of these rows of texts; the first row is the header."""

    def run(*rows):
        lines = []
        csv.writer(type("Lines", (), {"write": lines.append})).writerows(rows)
        return read("".join(lines), "dataset.csv")

    return run


HEADER = ["", "id", *FIELDS]
ROW = ["0", "10001", *(str(PAIR[name]) for name in FIELDS)]


def test_json_and_csv_say_the_same(read, read_csv):
    (pair,) = read({"10001": PAIR})
    assert pair.pair_id == "10001"
    assert pair.options == ("Here, there", 'The "other" side')
    assert [image.answer for image in pair.images] == ["A", "B"]
    assert pair.images[1].categories == ("Cerebral", "Vascular")
    assert pair.images[1].image_id == "2"
    assert read_csv(HEADER, ROW) == [pair]
    assert read(b"\n" + json.dumps({"10001": PAIR, "10002": PAIR}, indent=4).encode())[0] == pair


@pytest.mark.parametrize(
    ("contents", "part"),
    [
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ('{"10001": {"question": "Where', "is not valid JSON"),
        (b"\xff\xfe\x00garbage", "is not valid JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ('{"10001": {}, "10001": {}}', "'10001' occurs twice"),
        ('{"10001": {"question": "a", "question": "b"}}', "'question' occurs twice"),
        ("[]", "must be a JSON object of pair id → record"),
        ([PAIR], "must be a JSON object of pair id → record"),
        ({"10001": "text"}, "must be a JSON object of pair id → record"),
        ("null", "must be a JSON object of pair id → record"),
        ({}, "holds no pairs"),
        ({"": PAIR}, "a pair has no id"),
    ],
)
def test_malformed_json(read, refuses, contents, part):
    with refuses("dataset.json", part, kind=SourceError):
        read(contents)


@pytest.mark.parametrize("name", FIELDS)
def test_missing_field_is_named(read, refuses, name):
    with refuses(f"dataset.json: pair 10001 lacks field '{name}'", kind=SourceError):
        read({"10001": {key: value for key, value in PAIR.items() if key != name}})


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("im_1_correct", "C", "im_1_correct is 'C', expected 'A' or 'B'"),
        ("im_2_correct", "b", "im_2_correct is 'b', expected 'A' or 'B'"),
        ("im_1_correct", "", "field 'im_1_correct' is empty or not text"),
        ("im_1_correct", None, "field 'im_1_correct' is empty or not text"),
        ("question", " \n", "field 'question' is empty or not text"),
        ("question", 7, "field 'question' is empty or not text"),
        ("option_B", "half a \ud83d pair", "field 'option_B' is empty or not text"),
        ("category_1", [], "field 'category_1' must be a list of category names"),
        ("category_1", "Cerebral", "field 'category_1' must be a list of category names"),
        ("category_2", ["Cerebral", 3], "field 'category_2' must be a list of category names"),
        ("category_2", [""], "field 'category_2' must be a list of category names"),
        ("category_2", ["\udc80"], "field 'category_2' must be a list of category names"),
        ("im_1_local", "../../etc/passwd", "im_1_local is '../../etc/passwd', expected a number"),
        ("im_1_local", None, "im_1_local is 'None', expected a number"),
        ("im_2_local", 1.5, "im_2_local is '1.5', expected a number"),
        ("im_2_local", "", "im_2_local is '', expected a number"),
        ("im_2_local", "²", "im_2_local is '²', expected a number"),
    ],
)
def test_impossible_value(read, refuses, field, value, part):
    with refuses("dataset.json: pair 10002: ", part, kind=SourceError):
        read({"10001": PAIR, "10002": PAIR | {field: value}})


SECOND = ["1", "10002", *ROW[2:]]
HEAD_AND_ID = (",".join(HEADER) + "\n" + ",".join(ROW[:2])).encode()


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ([[name for name in HEADER if name != "option_B"], ROW], [" lacks column 'option_B'; use the published file"]),
        ([["nothing"], ["else"]], [f" lacks column 'id' (and {len(FIELDS)} more)"]),
        ([HEADER, ROW, SECOND[:-1]], [" line 3 is cut short"]),
        ([HEADER, ROW, [*SECOND, "more"]], [" line 3 has more fields than the header"]),
        ([HEADER, ROW, ROW], [": pair id 10001 occurs twice"]),
        ([HEADER], [" holds no pairs"]),
        ([HEADER, ["0", "", *ROW[2:]]], [": a pair has no id"]),
        *(
            ([HEADER, [*ROW[:-1], labels]], [" line 2: column 'category_2' is not a list"])
            for labels in ("Cerebral", "['Cerebral'", "{[]: 1}", "__import__('os')", "")
        ),
        ([HEADER, [*ROW[:-1], "[]"]], [": pair 10001: field 'category_2' must be a list of category names"]),
        ([HEADER, [*ROW[:-1], "x" * 200_000]], [" is not valid CSV", "field larger than field limit"]),
        (HEAD_AND_ID + b",\xff\n", [" is not valid CSV", "use the published file"]),
        (b"\xff\xfe\x00g", [" "]),
        (b"id,question\n\xe9,\xff\n", [" "]),
        (b'id\n"' + b"x" * 200_000, [" "]),
    ],
)
def test_malformed_csv(read, read_csv, refuses, rows, parts):
    with refuses(f"dataset.csv{parts[0]}", *parts[1:], kind=SourceError):
        read(rows, "dataset.csv") if isinstance(rows, bytes) else read_csv(*rows)


@pytest.mark.usefixtures("home")
def test_a_malformed_file_is_refused_by_the_preparer_too(source, records, final, refuses):
    records.change("90007", im_2_correct="C")
    with refuses("pair 90007: im_2_correct is 'C'", kind=SourceError):
        prepare(Options(source, sample=True))
    assert not final.exists()


def test_json_is_preferred_and_a_data_folder_found(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "dataset.csv").touch()
    assert find_question_file(tmp_path) == data / "dataset.csv"
    (data / "dataset.json").touch()
    assert find_question_file(tmp_path) == data / "dataset.json"
    (tmp_path / "dataset.csv").touch()
    assert find_question_file(tmp_path) == tmp_path / "dataset.csv"


@pytest.mark.parametrize("contents", [b"", b"[]", b"{", b'{"a": 1}', b'{"a": {"local": 1}}', b"\xff"])
def test_malformed_links(tmp_path, refuses, contents):
    path = tmp_path / "image_dict.json"
    path.write_bytes(contents)
    with refuses("image_dict.json is malformed", kind=SourceError):
        read_links(path)


def test_links(tmp_path, refuses):
    path = tmp_path / "image_dict.json"
    with refuses("image_dict.json is missing; it names the article", kind=SourceError):
        read_links(path)
    path.write_text('{"train/a.jpg": {"local": 7, "dlink": "ftp://x/PMC1.tar.gz", "file_name": "a b.jpg"}}')
    assert read_links(path) == {"7": ("ftp://x/PMC1.tar.gz", "a b.jpg")}


def test_golden_mediconfusion_files_agree(test_data):
    folder = test_data / "mediconfusion"
    pairs = read_pairs(folder / "dataset.json")
    assert read_pairs(folder / "dataset.csv") == pairs
    assert [pair.pair_id for pair in pairs] == [str(number) for number in range(10001, 10177)]
    assert {image.image_id for pair in pairs for image in pair.images} == read_links(folder / "image_dict.json").keys()
