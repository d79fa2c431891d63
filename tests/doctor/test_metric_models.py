"""The served model, and models of metrics: weights, WordNet, the labeler and the judge, on servers that misbehave."""

import json
import socket
import threading
from unittest.mock import AsyncMock, Mock

import pytest

from medtasks.doctor import metric_models as checks
from medtasks.doctor import served_model as served
from medtasks.doctor.check_results import State, scope_of
from medtasks.doctor.metric_models import judge, metric_weights
from medtasks.doctor.served_model import served_model
from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.metrics import missing_weights
from medtasks.metrics.missing_weights import fetch_command
from medtasks.metrics.model_settings import WEIGHTS, weights_folder

from ..local_server import LocalServer, QuietHandler, serving
from ..model_adapters.served_model import CHAT, ServedModel
from ..tables import each_row
from .findings import EVERYTHING, expect, only, states

REPORT, LABELS = (
    scope_of(["multimedeval_mimic_cxr_report"]),
    scope_of(["multimedeval_mimic_cxr_classification"]),
)
PAIRS, FREE_FORM = scope_of(["mediconfusion"]), scope_of(["mediconfusion_ff"])
CREDENTIALED = scope_of(["medheval_visual_report"])


def put(*names):
    for name in names:
        weights_folder(name).mkdir(parents=True)
        for file in WEIGHTS[name].files:
            (weights_folder(name) / file).write_text("")


def test_weights(monkeypatch):
    monkeypatch.setattr(
        missing_weights,
        "load_wordnet",
        Mock(side_effect=WeightsMissing("WordNet is nowhere; fetch it")),
    )
    monkeypatch.setattr(
        missing_weights,
        "tokenizer_command",
        Mock(side_effect=WeightsMissing("no Java; install it with: apt")),
    )
    names = (
        "distilroberta-base",
        "chexbert",
        "bert-base-uncased",
        "radgraph",
        "pubmedbert",
        "wordnet",
    )
    assert states(metric_weights(REPORT)) == dict.fromkeys(names, State.WARNING)
    expect(
        only(metric_weights(REPORT), "radgraph"),
        State.WARNING,
        fix="medtasks weights fetch radgraph",
    )
    assert fetch_command(["bleu", "meteor"]) == "medtasks weights fetch wordnet"
    assert set(states(metric_weights(LABELS))) == {"chexbert", "bert-base-uncased"}
    monkeypatch.setenv("MEDTASKS_LABELER", "somewhere:build")
    assert list(metric_weights(LABELS)) == []
    put("radgraph")
    finding = expect(
        only(metric_weights(EVERYTHING)), State.NOTE, f"1 of {len(WEIGHTS) + 2} ", fix="wordnet"
    )
    assert " radgraph " not in finding.fix
    finding = only(metric_weights(scope_of(["medevalkit_iu_xray_report"])), "ptb-tokenizer")
    assert (finding.state, finding.found, finding.fix) == (
        State.WARNING,
        "no Java",
        "install it with: apt",
    )
    assert "ptb-tokenizer" not in fetch_command(["cider_d", "meteor"])
    monkeypatch.setattr(missing_weights, "load_wordnet", lambda: None)
    assert states(metric_weights(REPORT)) == {
        **dict.fromkeys(names, State.WARNING),
        **dict.fromkeys(("radgraph", "wordnet"), State.OK),
    }
    put(*set(WEIGHTS) - {"radgraph"})
    expect(
        only(metric_weights(EVERYTHING)),
        State.NOTE,
        "missing ptb-tokenizer",
        fix="install it with: apt",
    )
    monkeypatch.setattr(missing_weights, "tokenizer_command", list)
    assert only(metric_weights(EVERYTHING)).state is State.OK
    assert fetch_command(["meteor", "radgraph"]) == ""
    assert list(metric_weights(PAIRS)) == []
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float8")
    assert list(metric_weights(PAIRS)) == []
    expect(list(metric_weights(EVERYTHING))[-1], State.PROBLEM, "float8")


