import contextlib
import errno
import hmac
import http.client
import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import pytest
from PIL import Image

from medtasks.curate.review.review_server import LARGEST_BODY, ReviewServer, open_reviewer_file
from medtasks.curate.review.reviews import (
    Judgement,
    Review,
    read_review,
    read_reviews,
    review_file,
)
from medtasks.errors import MedTasksError

from ...tables import each_row, tables_of
from ..reviewed_study import SIDE, captioned_study, pairs_study

TABLES = tables_of(__file__)
_REUSABLE = """
import runpy
from medtasks.curate.review.review_server import ReviewServer
ReviewServer.allow_reuse_address = True
runpy.run_module("medtasks.cli.main", run_name="__main__")
"""
JSON = {"Content_Type": "application/json"}
SCORES = [{"score": 8}, {"score": 6, "language": False}]


def start_review(folder, files=None, *, port_is_free_at_once=False):
    """Start a review by ``anna``, with at most ``files`` open files; return it and its address once it serves.

    The system keeps the port from others for a minute after its end, unless ``port_is_free_at_once``.
    """
    started = [
        sys.executable,
        *(("-c", _REUSABLE) if port_is_free_at_once else ("-m", "medtasks.cli.main")),
    ]
    command = [*started, "curate", "review", str(folder), "--reviewer", "anna"]
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    process = subprocess.Popen(
        [*limited, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", lines[0])
    assert address is not None, lines
    with urllib.request.urlopen(f"{address.group()}study", timeout=300) as reply:
        assert reply.status == 200
    return process, address.group()


@contextlib.contextmanager
def reviewing(folder, reviewer="anna", **settings):
    with open_reviewer_file(folder, reviewer) as file, ReviewServer(file, **settings) as server:
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    pairs_study(folder)
    with reviewing(folder, "shared") as server:
        yield server


def ask(server, path, method="GET", body=None, token=None, **headers):
    """Return status, headers and body; of names of headers ``_`` becomes ``-``."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    with contextlib.closing(line):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        line.request(method, f"/{server.token if token is None else token}/{path}", body, named)
        reply = line.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()


def save(server, item, version=None, **changes):
    said = server.file.review(item).model_dump(mode="json") | changes
    body = json.dumps(
        {"item": item, "version": version or server.file.review(item).version, "said": said}
    )
    status, _, reply = ask(server, "save", "POST", body, **JSON)
    return status, json.loads(reply)


def test_it_listens_on_the_loopback_alone_and_answers_nothing_without_the_token(server):
    assert server.server_address[0] == "127.0.0.1"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", server.url)
    tokens = ("", "x", server.token[:-1], server.token.swapcase(), f"{server.token}x")
    paths = ("", "study", "image?id=im1", "review_page.js", "save", "nothing")
    for token, path in itertools.product(tokens, paths):
        status, _, body = ask(server, path, token=token)
        assert (status, b"im1" in body) == (403, False), (token, path)


@each_row("headers", TABLES["pages_of_others_are_refused_even_with_the_token"])
def test_pages_of_others_are_refused_even_with_the_token(server, headers):
    named = {name: value.format(port=server.server_port) for name, value in headers.items()}
    assert [ask(server, path, **named)[0] for path in ("", "study", "image?id=im1")] == [
        403
    ] * 3
    assert ask(server, "save", "POST", "{}", **JSON, **named)[0] == 403


def test_only_known_paths_are_served_and_nothing_is_kept_nor_shared_nor_loaded_from_outside(
    server,
):
    for path in TABLES["only_known_paths_and_images_of_the_study_are_served"]:
        assert ask(server, path)[0] == 404, path
    for path in ("", "review_page.css", "study", "image?id=im2", "nothing"):
        _, headers, _ = ask(server, path)
        assert headers["Cache-Control"] == "no-store"
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self';"
        )
        assert headers["Referrer-Policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("Access-Control")]
        assert "Python" not in headers["Server"]
    assert [
        ask(server, "study", method)[0]
        for method in ("PUT", "DELETE", "OPTIONS", "HEAD", "TRACE")
    ] == [501] * 5
    with socket.create_connection(server.server_address, timeout=300) as line:
        line.sendall(b"GET http://[ HTTP/1.1\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 400 ")


def test_images_are_shown_as_models_see_them_and_faults_without_their_path(server, tmp_path):
    for image in ("im1", "im3"):  # one in a format that browsers do not show
        status, headers, body = ask(server, f"image?id={image}")
        shown = Image.open(io.BytesIO(body))
        assert (status, headers["Content-Type"], shown.format, shown.size) == (
            200,
            "image/png",
            "PNG",
            (SIDE, SIDE),
        )
    pairs_study(tmp_path)
    (tmp_path / "drawn" / "im1.png").write_bytes((tmp_path / "drawn" / "im2.png").read_bytes())
    (tmp_path / "drawn" / "im2.png").unlink()
    with reviewing(tmp_path) as other:
        for image, sentence in (
            ("im1", "changed since the study was made"),
            ("im2", "No such file"),
        ):
            status, _, body = ask(other, f"image?id={image}")
            assert (status, sentence in json.loads(body)["error"]) == (422, True)
            assert str(tmp_path).encode() not in body


def test_the_study_holds_what_the_page_shows_and_nobody_elses_word(server):
    with reviewing(server.file.path.parent.parent, "other") as other:
        assert save(other, "p1", note="of somebody else", judgements=SCORES)[0] == 200
        study = json.loads(ask(server, "study")[2])
        assert (other.key, other.token) != (study["key"], server.token)
        assert (
            ask(other, "study", token=server.token)[0] == 403
        )  # each start has a token of its own
    assert [item["id"] for item in study["items"]] == ["p1", "p2", "p3"]
    assert study["images"]["im1"]["text"].startswith("Radiograph 1")
    assert not any(text in json.dumps(study) for text in ("somebody else", "/drawn/"))
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/proof?nonce") as reply:
        assert reply.read() == hmac.digest(study["key"].encode(), b"nonce", "sha256")


def test_what_cannot_be_kept_is_said_by_field_and_what_another_tab_changed_is_given_back(
    server,
):
    assert save(server, "p1", note="\ud800")[0] == 400
    assert save(server, "p1", mood="good")[0] == 400
    unknown = json.dumps(
        {"item": "p9", "version": "", "said": server.file.review("p1").model_dump(mode="json")}
    )
    assert ask(server, "save", "POST", unknown, **JSON)[0] == 404
    assert save(server, "p1", question="") == (
        200,
        {"problems": {"question": "the question is empty"}},
    )
    assert server.file.review("p1").question
    old = server.file.review("p3").version
    assert (
        save(server, "p3", note="one tab")[0]
        == save(server, "p3", version=old, note="one tab")[0]
        == 200
    )  # a retry
    status, reply = save(server, "p3", version=old, note="another tab")
    assert (status, reply["said"]["note"]) == (409, "one tab")
    status, reply = save(server, "p3", digest="0" * 16)
    assert (status, reply["error"]) == (
        409,
        "this question was drafted anew; load the page again",
    )


@each_row(
    "body, headers, status",
    [
        *((body, {}, 400) for body in ("{", "[]", "null", "[" * 100_000, b"\xff\xfe")),
        ('{"item": "p1", "version": "", "said": {}}', {}, 400),
        ("{}", {"Content_Type": "text/plain"}, 415),
        ("{}", {"Content_Length": "x"}, 411),
        ("{}", {"Content_Length": "-1"}, 411),
        ("{}", {"Content_Length": str(LARGEST_BODY + 1)}, 413),
        ("{}", {"Content_Length": "9" * 5000}, 413),
    ],
)
def test_bodies_that_the_page_does_not_send_are_refused(server, body, headers, status):
    assert ask(server, "save", "POST", body, **{**JSON, **headers})[0] == status


def test_a_full_disk_is_a_sentence_and_the_next_try_is_saved(tmp_path, monkeypatch):
    study = pairs_study(tmp_path)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with reviewing(tmp_path) as server:
        status, reply = save(
            server, "p1", judgements=SCORES, question=" Which side? ", note="before"
        )
        (review,) = read_reviews(
            tmp_path, study
        )  # on disk when it is answered, in the form of the file
        assert (status, reply["remarks"], reply["version"]) == (
            200,
            [],
            server.file.review("p1").version,
        )
        assert review.items["p1"].model_dump(mode="json") == reply["said"]
        assert review.items["p1"].question == "Which side?"
        assert review.items["p1"].judgements[1] == Judgement(
            score=6, correctness=True, relevance=True, language=False
        )
        with monkeypatch.context() as patch:
            patch.setattr("pathlib.Path.replace", full)
            status, reply = save(server, "p1", note="after")
            assert (status, "No space left" in reply["error"]) == (507, True)
            assert server.file.review("p1").note == "before"
        assert (
            save(server, "p1", note="after", question="Which of the images?")[1]["remarks"]
            != []
        )
    assert read_reviews(tmp_path, study)[0].items["p1"].note == "after"


def test_many_saves_at_once_are_all_in_the_file(tmp_path):
    study = pairs_study(tmp_path, pairs=12)
    notes = {f"p{number}": str(number) for number in range(1, 13)}
    with reviewing(tmp_path) as server:
        threads = [
            threading.Thread(target=save, args=(server, item), kwargs={"note": note})
            for item, note in notes.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {
        item: saved.note for item, saved in read_reviews(tmp_path, study)[0].items.items()
    } == notes


def check_end(process, folder, ending):
    process.send_signal(ending)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert out == f"anna: 0 of 3 drafts scored, 0 below 5; {folder}/reviews/anna.json\n"
    assert {path.name for path in (folder / "reviews").iterdir()} <= {".anna.lock"}


@each_row("ending", [signal.SIGTERM, signal.SIGHUP])
def test_a_review_ends_in_order_and_leaves_only_the_reviewers_file(tmp_path, ending):
    pairs_study(tmp_path)
    process, _ = start_review(tmp_path)
    check_end(process, tmp_path, ending)


def test_connections_of_strangers_do_not_keep_the_reviewer_out(tmp_path):
    pairs_study(tmp_path)
    process, address = start_review(tmp_path, files=128)
    port = int(address.split(":")[2].split("/")[0])
    own = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    path = address.partition(str(port))[2]
    with contextlib.ExitStack() as strangers:
        strangers.callback(process.kill)
        strangers.enter_context(contextlib.closing(own)).request("GET", f"{path}study")
        assert own.getresponse().read()
        idle = [
            strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(300)
        ]
        for line in idle[::2]:
            line.sendall(b"GET /proof HTTP/1.1\r\n")  # a request without an end
        with urllib.request.urlopen(f"{address}study", timeout=300) as reply:
            assert reply.status == 200
        idle[0].settimeout(300)
        assert idle[0].recv(1) == b""
        own.request(
            "GET", f"{path}image?id=im1"
        )  # the connection of the page is still the same
        assert own.getresponse().status == 200
        check_end(process, tmp_path, signal.SIGINT)


def test_files_of_reviewers_that_do_not_belong(tmp_path):
    study = captioned_study(tmp_path / "study", 2)
    with pytest.raises(MedTasksError, match="'a/b' cannot name a reviewer's file"):
        review_file(tmp_path, "a/b")
    path = tmp_path / "x.json"
    path.write_text('{"study": 1}')
    with pytest.raises(MedTasksError, match="is damaged at 'study'"):
        read_review(path, study)
    path.write_text(Review(study="another", reviewer="x").model_dump_json())
    with pytest.raises(MedTasksError, match="is of another study than"):
        read_review(path, study)
