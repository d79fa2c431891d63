"""Downloads of one file in pieces, and from the Hugging Face Hub, both played by a server on this machine."""

import functools
import hashlib
import json
from dataclasses import replace
from io import BytesIO
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest
import requests
from huggingface_hub import constants, file_download

from medtasks.data.catalogue import dataset_info
from medtasks.data.prepare import downloads
from medtasks.data.prepare.downloads import Published, download, hub_download, hub_revision
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.data.sources.multimedeval import question_sets
from medtasks.errors import SourceError

from ...local_server import LocalServer, QuietHandler, serving
from ...multimedeval_sources import put_parquet
from ...tables import each_row

BODY = bytes(range(256)) * 9000  # more than one piece


@pytest.fixture
def server(published, monkeypatch):
    monkeypatch.setattr(downloads, "_BACKOFF_S", 0.01)
    published.files["file"] = BODY
    return published


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def fetched(server, target, **digests):
    return download(Published(f"{server.url}/file", **digests), target)


def test_a_file_arrives_once(server, target):
    digests = {"md5": hashlib.md5(BODY).hexdigest(), "sha256": hashlib.sha256(BODY).hexdigest()}
    assert fetched(server, target, **digests) == target
    assert target.read_bytes() == BODY
    assert fetched(server, target, **digests) == target
    assert server.asked == [None]
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]


@each_row(
    "arrived, ranges, faults, asked",
    [
        (
            b"",
            True,
            ["cut804000", 503],
            [None, "bytes=1048576-", "bytes=1048576-"],
        ),  # whole pieces are kept
        (BODY[:1000], True, [], ["bytes=1000-"]),  # of an earlier attempt
        (
            b"",
            False,
            ["cut804000"],
            [None, "bytes=1048576-"],
        ),  # a server without ranges starts over
        (BODY + b"of another file", True, [], [f"bytes={len(BODY) + 15}-", None]),
    ],
)
def test_what_has_arrived_is_continued(server, tmp_path, arrived, ranges, faults, asked):
    server.ranges, server.faults["file"], server.asked = ranges, list(faults), []
    if arrived:
        (tmp_path / "file.bin.part").write_bytes(arrived)
    assert fetched(server, tmp_path / "file.bin").read_bytes() == BODY
    assert server.asked == asked


@each_row(
    "addresses, arrives",
    [
        (["https://a.org/f", "http://a.org/f"], False),
        (["https://a.org/f", "//b.org/f", "HTTP://b.org/f"], False),
        (["https://a.org/f", "/g", "https://b.org/f"], True),
        (["http://a.org/f", "https://a.org/f"], True),
    ],
)
def test_no_redirect_leads_from_https_to_http(
    addresses, arrives, tmp_path, monkeypatch, refuses
):
    asked = []

    def send(self, request, **_):
        asked.append(request.url)
        answer = requests.Response()
        answer.url, answer.request, answer.raw = request.url, request, BytesIO(b"content")
        answer.status_code = 302 if len(asked) < len(addresses) else 200
        answer.headers["Location"] = addresses[len(asked) % len(addresses)]
        return answer

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    if arrives:
        assert download(Published(addresses[0]), tmp_path / "x").read_bytes() == b"content"
        return
    with refuses(f"cannot download x from {addresses[0]} (InsecureRedirect)", kind=SourceError):
        download(Published(addresses[0]), tmp_path / "x")
    assert all(address.startswith("https:") for address in asked)
    assert len(asked) == len(addresses) - 1  # and not tried again


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_another_file_is_refused_and_not_kept(server, target, refuses, kind):
    with refuses(f"{server.url}/file did not arrive as published (its checksum differs)"):
        fetched(server, target, **{kind: "0" * 32})
    assert list(target.parent.iterdir()) == []
    target.write_bytes(b"an older download")
    with refuses("did not arrive as published"):
        fetched(server, target, **{kind: "0" * 32})


COMMIT = "c" * 40
REPOSITORY = "cais/mmlu"
INFO = dataset_info("multimedeval_mmlu")


class Hub(LocalServer):
    """Files of one dataset; ``large`` ones have a published checksum, as on the Hub."""

    def __init__(self):
        super().__init__(_Handler)
        self.files, self.large, self.requests, self.sent = {}, {}, [], {}

    def add(self, path, data, large=True):
        self.files[path] = self.sent[path] = data
        if large:
            self.large[path] = hashlib.sha256(data).hexdigest()

    def listing(self):
        for path, data in self.files.items():
            entry = {
                "type": "file",
                "path": path,
                "size": len(data),
                "oid": hashlib.sha1(data).hexdigest(),
            }
            if path in self.large:
                entry["lfs"] = {"oid": self.large[path], "size": len(data), "pointerSize": 130}
            yield entry


