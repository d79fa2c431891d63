"""IU X-Ray: Open-i's layout packed and unpacked, R2Gen's, and broken copies of all of them."""

import json

import pytest

from medtasks.data import iu_xray
from medtasks.data.home import dataset_folder
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare, verify
from medtasks.data.store import load_documents
from medtasks.errors import SourceError

from .. import iu_xray_sources as sources

NAME = "iu_xray_report"


def prepared(source, **options):
    return prepare(NAME, Options(source, **options)), load_documents(NAME)


@pytest.fixture
def open_i(tmp_path):
    return sources.put_open_i(tmp_path / "open_i")


@pytest.fixture
def r2gen(tmp_path):
    return sources.put_r2gen(tmp_path / "iu_xray")


def complains(refuses, source, *parts):
    with refuses(*parts, kind=SourceError):
        prepare(NAME, Options(source))
    assert not dataset_folder(NAME).exists()


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


@pytest.mark.parametrize("packed", [False, True], ids=["unpacked", "packed"])
def test_missing_and_broken_images(open_i, home, refuses, packed):
    image = open_i / "NLMCXR_png" / "CXR10_IM-0002-2001.png"
    whole = image.read_bytes()
    image.write_bytes(whole[:50])
    if packed:
        sources.pack(open_i)
    complains(refuses, open_i, "10.xml: its image CXR10_IM-0002-2001.png is broken", "--allow-incomplete")
    assert len(prepared(open_i, allow_incomplete=True)[1]) == 1


def test_a_missing_image(open_i, home, refuses):
    (open_i / "NLMCXR_png" / "CXR2_IM-0652-1001.png").unlink()
    complains(refuses, open_i, "2.xml: its image CXR2_IM-0652-1001.png is missing")
    sources.pack(open_i)
    complains(refuses, open_i, "2.xml: its image CXR2_IM-0652-1001.png is missing")


def test_broken_reports(open_i, home, refuses):
    report = open_i / "ecgen-radiology" / "2.xml"
    whole = report.read_text()
    report.write_text(whole[:-20])
    complains(refuses, open_i, "2.xml is no whole XML file", "download NLMCXR_reports.tgz again")
    report.write_text(whole.replace("uId", "id"))
    complains(refuses, open_i, "2.xml has no uId; it is no report of Open-i")
    report.write_text(whole.replace('uId id="CXR2"', 'uId id="CXR10"'))
    complains(refuses, open_i, "10.xml has the id 'CXR10' of 2.xml; ids must be unique")


def test_broken_archives(open_i, home, refuses):
    sources.pack(open_i)
    for name in ("NLMCXR_png.tgz", "NLMCXR_reports.tgz"):
        archive = open_i / name
        whole = archive.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"no archive", b""):
            archive.write_bytes(damaged)
            complains(refuses, open_i, f"{archive} cannot be unpacked", "download it again")
        archive.write_bytes(whole)
    (open_i / "NLMCXR_reports.tgz").unlink()
    complains(refuses, open_i, "holds no NLMCXR_reports.tgz of Open-i, no folder ecgen-radiology", "annotation.json")


def test_broken_annotations(r2gen, home, refuses):
    path = r2gen / "annotation.json"
    content = json.loads(path.read_text())
    (r2gen / "images" / content["test"][1]["image_path"][0]).unlink()
    complains(refuses, r2gen, "annotation.json test row 2: its image CXR5_IM-0005/0.png is missing")
    for change, parts in {
        "report": ("test row 1 lacks 'report'",),
        "id": ("test row 1 lacks 'id'",),
    }.items():
        broken = {"test": [{key: value for key, value in content["test"][0].items() if key != change}]}
        path.write_text(json.dumps(broken))
        complains(refuses, r2gen, *parts)
    path.write_text(json.dumps({"test": [{**content["test"][0], "image_path": "a.png"}]}))
    complains(refuses, r2gen, "test row 1: image_path is a text and not a list of texts")
    path.write_text(json.dumps({"test": [{**content["test"][0], "report": " "}]}))
    complains(refuses, r2gen, "no usable row", "test row 1: its report is empty")
    path.write_text(json.dumps({"train": []}))
    complains(refuses, r2gen, "annotation.json is not an object with a list 'test'")
    path.write_text("{")
    complains(refuses, r2gen, "annotation.json is no JSON")


def test_no_source(tmp_path, home, refuses):
    complains(refuses, tmp_path / "nowhere", "does not exist", "NLMCXR_png.tgz of Open-i")
    (tmp_path / "empty").mkdir()
    complains(refuses, tmp_path / "empty", "holds no NLMCXR_reports.tgz")
