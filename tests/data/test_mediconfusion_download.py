"""MediConfusion from the published files and PubMed Central, both played by a server here that fails on demand."""

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import pytest
from PIL import Image, ImageFile

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare import downloads
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources import mediconfusion
from medtasks.data.sources.mediconfusion import Figure, fetch_figures
from medtasks.errors import MedTasksError, SourceError

from ..tables import each_row
from ..waiting import wait_until

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
    published.files |= {
        key(image_id): (drawn / f"images/{image_id}.jpg").read_bytes() for image_id in IMAGES
    }
    sha256 = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
    tiny = replace(MEDICONFUSION, rows=32, images=27, sha256=MappingProxyType(sha256))
    monkeypatch.setattr(mediconfusion, "MEDICONFUSION", tiny)
    monkeypatch.setattr(downloads, "_BACKOFF_S", 0.01)
    monkeypatch.setenv("MEDTASKS_MEDICONFUSION_URL", f"{published.url}/data")
    monkeypatch.setenv("MEDTASKS_PMC_URL", published.url)
    return published


def fetched(server):
    return sorted(path for path in server.requests if path.startswith("PMC"))


def test_everything_is_downloaded(origin, drawn, final, work):
    manifest = prepare("mediconfusion", Options())

    assert (manifest.rows, manifest.images, manifest.complete, manifest.sample) == (
        32,
        27,
        True,
        False,
    )
    assert manifest.source == "https://github.com/AIF4S/MediConfusion"
    assert manifest.revision == MEDICONFUSION.revision

    for image_id in IMAGES:
        assert (final / f"images/{image_id}.jpg").read_bytes() == (
            drawn / f"images/{image_id}.jpg"
        ).read_bytes()
    assert (final / DEMONSTRATION).is_file()
    assert fetched(origin) == [key(image_id) for image_id in IMAGES]
    assert not work.exists()
    assert list(verify("mediconfusion")) == []


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_as_published_stops_the_download(origin, final, refuses, name):
    origin.files[f"data/{name}"] += b" "

    with refuses(f"/data/{name} did not arrive as published", "checksum", kind=SourceError):
        prepare("mediconfusion", Options())

    assert not final.exists()
    assert fetched(origin) == []


@pytest.mark.parametrize("name", FILES)
def test_files_that_arrived_as_published_are_not_fetched_again(origin, refuses, name):
    right = origin.files[f"data/{name}"]
    origin.files[f"data/{name}"] = right + b" "
    with refuses("did not arrive as published", kind=SourceError):
        prepare("mediconfusion", Options())
    origin.files[f"data/{name}"] = right
    origin.requests.clear()

    assert prepare("mediconfusion", Options()).complete

    asked = [path for path in origin.requests if path.startswith("data/")]
    assert asked == [f"data/{later}" for later in FILES[FILES.index(name) :]]


@pytest.fixture
def lacking(source, links):
    """Images that a source lacks, which knows where they are."""
    (source / "image_dict.json").write_text(json.dumps(links))
    for image_id in IMAGES[5:12]:
        (source / f"images/{image_id}.jpg").unlink()
    return IMAGES[5:12]


def test_nothing_is_fetched_unless_asked_for(origin, source, lacking, refuses):
    with refuses("7 of 27 images unusable", "add --fetch-images"):
        prepare("mediconfusion", Options(source))
    assert origin.requests == []


def test_a_source_without_images_is_completed(origin, source, lacking):
    manifest = prepare("mediconfusion", Options(source, fetch_images=True))

    assert manifest.complete
    assert manifest.source == str(source)
    assert fetched(origin) == [key(image_id) for image_id in lacking]


@pytest.fixture
def refused_fetch(origin, source, refuses):
    """Check that two images that a source lacks are not fetched."""
    (source / "images/90000.jpg").unlink()
    (source / "images/90001.jpg").unlink()

    def run(*parts, **options):
        with refuses(*parts, **options):
            prepare("mediconfusion", Options(source, fetch_images=True))

    return run


