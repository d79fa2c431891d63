"""What all sources have in common: tables, sizes, ids, what is left out, images, demonstrations."""

import gzip
import io
import json

import pytest
from PIL import Image

from medtasks.data.catalogue import Access, DatasetInfo
from medtasks.data.document_store import load_documents
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare import source_recipe
from medtasks.data.prepare.prepare_dataset import verify
from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    SourceRecipe,
    prepare_recipe,
)
from medtasks.data.prepare.source_tables import csv_table, listed_records
from medtasks.data.schema import CLASSIFICATION, DEMONSTRATIONS_SPLIT
from medtasks.errors import SourceError

from ..tables import each_row

NAMES = ["adipose", "mucus"]


def picture(shade):
    return Image.new("L", (6, 4), shade)


def info(rows=3, access=Access.PUBLIC):
    return DatasetInfo(
        "tiles", "Tiles", "drawn tiles", "https://example.org", "1", access, "none", rows=rows
    )


def document(number, label=0):
    return {
        "doc_id": f"test/{number}",
        "image_id": None,
        "patient_id": None,
        "details": None,
        "options": NAMES,
        "label": label,
    }


def tiles(_source, images):
    for number, shade in enumerate((10, 200, 10)):
        yield PublishedRow(
            f"tiles.csv row {number + 1}",
            document(number, number % 2),
            [images.add_pixels(picture(shade))],
        )


def reading(*rows):
    return lambda _source, _images: iter(rows)


def recipe(test=tiles, **more):
    return SourceRecipe(CLASSIFICATION, test, "a folder with tiles.csv", **more)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(source_recipe, "_NAMED", 2)
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def final(source):
    return source.parent / "home" / "datasets" / "tiles"


@pytest.fixture(autouse=True)
def in_the_catalogue(monkeypatch):
    monkeypatch.setattr("medtasks.data.dataset_lookup.dataset_info", lambda name: info())


def test_a_set_of_another_size_is_refused(source, final):
    with pytest.raises(
        SourceError,
        match=r"the source holds 3 rows, the evaluated set 5\. Complete.*--allow-incomplete",
    ):
        prepare_recipe(info(rows=5), recipe(), Options(source))
    assert not final.exists()
    manifest = prepare_recipe(info(rows=5), recipe(), Options(source, allow_incomplete=True))
    assert (manifest.complete, manifest.left_out) == (
        False,
        ("the source holds 3 rows, the evaluated set 5",),
    )
    assert prepare_recipe(info(rows=5), recipe(), Options(source, sample=True)).complete
    assert prepare_recipe(info(rows=None), recipe(), Options(source)).complete


def test_demonstrations_stand_apart(source, final):
    def shots(_source, images):
        yield PublishedRow(
            "train.csv row 1", document("train"), [images.add_pixels(picture(77))]
        )

    manifest = prepare_recipe(info(), recipe(demonstrations=shots), Options(source))
    assert (manifest.rows, manifest.images, manifest.complete) == (3, 2, True)
    (shot,) = load_documents("tiles", DEMONSTRATIONS_SPLIT)
    assert (final / shot["image_files"][0]).is_file()
    prepare_recipe(info(), recipe(), Options(source))
    assert load_documents("tiles", DEMONSTRATIONS_SPLIT) == []
    assert not (final / shot["image_files"][0]).exists()


@each_row(
    "access, need",
    [
        (Access.CREDENTIALED, "needs credentials: sign its agreement at https://example.org"),
        (Access.GATED, "has to be downloaded by a person"),
        (Access.PUBLIC, "has to be downloaded at https://example.org"),
    ],
)
def test_what_a_person_has_to_fetch(source, access, need):
    with pytest.raises(SourceError, match=need) as refused:
        prepare_recipe(info(access=access), recipe(), Options())
    assert (
        "'medtasks data prepare tiles --source DIR', where DIR holds a folder with tiles.csv"
        in str(refused.value)
    )


@pytest.fixture
def jpeg():
    buffer = io.BytesIO()
    picture(90).save(buffer, "JPEG")
    return buffer.getvalue()


def test_images_are_stored_once_and_as_they_are(tmp_path, jpeg):
    store = ImageStore(tmp_path)

    first, again = store.add_bytes(jpeg), store.add_bytes(jpeg)

    assert first == again
    assert first.file.endswith(".jpg")
    assert (tmp_path / first.file).read_bytes() == jpeg
    assert store.add_pixels(picture(90)).file.endswith(".png")
    assert len(store.facts) == 2


def test_broken_and_missing_images_are_not_stored(tmp_path, jpeg):
    store = ImageStore(tmp_path)
    with pytest.raises(OSError, match=r"(?i)truncated"):
        store.add_bytes(jpeg[:200])
    with pytest.raises(OSError):
        store.add_file(tmp_path / "missing.png")


def test_an_interrupted_copy_is_written_again(tmp_path, jpeg):
    first = ImageStore(tmp_path).add_bytes(jpeg)
    (tmp_path / first.file).write_bytes(bytes(len(jpeg)))

    ImageStore(tmp_path).add_bytes(jpeg)

    assert (tmp_path / first.file).read_bytes() == jpeg


def test_fingerprints_do_not_depend_on_how_pixels_are_compressed(source, monkeypatch):
    before, save = prepare_recipe(info(), recipe(), Options(source)), Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda *args, **_: save(*args, compress_level=9))
    again = prepare_recipe(info(), recipe(), Options(source))
    assert (again.pixels_sha256, again.text_sha256) == (
        before.pixels_sha256,
        before.text_sha256,
    )
    assert list(verify("tiles")) == []


@each_row(
    "text",
    [
        "[]",
        " [ ]\n",
        '[{"a": "]"}]',
        '\n[ {"a": [1, {"b": ","}]} ,\t{"a": null}\r\n] ',
        '[{"a": "ü\\u00fc"}]',
    ],
)
@each_row("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_lists_are_read_as_json_does(tmp_path, text, encoding):
    path = tmp_path / "list.json"
    path.write_bytes(text.encode(encoding))
    rows = list(listed_records(path.name, path.read_bytes(), ["a"]).rows())
    assert [row.values for row in rows] == json.loads(path.read_bytes())
    assert [row.place for row in rows] == [
        f"list.json row {number}" for number in range(1, len(rows) + 1)
    ]


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


def test_compressed_and_marked(table):
    data = gzip.compress(b"\xef\xbb\xbf" + TEXT.encode().replace(b"\n", b"\r\n"))
    assert [row.values["id"] for row in table(data, "a.csv.gz").rows()] == ["1", "2", "3", "4"]
