"""Downloads from a server on 127.0.0.1 that understands ranges and fails on demand."""

import hashlib
import socket

import pytest

from medtasks.data.prepare.downloads import Published, download

from ...tables import each_row

BODY = bytes(range(256)) * 9000  # more than one piece


@pytest.fixture
def server(published):
    published.files["file"] = BODY
    return published


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def fetched(server, target, **digests):
    return download(Published(f"{server.url}/file", **digests), target, backoff_s=0.01)


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
        (b"", True, ["cut804000", 503], [None, "bytes=1048576-", "bytes=1048576-"]),  # whole pieces are kept
        (BODY[:1000], True, [], ["bytes=1000-"]),  # of an earlier attempt
        (b"", False, ["cut804000"], [None, "bytes=1048576-"]),  # a server without ranges starts over
        (BODY + b"of another file", True, [], [f"bytes={len(BODY) + 15}-", None]),
    ],
)
def test_what_has_arrived_is_continued(server, tmp_path, arrived, ranges, faults, asked):
    server.ranges, server.faults["file"], server.asked = ranges, list(faults), []
    if arrived:
        (tmp_path / "file.bin.part").write_bytes(arrived)
    assert fetched(server, tmp_path / "file.bin").read_bytes() == BODY
    assert server.asked == asked


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_another_file_is_refused_and_not_kept(server, target, refuses, kind):
    with refuses(f"{server.url}/file did not arrive as published (its checksum differs)"):
        fetched(server, target, **{kind: "0" * 32})
    assert list(target.parent.iterdir()) == []
    target.write_bytes(b"an older download")
    with refuses("did not arrive as published"):
        fetched(server, target, **{kind: "0" * 32})


def test_a_missing_file_is_not_asked_for_again(server, target, refuses):
    server.files.clear()
    with refuses(f"cannot download file.bin from {server.url}/file (HTTP 404)", "--source FOLDER"):
        fetched(server, target)
    assert len(server.asked) == 1


def test_an_unreachable_server(target, refuses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with refuses(f"cannot download file.bin from {url} (ConnectionError)", "what has arrived is kept"):
        download(Published(url), target, backoff_s=0.001)
