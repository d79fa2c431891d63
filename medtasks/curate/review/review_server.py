"""Local web server of the page on which an expert reviews a study, and the file of that reviewer.

It listens on the loopback interface alone and answers only requests with the random token of its address that do not
come from another site, whose name may be bound to the loopback (DNS rebinding). The page loads nothing from outside.

=============================  =====================================================================================
``GET  /TOKEN/``               the page; ``review_page.js`` and ``review_page.css`` next to it
``GET  /TOKEN/study``          drafts, texts of images, the review so far and the key of the proof, as JSON
``GET  /TOKEN/image?id=``      an image of the study, as models see it, in PNG
``POST /TOKEN/save``           the review of one draft; answered with the new state, or why it cannot be kept; 409 if
                               it was changed elsewhere, 507 if the file cannot be written
``GET  /proof?NONCE``          HMAC-SHA256 of the nonce under the key, without a token
=============================  =====================================================================================

Once the server has ended, any user of the machine can listen at its port while the page is still open. Therefore the
page asks for a proof before each request, and token and key are new at each start.
"""

import contextlib
import hmac
import io
import json
import secrets
import socket
import string
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import filelock
from pydantic import ValidationError

from medtasks.curate.drafts import Draft, read_drafts
from medtasks.curate.pairs.pair_drafts import PairReply, broken_rules
from medtasks.curate.review.reviews import (
    ASPECTS,
    HALLUCINATIONS,
    HIGHEST,
    LOWEST,
    PASSING,
    ItemReview,
    Review,
    complete_review,
    empty_review,
    problems,
    read_review,
    review_file,
)
from medtasks.curate.study import (
    Study,
    StudyImage,
    StudyRecord,
    read_images,
    read_study,
    write_private,
)
from medtasks.data.images.decoding import LINEAR, decode_image
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError

HOST = "127.0.0.1"
LARGEST_BODY = 1_000_000
_PROOF = "/proof"
# Media types of the page, whose path is empty, and of the files that it loads.
_PAGE = {"": "text/html", "review_page.js": "text/javascript", "review_page.css": "text/css"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
}
# Most connections without the token. Idle ones of others would use up the process's file descriptors.
_MOST_STRANGERS = 32


class Unfit(MedTasksError):
    """A review that cannot be kept, because of ``problems``: sentences by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(dict.fromkeys(problems.values())))
        self.problems = problems


class ChangedElsewhere(MedTasksError):
    """The file no longer holds the version that a change was made from."""


class ReviewerFile:
    """The review of a study's drafts by one reviewer. :func:`open_reviewer_file` makes it, and threads may share it."""

    def __init__(self, folder: Path, reviewer: str) -> None:
        self.reviewer = reviewer
        self.study: Study = read_study(folder)
        self.drafts: dict[str, Draft] = read_drafts(folder)
        self.images: dict[str, StudyImage] = read_images(folder)
        self.path = review_file(folder, reviewer)
        self._review = Review(study=self.study.digest, reviewer=reviewer)
        if self.path.exists():
            self._review = read_review(self.path, self.study)
        self._lock = threading.Lock()
        self._open = True
        if not self.drafts:
            raise MedTasksError(
                f"{folder} has no drafts to review yet; make them with 'medtasks curate draft {folder}'"
            )
        lost = 0
        for draft in self.drafts.values():
            lost += sum(image not in self.images for image in draft.images)
        if lost:
            raise MedTasksError(
                f"{lost} images of drafts are not in {folder}; make the study again in another folder"
            )

    def review(self, item: str) -> ItemReview:
        """Return the review of a draft in its present form.

        Args:
            item: Id of the draft.
        """
        draft = self.drafts[item]
        review = self._review.items.get(item)
        if review is None or review.digest != draft.digest:
            return empty_review(draft)
        return review

    def save(self, item: str, review: ItemReview, made_from: str) -> None:
        """Write the review of a draft.

        Args:
            item: Id of the draft.
            review: As the reviewer left it.
            made_from: Version of the review that the reviewer changed.

        Raises:
            Unfit: The review cannot be kept.
            ChangedElsewhere: The draft or its review was changed meanwhile.
            MedTasksError: The review was ended, or the file cannot be written.
        """
        with self._lock:
            if not self._open:
                raise MedTasksError("the review was ended")
            draft = self.drafts[item]
            if review.digest != draft.digest:
                raise ChangedElsewhere("this question was drafted anew; load the page again")
            causes = problems(draft, review)
            if causes:
                raise Unfit(causes)
            new = complete_review(draft, review)
            old = self.review(item)
            if new == old:
                return
            if made_from != old.version:
                raise ChangedElsewhere(
                    "this question was changed elsewhere, in another tab for example"
                )
            items = {**self._review.items, item: new}
            if new == empty_review(draft):
                del items[item]
            # In the order of the study, so that equal judgements are equal files whatever came first.
            ordered = {item: items.pop(item) for item in self.drafts if item in items}
            saved = self._review.model_copy(update={"items": {**ordered, **items}})
            write_private(self.path, saved.model_dump_json(indent=1) + "\n")
            self._review = saved

    def summary(self) -> str:
        """Describe the reviewer's progress in one sentence."""
        scored = low = 0
        for item in self.drafts:
            review = self.review(item)
            scored += review.scores is not None
            scores = [judgement.score for judgement in review.judgements]
            low += any(score is not None and score < PASSING for score in scores)
        return f"{self.reviewer}: {scored} of {len(self.drafts)} drafts scored, {low} below {PASSING}"

    def close(self) -> None:
        """Wait for a change that is being written, and take no other."""
        with self._lock:
            self._open = False


