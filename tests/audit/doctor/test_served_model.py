"""The served model, against a small vLLM that is started or behaves in ways that cost a run its numbers."""

import socket

import pytest

from medtasks.audit.doctor import served_model as checks
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.served_model import served_model

from ...local_server import LocalServer, QuietHandler, serving
from ...model_adapters.served_model import CHAT, ServedModel
from ...tables import each_row
from .conftest import expect, only

KEY = "sk-canary-0123456789"


@pytest.fixture
def look(everything, scope):
    """Look at a server started with these settings, with these further arguments; returns findings by name."""

    def look(arguments="", tasks=(), **settings):
        with serving(ServedModel(**settings)) as server:
            found = findings(f"base_url={server.base_url}{arguments}", scope(*tasks))
        look.asked = server.asked
        return found

    return look


def findings(arguments, scope):
    found = list(served_model(scope, arguments))
    assert KEY not in str(found)
    return {one.name: only([one]) for one in found}


def test_all_well_and_no_sample_is_sent(look, monkeypatch):
    monkeypatch.setenv("MEDTASKS_SERVER_API_KEY", KEY)
    found = look(key=KEY)
    assert {name: one.state for name, one in found.items()} == dict.fromkeys(
        ["address", "model", "thinking", "images"], State.OK
    )
    expect(found["address"], State.OK, "this machine", "the key of MEDTASKS_SERVER_API_KEY is sent")
    expect(found["model"], State.OK, "vllm 0.32.0", "'tiny', which is tiny/checkpoint")
    expect(found["images"], State.OK, "takes 5 tokens")
    texts = {part["text"] for one in look.asked for part in parts(one.body) if part["type"] == "text"}
    assert all(text.startswith("Is the disc in the ") for text in texts)


def parts(body):
    content = body["messages"][0]["content"] if "messages" in body else []
    return content if isinstance(content, list) else []


@each_row(
    "arguments, words, fix",
    [
        ("model=tiny", "--model-args names none", "base_url=http"),
        ("base_url=localhost:8000", "base_url must be http", "correct"),
        ("base_url=http://127.0.0.1:9/v1,modle=tiny", "no argument 'modle'", "did you mean 'model'"),
        (f"base_url=http://127.0.0.1:9/v1,api_key={KEY}", "takes no api_key", "MEDTASKS_SERVER_API_KEY"),
    ],
)
def test_impossible_arguments(everything, arguments, words, fix):
    expect(only(findings(arguments, everything).values()), State.PROBLEM, words, called="arguments", fix=fix)


def test_closed_port(everything):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = findings(f"base_url=http://127.0.0.1:{unused.getsockname()[1]}/v1", everything)
    expect(found["server"], State.PROBLEM, "(Connection refused)", fix="check that it runs")
    assert list(found) == ["address", "server"]


@each_row("kind", ["text/html", "application/json"])
def test_page_for_people(everything, kind):
    class Handler(QuietHandler):
        def do_GET(self):
            self.reply(200, b"<html>sign in</html>", Content_Type=kind)

    with serving(LocalServer(Handler)) as server:
        found = findings(f"base_url={server.url}/v1", everything)
    expect(found["server"], State.PROBLEM, "answer", fix="base_url=")
    assert list(found) == ["address", "server"]


def test_unknown_model_and_address_without_its_ending(look, everything):
    found = look(",model=tinny", listed=["tiny", "other\x1b[2J"])
    expect(found["model"], State.PROBLEM, "no model 'tinny'", fix="did you mean 'tiny'?; give model=")
    expect(look(listed=["one", "other\x1b[2J"])["model"], State.PROBLEM, "which model is meant", fix="one, other[2J")
    with serving(ServedModel()) as server:
        found = findings(f"base_url={server.url}", everything)
    expect(found["model"], State.PROBLEM, "no list of models", fix="/v1")


def test_missing_key(look):
    expect(look(key=KEY)["server"], State.PROBLEM, "HTTP 401", fix="MEDTASKS_SERVER_API_KEY")


def test_thinking(look):
    def think(path, body, answer):
        if path == CHAT and "return_token_ids" not in body:
            answer["choices"][0] |= {"message": {"content": None, "reasoning": "Hm."}, "finish_reason": "length"}
        return answer

    expect(look(change=think)["thinking"], State.NOTE, "kept apart", fix='{"enable_thinking":false}')
    found = look(reply="<think>Hm.</think>A")["thinking"]
    expect(found, State.WARNING, "stand in the answer", fix="--reasoning-parser")


def test_images(look):
    found = look(most_images=1)
    expect(found["images"], State.WARNING, "two are not", "at most 1 (HTTP 400)", fix="--limit-mm-per-prompt")
    expect(look(most_images=0)["images"], State.PROBLEM, "without images is answered", fix="--limit-mm-per-prompt")

    def drop(path, body, answer):
        answer["usage"]["prompt_tokens"] = 60
        return answer

    found = look(tasks=["mediconfusion_ff"], change=drop)
    expect(found["images"], State.WARNING, "may be dropped silently", fix="reads images")


def test_image_attention(look):
    found = look(root="google/medgemma-4b-it")
    expect(found["image attention"], State.PROBLEM, "both directions", fix="image_attention=bidirectional")
    assert found["images"].state is State.OK
    assert "image attention" not in look(",image_attention=bidirectional", root="google/medgemma-4b-it")


def test_server_that_hangs(look, monkeypatch):
    monkeypatch.setattr(checks, "ANSWER_S", 0.2)
    found = look(before=lambda handler, path, body: handler.rfile.read(1) == b"")
    expect(found["reply"], State.PROBLEM, "did not answer within 0.2 s", fix="log")
    monkeypatch.setattr(checks, "ANSWER_S", 5.0)
    monkeypatch.setattr(checks, "LIST_S", 3.0)
    monkeypatch.setattr(checks, "LONGEST_S", 0.2)
    found = look(before=lambda handler, path, body: handler.rfile.read(1) == b"")
    expect(found["reply"], State.PROBLEM, "did not answer within 0.2 s", fix="timeout=")


def test_several_servers(scope):
    with serving(ServedModel()) as one, serving(ServedModel(most_images=0)) as other:
        found = findings(f"base_url={one.base_url};{other.base_url}", scope())
    assert found[f"images (127.0.0.1:{one.server_port})"].state is State.OK
    assert found[f"images (127.0.0.1:{other.server_port})"].state is State.PROBLEM


def test_address(everything, scope, monkeypatch):
    monkeypatch.setattr(checks, "_names", refuse)
    away = "base_url=https://models.example/v1"
    expect(findings(away, scope("mediconfusion_ff"))["address"], State.OK, "another machine", "no key")
    refused = findings(away, scope("medheval_visual_report"))["address"]
    expect(refused, State.PROBLEM, "medheval_visual_report", fix="MEDTASKS_TRUSTED_MODEL=https://models.example:443")
    monkeypatch.setenv("MEDTASKS_TRUSTED_MODEL", "https://models.example")
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    trusted = findings(away, scope("medheval_visual_report"))["address"]
    expect(trusted, State.OK, "by way of the proxy")


async def refuse(server):
    raise checks.MedTasksError("not asked")
