"""MedMNIST: which arrays, which classes, which rows; damaged archives and labels."""

import hashlib
import zipfile
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.multimedeval import classification_sets as medmnist
from medtasks.data.sources.multimedeval.classification_sets import CLASSES
from medtasks.home import dataset_folder

from ...tables import each_row

CLASS_NAMES = {  # SHA-256 of the names in the package medmnist 3.0.2, one per line
    "octmnist": "f3254ff1b914",
    "pathmnist": "b255b5802ade",
    "bloodmnist": "f781bdba5352",
    "breastmnist": "43b9787e1fcf",
    "dermamnist": "6f71991b4bb7",
    "organcmnist": "374989b590cf",
    "organsmnist": "374989b590cf",
    "pneumoniamnist": "debe3d2f913a",
    "retinamnist": "2965d24b80b4",
    "tissuemnist": "e78427249c41",
}


def arrays_in(file):
    with np.load(file) as arrays:
        return {**arrays}


@each_row("name", ["octmnist", "pathmnist", "tissuemnist"])
def test_images_and_labels(source, prepared, name):
    folder = source(name)
    manifest, documents, shots = prepared(name, folder)
    published = arrays_in(folder / f"{name}.npz")
    assert [document["doc_id"] for document in documents] == [f"test/{row}" for row in range(6)]
    assert [shot["doc_id"] for shot in shots] == [f"train/{row}" for row in (0, 2, 4, 6, 8)]
    assert manifest.revision == "local"
    for document in (*documents, *shots):
        split, row = document["doc_id"].split("/")
        assert document["label"] == published[f"{split}_labels"][int(row), 0]
        assert document["options"] == list(CLASSES[name])
        (file,) = document["image_files"]
        with Image.open(dataset_folder(manifest.name) / file) as image:
            assert image.mode == ("RGB" if published["test_images"].ndim == 4 else "L")
            assert np.array_equal(np.asarray(image), published[f"{split}_images"][int(row)])


def test_class_names_are_the_packages():
    assert list(CLASSES) == list(CLASS_NAMES)
    digests = {name: hashlib.sha256("\n".join(classes).encode()).hexdigest() for name, classes in CLASSES.items()}
    assert {name: digest[:12] for name, digest in digests.items()} == CLASS_NAMES


def test_damage_behind_the_evaluated_rows_shows(source, complains):
    """The last three quarters of TissueMNIST are not evaluated, but they belong to the published file."""
    file = source("tissuemnist") / "tissuemnist.npz"
    many = np.zeros((1900, 28, 28), np.uint8)
    np.savez(file, **{**arrays_in(file), "test_images": many, "test_labels": many[:, 0, :1]})
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo("test_images.npy")
    data = bytearray(file.read_bytes())
    data[info.header_offset + info.compress_size - 300] ^= 0xFF
    file.write_bytes(data)
    complains("tissuemnist", file, "tissuemnist.npz is damaged at test_images", "Bad CRC-32")


@pytest.fixture
def origin(source, published, monkeypatch, home):
    """A server has OCTMNIST, and the catalogue knows its checksum."""
    body = (source("octmnist") / "octmnist.npz").read_bytes()
    published.files["files/octmnist.npz"] = body
    digest = hashlib.md5(body).hexdigest()
    known = medmnist.dataset_info("multimedeval_octmnist")
    tiny = replace(known, rows=6, md5=MappingProxyType({"octmnist.npz": digest}))
    monkeypatch.setattr(medmnist, "dataset_info", lambda _name: tiny)
    monkeypatch.setenv("MEDTASKS_MEDMNIST_URL", f"{published.url}/files")
    return published


def test_download(origin, home, tmp_path, prepared):
    manifest = prepare("multimedeval_octmnist", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision) == (6, "MedMNIST v3 (10519652)")
    assert origin.requests == ["files/octmnist.npz"]
    assert not (home / "datasets" / "multimedeval_octmnist" / "scratch").exists()
    assert prepared("octmnist", tmp_path / "0" / "source")[0].revision == "MedMNIST v3 (10519652)"  # of an equal copy


def test_another_file_is_no_download(origin, refuses):
    origin.files["files/octmnist.npz"] += b"x"
    with refuses("did not arrive as published (its checksum differs)"):
        prepare("multimedeval_octmnist", Options())
