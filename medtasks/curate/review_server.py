"""A page on this machine in which an expert reviews a study; nothing of it can be reached from elsewhere.

It listens on the loopback alone and answers nobody who lacks the random token of its address, nor a page of another
site whose name was bound to the loopback (DNS rebinding). The page loads nothing from outside and may not.

=============================  =====================================================================================
``GET  /TOKEN/``               the page; ``review_page.js`` and ``review_page.css`` beside it
``GET  /TOKEN/study``          drafts, texts of images and what was said, as JSON
``GET  /TOKEN/image?id=``      an image of the study, as models see it, in PNG
``POST /TOKEN/save``           what is said of one draft; answered with what the file holds, or why it cannot be kept;
                               409 where it was changed elsewhere, 507 where the file cannot be written
=============================  =====================================================================================

After a crash the same command takes the same address, so that a page which is still open goes on saving.
"""

import contextlib
import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from pydantic import ValidationError

from medtasks.curate.judging import HALLUCINATIONS, remarks
from medtasks.curate.review_images import ReviewImages
from medtasks.curate.reviewer_file import ChangedElsewhere, ReviewerFile, Unfit
from medtasks.curate.reviews import ASPECTS, HIGHEST, LOWEST, PASSING, ItemReview
from medtasks.curate.study import Record, write_private
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError

