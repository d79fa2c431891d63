"""``verify`` reads everything and names each thing that is not as prepared."""

import datasets
import pytest
from PIL import Image

from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import DatasetNotPrepared, SourceError

from ..tables import each_row


@pytest.fixture(autouse=True)
def prepared(source, home):
    return prepare("mediconfusion", Options(source, sample=True))


def test_what_has_changed_is_named(final, prepared, refuses):
    path, broken = final / "images/90004.jpg", final / "images/90010.jpg"
    other_pixels = f"the images of {final} decode to other pixels than when they were prepared"
    assert list(verify("mediconfusion")) == []
    prepared.model_copy(update={"rows": 33}).write(final)
    assert list(verify("mediconfusion")) == [f"{final} holds 32 documents, its manifest says 33"]
    # What a change of the decoder does: the files are the same, their pixels are not.
    prepared.model_copy(update={"pixels_sha256": "0" * 64}).write(final)
    assert list(verify("mediconfusion")) == [other_pixels]
    prepared.write(final)
    Image.new("RGB", (8, 8)).save(path)
    assert list(verify("mediconfusion")) == [f"{path} has changed since it was prepared", other_pixels]
    path.unlink()
    broken.write_bytes(broken.read_bytes()[:500])
    missing, changed, undecodable = verify("mediconfusion")
    assert (missing, changed) == (f"{path} is missing", f"{broken} has changed since it was prepared")
    assert undecodable.startswith(f"{broken} is broken (")
    (final / "manifest.json").unlink()
    with refuses("medtasks data prepare mediconfusion", kind=DatasetNotPrepared):
        list(verify("mediconfusion"))


def test_changed_text(final):
    rows = [dict(row) for row in datasets.load_from_disk(str(final))["test"]]
    rows = [row | {"question": row["question"].replace("nodule", "mass")} for row in rows]
    for path in (final / "test").iterdir():
        path.unlink()
    datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)}).save_to_disk(str(final))
    assert list(verify("mediconfusion")) == [f"the text of {final} has changed since it was prepared"]


@each_row("name", ["dataset_dict.json", "test/state.json", "test/dataset_info.json", "test/*.arrow"])
@each_row("damage", ["missing", "cut", "garbage", "empty"])
def test_damaged_documents_are_one_sentence(final, refuses, name, damage):
    (path,) = final.glob(name)
    body = path.read_bytes()
    path.write_bytes({"cut": body[: len(body) // 2], "garbage": b"\xff\x00", "empty": b""}.get(damage, b""))
    if damage == "missing":
        path.unlink()
    with refuses(f"the documents in {final} are damaged", "medtasks data prepare mediconfusion", kind=SourceError):
        list(verify("mediconfusion"))
    with refuses("are damaged", kind=SourceError):
        (load_documents if name in ("test/state.json", "test/*.arrow") else open_documents)("mediconfusion")
    path.write_bytes(body)
