"""Downloads from a server on 127.0.0.1 that understands ranges and fails on demand."""

import hashlib
import socket

import pytest

from medtasks.data.prepare.downloads import Published, download

from ...local_server import LocalServer, QuietHandler, serving

BODY = bytes(range(256)) * 9000  # more than one piece


class Server(LocalServer):
    """One file at ``/file``; faults are used up one per request."""

    def __init__(self):
        super().__init__(Handler)
        self.ranges = True
        self.faults = []
        self.asked = []

    @property
    def url(self):
        return f"{super().url}/file"


class Handler(QuietHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, int):
            self.send_error(fault)
        elif begin >= len(BODY):
            self.send_error(416)
        else:
            body = BODY[begin : begin + 1_500_000] if fault == "cut" else BODY[begin:]
            self.reply(206 if begin else 200, body, Content_Length=str(len(BODY) - begin))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Server()) as running:
        yield running


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.bin"


def fetched(server, target, **digests):
    return download(Published(server.url, **digests), target, backoff_s=0.01)


def test_a_file_arrives_once(server, target):
    digests = {"md5": hashlib.md5(BODY).hexdigest(), "sha256": hashlib.sha256(BODY).hexdigest()}
    assert fetched(server, target, **digests) == target
    assert target.read_bytes() == BODY
    assert fetched(server, target, **digests) == target
    assert server.asked == [None]
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]


def test_a_broken_connection_is_continued(server, target):
    server.faults = ["cut", 503]
    assert fetched(server, target).read_bytes() == BODY
    assert server.asked == [None, "bytes=1048576-", "bytes=1048576-"]  # whole pieces are kept


def test_an_earlier_attempt_is_continued(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(BODY[:1000])
    assert fetched(server, target).read_bytes() == BODY
    assert server.asked == ["bytes=1000-"]


def test_a_server_without_ranges_starts_over(server, target):
    server.ranges, server.faults = False, ["cut"]
    assert fetched(server, target).read_bytes() == BODY


def test_more_than_there_is_starts_over(server, target):
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(BODY + b"of another file")
    assert fetched(server, target).read_bytes() == BODY
    assert server.asked[0] == f"bytes={len(BODY) + 15}-"


@pytest.mark.parametrize("kind", ["md5", "sha256"])
def test_another_file_is_refused_and_not_kept(server, target, refuses, kind):
    with refuses(f"{server.url} did not arrive as published (its checksum differs)"):
        fetched(server, target, **{kind: "0" * 32})
    assert list(target.parent.iterdir()) == []
    target.write_bytes(b"an older download")
    with refuses("did not arrive as published"):
        fetched(server, target, **{kind: "0" * 32})


def test_a_missing_file_is_not_asked_for_again(server, target, refuses):
    server.faults = [404]
    with refuses(f"cannot download file.bin from {server.url} (HTTP 404)", "--source FOLDER"):
        fetched(server, target)
    assert len(server.asked) == 1


def test_an_unreachable_server(target, refuses):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
    with refuses(f"cannot download file.bin from {url} (ConnectionError)", "what has arrived is kept"):
        download(Published(url), target, backoff_s=0.001)