KEY = "sk-canary-0123456789"
MODEL = "judge-7b"
ERROR = json.dumps({"error": {"message": f"bad key {KEY}", "code": None}})


class Endpoint(LocalServer):
    """Answers every request for models with a status and a text, or never; records all requests."""

    def offer(self, *names):
        self.answer = (
            200,
            json.dumps({"object": "list", "data": [{"id": name} for name in names]}),
        )

    def handle_error(self, request, client_address):
        pass


class Handler(QuietHandler):
    def do_GET(self):
        self.server.requests.append((self.path, self.headers["Authorization"]))
        status, text = self.server.answer
        if text is None:
            self.server.over.wait()
            return
        kind = "text/html" if text.startswith("<") else "application/json"
        elsewhere = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
        self.reply(status, text.encode(), Content_Type=kind, **elsewhere)


@pytest.fixture
def endpoint(monkeypatch):
    """A judge with a key that must never be seen."""
    with serving(Endpoint(Handler)) as server:
        server.requests, server.over = [], threading.Event()
        server.offer(MODEL)
        monkeypatch.setenv(
            "MEDTASKS_JUDGE_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1"
        )
        monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", MODEL)
        monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", KEY)
        yield server
        server.over.set()


def reply_of_judge():
    settings, answer = judge(EVERYTHING)
    expect(settings, State.OK, MODEL)
    assert KEY not in str((settings, answer))
    return only([answer])


def test_no_judge():
    assert only(judge(EVERYTHING)).state is State.NOTE
    assert list(judge(PAIRS)) == []
    expect(
        only(judge(scope_of(["mediconfusion_all", "mediconfusion_ff"]))),
        State.PROBLEM,
        "mediconfusion_ff cannot",
    )
    assert only(judge(CREDENTIALED)).state is State.WARNING


