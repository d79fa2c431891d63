"""Preparing MediConfusion from the published files and PubMed Central, both played by a server on this machine."""

import hashlib
import json
from dataclasses import replace
from types import MappingProxyType

import pytest

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.decoding import ImageStore
from medtasks.data.prepare import downloads
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources import mediconfusion
from medtasks.errors import MedTasksError, SourceError

IMAGES = [str(number) for number in range(90000, 90027)]
DEMONSTRATION = "few_shot_prompts/PMC1_F1.jpg"
FILES = ["dataset.json", "image_dict.json", DEMONSTRATION]


def key(image_id):
    return f"PMC{image_id[:-1]}.1/figure {image_id}.jpg"


@pytest.fixture
def links():
    """``image_dict.json`` of the drawn source: ten figures per article."""
    return {
        f"drawn/{image_id}.jpg": {
            "local": int(image_id),
            "dlink": f"ftp://ftp.ncbi.nlm.nih.gov/pub/pmc/oa_package/00/00/PMC{image_id[:-1]}.tar.gz",
            "file_name": f"figure {image_id}.jpg",
        }
        for image_id in IMAGES
    }


@pytest.fixture
def origin(drawn, links, published, monkeypatch, home):
    """The server has it all, and the catalogue knows the checksums."""
    files = {
        "dataset.json": (drawn / "dataset.json").read_bytes(),
        "image_dict.json": json.dumps(links).encode(),
        DEMONSTRATION: (drawn / "images/90000.jpg").read_bytes(),
    }
    published.files |= {f"data/{name}": body for name, body in files.items()}
    published.files |= {key(image_id): (drawn / f"images/{image_id}.jpg").read_bytes() for image_id in IMAGES}
    sha256 = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
    tiny = replace(MEDICONFUSION, rows=32, images=27, sha256=MappingProxyType(sha256))
    monkeypatch.setattr(mediconfusion, "MEDICONFUSION", tiny)
    monkeypatch.setattr(downloads, "_BACKOFF_S", 0.01)
    monkeypatch.setenv("MEDTASKS_MEDICONFUSION_URL", f"{published.url}/data")
    monkeypatch.setenv("MEDTASKS_PMC_URL", published.url)
    return published


def figures(server):
    return sorted(path for path in server.requests if path.startswith("PMC"))


def test_everything_is_downloaded(origin, drawn, final, work):
    manifest = prepare("mediconfusion", Options())
    assert (manifest.rows, manifest.images, manifest.complete, manifest.sample) == (32, 27, True, False)
    assert manifest.source == "https://github.com/AIF4S/MediConfusion"
    assert manifest.revision == MEDICONFUSION.revision
    for image_id in IMAGES:
        assert (final / f"images/{image_id}.jpg").read_bytes() == (drawn / f"images/{image_id}.jpg").read_bytes()
    assert (final / DEMONSTRATION).is_file()
    assert figures(origin) == [key(image_id) for image_id in IMAGES]
    assert not work.exists()
    assert list(verify("mediconfusion")) == []


@pytest.mark.parametrize("name", FILES)
def test_checksums_are_enforced(origin, final, refuses, name):
    right = origin.files[f"data/{name}"]
    origin.files[f"data/{name}"] = right + b" "
    with refuses(f"/data/{name} did not arrive as published", "checksum", kind=SourceError):
        prepare("mediconfusion", Options())
    assert not final.exists()
    assert figures(origin) == []
    origin.files[f"data/{name}"] = right
    before = len(origin.requests)
    assert prepare("mediconfusion", Options()).complete
    asked = [path for path in origin.requests[before:] if path.startswith("data/")]
    assert asked == [f"data/{later}" for later in FILES[FILES.index(name) :]]  # good files are not fetched again