@contextlib.contextmanager
def open_reviewer_file(folder: Path, reviewer: str) -> Iterator[ReviewerFile]:
    """Yield a reviewer's file that no other process works on meanwhile.

    Args:
        folder: Folder of the study.
        reviewer: Name of the reviewer.

    Raises:
        MedTasksError: Another process works on it, or the study has no drafts or is damaged.
    """
    path = review_file(folder, reviewer)
    read_study(folder)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with filelock.FileLock(path.with_name(f".{reviewer}.lock"), mode=0o600, blocking=False):
            file = ReviewerFile(folder, reviewer)
            try:
                yield file
            finally:
                file.close()
    except filelock.Timeout:
        raise MedTasksError(
            f"{path} is being reviewed by another process; end that one (Ctrl-C), or take another name with --reviewer"
        ) from None


class _Saving(StudyRecord):
    """Body of a request to save."""

    item: str
    version: str  # version of the review that the page has changed
    said: ItemReview


class ReviewServer(ThreadingHTTPServer):
    """Server of the page for one reviewer, at the given port, or at any free one if that is None."""

    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = False  # after its end the system keeps the port from others for a minute, even after a crash

    def __init__(self, file: ReviewerFile, port: int | None = None) -> None:
        try:
            super().__init__((HOST, port or 0), _Handler)
        except OSError as error:
            raise MedTasksError(
                f"cannot listen on port {port}: {error.strerror or error}; give another --port, or wait a minute"
            ) from None
        self.file = file
        self.token = secrets.token_urlsafe(24)
        self.key = secrets.token_urlsafe(24)
        # Address to open in a browser.
        self.url = f"http://{HOST}:{self.server_port}/{self.token}/"
        # Connections that have not shown the token, the oldest first.
        self.strangers: dict[socket.socket, None] = {}
        self.decoding = threading.Lock()  # one large image in memory at a time

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that did not wait, for example for an image of a question that was left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, or wait a moment: a lack of file descriptors would otherwise be an endless loop."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.05)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and disconnect the oldest stranger if there are too many."""
        self.strangers[request] = None
        for oldest in list(self.strangers)[:-_MOST_STRANGERS]:
            self.strangers.pop(oldest, None)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def study(self) -> dict[str, Any]:
        """Return all that the page needs but images."""
        file = self.file
        used = set[str]()
        items = []
        for item, draft in file.drafts.items():
            used.update(draft.images)
            items.append(
                {"id": item, "draft": draft.model_dump(mode="json"), **self.state(item)}
            )
        images = {}
        for name, image in file.images.items():
            if name in used:
                images[name] = {"text": image.text, "context": dict(image.context)}
        return {
            "key": self.key,
            "name": file.study.name,
            "kind": file.study.kind,
            "reviewer": file.reviewer,
            "aspects": ASPECTS,
            "scores": [LOWEST, HIGHEST],
            "passing": PASSING,
            "hallucinations": HALLUCINATIONS,
            "images": images,
            "items": items,
        }

    def state(self, item: str) -> dict[str, Any]:
        """Return the review of a draft, its version, and the drafting rules of pairs that its wording breaks.

        Args:
            item: Id of the draft.
        """
        review = self.file.review(item)
        remarks = list[str]()
        if len(self.file.drafts[item].images) == 2:
            texts = dict(zip(string.ascii_uppercase, review.options, strict=False))
            first, second = (texts.get(answer, answer) for answer in review.answers)
            options = (review.options[0], review.options[1])
            rules = broken_rules(PairReply(review.question, options, (first, second)))
            remarks = [f"{rule[0].upper()}{rule[1:]}." for rule in rules]
        return {
            "said": review.model_dump(mode="json"),
            "version": review.version,
            "remarks": remarks,
        }


