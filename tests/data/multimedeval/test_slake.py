"""SLAKE from ``test.json`` and ``imgs.zip``, or the folder unpacked from it."""

import json

import pytest

from medtasks.data.home import dataset_folder


def question(number, split="test", **fields):
    """Every third question is Chinese; three questions share an image."""
    image = number // 3 + (50 if split == "train" else 0)
    return {
        "img_id": image,
        "img_name": f"xmlab{image}/source.jpg",
        "question": f"What is drawn in {number}?",
        "answer": ["Yes", "CT", "肝"][number % 3],
        "q_lang": ["en", "en", "zh"][number % 3],
        "location": "Lung",
        "modality": "CT",
        "answer_type": ["CLOSED", "OPEN", "OPEN"][number % 3],
        "base_type": "vqa",
        "content_type": "Modality",
        "triple": ["vhead", "_", "_"],
        "qid": 11934 + number,
        **fields,
    }


@pytest.fixture
def members(jpeg):
    return {f"imgs/xmlab{image}/source.jpg": jpeg(image) for image in (*range(4), *range(50, 60))}


@pytest.fixture
def source(tmp_path, members, write_zip):
    folder = tmp_path / "SLAKE"
    write_zip(folder / "imgs.zip", {**members, "imgs/xmlab0/mask.png": b"?", "imgs/xmlab0/question.json": b"[]"})
    write_questions(folder, [question(number) for number in range(12)])
    (folder / "train.json").write_text(json.dumps([question(number, "train") for number in range(30)]))
    return folder


def write_questions(folder, questions):
    (folder / "test.json").write_text(json.dumps(questions, ensure_ascii=False), encoding="utf-8")


def unpack(source, members, folder="imgs"):
    for name, data in members.items():
        path = source / folder / name.removeprefix("imgs/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def test_documents_are_the_english_questions(source, prepared, jpeg):
    manifest, documents, shots = prepared("slake", source)
    assert manifest.left_out == ("the source holds 8 rows, the evaluated set 1061",)
    assert (manifest.rows, manifest.images) == (8, 4)
    first, second, third, *_ = documents
    digest = first["image_sha256"][0]
    assert first == {
        "doc_id": "11934",
        "dataset": "multimedeval_slake",
        "image_id": digest[:16],
        "patient_id": None,
        "image_files": [f"images/{digest[:16]}.jpg"],
        "image_sha256": [digest],
        "question": "What is drawn in 0?",
        "answer": "Yes",
        "question_type": "Modality",
    }
    assert [document["doc_id"] for document in documents[:4]] == ["11934", "11935", "11937", "11938"]
    assert first["image_id"] == second["image_id"] != third["image_id"]
    assert (dataset_folder(manifest.name) / third["image_files"][0]).read_bytes() == jpeg(1)
    # 20 of 30 training questions are English; every fourth of them is one of those at 0, 6, 12, 18, 24.
    assert [shot["doc_id"] for shot in shots] == [str(11934 + number) for number in (0, 6, 12, 18, 24)]


@pytest.mark.parametrize("folder", ["imgs", "imgs/imgs"])
def test_an_unpacked_archive_is_the_same(source, members, prepared, folder):
    first = prepared("slake", source)
    (source / "imgs.zip").unlink()
    unpack(source, members, folder)
    assert prepared("slake", source)[1:] == first[1:]


def test_what_the_folder_lacks_comes_from_the_archive(source, members, prepared):
    unpack(source, dict(list(members.items())[:1]))
    assert len(prepared("slake", source)[1]) == 8


@pytest.mark.parametrize("packed", [True, False])
def test_missing_and_broken_images_are_left_out_only_on_request(
    source, members, prepared, complains, write_zip, packed
):
    changed = {**members, "imgs/xmlab2/source.jpg": members["imgs/xmlab2/source.jpg"][:-30]}
    del changed["imgs/xmlab1/source.jpg"]
    if packed:
        write_zip(source / "imgs.zip", changed)
    else:
        (source / "imgs.zip").unlink()
        unpack(source, changed)
    sentences = [
        *(f"test.json row {row}: its image imgs/xmlab1/source.jpg is missing" for row in (4, 5)),
        *(f"test.json row {row}: its image imgs/xmlab2/source.jpg cannot be read" for row in (7, 8)),
    ]
    complains("slake", source, *sentences[:3], "and 2 more", allow_incomplete=False)
    manifest, documents, _ = prepared("slake", source)
    assert manifest.left_out == (*sentences, "the source holds 8 rows, the evaluated set 1061")
    assert [document["doc_id"] for document in documents] == ["11934", "11935", "11943", "11944"]


def test_a_damaged_member_of_the_archive_is_an_unreadable_image(source, prepared):
    path = source / "imgs.zip"
    data = bytearray(path.read_bytes())
    start = data.index(b"imgs/xmlab3/source.jpg") + 60
    data[start : start + 8] = b"~" * 8
    path.write_bytes(data)
    manifest, documents, _ = prepared("slake", source)
    assert "its image imgs/xmlab3/source.jpg cannot be read" in manifest.left_out[0]
    assert len(documents) == 6


def test_nothing_to_read(source, complains):
    (source / "imgs.zip").write_bytes((source / "imgs.zip").read_bytes()[:-30])
    complains("slake", source, "imgs.zip cannot be unpacked", "download it again")
    (source / "imgs.zip").unlink()
    complains("slake", source, f"{source} holds no imgs.zip and no folder imgs")
    (source / "test.json").unlink()
    complains("slake", source, f"{source} holds no test.json")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[{]", "test.json is no JSON (Expecting"),
        ("{}", "test.json is not a list of questions"),
        ("[3]", "test.json row 1 is a number and not an object with qid, img_name"),
        ('[{"qid": 1}]', "test.json row 1 lacks 'img_name', 'question', 'answer', 'q_lang'; it has qid"),
    ],
)
def test_files_of_another_kind(source, complains, content, complaint):
    (source / "test.json").write_text(content)
    complains("slake", source, complaint)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"qid": "11937"}, "row 4: qid is a text and not a whole number"),
        ({"qid": 11934}, "row 4 has the id '11934' of test.json row 1; ids must be unique"),
        ({"q_lang": None}, "row 4: q_lang is empty and not a text"),
        ({"answer": 7}, "row 4: answer is a number and not a text"),
        ({"img_name": 7}, "row 4: img_name is a number and not a text"),
    ],
)
def test_rows_that_make_no_sense(source, complains, fields, complaint):
    write_questions(source, [question(number, **(fields if number == 3 else {})) for number in range(12)])
    complains("slake", source, f"test.json {complaint}")