def test_questions_that_cannot_be_had(origin, refuses, monkeypatch):
    del origin.files["data/dataset.json"]
    with refuses("cannot download dataset.json", origin.url, "HTTP 404", "--source FOLDER"):
        prepare("mediconfusion", Options())
    monkeypatch.setenv("MEDTASKS_MEDICONFUSION_URL", "http://127.0.0.1:9")
    with refuses("cannot download dataset.json", "ConnectionError", kind=SourceError):
        prepare("mediconfusion", Options())


def test_a_figure_that_is_gone(origin, final, refuses):
    del origin.files[key("90026")]
    with refuses("1 of 27 images unusable, in 1 of 16 pairs", "'figure 90026.jpg' is not among", "--allow-incomplete"):
        prepare("mediconfusion", Options())
    manifest = prepare("mediconfusion", Options(allow_incomplete=True))
    assert (manifest.rows, manifest.images, manifest.complete) == (30, 25, False)
    assert ["'figure 90026.jpg' is not among" in note for note in manifest.left_out] == [True]


def test_source_without_images_is_completed(origin, source, links, refuses):
    (source / "image_dict.json").write_text(json.dumps(links))
    lacking = IMAGES[5:12]
    for image_id in lacking:
        (source / f"images/{image_id}.jpg").unlink()
    with refuses("7 of 27 images unusable", "add --fetch-images"):
        prepare("mediconfusion", Options(source))
    assert origin.requests == []  # nothing is fetched unless asked for
    manifest = prepare("mediconfusion", Options(source, fetch_images=True))
    assert manifest.complete
    assert manifest.source == str(source)
    assert figures(origin) == [key(image_id) for image_id in lacking]


def test_links_are_needed_to_fetch(origin, source, links, refuses):
    (source / "images/90000.jpg").unlink()
    (source / "images/90001.jpg").unlink()
    with refuses("image_dict.json is missing", kind=SourceError):
        prepare("mediconfusion", Options(source, fetch_images=True))
    for content in (b"", b"[]", b'{"a": 1}', b'{"a": {"local": 1}}', b"\xff"):
        (source / "image_dict.json").write_bytes(content)
        with refuses("image_dict.json is malformed", kind=SourceError):
            prepare("mediconfusion", Options(source, fetch_images=True))
    del links["drawn/90001.jpg"]
    (source / "image_dict.json").write_text(json.dumps(links))
    with refuses("1 of 27 images unusable", "image 90001 is not listed in image_dict.json"):
        prepare("mediconfusion", Options(source, fetch_images=True))
    links["drawn/90000.jpg"]["dlink"] = "ftp://elsewhere/file.zip"
    (source / "image_dict.json").write_text(json.dumps(links))
    with refuses("ftp://elsewhere/file.zip", "names no PubMed Central package", kind=SourceError):
        prepare("mediconfusion", Options(source, fetch_images=True))


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [(ImageStore, "add_file", KeyboardInterrupt()), (Manifest, "write", OSError(28, "No space left on device"))],
    ids=["ctrl-c", "disk"],
)
def test_what_was_fetched_is_kept(origin, monkeypatch, final, owner, name, error):
    def fail(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        with pytest.raises((KeyboardInterrupt, MedTasksError), match=r"^$|the disk is full"):
            prepare("mediconfusion", Options())
    assert not final.exists()
    origin.requests.clear()
    assert prepare("mediconfusion", Options()).complete
    assert origin.requests == []


def test_images_of_an_interrupted_local_source_do_not_pass_for_fetched(origin, source, drawn, final, refuses):
    stand_in = (drawn / "images/90002.jpg").read_bytes()
    for image_id in IMAGES[:-1]:
        (source / f"images/{image_id}.jpg").write_bytes(stand_in)
    (source / "images/90026.jpg").unlink()
    with refuses("1 of 27 images unusable"):
        prepare("mediconfusion", Options(source))
    manifest = prepare("mediconfusion", Options())
    assert manifest.source == MEDICONFUSION.source
    for image_id in IMAGES:
        assert (final / f"images/{image_id}.jpg").read_bytes() == (drawn / f"images/{image_id}.jpg").read_bytes()
