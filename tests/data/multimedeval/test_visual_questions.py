"""VQA-RAD and PathVQA from the Hub's parquet files, images included."""

import io

import pyarrow
import pytest
from PIL import Image

from medtasks.data import image_store
from medtasks.data.decoding import decoded
from medtasks.data.home import dataset_folder
from medtasks.data.preparers import verify

BOTH = pytest.mark.parametrize(("name", "published"), [("vqa_rad", 451), ("path_vqa", 6719)])
# As the Hub has it.
SCHEMA = pyarrow.schema(
    {
        "image": pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()}),
        "question": pyarrow.string(),
        "answer": pyarrow.string(),
    }
)


@pytest.fixture
def rows(jpeg):
    """Three questions on each picture; the first is closed."""

    def build(first, count):
        return [
            {
                "image": {"bytes": jpeg(first + number // 3), "path": None},
                "question": f"question {first} {number}?",
                "answer": ["yes", "Left lung", "no"][number % 3],
            }
            for number in range(count)
        ]

    return build


@pytest.fixture
def source(tmp_path, rows, write_parquet):
    folder = tmp_path / "vqa"
    write_parquet(folder / "data" / "test-00000-of-00001-e5bc3d208bb4deeb.parquet", rows(0, 11), SCHEMA)
    write_parquet(folder / "data" / "train-00000-of-00001-eb8844602202be60.parquet", rows(50, 30), SCHEMA)
    return folder


@pytest.fixture
def test_file(source):
    return source / "data" / "test-00000-of-00001-e5bc3d208bb4deeb.parquet"


@BOTH
def test_documents_and_images(source, prepared, jpeg, name, published):
    manifest, documents, shots = prepared(name, source)
    assert manifest.left_out == (f"the source holds 11 rows, the evaluated set {published}",)
    assert (manifest.rows, manifest.images, manifest.access) == (11, 4, "public")
    first, second, *_, last = documents
    digest = first["image_sha256"][0]
    assert first == {
        "doc_id": "test/0",
        "dataset": f"multimedeval_{name}",
        "image_id": digest[:16],
        "patient_id": None,
        "image_files": [f"images/{digest[:16]}.jpg"],
        "image_sha256": [digest],
        "question": "question 0 0?",
        "answer": "yes",
        "question_type": None,
    }
    assert second["image_id"] == first["image_id"] != last["image_id"]
    assert [document["answer"] for document in documents[:3]] == ["yes", "Left lung", "no"]
    assert (dataset_folder(manifest.name) / last["image_files"][0]).read_bytes() == jpeg(3)
    assert [shot["doc_id"] for shot in shots] == [f"train/{number}" for number in (0, 6, 12, 18, 24)]
    assert (dataset_folder(manifest.name) / shots[4]["image_files"][0]).read_bytes() == jpeg(58)
    assert list(verify(manifest.name)) == []


def test_other_layouts_are_the_same(tmp_path, source, prepared, rows, write_parquet):
    first = prepared("path_vqa", source)
    converted, flat = tmp_path / "converted", tmp_path / "flat"
    for split, start, count in (("test", 0, 11), ("train", 50, 30)):
        write_parquet(converted / "default" / split / "0000.parquet", rows(start, count), SCHEMA)
        every = rows(start, count)
        write_parquet(flat / f"{split}-00000-of-00002.parquet", every[:4], SCHEMA)
        write_parquet(flat / f"{split}-00001-of-00002.parquet", every[4:], SCHEMA)
    for other in (converted, flat, source / "data"):
        assert prepared("path_vqa", other)[1:] == first[1:]


@pytest.mark.parametrize("broken", ["cut", "no image", "nothing", "no bytes"])
def test_unreadable_images_are_left_out_only_on_request(
    source, test_file, prepared, complains, jpeg, rows, write_parquet, broken
):
    spoilt = rows(0, 11)
    spoilt[7]["image"] = {
        "cut": {"bytes": jpeg(2)[:-40], "path": None},
        "no image": {"bytes": b"[no image]", "path": None},
        "nothing": None,
        "no bytes": {"bytes": None, "path": "synpic42202.jpg"},
    }[broken]
    write_parquet(test_file, spoilt, SCHEMA)
    sentence = f"{test_file.name} row 8: its image cannot be read"
    complains("vqa_rad", source, sentence, "--allow-incomplete", allow_incomplete=False)
    manifest, documents, _ = prepared("vqa_rad", source)
    assert manifest.left_out == (sentence, "the source holds 11 rows, the evaluated set 451")
    assert [document["doc_id"] for document in documents] == [f"test/{n}" for n in range(11) if n != 7]


def test_a_broken_demonstration_costs_only_the_demonstrations(source, prepared, rows, write_parquet):
    spoilt = rows(50, 30)
    spoilt[12]["image"]["bytes"] = b"?"
    name = "train-00000-of-00001-eb8844602202be60.parquet"
    write_parquet(source / "data" / name, spoilt, SCHEMA)
    manifest, documents, shots = prepared("vqa_rad", source)
    assert (len(documents), shots) == (11, [])
    assert manifest.left_out[-1] == f"no few-shot demonstrations: {name} row 13: its image cannot be read"


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("question", None, "row 2: question is empty and not a text"),
        ("answer", None, "row 2: answer is empty and not a text"),
        ("answer", 3, "row 1: answer is a number and not a text"),
        ("image", "synpic42202.jpg", "row 1: image holds no image file"),
    ],
)
def test_rows_that_make_no_sense(source, test_file, complains, rows, write_parquet, column, value, complaint):
    spoilt = rows(0, 3)
    spoilt[1][column] = value
    if value is not None:  # a parquet column has one type
        spoilt = [{**row, column: value} for row in spoilt]
    write_parquet(test_file, spoilt)
    complains("vqa_rad", source, f"{test_file.name} {complaint}")


def test_wrong_columns(source, test_file, complains, rows, write_parquet):
    write_parquet(test_file, [{"picture": b"?", "question": "?", "answer": "!"}])
    complains("vqa_rad", source, f"{test_file.name} lacks 'image'; it has answer, picture, question")


def test_every_kind_of_image_file(source, test_file, prepared, write_parquet):
    """Grey, palette and transparent pictures stay the files they are."""
    files = []
    for mode, kind in (("L", "PNG"), ("P", "GIF"), ("RGBA", "PNG"), ("I;16", "PNG"), ("L", "BMP"), ("CMYK", "JPEG")):
        buffer = io.BytesIO()
        Image.new(mode, (5, 4)).save(buffer, kind)
        files.append(buffer.getvalue())
    rows = [{"image": {"bytes": data, "path": None}, "question": "?", "answer": "!"} for data in files]
    write_parquet(test_file, rows, SCHEMA)
    manifest, documents, _ = prepared("vqa_rad", source)
    assert len(documents) == len(files)
    stored = [dataset_folder(manifest.name) / document["image_files"][0] for document in documents]
    assert [path.read_bytes() for path in stored] == files
    assert list(verify(manifest.name)) == []


def test_an_image_of_many_questions_is_decoded_once(source, prepared, monkeypatch):
    """PathVQA asks 6,719 questions on fewer than a thousand images."""
    calls = []

    def counted(stream, decoding):
        calls.append(stream)
        return decoded(stream, decoding)

    monkeypatch.setattr(image_store, "decoded", counted)
    prepared("path_vqa", source)
    assert len(calls) == 4 + 5  # tested, demonstrations
