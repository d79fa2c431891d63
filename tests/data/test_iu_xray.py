"""IU X-Ray: Open-i's layout packed and unpacked, R2Gen's, and broken copies of all of them."""

import json

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources import iu_xray
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from .. import iu_xray_sources as sources
from ..damages import both, changed, cut, lost, text, written
from ..tables import each_row

NAME = "iu_xray_report"


def prepared(source, **options):
    return prepare(NAME, Options(source, **options)), load_documents(NAME)


@pytest.fixture
def open_i(tmp_path):
    return sources.put_open_i(tmp_path / "open_i")


@pytest.fixture
def r2gen(tmp_path):
    return sources.put_r2gen(tmp_path / "iu_xray")


def test_open_i(open_i, home):
    manifest, documents = prepared(open_i)
    assert (manifest.rows, manifest.images, manifest.complete, manifest.access) == (2, 3, True, "public")
    assert manifest.revision == "all of Open-i with findings"
    assert manifest.left_out == (
        "1 not in the evaluated set: studies without findings",
        "1 not in the evaluated set: studies with findings and without an image",
    )
    first, second = documents
    assert (first["doc_id"], second["doc_id"]) == ("CXR2", "CXR10")  # by number
    assert {key: second[key] for key in ("image_id", "patient_id", "context", "indication", "report")} == {
        "image_id": "CXR10",
        "patient_id": None,
        "context": None,
        "indication": "Chest pain",
        "report": "The heart is XXXX.\n\nNo & nothing.",
    }
    folder = dataset_folder(NAME)
    wanted = [open_i / "NLMCXR_png" / f"{image}.png" for image in sources.STUDIES[10][2]]
    assert [(folder / file).read_bytes() for file in second["image_files"]] == [path.read_bytes() for path in wanted]
    assert list(verify(NAME)) == []


def test_packed_is_the_same(open_i, home, tmp_path):
    expected = prepared(open_i)[1]
    assert prepared(sources.pack(open_i))[1] == expected
    (tmp_path / "above").mkdir()
    open_i.rename(tmp_path / "above" / "open_i")
    assert prepared(tmp_path / "above")[1] == expected


def test_other_folders_are_the_same(open_i, home):
    expected = prepared(open_i)[1]
    (open_i / "NLMCXR_png").rename(open_i / "images")
    assert prepared(open_i)[1] == expected
    for path in (open_i / "images").iterdir():
        path.rename(open_i / path.name)
    assert prepared(open_i)[1] == expected


def test_r2gen(r2gen, home):
    manifest, documents = prepared(r2gen)
    assert (manifest.rows, manifest.images, manifest.complete) == (2, 4, True)
    assert manifest.revision == "test split of R2Gen"
    assert [document["doc_id"] for document in documents] == ["CXR7_IM-0007", "CXR5_IM-0005"]  # as published
    assert (documents[0]["report"], documents[0]["indication"]) == ("Report 7.", None)
    assert [len(document["image_files"]) for document in documents] == [2, 2]


def test_r2gen_counts_where_both_are(r2gen, home):
    sources.put_open_i(r2gen)
    assert prepared(r2gen)[0].rows == 2
    assert load_documents(NAME)[0]["doc_id"] == "CXR7_IM-0007"


def test_download(home, published, monkeypatch, tmp_path):
    packed = sources.pack(sources.put_open_i(tmp_path / "open_i"))
    for path in packed.glob("*.tgz"):
        published.files[f"imgs/collections/{path.name}"] = path.read_bytes()
    monkeypatch.setattr(iu_xray, "_OPEN_I", f"{published.url}/imgs/collections")
    manifest = prepare(NAME, Options())
    assert (manifest.rows, manifest.source) == (2, "https://openi.nlm.nih.gov/faq")


def annotation(**fields):
    """Change the first of R2Gen's studies, or (None) take a field away, and keep no other."""

    def change(data):
        study = {**json.loads(data)["test"][0], **fields}
        return json.dumps({"test": [{key: value for key, value in study.items() if value is not None}]}).encode()

    return changed("annotation.json", change)


REPORT, IMAGES = "ecgen-radiology/2.xml", "NLMCXR_png"
BROKEN = {
    "open_i": [
        (cut(f"{IMAGES}/CXR10_IM-0002-2001.png", 50), "10.xml: its image CXR10_IM-0002-2001.png is broken"),
        (
            both(lost(f"{IMAGES}/CXR2_IM-0652-1001.png"), sources.pack),
            "2.xml: its image CXR2_IM-0652-1001.png is missing",
        ),
        (cut(REPORT, -20), "2.xml is no whole XML file", "download NLMCXR_reports.tgz again"),
        (changed(REPORT, lambda data: data.replace(b"uId", b"id")), "2.xml has no uId; it is no report of Open-i"),
        (text(REPORT, 'id="CXR2"', 'id="CXR10"'), "10.xml has the id 'CXR10' of 2.xml; ids must be unique"),
        *(
            (both(sources.pack, damage(archive)), f"{archive} cannot be unpacked", "download it again")
            for archive in ("NLMCXR_png.tgz", "NLMCXR_reports.tgz")
            for damage in (
                lambda archive: changed(archive, lambda data: data[: len(data) // 2]),
                lambda archive: written(archive, b"no archive"),
                lambda archive: written(archive, b""),
            )
        ),
        (
            both(sources.pack, lost("NLMCXR_reports.tgz")),
            "holds no NLMCXR_reports.tgz of Open-i, no folder ecgen-radiology",
            "annotation.json",
        ),
    ],
    "r2gen": [
        (lost("images/CXR5_IM-0005/0.png"), "annotation.json test row 2: its image CXR5_IM-0005/0.png is missing"),
        (annotation(report=None), "test row 1 lacks 'report'"),
        (annotation(report=" "), "no usable row", "test row 1: its report is empty"),
        (written("annotation.json", '{"train": []}'), "annotation.json is not an object with a list 'test'"),
    ],
}


@each_row(
    "layout, damage, parts",
    [(layout, damage, parts) for layout, damages in BROKEN.items() for damage, *parts in damages],
)
def test_broken_sources(layout, damage, parts, tmp_path, home, refuses):
    source = sources.put_open_i(tmp_path / "x") if layout == "open_i" else sources.put_r2gen(tmp_path / "x")
    damage(source)
    with refuses(*parts, kind=SourceError):
        prepare(NAME, Options(source))
    assert not dataset_folder(NAME).exists()


def test_broken_images_are_left_out_on_request(open_i, home):
    cut(f"{IMAGES}/CXR10_IM-0002-2001.png", 50)(open_i)
    assert len(prepared(open_i, allow_incomplete=True)[1]) == 1
    assert len(prepared(sources.pack(open_i), allow_incomplete=True)[1]) == 1