class _Refused(Exception):
    """An error status and its JSON content."""

    def __init__(self, status: int, **content: Any) -> None:
        self.status = status
        self.content = content


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    server_version = "medtasks"
    sys_version = ""
    timeout = 60  # seconds without a request

    def log_message(self, *args: object) -> None:
        """Log nothing: the address holds the token."""

    def do_GET(self) -> None:
        """Answer a request of either method. Each refusal is answered in JSON and ends the connection."""
        try:
            try:
                address = urlsplit(self.path)
            except ValueError:
                raise _Refused(400, error="this is no address") from None
            path = self._allowed_path(address.path)
            if self.command == "POST":
                self._post(path)
            else:
                self._get(path, address.query)
        except _Refused as refused:
            self.close_connection = True  # a body may be left unread
            self._send(
                json.dumps(refused.content).encode(), "application/json", status=refused.status
            )

    do_POST = do_GET

    def _allowed_path(self, address: str) -> str:
        """Return the part of an address after the token, or the path of the proof.

        Raises:
            _Refused: The request is a stranger's.
        """
        port = self.server.server_port
        hosts = {f"{HOST}:{port}", f"localhost:{port}"}
        token, _, path = address.removeprefix("/").partition("/")
        has_token = secrets.compare_digest(
            token.encode(errors="replace"), self.server.token.encode()
        )
        origin = self.headers.get("Origin")
        is_ours = origin in {None, f"http://{HOST}:{port}", f"http://localhost:{port}"}
        # The address may be opened from anywhere, all else comes from the page itself.
        is_cross_site = self.headers.get("Sec-Fetch-Site") == "cross-site"
        is_foreign = is_cross_site and self.headers.get("Sec-Fetch-Mode") != "navigate"
        is_known = has_token or address == _PROOF
        if not is_known or not is_ours or is_foreign or self.headers.get("Host") not in hosts:
            raise _Refused(403, error="open the address that the command has printed")
        if not has_token:
            return _PROOF
        self.server.strangers.pop(self.connection, None)
        return path

    def _get(self, path: str, query: str) -> None:
        """Answer a GET request.

        Args:
            path: Path after the token, or that of the proof.
            query: Text after ``?``: ``id=`` and an image's id, or the nonce of a proof.

        Raises:
            _Refused: There is no such page or image, or the image cannot be used.
        """
        if path in _PAGE:
            file = files("medtasks.curate.review") / (path or "review_page.html")
            self._send(file.read_bytes(), f"{_PAGE[path]}; charset=utf-8")
        elif path == "study":
            self._send(json.dumps(self.server.study()).encode(), "application/json")
        elif path == "image":
            self._send_image("".join(parse_qs(query).get("id", [])))
        elif path == _PROOF:
            proof = hmac.digest(
                self.server.key.encode(), query.encode(errors="replace"), "sha256"
            )
            self._send(proof, "application/octet-stream")
        else:
            raise _Refused(404, error="there is no such page")

    def _send_image(self, image_id: str) -> None:
        """Send an image of the study as PNG, and what was done to its pixels in the header ``X-Conversions``.

        Raises:
            _Refused: The study has no such image, or its file is missing, changed or unreadable.
        """
        image = self.server.file.images.get(image_id)
        if image is None:
            raise _Refused(404, error="the study has no such image")
        png = io.BytesIO()
        try:
            with self.server.decoding:
                decoded_image = decode_image(io.BytesIO(image.read()), LINEAR)
                decoded_image.pixels.save(png, "PNG", compress_level=1)
        except UnreadableImage as error:
            raise _Refused(422, error=str(error)) from None
        self._send(
            png.getvalue(),
            "image/png",
            {"X-Conversions": quote("; ".join(decoded_image.conversions))},
        )

    def _post(self, path: str) -> None:
        """Save the review of one draft, and answer with the new state of the draft, or with the problems of its fields.

        Raises:
            _Refused: The request is malformed, the draft was changed meanwhile, or the file cannot be written.
        """
        length = self.headers.get("Content-Length", "")
        if path != "save":
            raise _Refused(404, error="there is no such page")
        if not length.isdecimal():
            raise _Refused(411, error="the length of the body is missing")
        # Python reads no number of thousands of digits.
        if len(length) > 9 or int(length) > LARGEST_BODY:
            raise _Refused(
                413, error=f"the texts are longer than {LARGEST_BODY:,} characters together"
            )
        if self.headers.get_content_type() != "application/json":
            raise _Refused(415, error="the body is not JSON")
        try:
            saving = _Saving.model_validate_json(self.rfile.read(int(length)))
        except ValidationError:
            raise _Refused(400, error="the body is not what the page sends") from None
        if saving.item not in self.server.file.drafts:
            raise _Refused(404, error="the study has no such question")
        try:
            self.server.file.save(saving.item, saving.said, saving.version)
            content = self.server.state(saving.item)
        except Unfit as unfit:
            # A text is empty while it is being edited: no error that a browser should log.
            content = {"problems": unfit.problems}
        except ChangedElsewhere as error:
            raise _Refused(409, error=str(error), **self.server.state(saving.item)) from None
        except MedTasksError as error:
            raise _Refused(507, error=str(error)) from None
        self._send(json.dumps(content).encode(), "application/json")

    def _send(
        self,
        body: bytes,
        kind: str,
        more: Mapping[str, str] = {},
        status: int = 200,
    ) -> None:
        """Answer the request.

        Args:
            body: Content of the answer.
            kind: Media type of the body.
            more: Further headers.
            status: Status code of HTTP.
        """
        self.send_response(status)
        sizes = {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in {**_HEADERS, **sizes, **more}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
