"""IU X-Ray: Open-i's archives, R2Gen's files, and broken copies of both."""

import json
import shutil

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources import iu_xray
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

from .. import iu_xray_sources as sources
from ..damages import both, changed, cut, lost, text, written
from ..multimedeval_sources import put
from ..tables import each_row

NAME = "iu_xray_report"


def prepared(source):
    return prepare(NAME, Options(source, allow_incomplete=True)), load_documents(NAME)


@pytest.fixture
def open_i(home, tmp_path):
    """Open-i in miniature: two studies of which one has findings and images each, packed in its archives."""
    return sources.pack(sources.put_open_i(tmp_path / "open_i"))


def test_open_i_evaluates_studies_with_findings_and_images(open_i):
    manifest, _ = prepared(open_i)

    assert (manifest.rows, manifest.images, manifest.complete, manifest.access) == (
        2,
        3,
        False,
        "public",
    )
    assert manifest.revision == "all of Open-i with findings"
    assert manifest.left_out == (
        "NLMCXR_reports.tgz: it holds 4 rows, the published table 3955",
        "1 not in the evaluated set: studies without findings",
        "1 not in the evaluated set: studies with findings and without an image",
    )


def test_studies_of_open_i_come_by_number(open_i):
    _, (first, second) = prepared(open_i)

    assert (first["doc_id"], second["doc_id"]) == ("CXR2", "CXR10")
    assert {
        key: second[key]
        for key in ("image_id", "patient_id", "context", "indication", "report")
    } == {
        "image_id": "CXR10",
        "patient_id": None,
        "context": None,
        "indication": "Chest pain",
        "report": "The heart is XXXX.\n\nNo & nothing.",
    }


def test_a_study_of_open_i_shows_its_images_as_published(home, tmp_path):
    unpacked = sources.put_open_i(tmp_path / "open_i")
    wanted = [
        (unpacked / "NLMCXR_png" / f"{image}.png").read_bytes()
        for image in sources.STUDIES[10][2]
    ]

    _, (_, second) = prepared(sources.pack(unpacked))

    folder = dataset_folder(NAME)
    assert [(folder / file).read_bytes() for file in second["image_files"]] == wanted
    assert list(verify(NAME)) == []


def test_open_i_is_downloaded(open_i, published, monkeypatch):
    for path in open_i.glob("*.tgz"):
        published.files[f"imgs/collections/{path.name}"] = path.read_bytes()
    monkeypatch.setattr(iu_xray, "_OPEN_I", f"{published.url}/imgs/collections")

    manifest = prepare(NAME, Options(allow_incomplete=True))

    assert (manifest.rows, manifest.source) == (2, "https://openi.nlm.nih.gov/faq")


@each_row("unpacked", ["ecgen-radiology", "NLMCXR_png", "both"])
@each_row("below", [".", "NLMCXR"])
def test_unpacked_open_i(home, tmp_path, unpacked, below):
    expected = prepared(sources.pack(sources.put_open_i(tmp_path / "packed")))[1]
    source = tmp_path / "source"
    folder = sources.put_open_i(source / below)
    put(folder / "NLMCXR_png" / "._CXR2_IM-0652-1001.png", b"of a Mac")
    if unpacked != "both":
        packed = {"ecgen-radiology": "NLMCXR_png", "NLMCXR_png": "ecgen-radiology"}[unpacked]
        archive = {"ecgen-radiology": "NLMCXR_reports.tgz", "NLMCXR_png": "NLMCXR_png.tgz"}[
            packed
        ]
        shutil.rmtree(folder / packed)
        shutil.copy(tmp_path / "packed" / archive, source)
    manifest, documents = prepared(source)
    assert documents == expected
    assert manifest.revision == "all of Open-i with findings"


CUT_SHORT = "annotation.json: it holds 2 rows, the published table 590"


@pytest.fixture
def r2gen(home, tmp_path):
    return sources.put_r2gen(tmp_path / "iu_xray")


