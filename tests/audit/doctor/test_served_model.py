"""The served model, against a small vLLM that is started or behaves in ways that cost a run its numbers."""

import socket
from unittest.mock import AsyncMock

from medtasks.audit.doctor import served_model as checks
from medtasks.audit.doctor.check_results import State, scope_of
from medtasks.audit.doctor.served_model import served_model
from medtasks.errors import MedTasksError

from ...local_server import LocalServer, QuietHandler, serving
from ...model_adapters.served_model import CHAT, ServedModel
from ...tables import each_row
from .findings import EVERYTHING, expect, only

KEY = "sk-canary-0123456789"
REFUSED = "medheval_visual_report"


def findings_at(arguments, scope=EVERYTHING):
    findings = list(served_model(scope, arguments))
    assert KEY not in str(findings)
    return {finding.name: only([finding]) for finding in findings}


def look(arguments="", **settings):
    with serving(ServedModel(**settings)) as server:
        return findings_at(f"base_url={server.base_url}{arguments}", scope_of(["mediconfusion_ff"]))


def test_all_well_and_no_sample_is_sent(monkeypatch):
    monkeypatch.setenv("MEDTASKS_SERVER_API_KEY", KEY)
    with serving(ServedModel(key=KEY)) as server:
        findings = findings_at(f"base_url={server.base_url}")
    names = ["address", "model", "thinking", "images"]
    assert {name: finding.state for name, finding in findings.items()} == dict.fromkeys(names, State.OK)
    expect(findings["address"], State.OK, "this machine", "the key of MEDTASKS_SERVER_API_KEY is sent")
    expect(findings["model"], State.OK, "vllm 0.32.0", "'tiny', which is tiny/checkpoint")
    expect(findings["images"], State.OK, "takes 5 tokens")
    contents = [request.body["messages"][0]["content"] for request in server.asked if "messages" in request.body]
    texts = {part["text"] for content in contents for part in content if part["type"] == "text"}
    assert texts
    assert all(text.startswith("Is the disc in the ") for text in texts)


@each_row(
    "arguments, words, fix",
    [
        ("model=tiny", "--model-args names none", "base_url=http"),
        ("base_url=localhost:8000", "base_url must be http", "correct"),
        ("base_url=http://127.0.0.1:9/v1,modle=tiny", "no argument 'modle'", "did you mean 'model'"),
        (f"base_url=http://127.0.0.1:9/v1,api_key={KEY}", "takes no api_key", "MEDTASKS_SERVER_API_KEY"),
    ],
)
def test_impossible_arguments(arguments, words, fix):
    expect(only(findings_at(arguments).values()), State.PROBLEM, words, called="arguments", fix=fix)


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
    expect(findings["model"], State.PROBLEM, "no model 'tinny'", fix="did you mean 'tiny'?; give model=")
    expect(look(listed=["one", "other\x1b[2J"])["model"], State.PROBLEM, "which model is meant", fix="one, other[2J")


def test_thinking_and_images():
    def think(path, body, answer):
        if path == CHAT and "return_token_ids" not in body:
            answer["choices"][0] |= {"message": {"content": None, "reasoning": "Hm."}, "finish_reason": "length"}
        return answer

    expect(look(change=think)["thinking"], State.NOTE, "kept apart", fix='{"enable_thinking":false}')
    finding = look(reply="<think>Hm.</think>A")["thinking"]
    expect(finding, State.WARNING, "stand in the answer", fix="--reasoning-parser")

    def drop(path, body, answer):
        answer["usage"]["prompt_tokens"] = 60
        return answer

    finding = look(most_images=1)["images"]
    expect(finding, State.WARNING, "two are not", "at most 1 (HTTP 400)", fix="--limit-mm-per-prompt")
    expect(look(most_images=0)["images"], State.PROBLEM, "without images is answered", fix="--limit-mm-per-prompt")
    expect(look(change=drop)["images"], State.WARNING, "may be dropped silently", fix="reads images")
    findings = look(root="google/medgemma-4b-it")
    expect(findings["image attention"], State.PROBLEM, "both directions", fix="image_attention=bidirectional")
    assert findings["images"].state is State.OK
    assert "image attention" not in look(",image_attention=bidirectional", root="google/medgemma-4b-it")


def test_server_that_hangs_and_several_servers(monkeypatch):
    def hang(handler, path, body):
        return handler.rfile.read(1) == b""

    monkeypatch.setattr(checks, "ANSWER_S", 0.2)
    expect(look(before=hang)["reply"], State.PROBLEM, "did not answer within 0.2 s", fix="log")
    monkeypatch.setattr(checks, "ANSWER_S", 5.0)
    monkeypatch.setattr(checks, "LONGEST_S", 0.2)
    expect(look(before=hang)["reply"], State.PROBLEM, "did not answer within 0.2 s", fix="timeout=")
    with serving(ServedModel()) as first, serving(ServedModel(most_images=0)) as second:
        findings = findings_at(f"base_url={first.base_url};{second.base_url}")
    assert findings[f"images (127.0.0.1:{first.server_port})"].state is State.OK
    assert findings[f"images (127.0.0.1:{second.server_port})"].state is State.PROBLEM


def test_address(monkeypatch):
    def address(task):
        return findings_at("base_url=https://models.example/v1", scope_of([task]))["address"]

    monkeypatch.setattr(checks, "_names", AsyncMock(side_effect=MedTasksError("not asked")))
    expect(address("mediconfusion_ff"), State.OK, "another machine", "no key")
    expect(address(REFUSED), State.PROBLEM, REFUSED, fix="MEDTASKS_TRUSTED_MODEL=https://models.example:443")
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "https://models.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    expect(address(REFUSED), State.OK, "by way of the proxy")
