"""PAD-UFES-20: all rows, the rows held out by the split, the patient's history, and the download."""

import hashlib
from dataclasses import replace
from types import MappingProxyType

import pytest

from medtasks.data.home import dataset_folder
from medtasks.data.multimedeval import pad_ufes
from medtasks.data.multimedeval.pad_ufes import CLASSES, patient_history
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.store import load_documents
from medtasks.errors import SourceError

from ...multimedeval_sources import csv_text, picture, put, put_parquet, put_zip

KNOWN = {
    "smoke": "False",
    "drink": "True",
    "background_father": "POMERANIA",
    "background_mother": "GERMANY",
    "pesticide": "False",
    "gender": "FEMALE",
    "skin_cancer_history": "True",
    "cancer_history": "False",
    "has_piped_water": "True",
    "has_sewage_system": "False",
}
COLUMNS = ["patient_id", "lesion_id", *KNOWN, "age", "region", "diagnostic", "itch", "img_id", "biopsed"]
DIAGNOSES = list(CLASSES)
# Lesion 100 has images on both sides of the split, as 204 published ones.
LESIONS = {100: 3, 101: 2, 102: 1, 103: 2, 104: 4, 105: 1, 106: 1, 107: 2}
SPLIT = {"test": [100, 101, 102], "train": [100, 100, 103, 104, 105, 106, 107]}


def rows():
    lesions = [lesion for lesion, count in LESIONS.items() for _ in range(count)]
    return [
        dict.fromkeys(COLUMNS, "")
        | {
            "patient_id": f"PAT_{lesion // 2}",
            "lesion_id": str(lesion),
            "age": str(40 + number),
            "diagnostic": DIAGNOSES[number % 7],
            "itch": "UNK",
            "img_id": f"PAT_{lesion // 2}_{lesion}_{number}.png",
        }
        | (KNOWN if number == 1 else {})
        for number, lesion in enumerate(lesions)
    ]


def put_table(folder, records):
    put(folder / "metadata.csv", csv_text(",".join(COLUMNS), [list(record.values()) for record in records]))


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    put_table(folder, rows())
    for number, row in enumerate(rows()):
        put(folder / "images" / row["img_id"], picture(number))
    for split, lesions in SPLIT.items():
        put_parquet(folder / "split" / f"{split}-00000-of-00001.parquet", [{"ids": lesion} for lesion in lesions])
    return folder


def ids(documents):
    return [int(document["doc_id"].rsplit("_", 1)[1]) for document in documents]


def test_every_row_is_evaluated(source, prepared):
    manifest, documents, shots = prepared("pad_ufes_20", source)
    assert manifest.left_out == ("the source holds 16 rows, the evaluated set 2298",)
    assert ids(documents) == list(range(16))
    assert [document["label"] for document in documents] == [number % 7 for number in range(16)]
    assert documents[0]["options"] == list(CLASSES.values())
    assert documents[0]["options"][4] == "Bowen’s disease (BOD)"
    assert [document["patient_id"] for document in documents[:7]] == [*["PAT_50"] * 5, "PAT_51", "PAT_51"]
    shown = [(dataset_folder(manifest.name) / document["image_files"][0]).read_bytes() for document in documents]
    assert shown == list(map(picture, range(16)))
    assert ids(shots) == [6, 8, 10, 12, 14]  # of the ten rows whose lesion is not in the test split


def test_held_out_lesions(source, prepared):
    manifest, documents, shots = prepared("pad_ufes_20_disjoint", source)
    assert ids(documents) == [3, 4, 5]  # lesion 100 is in the training split, too
    assert ids(shots) == [6, 8, 10, 12, 14]
    assert manifest.left_out == ("metadata.csv: it holds 16 rows, the published table 2298",)


def test_a_table_of_another_size_is_refused(source, complains):
    parts = ("metadata.csv: it holds 16 rows, the published table 2298", "--allow-incomplete")
    complains("pad_ufes_20_disjoint", source, *parts, allow_incomplete=False)


