"""PAD-UFES-20: all rows, the rows held out by the split, the patient's history, and the download."""

import hashlib
import zipfile
from dataclasses import replace
from types import MappingProxyType

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.multimedeval import classification_sets as pad_ufes
from medtasks.data.sources.multimedeval.classification_sets import SKIN_CLASSES as CLASSES
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from ...damages import text
from ...multimedeval_sources import SPREAD, TEST, TRAIN, picture, put_parquet


def ids(documents):
    return [int(document["doc_id"].rsplit("_", 1)[1]) for document in documents]


def test_every_row_is_evaluated(source, prepared):
    manifest, documents, shots = prepared("pad_ufes_20", source("pad_ufes_20"))
    assert manifest.left_out == ("the source holds 16 rows, the evaluated set 2298",)
    assert ids(documents) == [*TEST, *TRAIN]
    assert documents[0]["options"] == list(CLASSES.values())
    assert documents[0]["options"][4] == "Bowen’s disease (BOD)"
    assert [document["patient_id"] for document in documents[:6]] == [*["PAT_0"] * 4, "PAT_1", "PAT_1"]
    shown = [(dataset_folder(manifest.name) / document["image_files"][0]).read_bytes() for document in documents]
    assert shown == [picture(number, "PNG") for number in (*TEST, *TRAIN)]
    assert ids(shots) == list(SPREAD)  # of the ten rows whose lesion is not in the test split


def test_held_out_lesions(source, prepared, complains):
    """Those on both sides of the split, as 204 published ones, are not among them."""
    folder = source("pad_ufes_20_disjoint")
    lesions = [{"ids": lesion} for lesion in (0, 0, *range(50, 55))]
    put_parquet(folder / "split" / "data" / "train-00000-of-00001.parquet", lesions)
    sentence = "metadata.csv: it holds 16 rows, the published table 2298"
    complains("pad_ufes_20_disjoint", folder, sentence, "--allow-incomplete", allow_incomplete=False)
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
    files = {name: (folder / name).read_bytes() for name in pad_ufes._FILES}
    published.files |= {f"files/{pad_ufes._FILES[name]}/file_downloaded": body for name, body in files.items()}
    digests = {name: hashlib.sha256(body).hexdigest() for name, body in files.items() if name.endswith(".zip")}
    monkeypatch.setattr(pad_ufes, "_INFO", replace(pad_ufes._INFO, sha256=MappingProxyType(digests)))
    monkeypatch.setenv("MEDTASKS_PAD_UFES_URL", f"{published.url}/files")

    def hub(info, patterns, target):
        assert info.source == "https://huggingface.co/datasets/croyer/Pad-UFES-20-split"
        return (folder / "split").rename(target)

    monkeypatch.setattr(pad_ufes, "hub_download", hub)
    return published


@pytest.mark.parametrize(("name", "tested"), [("pad_ufes_20", 16), ("pad_ufes_20_disjoint", 6)])
def test_download(mendeley, name, tested):
    manifest = prepare(f"multimedeval_{name}", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision, manifest.source) == (tested, "1", pad_ufes._INFO.source)
    assert len(load_documents(manifest.name, "demonstrations")) == 5
    assert len(mendeley.requests) == 4


def test_download_without_the_hub(mendeley, monkeypatch, refuses):
    def hub(info, patterns, folder):
        raise SourceError("cannot reach the Hub")

    monkeypatch.setattr(pad_ufes, "hub_download", hub)
    with refuses("cannot reach the Hub"):
        prepare("multimedeval_pad_ufes_20_disjoint", Options(allow_incomplete=True))
    assert prepare("multimedeval_pad_ufes_20", Options(allow_incomplete=True)).rows == 16


def test_an_archive_of_nothing_but_zeros_is_not_unpacked(source, complains):
    folder = source("pad_ufes_20")
    with zipfile.ZipFile(folder / "more.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("imgs_part_4.zip", bytes(60_000_000))
    complains("pad_ufes_20", folder, "more.zip would fill 60 MB, which no real one of its size does")
