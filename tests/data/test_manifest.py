"""The manifest, the fingerprints in it, and ``verify``, which names each thing that is not as prepared."""

import json

import datasets
import pytest
from PIL import Image

from medtasks.data.dataset_manifest import (
    FILE_NAME,
    Manifest,
    pixels_fingerprint,
    text_fingerprint,
)
from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.images.decoding import REFERENCE
from medtasks.data.images.image_store import read_facts
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import DatasetNotPrepared, SourceError

from ..tables import each_row

FACTS = {
    "name": "mediconfusion",
    "source": "https://github.com/AIF4S/MediConfusion",
    "revision": "a3045b0",
    "access": "public",
    "sample": False,
    "complete": False,
    "rows": 350,
    "images": 227,
    "text_sha256": "1" * 64,
    "pixels_sha256": "2" * 64,
    "left_out": ["Übersicht.jpg is missing"],
}


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    manifest = Manifest(**FACTS)

    manifest.write(tmp_path)

    assert Manifest.read(tmp_path) == manifest
    images = {"image_rule": "reference", "image_range": None, "image_conversions": {}}
    whole = {
        "selected_from": None,
        "selection": {},
        "draw": None,
        "volume_settings": {},
        **images,
    }
    assert json.loads((tmp_path / FILE_NAME).read_text(encoding="utf-8")) == FACTS | whole


def test_a_fingerprint_is_of_text_and_pixels():
    manifest = Manifest(**FACTS)
    changes = ({"text_sha256": "3" * 64}, {"pixels_sha256": "3" * 64}, {"source": "elsewhere"})

    others = [manifest.model_copy(update=change).fingerprint for change in changes]

    assert (len(manifest.fingerprint), len({*others}), others[2]) == (
        12,
        3,
        manifest.fingerprint,
    )


def test_a_fingerprint_is_of_how_volumes_are_shown():
    manifest = Manifest(**FACTS)

    shown = [
        manifest.model_copy(update={"volume_settings": settings})
        for settings in ({}, {"slices": 8}, {"plane": "axial"}, {"plane": "coronal"})
    ]

    assert [each.fingerprint == manifest.fingerprint for each in shown] == [True] + [False] * 3
    assert shown[1].fingerprint == shown[2].fingerprint != shown[3].fingerprint


@each_row(
    "contents",
    [
        *(b"", b"{", b"[]", b"\xff\xfe", b'{"name": "x"}'),
        json.dumps(FACTS | {"invented": 1}).encode(),
    ],
)
def test_damaged_manifest(tmp_path, refuses, contents):
    folder = tmp_path / "mediconfusion"
    folder.mkdir()
    (folder / FILE_NAME).write_bytes(contents)
    with refuses(
        f"{folder / FILE_NAME} is damaged",
        "medtasks data prepare mediconfusion",
        kind=SourceError,
    ):
        Manifest.read(folder)


def test_text_fingerprint_ignores_order_only():
    rows = [{"a": 1, "b": ["x", "y"]}, {"a": 2, "b": []}]
    whole = text_fingerprint(rows)
    assert text_fingerprint(reversed(rows)) == whole
    assert text_fingerprint([{"b": ["x", "y"], "a": 1}, rows[1]]) == whole
    assert text_fingerprint([{"a": 1, "b": ["y", "x"]}, rows[1]]) != whole
    assert text_fingerprint([*rows, rows[1]]) != whole
    assert text_fingerprint(rows[:1]) != whole


@pytest.fixture
def facts_of_images(tmp_path):
    """Facts of one picture in two files, and of one with the same bytes in another shape."""
    pixels = Image.frombytes("L", (6, 4), bytes(range(24)))
    pixels.save(tmp_path / "a.png")
    pixels.convert("RGB").save(tmp_path / "a.bmp")
    Image.frombytes("L", (4, 6), bytes(range(24))).save(tmp_path / "turned.png")
    return [read_facts(tmp_path / name, REFERENCE) for name in ("a.png", "a.bmp", "turned.png")]


def test_a_pixel_digest_is_of_the_picture(facts_of_images):
    first, same, turned = facts_of_images
    assert first == same
    assert turned.sha256 != first.sha256


def test_the_fingerprint_knows_which_picture_is_whose(facts_of_images):
    first, _, turned = facts_of_images
    assert pixels_fingerprint({"1": first, "2": turned}) == pixels_fingerprint(
        {"2": turned, "1": first}
    )
    assert pixels_fingerprint({"1": first, "2": turned}) != pixels_fingerprint(
        {"1": turned, "2": first}
    )


@pytest.fixture
def prepared(source, home):
    return prepare("mediconfusion", Options(source, sample=True))


def other_pixels(final):
    return f"the images of {final} decode to other pixels than when they were prepared"


def test_verify_has_nothing_to_say_of_data_as_prepared(prepared):
    assert list(verify("mediconfusion")) == []


def test_verify_names_another_number_of_documents(final, prepared):
    prepared.model_copy(update={"rows": 33}).write(final)
    assert list(verify("mediconfusion")) == [
        f"{final} holds 32 documents, its manifest says 33"
    ]


def test_verify_names_pixels_that_a_decoder_changed(final, prepared):
    """The files are the same, their pixels are not."""
    prepared.model_copy(update={"pixels_sha256": "0" * 64}).write(final)
    assert list(verify("mediconfusion")) == [other_pixels(final)]


def test_verify_names_an_image_that_changed(final, prepared):
    path = final / "images/90004.jpg"
    Image.new("RGB", (8, 8)).save(path)
    assert list(verify("mediconfusion")) == [
        f"{path} has changed since it was prepared",
        other_pixels(final),
    ]


def test_verify_names_missing_and_broken_images(final, prepared):
    path, broken = final / "images/90004.jpg", final / "images/90010.jpg"
    path.unlink()
    broken.write_bytes(broken.read_bytes()[:500])

    missing, changed, undecodable = verify("mediconfusion")

    assert (missing, changed) == (
        f"{path} is missing",
        f"{broken} has changed since it was prepared",
    )
    assert undecodable.startswith(f"{broken} is broken (")


def test_verify_needs_a_manifest(final, prepared, refuses):
    (final / "manifest.json").unlink()
    with refuses("medtasks data prepare mediconfusion", kind=DatasetNotPrepared):
        list(verify("mediconfusion"))


def test_changed_text(final, prepared):
    rows = [dict(row) for row in datasets.load_from_disk(str(final))["test"]]
    rows = [row | {"question": row["question"].replace("nodule", "mass")} for row in rows]
    for path in (final / "test").iterdir():
        path.unlink()
    datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)}).save_to_disk(str(final))
    assert list(verify("mediconfusion")) == [
        f"the text of {final} has changed since it was prepared"
    ]


@each_row(
    "name", ["dataset_dict.json", "test/state.json", "test/dataset_info.json", "test/*.arrow"]
)
@each_row("damage", ["missing", "cut", "garbage", "empty"])
def test_damaged_documents_are_one_sentence(final, prepared, refuses, name, damage):
    (path,) = final.glob(name)
    body = path.read_bytes()
    path.write_bytes(
        {"cut": body[: len(body) // 2], "garbage": b"\xff\x00", "empty": b""}.get(damage, b"")
    )
    if damage == "missing":
        path.unlink()
    with refuses(
        f"the documents in {final} are damaged",
        "medtasks data prepare mediconfusion",
        kind=SourceError,
    ):
        list(verify("mediconfusion"))
    with refuses("are damaged", kind=SourceError):
        (load_documents if name in ("test/state.json", "test/*.arrow") else open_documents)(
            "mediconfusion"
        )
    path.write_bytes(body)
