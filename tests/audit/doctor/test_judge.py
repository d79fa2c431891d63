"""The judge, against a real server on this machine that misbehaves in every way."""

import json
import socket
import threading

import pytest

from medtasks.audit.doctor import judge_check as checks
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.judge_check import judge

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


def test_judge_that_no_chosen_task_asks_is_not_reached_for(configured, scope):
    assert list(judge(scope("mediconfusion"))) == []
    assert configured.requests == []


@pytest.mark.parametrize("listed", [MODEL, f"models/{MODEL}", f"{MODEL}:latest"])
def test_judge_that_answers(configured, everything, listed):
    configured.offer("other", listed)
    expect(asked(everything), State.OK, MODEL)
    ((method, path, headers),) = configured.requests
    assert (method, path, headers["authorization"]) == ("GET", MODELS, f"Bearer {KEY}")


def test_wrong_model(configured, everything):
    configured.offer("judge-70b", "other", f"{KEY} judge-7b")
    expect(
        asked(everything),
        State.PROBLEM,
        f"no model '{MODEL}' among its 3; did you mean 'judge-70b'?",
        called="model",
        fix="MEDTASKS_JUDGE_MODEL",
    )


def test_what_an_endpoint_calls_its_models_is_not_trusted(configured, everything):
    configured.offer(f"{MODEL}\x1b[2J", f"{MODEL} {KEY}", f"{MODEL}\n")
    assert asked(everything).found.endswith("among its 3")


def test_models_that_are_not_listed(configured, everything):
    configured.offer()
    expect(asked(everything), State.WARNING, "lists no models", called="model")
    configured.answers[MODELS] = (403, "{}")
    expect(asked(everything), State.WARNING, "HTTP 403", called="model", fix="MEDTASKS_JUDGE_API_KEY")


@pytest.mark.parametrize(
    ("status", "state", "word", "fix"),
    [
        (401, State.PROBLEM, "HTTP 401", "MEDTASKS_JUDGE_API_KEY"),
        (307, State.PROBLEM, "redirects", "MEDTASKS_JUDGE_BASE_URL"),
        (429, State.WARNING, "limits the rate", "later"),
        (429, State.PROBLEM, "quota", ""),
        (500, State.PROBLEM, "HTTP 500", "later"),
        (400, State.PROBLEM, "HTTP 400", "later"),
    ],
)
def test_status(configured, everything, status, state, word, fix):
    code = "insufficient_quota" if word == "quota" else None
    configured.answers[MODELS] = (status, json.dumps({"error": {"message": f"bad key {KEY}", "code": code}}))
    expect(asked(everything), state, word, called="reply", fix=fix)
    assert len(configured.requests) == 1  # neither repeated nor redirected


@each_row("status", [404, 405, 501])
def test_endpoint_without_a_list_of_models_or_a_wrong_address(configured, everything, status):
    configured.answers[MODELS] = (status, "{}")
    expect(asked(everything), State.WARNING, f"no list of models (HTTP {status})", called="model", fix="/v1")
    assert {method for method, *_ in configured.requests} == {"GET"}


@each_row("text", ["<html>a page for people</html>", '"text"', "[]", "null", "{}", "{"])
def test_what_is_no_judge(configured, everything, text):
    configured.answers[MODELS] = (200, text)
    expect(asked(everything), State.PROBLEM, "no list of models", called="reply")


def test_slow_judge(configured, everything, monkeypatch):
    monkeypatch.setattr(checks, "TIMEOUT_S", 0.3)
    configured.answers[MODELS] = (200, None)
    expect(asked(everything), State.PROBLEM, "did not answer within 0.3 s", called="reply")


def test_users_shorter_time_counts(configured, everything, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_TIMEOUT", "0.2")
    configured.answers[MODELS] = (200, None)
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
        ("MEDTASKS_JUDGE_BASE_URL", ""),
        ("MEDTASKS_JUDGE_MODEL", ""),
        ("MEDTASKS_JUDGE_API_KEY", f"{KEY}\u20ac"),
        ("MEDTASKS_JUDGE_TEMPERATURE", "warm"),
        ("MEDTASKS_JUDGE_CONCURRENCY", "0"),
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


def test_remote_judge_may_not_see_credentialed_data(remote, scope):
    found = list(judge(scope("medheval_visual_report")))
    refused = only(found, "access")
    assert refused.state is State.PROBLEM
    assert "'medheval_visual_report' is credentialed" in refused.found
    assert "MEDTASKS_TRUSTED_JUDGE=https://judge.example:443" in refused.fix
    assert remote == []  # a judge that no chosen task may ask is left alone


def test_remote_judge_may_see_public_data(remote, scope):
    assert [one.state for one in judge(scope("mediconfusion_ff"))] == [State.OK, State.OK]
    assert len(remote) == 1


def test_remote_judge_without_tasks(remote, everything):
    from medtasks.audit.doctor.check_results import scope_of

    found = list(judge(scope_of([])))
    assert only(found, "access").state is State.NOTE
    assert "medheval_knowledge_open" in only(found, "access").found
    assert only(found, "reply").state is State.OK


def test_trusted_judge(remote, scope, monkeypatch):
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", REMOTE)
    assert [one.state for one in judge(scope("medheval_visual_report"))] == [State.OK, State.OK]


def test_malformed_trust(remote, scope, monkeypatch):
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", "judge.example")
    expect(only(judge(scope("medheval_visual_report")), "access"), State.PROBLEM, "MEDTASKS_TRUSTED_JUDGE")
