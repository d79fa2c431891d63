"""A small source folder, a home of its own, a server for what is published, and the one-sentence rule."""

import hashlib
import os
import re
import shutil
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from medtasks.errors import MedTasksError
from medtasks.home import HOME_VARIABLE

from ..local_server import LocalServer, QuietHandler, serving


@pytest.fixture(scope="session")
def drawn(sample_home: Path) -> Path:
    """The synthetic sample as a source folder; read only."""
    return sample_home / "source" / "mediconfusion"


@pytest.fixture
def source(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the drawn source that a test may spoil."""
    return Path(shutil.copytree(drawn, tmp_path / "source"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(folder))
    return folder


@pytest.fixture
def final(home: Path) -> Path:
    return home / "datasets" / "mediconfusion"


@pytest.fixture
def work(home: Path) -> Path:
    return home / "datasets" / ".preparing-mediconfusion"


@pytest.fixture
def refuses() -> Callable[..., AbstractContextManager[None]]:
    """The block raises our error, in one sentence that contains all ``parts``."""

    @contextmanager
    def run(*parts: str, kind: type[Exception] = MedTasksError) -> Iterator[None]:
        with pytest.raises(kind) as caught:
            yield
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert [part for part in parts if part not in sentence] == [], sentence

    return run


PAGE = 3


class Bucket(LocalServer):
    """Objects by key; faults by key (or "list"), one consumed per request, the last one for ever if it is ``...``."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.faults: dict[str, list[Any]] = defaultdict(list)
        self.requests: list[str] = []
        self.asked: list[str | None] = []  # ranges
        self.ranges = True
        self.release = threading.Event()

    def count(self, what: str) -> int:
        return sum(bool(re.fullmatch(what, seen)) for seen in self.requests)

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        key = unquote(parts.path).lstrip("/")
        self.server.requests.append(key or f"list {query['prefix']}")
        body, etag = self.listing(query) if not key else self.object(key)
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        begin = (
            int(wanted.removeprefix("bytes=").rstrip("-"))
            if wanted and self.server.ranges
            else 0
        )
        faults = self.server.faults[key or "list"]
        fault = faults[0] if faults[-1:] == [...] else faults.pop(0) if faults else None
        if fault is not None:
            self.fail(fault, body or b"", etag)
        elif body is None:
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif begin >= len(body) > 0:
            self.reply(416, b"")
        else:
            self.reply(206 if begin else 200, body[begin:], **({"ETag": etag} if etag else {}))

    def listing(self, query: dict[str, str]) -> tuple[bytes, None]:
        assert query["list-type"] == "2"
        keys = sorted(key for key in self.server.files if key.startswith(query["prefix"]))
        start = int(
            query.get("continuation-token", "+0").lstrip("+")
        )  # "+" breaks where a client does not quote it
        more = start + PAGE < len(keys)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key></Contents>"
            for key in keys[start : start + PAGE]
        )
        token = (
            f"<NextContinuationToken>+{start + PAGE}</NextContinuationToken>" if more else ""
        )
        xmlns = "http://s3.amazonaws.com/doc/2006-03-01/"
        text = f'<?xml version="1.0"?><ListBucketResult xmlns="{xmlns}">{token}{rows}</ListBucketResult>'
        return text.encode(), None

    def object(self, key: str) -> tuple[bytes | None, str | None]:
        body = self.server.files.get(key)
        return body, self.server.etags.get(
            key, f'"{hashlib.md5(body).hexdigest()}"' if body else None
        )

    def fail(self, fault: Any, body: bytes, etag: str | None) -> None:
        if isinstance(fault, bytes):
            self.reply(200, fault, **({"ETag": etag} if etag else {}))
        elif isinstance(fault, tuple):
            self.reply(
                fault[0], b"<Error><Code>SlowDown</Code></Error>", Retry_After=str(fault[1])
            )
        elif isinstance(fault, int):
            self.reply(fault, b"<Error/>")
        elif fault == "reset":
            self.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            os.close(
                self.connection.detach()
            )  # close() would wait for the handler's two file objects
        elif fault == "hang":
            self.server.release.wait()
        elif fault.startswith("cut"):
            self.reply(200, body[: -int(fault[3:])], Content_Length=str(len(body)))
            self.close_connection = True


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A server of ``files`` by path; ``requests`` holds every path asked for."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(Bucket()) as server:
        yield server
        server.release.set()