HOST = "127.0.0.1"
LARGEST_BODY = 1_000_000
_PAGE = {
    "": ("review_page.html", "text/html; charset=utf-8"),
    "review_page.js": ("review_page.js", "text/javascript; charset=utf-8"),
    "review_page.css": ("review_page.css", "text/css; charset=utf-8"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
}
_NO_MORE: Mapping[str, str] = MappingProxyType({})
_IDLE_SECONDS = 60
_MOST_DIGITS = 9  # Python reads no number of thousands of them


class Address(Record):
    """Where a server was reached that has not ended in order."""

    port: int
    token: str


class _Saving(Record):
    """What the page sends."""

    item: str
    version: str  # of what the page made its change from
    said: ItemReview


class ReviewServer(ThreadingHTTPServer):
    """Serves the file of one reviewer; OSError where the port is taken."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, file: ReviewerFile, address: Address, seed: int | None = None) -> None:
        super().__init__((HOST, address.port), _Handler)
        self.file, self.token = file, address.token
        self.images = ReviewImages(file.images)
        self.order = file.order(seed)

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that did not wait, for an image of a question that was left, for example."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def study(self) -> dict[str, Any]:
        """Return all that the page shows but images."""
        file = self.file
        used = {image for draft in file.drafts.values() for image in draft.images}
        return {
            "name": file.study.name,
            "kind": file.study.kind,
            "reviewer": file.reviewer,
            "aspects": ASPECTS,
            "scores": [LOWEST, HIGHEST],
            "passing": PASSING,
            "hallucinations": HALLUCINATIONS,
            "images": {
                name: {"text": one.text, "context": dict(one.context)}
                for name, one in file.images.items()
                if name in used
            },
            "items": [
                {"id": item, "draft": file.drafts[item].model_dump(mode="json"), **self.state(item)}
                for item in self.order
            ],
        }

    def state(self, item: str) -> dict[str, Any]:
        """Return what was said of a draft, and what to look at again."""
        said = self.file.said(item)
        return {
            "said": said.model_dump(mode="json"),
            "version": self.file.version(item),
            "remarks": remarks(self.file.drafts[item], said),
        }


class _Refused(Exception):
    """An answer that is not what was asked for."""

    def __init__(self, status: int, **content: Any) -> None:
        self.status, self.content = status, content


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "medtasks", ""
    timeout = _IDLE_SECONDS

    def log_message(self, *args: object) -> None:
        """Say nothing: the address holds the token."""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, method: Callable[[str, str], None]) -> None:
        try:
            method(*self._asked_for())
        except _Refused as refused:
            self.close_connection = True  # a body may be left that nobody has read
            self._send(json.dumps(refused.content).encode(), "application/json", {}, refused.status)

    def _asked_for(self) -> tuple[str, str]:
        """Return path after the token and query, once it is sure that our own page asks."""
        here = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        try:
            address = urlsplit(self.path)
        except ValueError:
            raise _Refused(400, error="this is no address") from None
        token, _, path = address.path.removeprefix("/").partition("/")
        known = secrets.compare_digest(token.encode(errors="replace"), self.server.token.encode())
        origin = self.headers.get("Origin")
        ours = self.headers.get("Host") in here and (origin is None or origin in {f"http://{one}" for one in here})
        # The address may be opened from anywhere, all else comes from the page itself.
        foreign = (
            self.headers.get("Sec-Fetch-Site") == "cross-site" and self.headers.get("Sec-Fetch-Mode") != "navigate"
        )
        if not (known and ours) or foreign:
            raise _Refused(403, error="open the address that the command has printed")
        return path, address.query

    def _get(self, path: str, query: str) -> None:
        if path in _PAGE:
            name, kind = _PAGE[path]
            self._send(files("medtasks.curate").joinpath(name).read_bytes(), kind)
        elif path == "study":
            self._send(json.dumps(self.server.study()).encode(), "application/json")
        elif path == "image":
            self._send_image("".join(parse_qs(query).get("id", [])))
        else:
            raise _Refused(404, error="there is no such page")

    def _send_image(self, image: str) -> None:
        try:
            shown = self.server.images.shown(image)
        except KeyError:
            raise _Refused(404, error="the study has no such image") from None
        except UnreadableImage as error:
            raise _Refused(422, error=str(error)) from None
        self._send(shown.png, "image/png", {"X-Conversions": quote("; ".join(shown.conversions))})

    def _post(self, path: str, query: str) -> None:
        if path != "save":
            raise _Refused(404, error="there is no such page")
        asked = self._saving()
        item = asked.item
        content = {}
        try:
            self.server.file.save({item: asked.said}, {item: asked.version})
        except Unfit as unfit:  # a text is empty between two words of its editor: no error that a browser should log
            content = {"problems": unfit.problems}
        except ChangedElsewhere as error:
            raise _Refused(409, error=str(error), **self.server.state(item)) from None
        except MedTasksError as error:
            raise _Refused(507, error=str(error)) from None
        self._send(json.dumps(content or self.server.state(item)).encode(), "application/json")

    def _saving(self) -> _Saving:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(411, error="the length of the body is missing")
        if len(length) > _MOST_DIGITS or int(length) > LARGEST_BODY:
            raise _Refused(413, error=f"the texts are longer than {LARGEST_BODY:,} characters together")
        if self.headers.get_content_type() != "application/json":
            raise _Refused(415, error="the body is not JSON")
        try:
            saving = _Saving.model_validate_json(self.rfile.read(int(length)))
        except ValidationError:
            raise _Refused(400, error="the body is not what the page sends") from None
        if saving.item not in self.server.file.drafts:
            raise _Refused(404, error="the study has no such question")
        return saving

    def _send(self, body: bytes, kind: str, more: Mapping[str, str] = _NO_MORE, status: int = 200) -> None:
        self.send_response(status)
        sizes = {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in {**_HEADERS, **sizes, **more}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def listening(file: ReviewerFile, port: int | None = None, seed: int | None = None) -> Iterator[ReviewServer]:
    """Yield a server for a reviewer's file, at a port or any free one; a MedTasksError says that it is taken.

    ``seed`` shuffles the drafts. The address is forgotten when the block ends, and kept when it fails.
    """
    last = file.path.with_name(f".{file.reviewer}.address")
    with _bound(file, port, seed, last) as server:
        write_private(last, Address(port=server.server_port, token=server.token).model_dump_json())
        yield server
    last.unlink(missing_ok=True)


@contextlib.contextmanager
def doorway(server: ReviewServer) -> Iterator[Path]:
    """Yield a file for the reviewer alone that leads a browser to the page.

    Other users of the machine see what a browser is started with: that must not be the address, which has the token.
    """
    door = server.file.path.with_name(f".{server.file.reviewer}.html")
    write_private(door, f'<!doctype html><meta http-equiv="refresh" content="0; url={server.url}">\n')
    try:
        yield door
    finally:
        door.unlink(missing_ok=True)


def _bound(file: ReviewerFile, port: int | None, seed: int | None, last: Path) -> ReviewServer:
    new = Address(port=port or 0, token=secrets.token_urlsafe(24))
    with contextlib.suppress(OSError, ValueError):
        crashed = Address.model_validate_json(last.read_text(encoding="utf-8"))
        if port in (None, crashed.port):
            return ReviewServer(file, crashed, seed)
    try:
        return ReviewServer(file, new, seed)
    except OSError as error:
        raise MedTasksError(f"cannot listen on port {port}: {error.strerror or error}; give another --port") from None