def test_links_are_needed_to_fetch(refused_fetch):
    refused_fetch("image_dict.json is missing", kind=SourceError)


@each_row("content", [b"", b"[]", b'{"a": 1}', b'{"a": {"local": 1}}', b"\xff"])
def test_malformed_links_are_refused(refused_fetch, source, content):
    (source / "image_dict.json").write_bytes(content)
    refused_fetch("image_dict.json is malformed", kind=SourceError)


def test_an_image_without_a_link_is_named(refused_fetch, source, links):
    del links["drawn/90001.jpg"]
    (source / "image_dict.json").write_text(json.dumps(links))
    refused_fetch("1 of 27 images unusable", "image 90001 is not listed in image_dict.json")


def test_a_link_to_another_place_is_refused(refused_fetch, source, links):
    links["drawn/90000.jpg"]["dlink"] = "ftp://elsewhere/file.zip"
    (source / "image_dict.json").write_text(json.dumps(links))
    refused_fetch(
        "ftp://elsewhere/file.zip", "names no PubMed Central package", kind=SourceError
    )


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (ImageStore, "add_file", KeyboardInterrupt()),
        (Manifest, "write", OSError(28, "No space left on device")),
    ],
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


def test_images_of_an_interrupted_local_source_do_not_pass_for_fetched(
    origin, source, drawn, final, refuses
):
    stand_in = (drawn / "images/90002.jpg").read_bytes()
    for image_id in IMAGES[:-1]:
        (source / f"images/{image_id}.jpg").write_bytes(stand_in)
    (source / "images/90026.jpg").unlink()

    with refuses("1 of 27 images unusable"):
        prepare("mediconfusion", Options(source))

    manifest = prepare("mediconfusion", Options())

    assert manifest.source == MEDICONFUSION.source
    for image_id in IMAGES:
        assert (final / f"images/{image_id}.jpg").read_bytes() == (
            drawn / f"images/{image_id}.jpg"
        ).read_bytes()


def picture(shade: int) -> bytes:
    body = BytesIO()
    Image.frombytes("L", (40, 30), random.Random(shade).randbytes(1200)).save(body, "JPEG")
    return body.getvalue()


@pytest.fixture
def fetch(published, monkeypatch):
    """Fetch with other constants than those of the module."""

    def run(*figures, url=published.url, **constants):
        monkeypatch.setenv("MEDTASKS_PMC_URL", url)
        for name, value in {"backoff_s": 0.01, "timeout_s": 300.0, **constants}.items():
            monkeypatch.setattr(mediconfusion, f"_{name.upper()}", value)
        return fetch_figures(figures)

    return run


@pytest.fixture
def figure(published, tmp_path):
    """One article with one figure, in the bucket as version 1."""
    published.files["PMC1.1/PMC1.1.xml"] = b"<article/>"
    published.files["PMC1.1/a.jpg"] = picture(1)
    return Figure("PMC1", "a.jpg", tmp_path / "images" / "1.jpg")


def files(folder: Path):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_figure_arrives_unchanged(published, fetch, figure, tmp_path):
    published.files["PMC2.1/media/a.jpg"] = picture(200)
    other = Figure("PMC2", "a.jpg", tmp_path / "images" / "2.jpg")
    assert fetch(figure, other, url=f"{published.url}/") == {}
    assert figure.target.read_bytes() == published.files["PMC1.1/a.jpg"]
    assert other.target.read_bytes() == published.files["PMC2.1/media/a.jpg"]
    assert files(figure.target.parent) == ["1.jpg", "2.jpg"]


def test_an_address_without_a_scheme_is_refused(fetch, figure):
    with pytest.raises(SourceError, match="MEDTASKS_PMC_URL"):
        fetch(figure, url="pmc-oa-opendata")


