"""The judge, against a real server on this machine that misbehaves in every way."""

import json
import socket
import threading

import pytest

from medtasks.audit.doctor import metric_models as checks
from medtasks.audit.doctor.check_results import State, scope_of
from medtasks.audit.doctor.metric_models import judge

from ...local_server import LocalServer, QuietHandler, serving
from ...tables import each_row
from .conftest import expect, only

KEY = "sk-canary-0123456789"
MODEL = "judge-7b"
MODELS = "/v1/models"


class Endpoint(LocalServer):
    """Answers each path with a status and a text; records every request."""

    def __init__(self):
        super().__init__(Handler)
        self.answers, self.requests, self.over = {}, [], threading.Event()

    def offer(self, *names):
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "x"} for name in names]
        self.answers[MODELS] = (200, json.dumps({"object": "list", "data": listed}))

    def handle_error(self, request, client_address):
        pass


class Handler(QuietHandler):
    def do_GET(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers))
        status, text = self.server.answers.get(self.path, (404, '{"error": {"message": "not found"}}'))
        if text is None:
            self.server.over.wait()
            return
        kind = "text/html" if text.startswith("<") else "application/json"
        elsewhere = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
        self.reply(status, text.encode(), Content_Type=kind, **elsewhere)


@pytest.fixture
def endpoint():
    with serving(Endpoint()) as server:
        yield server
        server.over.set()


@pytest.fixture
def configured(endpoint, monkeypatch):
    """The endpoint above as judge, with a key that must never be seen."""
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", f"http://127.0.0.1:{endpoint.server_port}/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", MODEL)
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", KEY)
    return endpoint


def asked(scope):
    """The one finding on what the endpoint answered."""
    settings, answer = judge(scope)
    assert settings.state is State.OK
    assert MODEL in settings.found
    assert KEY not in str((settings, answer))
    return only([answer])


def test_no_judge(scope, everything):
    assert only(judge(everything)).state is State.NOTE
    assert list(judge(scope("mediconfusion"))) == []
    expect(only(judge(scope("mediconfusion_all", "mediconfusion_ff"))), State.PROBLEM, "mediconfusion_ff cannot run")
    assert only(judge(scope("medheval_visual_report"))).state is State.WARNING


def test_judge_that_answers(configured, everything, scope):
    assert list(judge(scope("mediconfusion"))) == []  # no chosen task asks it
    for listed in (MODEL, f"models/{MODEL}", f"{MODEL}:latest"):
        configured.offer("other", listed)
        expect(asked(everything), State.OK, MODEL)
    requests = [(method, path, headers["authorization"]) for method, path, headers in configured.requests]
    assert requests == [("GET", MODELS, f"Bearer {KEY}")] * 3


def test_wrong_model(configured, everything):
    configured.offer("judge-70b", "other", f"{KEY} judge-7b")
    expect(
        asked(everything),
        State.PROBLEM,
        f"no model '{MODEL}' among its 3; did you mean 'judge-70b'?",
        called="model",
        fix="MEDTASKS_JUDGE_MODEL",
    )
    configured.offer(f"{MODEL}\x1b[2J", f"{MODEL} {KEY}", f"{MODEL}\n")  # what it calls its models is not trusted
    assert asked(everything).found.endswith("among its 3")


def test_models_that_are_not_listed(configured, everything):
    configured.offer()
    expect(asked(everything), State.WARNING, "lists no models", called="model")
    configured.answers[MODELS] = (403, "{}")
    expect(asked(everything), State.WARNING, "HTTP 403", called="model", fix="MEDTASKS_JUDGE_API_KEY")


ERROR = json.dumps({"error": {"message": f"bad key {KEY}", "code": None}})