def test_models_of_the_judge_a_slow_one_and_none_at_the_address(endpoint, monkeypatch):
    assert list(judge(PAIRS)) == []  # no chosen task asks it
    for listed in (MODEL, f"models/{MODEL}", f"{MODEL}:latest"):
        endpoint.offer("other", listed)
        expect(reply_of_judge(), State.OK, MODEL)
    assert endpoint.requests == [("/v1/models", f"Bearer {KEY}")] * 3
    endpoint.offer("judge-70b", "other", f"{KEY} judge-7b")
    unknown = f"no model '{MODEL}' among its 3; did you mean 'judge-70b'?"
    expect(reply_of_judge(), State.PROBLEM, unknown, called="model", fix="MEDTASKS_JUDGE_MODEL")
    endpoint.offer(
        f"{MODEL}\x1b[2J", f"{MODEL} {KEY}", f"{MODEL}\n"
    )  # what it calls its models is not trusted
    assert reply_of_judge().found.endswith("among its 3")
    endpoint.offer()
    expect(reply_of_judge(), State.WARNING, "lists no models", called="model")
    monkeypatch.setattr(checks, "TIMEOUT_S", 0.3)
    endpoint.answer = (200, None)
    expect(reply_of_judge(), State.PROBLEM, "did not answer within 0.3 s", called="reply")
    monkeypatch.setenv("MEDTASKS_JUDGE_TIMEOUT", "0.2")  # a shorter time of the user's counts
    assert "within 0.2 s" in reply_of_judge().found
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv(
            "MEDTASKS_JUDGE_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        )
        expect(
            reply_of_judge(), State.PROBLEM, "Connection refused", fix="MEDTASKS_JUDGE_BASE_URL"
        )


@each_row(
    "status, text, state, word, name, fix",
    [
        (401, ERROR, State.PROBLEM, "HTTP 401", "reply", "MEDTASKS_JUDGE_API_KEY"),
        (307, ERROR, State.PROBLEM, "redirects", "reply", "MEDTASKS_JUDGE_BASE_URL"),
        (429, ERROR, State.WARNING, "limits the rate", "reply", "later"),
        (
            429,
            ERROR.replace("null", '"insufficient_quota"'),
            State.PROBLEM,
            "quota",
            "reply",
            "",
        ),
        (404, "{}", State.WARNING, "no list of models (HTTP 404)", "model", "/v1"),
        *(
            (200, text, State.PROBLEM, "no list of models", "reply", "")
            for text in ("<html>", '"text"', "{}")
        ),
    ],
)
def test_what_is_no_answer(endpoint, status, text, state, word, name, fix):
    endpoint.requests.clear()
    endpoint.answer = (status, text)
    expect(reply_of_judge(), state, word, called=name, fix=fix)
    assert len(endpoint.requests) == 1  # neither repeated nor redirected


@each_row(
    "name, value",
    [("BASE_URL", f"https://user:{KEY}@host/v1"), ("MODEL", ""), ("TEMPERATURE", "warm")],
)
def test_impossible_settings(endpoint, monkeypatch, name, value):
    monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
    finding = expect(
        only(judge(EVERYTHING)), State.PROBLEM, f"MEDTASKS_JUDGE_{name}", called="settings"
    )
    assert KEY not in str(finding)
    assert endpoint.requests == []


def test_remote_judge_and_credentialed_data(endpoint, monkeypatch):
    remote, asked = "https://judge.example/v1", []
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", remote)
    monkeypatch.setattr(
        checks,
        "_answer",
        lambda settings: asked.append(settings) or checks.JUDGE.ok("reply", "yes"),
    )
    refused = only(judge(CREDENTIALED), "access")
    trust = "MEDTASKS_TRUSTED_JUDGE=https://judge.example:443"
    expect(refused, State.PROBLEM, "'medheval_visual_report' is credentialed", fix=trust)
    assert asked == []  # a judge that no chosen task may ask is left alone
    assert states(judge(FREE_FORM)) == {"settings": State.OK, "reply": State.OK}
    findings = list(judge(scope_of([])))
    expect(only(findings, "access"), State.NOTE, "medheval_knowledge_open")
    assert only(findings, "reply").state is State.OK
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", remote)
    assert states(judge(CREDENTIALED)) == {"settings": State.OK, "reply": State.OK}
    monkeypatch.setenv("MEDTASKS_TRUSTED_JUDGE", "judge.example")
    expect(only(judge(CREDENTIALED), "access"), State.PROBLEM, "MEDTASKS_TRUSTED_JUDGE")


REFUSED = "medheval_visual_report"


def findings_at(arguments, scope=EVERYTHING):
    findings = list(served_model(scope, arguments))
    assert KEY not in str(findings)
    return {finding.name: only([finding]) for finding in findings}


def look(arguments="", **settings):
    with serving(ServedModel(**settings)) as server:
        return findings_at(
            f"base_url={server.base_url}{arguments}", scope_of(["mediconfusion_ff"])
        )


def test_all_well_and_no_sample_is_sent(monkeypatch):
    monkeypatch.setenv("MEDTASKS_SERVER_API_KEY", KEY)
    with serving(ServedModel(key=KEY)) as server:
        findings = findings_at(f"base_url={server.base_url}")
    names = ["address", "model", "thinking", "images"]
    assert {name: finding.state for name, finding in findings.items()} == dict.fromkeys(
        names, State.OK
    )
    expect(
        findings["address"],
        State.OK,
        "this machine",
        "the key of MEDTASKS_SERVER_API_KEY is sent",
    )
    expect(findings["model"], State.OK, "vllm 0.32.0", "'tiny', which is tiny/checkpoint")
    expect(findings["images"], State.OK, "takes 5 tokens")
    contents = [
        request.body["messages"][0]["content"]
        for request in server.asked
        if "messages" in request.body
    ]
    texts = {part["text"] for content in contents for part in content if part["type"] == "text"}
    assert texts
    assert all(text.startswith("Is the disc in the ") for text in texts)


@each_row(
    "arguments, words, fix",
    [
        ("model=tiny", "--model-args names none", "base_url=http"),
        ("base_url=localhost:8000", "base_url must be http", "correct"),
        (
            "base_url=http://127.0.0.1:9/v1,modle=tiny",
            "no argument 'modle'",
            "did you mean 'model'",
        ),
        (
            f"base_url=http://127.0.0.1:9/v1,api_key={KEY}",
            "takes no api_key",
            "MEDTASKS_SERVER_API_KEY",
        ),
    ],
)
def test_impossible_arguments(arguments, words, fix):
    expect(
        only(findings_at(arguments).values()), State.PROBLEM, words, called="arguments", fix=fix
    )


def test_no_server_no_models_and_unknown_ones(monkeypatch):
    class Handler(QuietHandler):
        def do_GET(self):
            self.reply(200, b"<html>sign in</html>", Content_Type="text/html")

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = findings_at(f"base_url=http://127.0.0.1:{unused.getsockname()[1]}/v1")
    with serving(LocalServer(Handler)) as server:
        page = findings_at(f"base_url={server.url}/v1")
    expect(closed["server"], State.PROBLEM, "(Connection refused)", fix="check that it runs")
    expect(page["server"], State.PROBLEM, "answer", fix="base_url=")
    assert list(closed) == list(page) == ["address", "server"]
    expect(look(key=KEY)["server"], State.PROBLEM, "HTTP 401", fix="MEDTASKS_SERVER_API_KEY")
    with serving(ServedModel()) as server:
        findings = findings_at(f"base_url={server.url}")
    expect(findings["model"], State.PROBLEM, "no list of models", fix="/v1")
    findings = look(",model=tinny", listed=["tiny", "other\x1b[2J"])
    expect(
        findings["model"],
        State.PROBLEM,
        "no model 'tinny'",
        fix="did you mean 'tiny'?; give model=",
    )
    expect(
        look(listed=["one", "other\x1b[2J"])["model"],
        State.PROBLEM,
        "which model is meant",
        fix="one, other[2J",
    )


def test_thinking_and_images():
    def think(path, body, answer):
        if path == CHAT and "return_token_ids" not in body:
            answer["choices"][0] |= {
                "message": {"content": None, "reasoning": "Hm."},
                "finish_reason": "length",
            }
        return answer

    expect(
        look(change=think)["thinking"],
        State.NOTE,
        "kept apart",
        fix='{"enable_thinking":false}',
    )
    finding = look(reply="<think>Hm.</think>A")["thinking"]
    expect(finding, State.WARNING, "stand in the answer", fix="--reasoning-parser")

    def drop(path, body, answer):
        answer["usage"]["prompt_tokens"] = 60
        return answer

    finding = look(most_images=1)["images"]
    expect(
        finding,
        State.WARNING,
        "two are not",
        "at most 1 (HTTP 400)",
        fix="--limit-mm-per-prompt",
    )
    expect(
        look(most_images=0)["images"],
        State.PROBLEM,
        "without images is answered",
        fix="--limit-mm-per-prompt",
    )
    expect(
        look(change=drop)["images"],
        State.WARNING,
        "may be dropped silently",
        fix="reads images",
    )
    findings = look(root="google/medgemma-4b-it")
    expect(
        findings["image attention"],
        State.PROBLEM,
        "both directions",
        fix="image_attention=bidirectional",
    )
    assert findings["images"].state is State.OK
    assert "image attention" not in look(
        ",image_attention=bidirectional", root="google/medgemma-4b-it"
    )


def test_address(monkeypatch):
    def address(task):
        return findings_at("base_url=https://models.example/v1", scope_of([task]))["address"]

    monkeypatch.setattr(served, "_names", AsyncMock(side_effect=MedTasksError("not asked")))
    expect(address("mediconfusion_ff"), State.OK, "another machine", "no key")
    expect(
        address(REFUSED),
        State.PROBLEM,
        REFUSED,
        fix="MEDTASKS_TRUSTED_MODEL=https://models.example:443",
    )
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "https://models.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    expect(address(REFUSED), State.OK, "by way of the proxy")