def test_one_paged_listing_serves_all_figures_of_an_article(published, fetch, tmp_path):
    names = [f"fig {n}&+#?%41.jpg" for n in range(7)]
    published.files |= {f"PMC7.1/{name}": picture(n) for n, name in enumerate(names)}
    assert (
        fetch(*[Figure("PMC7", name, tmp_path / f"{n}.jpg") for n, name in enumerate(names)])
        == {}
    )
    assert published.count("list PMC7.") == 3
    assert [(tmp_path / f"{n}.jpg").read_bytes() for n in range(7)] == list(
        published.files.values()
    )


@each_row(
    "others, newest",
    [
        (["PMC1.2/a.jpg", "PMC1.9/a.jpg", "PMC1.10/a.jpg"], "PMC1.10/a.jpg"),
        (
            ["PMC1.2/xa.jpg", "PMC1.3/a.jpg.png", "PMC12.4/a.jpg", "PMC1.5/aXjpg"],
            "PMC1.1/a.jpg",
        ),
    ],
)
def test_newest_version_wins(published, fetch, figure, others, newest):
    figure.target.unlink(missing_ok=True)
    published.files = {
        "PMC1.1/a.jpg": picture(1),
        **{key: picture(shade) for shade, key in enumerate(others, 2)},
    }
    assert fetch(figure) == {}
    assert figure.target.read_bytes() == published.files[newest]


@each_row("where", ["list", "PMC1.1/a.jpg"])
@each_row("fault", [500, 503, 429, 408, "reset", "cut5", "hang", b"<html>sign in"])
def test_passing_trouble_is_tried_again(published, fetch, figure, where, fault):
    figure.target.unlink(missing_ok=True)
    published.requests.clear()
    published.faults[where] = [fault, fault]
    assert fetch(figure, attempts=60, **({"timeout_s": 0.5} if fault == "hang" else {})) == {}
    tries = published.count("list PMC1." if where == "list" else where)
    assert tries == 3 or (
        fault == "hang" and tries > 3
    )  # on a busy machine an answer may be late, too
    assert figure.target.read_bytes() == published.files["PMC1.1/a.jpg"]


@each_row(
    "fault, tail, etag",
    [
        (
            "cut4",
            b"tail",
            "",
        ),  # what is left after the cut still decodes, and there is no digest
        (picture(99), b"", None),  # the digest is that of another image
        (picture(1)[:-200], b"", ""),
    ],
)
def test_one_sign_of_damage_is_enough(published, fetch, figure, fault, tail, etag):
    figure.target.unlink(missing_ok=True)
    published.requests.clear()
    published.files["PMC1.1/a.jpg"] = picture(1) + tail
    published.etags = {} if etag is None else {"PMC1.1/a.jpg": etag}
    published.faults["PMC1.1/a.jpg"] = [fault]
    assert fetch(figure) == {}
    assert figure.target.read_bytes() == published.files["PMC1.1/a.jpg"]
    assert published.count("PMC1.1/a.jpg") == 2


def test_a_digest_of_several_parts_is_none(published, fetch, figure):
    published.etags["PMC1.1/a.jpg"] = f'"{"0" * 32}-2"'
    assert fetch(figure) == {}


@each_row(
    "fault, etag, cause, tried",
    [
        (500, None, "HTTP 500", 4),
        (403, None, "HTTP 403", 1),
        (b"GIF89a no", "", "does not decode as an image", 4),
    ],
)
def test_trouble_ends_after_the_given_attempts_or_at_once_if_it_is_a_refusal(
    published, fetch, figure, fault, etag, cause, tried
):
    published.requests.clear()
    published.faults["PMC1.1/a.jpg"] = [fault, ...]
    published.etags = {} if etag is None else {"PMC1.1/a.jpg": etag}

    missing = fetch(figure, attempts=4)

    assert list(missing) == [figure]
    assert cause in missing[figure]
    assert published.count("PMC1.1/a.jpg") == tried
    assert files(figure.target.parent) == []