class _Handler(QuietHandler):
    server: Hub

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer()

    def answer(self, body=True):
        path = urlsplit(self.path).path
        if path in [
            f"/api/datasets/{REPOSITORY}/revision/{revision}" for revision in ("main", COMMIT)
        ]:
            data = json.dumps({"id": REPOSITORY, "sha": COMMIT}).encode()
        elif path == f"/api/datasets/{REPOSITORY}/tree/{COMMIT}":
            data = json.dumps(list(self.server.listing())).encode()
        else:
            name = path.removeprefix(f"/datasets/{REPOSITORY}/resolve/{COMMIT}/")
            data = self.server.sent.get(name)
            self.server.requests += [name] if body and name in self.server.files else []
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha1(data or b"").hexdigest()}"')
        self.end_headers()
        if body and data:
            self.wfile.write(data)


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Hub()) as server:
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        for module in (
            constants,
            file_download,
        ):  # below 1.0 the latter has its own name for it
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield server


@pytest.fixture
def tiny_mmlu(hub, tmp_path):
    rows = [
        {
            "question": f"Question {n}",
            "subject": "anatomy",
            "choices": ["a", "b", "c", "d"],
            "answer": 0,
        }
        for n in range(8)
    ]
    for split in ("test", "dev"):
        path = put_parquet(tmp_path / "made" / f"{split}.parquet", rows)
        hub.add(f"all/{split}-00000-of-00001.parquet", path.read_bytes())
    hub.add("all/auxiliary_train-00000-of-00001.parquet", b"large")
    hub.add("README.md", b"# MMLU", large=False)
    return hub


@pytest.fixture
def info():
    return replace(INFO, revision=COMMIT, sha256=MappingProxyType({}))


def fetch(info, folder, *patterns):
    folder.mkdir(exist_ok=True)
    return hub_download(info, patterns, folder)


def prepare(info):
    recipe = question_sets.RECIPES["mmlu"]
    download = functools.partial(
        hub_download, info, ["all/test-*.parquet", "all/dev-*.parquet"]
    )
    return prepare_recipe(
        info,
        replace(recipe, download=download, revision=functools.partial(hub_revision, info)),
        Options(None, False, True),
    )


def test_only_what_is_needed_is_downloaded(tiny_mmlu, info, home):
    manifest = prepare(replace(info, revision="main"))  # a branch is followed to its commit
    assert (manifest.rows, manifest.source, manifest.revision) == (2, INFO.source, COMMIT)
    assert sorted(tiny_mmlu.requests) == [
        "all/dev-00000-of-00001.parquet",
        "all/test-00000-of-00001.parquet",
    ]
    final = home / "datasets" / manifest.name
    assert {path.name for path in final.iterdir()} == {
        "dataset_dict.json",
        "demonstrations",
        "manifest.json",
        "test",
    }


def test_an_interrupted_download_goes_on(tiny_mmlu, info, home, refuses, tmp_path):
    tiny_mmlu.sent["all/dev-00000-of-00001.parquet"] = None
    with refuses(
        f"{INFO.source} has no all/validation-*.parquet at {COMMIT}",
        "--source",
        kind=SourceError,
    ):
        hub_download(info, ["all/validation-*.parquet"], tmp_path)
    with refuses(
        "cannot download 'multimedeval_mmlu'", "run the same command again", kind=SourceError
    ):
        prepare(info)
    tiny_mmlu.sent["all/dev-00000-of-00001.parquet"] = tiny_mmlu.files[
        "all/dev-00000-of-00001.parquet"
    ]
    tiny_mmlu.requests.clear()
    assert prepare(info).rows == 2
    assert tiny_mmlu.requests == ["all/dev-00000-of-00001.parquet"]


@pytest.mark.parametrize("large", [True, False])
def test_other_bytes_than_published_are_refused(hub, info, tmp_path, refuses, large):
    hub.add("all/test.parquet", b"published", large)
    hub.sent["all/test.parquet"] = b"publishes"
    info = replace(
        info,
        sha256=MappingProxyType({"all/test.parquet": hashlib.sha256(b"published").hexdigest()}),
    )
    with refuses(
        "sent another all/test.parquet than it published",
        "run the same command again",
        kind=SourceError,
    ):
        fetch(info, tmp_path / "copy", "all/test.parquet")
    hub.sent["all/test.parquet"] = b"published"
    assert (
        fetch(info, tmp_path / "copy", "all/test.parquet") / "all/test.parquet"
    ).read_bytes() == b"published"


def test_a_copy_of_the_published_files_has_their_revision(info, tmp_path):
    known = replace(
        info,
        sha256=MappingProxyType({"all/test.parquet": hashlib.sha256(b"published").hexdigest()}),
    )
    for name in ("all/test.parquet", "test.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"published")
        assert (hub_revision(known, tmp_path), hub_revision(info, tmp_path)) == (
            COMMIT,
            "local",
        )
        (tmp_path / name).write_bytes(b"changed")
        assert hub_revision(known, tmp_path) == "local"
        (tmp_path / name).unlink()
        assert (
            hub_revision(known, tmp_path)
            == hub_revision(known, tmp_path / "data.zip")
            == "local"
        )
