"""MedMNIST: which arrays, which classes, which rows; damaged archives and labels."""

import hashlib
import zipfile
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from medtasks.data.multimedeval import medmnist
from medtasks.data.multimedeval.medmnist import CLASSES, read_array
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.store import load_documents

COLOUR = {"pathmnist", "bloodmnist", "dermamnist", "retinamnist"}
TEST, TRAIN = 17, 23
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


def arrays(name, test=TEST, train=TRAIN):
    """The six arrays of a set, as published."""
    noise = np.random.default_rng(len(name) + test)
    shape = (28, 28, 3) if name in COLOUR else (28, 28)
    found = {}
    for split, rows in (("train", train), ("val", 3), ("test", test)):
        found[f"{split}_images"] = noise.integers(0, 256, (rows, *shape), np.uint8)
        found[f"{split}_labels"] = noise.integers(0, len(CLASSES[name]), (rows, 1)).astype(np.uint8)
    return found


@pytest.fixture
def write(tmp_path):
    """Write a set, with some arrays replaced or (None) left out; return its file."""

    def run(name, **changed):
        found = {key: value for key, value in (arrays(name) | changed).items() if value is not None}
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        np.savez_compressed(folder / f"{name}.npz", **found)
        return folder / f"{name}.npz"

    return run


@pytest.mark.parametrize("name", CLASSES)
def test_images_and_labels(write, prepared, home, name):
    source = write(name)
    manifest, documents, shots = prepared(name, source.parent)
    published = arrays(name)
    rows = TEST // 4 if name == "tissuemnist" else TEST
    assert [document["doc_id"] for document in documents] == [f"test/{row}" for row in range(rows)]
    assert [shot["doc_id"] for shot in shots] == ["train/0", "train/4", "train/9", "train/13", "train/18"]
    assert manifest.revision == "local"
    for document in (*documents, *shots):
        split, row = document["doc_id"].split("/")
        assert document["label"] == published[f"{split}_labels"][int(row), 0]
        assert document["options"] == list(CLASSES[name])
        (file,) = document["image_files"]
        with Image.open(home / "datasets" / manifest.name / file) as image:
            assert image.mode == ("RGB" if name in COLOUR else "L")
            assert np.array_equal(np.asarray(image), published[f"{split}_images"][int(row)])


def test_class_names_are_the_packages():
    names = ("oct", "path", "blood", "breast", "derma", "organc", "organs", "pneumonia", "retina", "tissue")
    assert list(CLASSES) == [f"{name}mnist" for name in names]
    assert [len(classes) for classes in CLASSES.values()] == [4, 9, 8, 2, 7, 11, 11, 2, 5, 8]
    digests = {name: hashlib.sha256("\n".join(classes).encode()).hexdigest() for name, classes in CLASSES.items()}
    assert {name: digest[:12] for name, digest in digests.items()} == CLASS_NAMES
    assert CLASSES["octmnist"] == ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal")
    assert CLASSES["breastmnist"] == ("malignant", "normal, benign")
    assert CLASSES["bloodmnist"][3] == "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)"
    assert CLASSES["organsmnist"][4:6] == ("kidney-left", "kidney-right")
    assert CLASSES["tissuemnist"][0] == "Collecting Duct, Connecting Tubule"


def test_equal_pictures_share_an_id_and_a_file(write, prepared):
    images = np.zeros((3, 28, 28), np.uint8)
    images[2] = 9
    source = write("breastmnist", test_images=images, test_labels=np.array([[0], [1], [1]]))
    manifest, (first, second, third), _ = prepared("breastmnist", source)
    assert manifest.images == 2
    assert first["image_id"] == second["image_id"] != third["image_id"]


def test_flat_and_signed_labels(write, prepared):
    source = write("octmnist", test_labels=np.arange(TEST, dtype=np.int64) % 4)
    _, documents, _ = prepared("octmnist", source)
    assert [document["label"] for document in documents[:5]] == [0, 1, 2, 3, 0]


def test_a_damaged_member(write, complains):
    source = write("pathmnist")
    with zipfile.ZipFile(source) as archive:
        begin = archive.getinfo("test_images.npy").header_offset + 200
    whole = source.read_bytes()
    source.write_bytes(whole[:begin] + bytes(64) + whole[begin + 64 :])
    complains("pathmnist", source, "pathmnist.npz is damaged at test_images")


def test_damage_behind_the_evaluated_rows_shows(tmp_path, complains):
    """The last three quarters of TissueMNIST are not evaluated, but they belong to the published file."""
    source = tmp_path / "tissuemnist.npz"
    np.savez(source, **arrays("tissuemnist", test=1900))
    with zipfile.ZipFile(source) as archive:
        info = archive.getinfo("test_images.npy")
    data = bytearray(source.read_bytes())
    data[info.header_offset + info.compress_size - 300] ^= 0xFF
    source.write_bytes(data)
    complains("tissuemnist", source, "tissuemnist.npz is damaged at test_images", "Bad CRC-32")


def test_a_short_array(tmp_path, refuses):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("x.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (3, 4)})
        stream.write(bytes(9))
    with refuses("a.npz is damaged at x", "expected 12 bytes got 9", "download it again"):
        read_array(tmp_path / "a.npz", "x")


@pytest.fixture
def origin(write, published, monkeypatch, home):
    """A server has OCTMNIST, and the catalogue knows its checksum."""
    body = write("octmnist").read_bytes()
    published.files["files/octmnist.npz"] = body
    digest = hashlib.md5(body).hexdigest()
    known = medmnist.dataset_info("multimedeval_octmnist")
    tiny = replace(known, rows=TEST, md5=MappingProxyType({"octmnist.npz": digest}))
    monkeypatch.setattr(medmnist, "dataset_info", lambda _name: tiny)
    monkeypatch.setenv("MEDTASKS_MEDMNIST_URL", f"{published.url}/files")
    return published


def test_download(origin, home):
    manifest = prepare("multimedeval_octmnist", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision) == (TEST, "MedMNIST v3 (10519652)")
    assert len(load_documents("multimedeval_octmnist")) == TEST
    assert origin.requests == ["files/octmnist.npz"]
    assert not (home / "datasets" / "multimedeval_octmnist" / "scratch").exists()


def test_a_local_copy_of_the_published_file_has_its_revision(origin, write, prepared):
    manifest, _, _ = prepared("octmnist", write("octmnist").parent)
    assert manifest.revision == "MedMNIST v3 (10519652)"


def test_another_file_is_no_download(origin, refuses):
    origin.files["files/octmnist.npz"] += b"x"
    with refuses("did not arrive as published (its checksum differs)"):
        prepare("multimedeval_octmnist", Options())