def test_what_is_not_there_is_named_in_order_and_the_rest_arrives(
    published, fetch, figure, tmp_path
):
    published.files["PMC3.1/PMC3.1.xml"] = b"<article/>"
    gone = Figure("PMC2", "b.jpg", tmp_path / "2.jpg")
    unlisted = Figure("PMC3", "c.jpg", tmp_path / "3.jpg")
    assert list(fetch(unlisted, figure, gone).items()) == [
        (unlisted, "'c.jpg' is not among the 1 files of PMC3"),
        (gone, "PMC2 is not in PubMed Central's open-access storage"),
    ]
    assert files(tmp_path) == ["1.jpg"]
    assert published.count("list .*") == 3


@pytest.fixture
def _lax_pillow(monkeypatch):
    """Pillow as the harness leaves it."""
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)


@pytest.mark.usefixtures("_lax_pillow")
def test_whole_files_cost_no_request(published, fetch, tmp_path):
    kept = Figure("PMC2", "b.jpg", tmp_path / "2.jpg")
    kept.target.write_bytes(picture(50))

    assert fetch(kept) == {}

    assert published.count(".*PMC2.*") == 0
    assert kept.target.read_bytes() == picture(50)


@pytest.mark.usefixtures("_lax_pillow")
def test_broken_files_are_replaced(published, fetch, figure):
    figure.target.parent.mkdir()
    figure.target.write_bytes(picture(1)[:-300])

    assert fetch(figure) == {}

    assert figure.target.read_bytes() == published.files["PMC1.1/a.jpg"]


def articles(published, folder, count):
    published.files |= {f"PMC{n}.1/a.jpg": picture(n) for n in range(count)}
    return [Figure(f"PMC{n}", "a.jpg", folder / f"{n}.jpg") for n in range(count)]


def test_ctrl_c_leaves_only_whole_files(published, tmp_path, monkeypatch):
    articles(published, tmp_path, 3)
    published.faults["PMC1.1/a.jpg"] = [(503, 3600), ...]
    published.faults["PMC2.1/a.jpg"] = ["cut300", ...]
    code = (
        "import sys; from pathlib import Path; from medtasks.data.prepare import downloads\n"
        "from medtasks.data.sources import mediconfusion as pmc\n"
        "pmc._BACKOFF_S = downloads._LONGEST_BACKOFF_S = downloads._LONGEST_RETRY_AFTER_S = 3600\n"
        "pmc.fetch_figures([pmc.Figure(f'PMC{n}', 'a.jpg', Path(sys.argv[1], f'{n}.jpg')) for n in range(3)])"
    )
    monkeypatch.setenv("MEDTASKS_PMC_URL", published.url)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    wait_until(
        lambda: published.count("PMC[12].1/a.jpg") == 2 and (tmp_path / "0.jpg").exists(), child
    )
    child.send_signal(2)
    _, stderr = child.communicate(timeout=300)  # not after the pauses of an hour
    assert "KeyboardInterrupt" in stderr
    assert files(tmp_path) == ["0.jpg"]
    assert published.count("PMC[12].1/a.jpg") == 2


@each_row("count, tried", [(1, 1), (12, 3)])
def test_unreachable_host_ends_it_after_three_articles(
    published, fetch, tmp_path, count, tried
):
    published.requests.clear()
    published.faults["list"] = ["reset", ...]
    with pytest.raises(
        SourceError,
        match=r"cannot reach PubMed Central's storage at http://127.*MEDTASKS_PMC_URL",
    ):
        fetch(*articles(published, tmp_path, count), workers=1, attempts=2, backoff_s=0.1)
    assert (
        tried * 2 <= published.count("list .*") <= tried * 2 + 2
    )  # the worker may have begun the next article
    published.faults["list"] = [500, ...]  # a host that answers is not unreachable
    assert len(fetch(*articles(published, tmp_path, 5), workers=1, attempts=1)) == 5