def test_patient_history(source, prepared):
    _, documents, _ = prepared("pad_ufes_20", source)
    assert documents[0]["details"] == "Patient history: age 40"
    assert documents[1]["details"] == (
        "Patient history: smokes False, drink True, age 41, backgroundFather POMERANIA, backgroundMother GERMANY, "
        "pesticide False, gender FEMALE, skin cancer history True, cancer history False, has piped water True, "
        "has sewage system False"
    )


def test_history_is_that_of_pandas_and_datasets(source, prepared):
    """The reference reads the table through both, which turn empty cells to None and texts to truth values."""
    import datasets
    import pandas

    varied = [row | {"smoke": ["TRUE", "false", ""][number % 3]} for number, row in enumerate(rows())]
    put_table(source, varied)
    samples = datasets.Dataset.from_pandas(pandas.read_csv(source / "metadata.csv"))
    _, documents, _ = prepared("pad_ufes_20", source)
    for sample, document in zip(samples, documents, strict=True):
        values = [sample[column] for column in pad_ufes._HISTORY.values() if sample[column] is not None]
        said = document["details"].removeprefix("Patient history: ").split(", ")
        assert [one.rsplit(" ", 1)[1] for one in said] == [str(value) for value in values]


def test_nothing_known_of_a_patient():
    assert patient_history(dict.fromkeys(COLUMNS, "")) == "Patient history: "


@pytest.fixture
def mendeley(source, published, monkeypatch, tmp_path, home):
    """A server has the published files, and the Hub the split."""
    members = {f"imgs_part_1/{path.name}": path.read_bytes() for path in (source / "images").iterdir()}
    files = {"metadata.csv": (source / "metadata.csv").read_bytes()} | {
        f"imgs_part_{part}.zip": put_zip(tmp_path / "part.zip", members if part == 1 else {}).read_bytes()
        for part in (1, 2, 3)
    }
    published.files |= {f"files/{pad_ufes._FILES[name]}/file_downloaded": body for name, body in files.items()}
    digests = {name: hashlib.sha256(body).hexdigest() for name, body in files.items() if name.endswith(".zip")}
    monkeypatch.setattr(pad_ufes, "_INFO", replace(pad_ufes._INFO, sha256=MappingProxyType(digests)))
    monkeypatch.setenv("MEDTASKS_PAD_UFES_URL", f"{published.url}/files")

    def hub(info, patterns):
        assert info.source == "https://huggingface.co/datasets/croyer/Pad-UFES-20-split"
        return lambda folder: (source / "split").rename(folder)

    monkeypatch.setattr(pad_ufes, "hub_download", hub)
    return published


@pytest.mark.parametrize(("name", "tested"), [("pad_ufes_20", 16), ("pad_ufes_20_disjoint", 3)])
def test_download(mendeley, name, tested):
    manifest = prepare(f"multimedeval_{name}", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.revision, manifest.source) == (tested, "1", pad_ufes._INFO.source)
    assert len(load_documents(manifest.name, "demonstrations")) == 5
    assert len(mendeley.requests) == 4


def test_download_without_the_hub(mendeley, monkeypatch, refuses):
    def hub(info, patterns):
        def unreachable(folder):
            raise SourceError("cannot reach the Hub")

        return unreachable

    monkeypatch.setattr(pad_ufes, "hub_download", hub)
    with refuses("cannot reach the Hub"):
        prepare("multimedeval_pad_ufes_20_disjoint", Options(allow_incomplete=True))
    assert prepare("multimedeval_pad_ufes_20", Options(allow_incomplete=True)).rows == 16


def test_a_download_that_is_another_file(mendeley, refuses):
    mendeley.files[f"files/{pad_ufes._FILES['imgs_part_2.zip']}/file_downloaded"] += b"x"
    with refuses("did not arrive as published"):
        prepare("multimedeval_pad_ufes_20", Options())
