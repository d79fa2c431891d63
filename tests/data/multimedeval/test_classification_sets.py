"""Image classification: MedMNIST's arrays, and PAD-UFES-20's rows, split and history; both downloads."""

import hashlib
import zipfile
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from PIL import Image

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.multimedeval import classification_sets as sets
from medtasks.data.sources.multimedeval.classification_sets import CLASSES, SKIN_CLASSES
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from ...damages import text
from ...multimedeval_sources import SPREAD, TEST, TRAIN, picture, put_parquet
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
def test_images_and_labels_are_those_of_the_arrays(source, prepared, name):
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
    digests = {
        name: hashlib.sha256("\n".join(classes).encode()).hexdigest()
        for name, classes in CLASSES.items()
    }
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
    known = sets.dataset_info("multimedeval_octmnist")
    tiny = replace(known, rows=6, md5=MappingProxyType({"octmnist.npz": digest}))
    monkeypatch.setattr(sets, "dataset_info", lambda _name: tiny)
    monkeypatch.setenv("MEDTASKS_MEDMNIST_URL", f"{published.url}/files")
    return published


def test_the_download_of_medmnist(origin, home, tmp_path, prepared):
    manifest = prepare("multimedeval_octmnist", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision) == (6, "MedMNIST v3 (10519652)")
    assert origin.requests == ["files/octmnist.npz"]
    assert not (home / "datasets" / "multimedeval_octmnist" / "scratch").exists()
    assert (
        prepared("octmnist", tmp_path / "0" / "source")[0].revision == "MedMNIST v3 (10519652)"
    )  # of an equal copy


def ids(documents):
    return [int(document["doc_id"].rsplit("_", 1)[1]) for document in documents]


@pytest.fixture
def pad_ufes(source, prepared):
    return prepared("pad_ufes_20", source("pad_ufes_20"))


def test_every_row_of_pad_ufes_is_evaluated(pad_ufes):
    manifest, documents, _ = pad_ufes

    assert manifest.left_out == ("the source holds 16 rows, the evaluated set 2298",)
    assert ids(documents) == [*TEST, *TRAIN]
    assert [document["patient_id"] for document in documents[:6]] == [
        *["PAT_0"] * 4,
        "PAT_1",
        "PAT_1",
    ]


def test_options_of_pad_ufes_are_the_names_of_its_classes(pad_ufes):
    _, documents, _ = pad_ufes
    assert documents[0]["options"] == list(SKIN_CLASSES.values())
    assert documents[0]["options"][4] == "Bowen’s disease (BOD)"


def test_images_of_pad_ufes_are_the_published_ones(pad_ufes):
    manifest, documents, _ = pad_ufes

    shown = [
        (dataset_folder(manifest.name) / document["image_files"][0]).read_bytes()
        for document in documents
    ]
    assert shown == [picture(number, "PNG") for number in (*TEST, *TRAIN)]


def test_solved_examples_of_pad_ufes_are_of_other_lesions(pad_ufes):
    """They are spread over the ten rows whose lesion is not in the test split."""
    _, _, shots = pad_ufes
    assert ids(shots) == list(SPREAD)


def test_held_out_lesions(source, prepared, complains):
    """Those on both sides of the split, as 204 published ones, are not among them."""
    folder = source("pad_ufes_20_disjoint")
    lesions = [{"ids": lesion} for lesion in (0, 0, *range(50, 55))]
    put_parquet(folder / "split" / "data" / "train-00000-of-00001.parquet", lesions)
    sentence = "metadata.csv: it holds 16 rows, the published table 2298"
    complains(
        "pad_ufes_20_disjoint", folder, sentence, "--allow-incomplete", allow_incomplete=False
    )
    manifest, documents, shots = prepared("pad_ufes_20_disjoint", folder)
    assert (ids(documents), ids(shots)) == ([2, 3, 4, 5], list(SPREAD))
    assert manifest.left_out == (sentence,)


def test_patient_history(source, prepared):
    folder = source("pad_ufes_20")
    known = "FALSE,true,POMERANIA,GERMANY,False,FEMALE,True,False,True,False,41"
    text("metadata.csv", f"PAT_0,0,False,{',' * 9}40", f"PAT_0,0,{known}")(folder)
    _, documents, _ = prepared("pad_ufes_20", folder)
    assert documents[0]["details"] == (
        "Patient history: smokes False, drink True, age 41, backgroundFather POMERANIA, backgroundMother GERMANY, "
        "pesticide False, gender FEMALE, skin cancer history True, cancer history False, has piped water True, "
        "has sewage system False"
    )
    assert documents[1]["details"] == "Patient history: smokes False, age 40"


@pytest.fixture
def mendeley(source, published, monkeypatch, home):
    """A server has the published files, and the Hub the split."""
    folder = source("pad_ufes_20")
    files = {name: (folder / name).read_bytes() for name in sets._FILES}
    published.files |= {
        f"files/{sets._FILES[name]}/file_downloaded": body for name, body in files.items()
    }
    digests = {
        name: hashlib.sha256(body).hexdigest()
        for name, body in files.items()
        if name.endswith(".zip")
    }
    monkeypatch.setattr(sets, "_INFO", replace(sets._INFO, sha256=MappingProxyType(digests)))
    monkeypatch.setenv("MEDTASKS_PAD_UFES_URL", f"{published.url}/files")

    def hub(info, patterns, target):
        assert info.source == "https://huggingface.co/datasets/croyer/Pad-UFES-20-split"
        return (folder / "split").rename(target)

    monkeypatch.setattr(sets, "hub_download", hub)
    return published


@pytest.mark.parametrize(("name", "tested"), [("pad_ufes_20", 16), ("pad_ufes_20_disjoint", 6)])
def test_the_download_of_pad_ufes(mendeley, name, tested):
    manifest = prepare(f"multimedeval_{name}", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision, manifest.source) == (
        tested,
        "1",
        sets._INFO.source,
    )
    assert len(load_documents(manifest.name, "demonstrations")) == 5
    assert len(mendeley.requests) == 4


def test_the_download_of_pad_ufes_without_the_hub(mendeley, monkeypatch, refuses):
    def hub(info, patterns, folder):
        raise SourceError("cannot reach the Hub")

    monkeypatch.setattr(sets, "hub_download", hub)
    with refuses("cannot reach the Hub"):
        prepare("multimedeval_pad_ufes_20_disjoint", Options(allow_incomplete=True))
    assert prepare("multimedeval_pad_ufes_20", Options(allow_incomplete=True)).rows == 16


def test_an_archive_of_nothing_but_zeros_is_not_unpacked(source, complains):
    folder = source("pad_ufes_20")
    with zipfile.ZipFile(folder / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("imgs_part_4.zip", bytes(60_000_000))
    complains(
        "pad_ufes_20", folder, "more.zip would fill 60 MB, which no real one of its size does"
    )
