"""Reading the published question files: every malformed one is refused in one sentence that names the place."""

import csv
import io
import json

import pytest

from medtasks.data.sources.mediconfusion import find_question_file, read_links, read_pairs
from medtasks.errors import SourceError

from ..tables import each_row

PAIR = {
    "question": "Where?",
    "option_A": "Here, there",
    "option_B": 'The "other" side',
    "im_1_correct": "A",
    "im_2_correct": "B",
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


def as_csv(*rows):
    """The text of a CSV file of these records."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def test_json_and_csv_say_the_same(read):
    (pair,) = read({"10001": PAIR})
    assert pair.pair_id == "10001"
    assert pair.options == ("Here, there", 'The "other" side')
    assert [image.answer for image in pair.images] == ["A", "B"]
    assert pair.images[1].categories == ("Cerebral", "Vascular")
    assert pair.images[1].image_id == "2"
    assert read(as_csv({"id": "10001", **PAIR}), "dataset.csv") == [pair]
    assert read(b"\n" + json.dumps({"10001": PAIR, "10002": PAIR}, indent=4).encode())[0] == pair


@each_row(
    "contents, part",
    [
        ("", "Invalid JSON"),
        ('{"10001": {"question": "Where', "Invalid JSON"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "Invalid JSON"),
        ("[" * 100_000, "Invalid JSON"),
        ("[]", "should be an object"),
        ({"10001": "text"}, "pair '10001'"),
        ({}, "holds no pairs"),
        ({"": PAIR}, "pair ''"),
    ],
)
def test_malformed_json(read, refuses, contents, part):
    with refuses("dataset.json", part, kind=SourceError):
        read(contents)


@each_row("name", PAIR)
def test_missing_field_is_named(read, refuses, name):
    with refuses(f"dataset.json, pair '10001', field '{name}': Field required", kind=SourceError):
        read({"10001": {key: value for key, value in PAIR.items() if key != name}})


@each_row(
    "field, value",
    [
        ("im_1_correct", "C"),
        ("question", " \n"),
        ("category_1", []),
        ("category_1", "Cerebral"),
        ("category_2", ["Cerebral", 3]),
        ("category_2", [""]),
        ("im_1_local", "../../etc/passwd"),
        ("im_2_local", 1.5),
        ("im_2_local", "²"),
    ],
)
def test_impossible_value(read, refuses, field, value):
    with refuses(f"dataset.json, pair '10002', field '{field}'", kind=SourceError):
        read({"10001": PAIR, "10002": PAIR | {field: value}})


@each_row(
    "text, part",
    [
        (as_csv({"id": "1", **PAIR, "category_2": "['Cerebral'"}), " is malformed (SyntaxError"),
        (as_csv({"id": "1", **PAIR, "category_2": "__import__('os')"}), " is malformed (ValueError"),
        (as_csv({"id": "1", **PAIR, "category_2": "[]"}), ", pair '1', field 'category_2'"),
        (as_csv(PAIR), " is malformed (KeyError('id'))"),
        (b"id,question\n\xe9,\xff\n", " is malformed (UnicodeDecodeError"),
    ],
)
def test_malformed_csv(read, refuses, text, part):
    with refuses(f"dataset.csv{part}", kind=SourceError):
        read(text, "dataset.csv")


def test_a_data_folder_is_found(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "dataset.json").touch()
    assert find_question_file(tmp_path) == data / "dataset.json"
    (tmp_path / "dataset.csv").touch()
    assert find_question_file(tmp_path) == tmp_path / "dataset.csv"


def test_links(tmp_path, refuses):
    path = tmp_path / "image_dict.json"
    with refuses("image_dict.json is missing; it names the article", kind=SourceError):
        read_links(path)
    for content in (b"", b"[]", b'{"a": 1}', b'{"a": {"local": 1}}', b"\xff"):
        path.write_bytes(content)
        with refuses("image_dict.json is malformed", kind=SourceError):
            read_links(path)
    path.write_text('{"train/a.jpg": {"local": 7, "dlink": "ftp://x/PMC1.tar.gz", "file_name": "a b.jpg"}}')
    assert read_links(path) == {"7": ("ftp://x/PMC1.tar.gz", "a b.jpg")}


def test_golden_mediconfusion_files_agree(test_data):
    folder = test_data / "mediconfusion"
    pairs = read_pairs(folder / "dataset.json")
    assert read_pairs(folder / "dataset.csv") == pairs
    assert [pair.pair_id for pair in pairs] == [str(number) for number in range(10001, 10177)]
    assert {image.image_id for pair in pairs for image in pair.images} == read_links(folder / "image_dict.json").keys()