@each_row(
    "status, text, state, word, name, fix",
    [
        (401, ERROR, State.PROBLEM, "HTTP 401", "reply", "MEDTASKS_JUDGE_API_KEY"),
        (307, ERROR, State.PROBLEM, "redirects", "reply", "MEDTASKS_JUDGE_BASE_URL"),
        (429, ERROR, State.WARNING, "limits the rate", "reply", "later"),
        (429, ERROR.replace("null", '"insufficient_quota"'), State.PROBLEM, "quota", "reply", ""),
        (500, ERROR, State.PROBLEM, "HTTP 500", "reply", "later"),
        (404, "{}", State.WARNING, "no list of models (HTTP 404)", "model", "/v1"),
        (501, "{}", State.WARNING, "no list of models (HTTP 501)", "model", "/v1"),
        *((200, text, State.PROBLEM, "no list of models", "reply", "") for text in ("<html>", '"text"', "null", "{}")),
    ],
)
def test_what_is_no_answer(configured, everything, status, text, state, word, name, fix):
    configured.requests.clear()
    configured.answers[MODELS] = (status, text)
    expect(asked(everything), state, word, called=name, fix=fix)
    assert [method for method, *_ in configured.requests] == ["GET"]  # neither repeated nor redirected


def test_slow_judge(configured, everything, monkeypatch):
    monkeypatch.setattr(checks, "TIMEOUT_S", 0.3)
    configured.answers[MODELS] = (200, None)
    expect(asked(everything), State.PROBLEM, "did not answer within 0.3 s", called="reply")
    monkeypatch.setenv("MEDTASKS_JUDGE_TIMEOUT", "0.2")  # a shorter time of the user's counts
    assert "within 0.2 s" in asked(everything).found


def test_no_connection(configured, everything, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        expect(asked(everything), State.PROBLEM, "Connection refused", fix="MEDTASKS_JUDGE_BASE_URL")
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", f"https://127.0.0.1:{configured.server_port}/v1")
    expect(asked(everything), State.PROBLEM, "SSL", fix="MEDTASKS_JUDGE_BASE_URL")

    def unknown(*arguments, **rest):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.invalid/v1")
    found = list(judge(everything))
    expect(only(found, "reply"), State.PROBLEM, "judge.invalid", "Name or service not known")
    assert KEY not in str(found)


@each_row(
    "name, value",
    [
        ("MEDTASKS_JUDGE_BASE_URL", "127.0.0.1:8000"),
        ("MEDTASKS_JUDGE_BASE_URL", f"https://user:{KEY}@host/v1"),
        ("MEDTASKS_JUDGE_MODEL", ""),
        ("MEDTASKS_JUDGE_TEMPERATURE", "warm"),
    ],
)
def test_impossible_settings(configured, everything, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    found = expect(only(judge(everything)), State.PROBLEM, name, called="settings")
    assert KEY not in str(found)
    assert configured.requests == []


REMOTE = "https://judge.example/v1"


@pytest.fixture
def remote(configured, monkeypatch):
    """A judge on another machine; what it answers is not looked at."""
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", REMOTE)
    answered = []

    def answer(settings):
        answered.append(settings)
        return checks.CheckResult("judge", "reply", State.OK, "it answers")

    monkeypatch.setattr(checks, "_answer", answer)
    return answered


def test_remote_judge_and_credentialed_data(remote, scope, monkeypatch):
    refused = only(judge(scope("medheval_visual_report")), "access")
    expect(refused, State.PROBLEM, "'medheval_visual_report' is credentialed")
    assert "MEDTASKS_TRUSTED_JUDGE=https://judge.example:443" in refused.fix
    assert remote == []  # a judge that no chosen task may ask is left alone
    assert [one.state for one in judge(scope("mediconfusion_ff"))] == [State.OK, State.OK]
    found = list(judge(scope_of([])))
    expect(only(found, "access"), State.NOTE, "medheval_knowledge_open")
    assert only(found, "reply").state is State.OK
    assert len(remote) == 2
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", REMOTE)
    assert [one.state for one in judge(scope("medheval_visual_report"))] == [State.OK, State.OK]
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", "judge.example")
    expect(only(judge(scope("medheval_visual_report")), "access"), State.PROBLEM, "MEDTASKS_TRUSTED_JUDGE")