def test_an_incomplete_copy_of_r2gen_is_refused(r2gen, refuses):
    with refuses(CUT_SHORT, "--allow-incomplete", kind=SourceError):
        prepare(NAME, Options(r2gen))


def test_r2gen_evaluates_its_test_split_in_the_published_order(r2gen):
    manifest, documents = prepared(r2gen)

    assert (manifest.rows, manifest.images, manifest.complete, manifest.left_out) == (
        2,
        4,
        False,
        (CUT_SHORT,),
    )
    assert manifest.revision == "test split of R2Gen"
    assert [document["doc_id"] for document in documents] == ["CXR7_IM-0007", "CXR5_IM-0005"]
    assert (documents[0]["report"], documents[0]["indication"]) == ("Report 7.", None)
    assert [len(document["image_files"]) for document in documents] == [2, 2]


def test_where_both_are_r2gen_counts(r2gen):
    sources.pack(sources.put_open_i(r2gen))
    assert prepared(r2gen)[0].revision == "test split of R2Gen"


def annotation(**fields):
    """Change the first of R2Gen's studies, or (None) take a field away, and keep no other."""

    def change(data):
        study = {**json.loads(data)["test"][0], **fields}
        return json.dumps(
            {"test": [{key: value for key, value in study.items() if value is not None}]}
        ).encode()

    return changed("annotation.json", change)


REPORT, IMAGES = "ecgen-radiology/2.xml", "NLMCXR_png"
BROKEN = {
    "open_i": [
        (
            cut(f"{IMAGES}/CXR10_IM-0002-2001.png", 50),
            "10.xml: its image CXR10_IM-0002-2001.png is broken",
        ),
        (
            lost(f"{IMAGES}/CXR2_IM-0652-1001.png"),
            "2.xml: its image CXR2_IM-0652-1001.png is missing",
        ),
        (cut(REPORT, -20), "2.xml is no whole XML file", "download NLMCXR_reports.tgz again"),
        (
            changed(REPORT, lambda data: data.replace(b"uId", b"id")),
            "2.xml has no uId; it is no report of Open-i",
        ),
        (
            text(REPORT, 'id="CXR2"', 'id="CXR10"'),
            "10.xml has the id 'CXR10' of 2.xml; ids must be unique",
        ),
        *(
            (
                both(sources.pack, damage(archive)),
                f"{archive} cannot be unpacked",
                "download it again",
            )
            for archive in ("NLMCXR_png.tgz", "NLMCXR_reports.tgz")
            for damage in (
                lambda archive: changed(archive, lambda data: data[: len(data) // 2]),
                lambda archive: written(archive, b"no archive"),
                lambda archive: written(archive, b""),
            )
        ),
        (
            both(sources.pack, lost("NLMCXR_reports.tgz")),
            "no NLMCXR_reports.tgz of Open-i and no annotation.json",
        ),
    ],
    "r2gen": [
        (
            lost("images/CXR5_IM-0005/0.png"),
            "annotation.json test row 2: its image CXR5_IM-0005/0.png is missing",
        ),
        (annotation(report=None), "test row 1 lacks 'report'"),
        (annotation(report=" "), "no usable row", "test row 1: its report is empty"),
        (
            written("annotation.json", '{"train": []}'),
            "annotation.json is not an object with a list 'test'",
        ),
    ],
}


@each_row(
    "layout, damage, parts",
    [
        (layout, damage, parts)
        for layout, damages in BROKEN.items()
        for damage, *parts in damages
    ],
)
def test_broken_sources(layout, damage, parts, tmp_path, home, refuses):
    source = (
        sources.put_open_i(tmp_path / "x")
        if layout == "open_i"
        else sources.put_r2gen(tmp_path / "x")
    )
    damage(source)
    if (source / IMAGES).is_dir():
        sources.pack(source)
    with refuses(*parts, kind=SourceError):
        prepare(NAME, Options(source))
    assert not dataset_folder(NAME).exists()
