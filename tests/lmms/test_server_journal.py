"""Answers of a server that outlive the process: which are kept, for which requests, and runs that are killed."""

import asyncio
import contextlib
import inspect
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from openai import AsyncOpenAI, OpenAI, OpenAIError
from openai.types.chat import ChatCompletion

from medtasks.errors import MedTasksError
from medtasks.home import home
from medtasks.lmms.server_journal import JOURNAL_VARIABLE, journaled

from ..scripted_server import Endpoint, serving
from ..tables import each_row

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
REQUEST = {"model": "tiny", "temperature": 0, "messages": [{"role": "user", "content": [IMAGE]}]}


@pytest.fixture(autouse=True)
def _wanted(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(JOURNAL_VARIABLE, "true")


@pytest.fixture
def server():
    with serving(Endpoint()) as endpoint:
        yield endpoint


def journals():
    return sorted((home() / "journal").rglob("*.jsonl"))


def model(address, module="chat.openai", client=OpenAI, name="tiny"):
    """A model of the harness as far as its answers are kept."""

    def generate_until(self, requests):
        raise NotImplementedError

    generate_until.__module__ = f"lmms_eval.models.{module}"
    made = type("Made", (), {"generate_until": generate_until, "rank": 0, "world_size": 1, "model_version": name})()
    made.client = client(base_url=address, api_key="none", max_retries=0)
    return made


def ask(lm, *requests):
    def one(request):
        with contextlib.suppress(OpenAIError, ValueError):
            answer = lm.client.chat.completions.create(**request)
            return asyncio.run(answer) if inspect.isawaitable(answer) else answer

    with journaled(lm):
        return [one(request) for request in requests or [REQUEST]]


@pytest.mark.parametrize("client", [OpenAI, AsyncOpenAI])
def test_an_answer_is_given_again_as_it_came(server, client):
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "served_by": [1.5]}
    message = {"role": "assistant", "content": "é B", "reasoning": "hm"}
    choice = {"index": 0, "finish_reason": "stop", "message": message, "stop_reason": None}
    body = {"id": "1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice], "usage": usage}
    server.script = [server.status(200, json.dumps(body))]
    (first,), (second,) = (ask(model(server.url, client=client)) for _ in range(2))
    assert server.count == 1
    assert isinstance(second, ChatCompletion)
    assert second == first
    assert second.to_dict() == first.to_dict() == body
    assert second.usage.prompt_tokens == 3
    (file,) = journals()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_answer_is_on_disk_before_the_next_request_and_a_torn_one_is_asked_again(server):
    """So that a run which is killed loses the answers under way alone."""
    requests = [{**REQUEST, "seed": seed} for seed in range(3)]
    with journaled(lm := model(server.url)):
        for number, request in enumerate(requests, 1):
            lm.client.chat.completions.create(**request)
            (file,) = journals()
            assert file.read_bytes().count(b"\n") >= number
    file.write_bytes(file.read_bytes()[:-9])
    for _ in range(2):
        ask(model(server.url), *requests)
        assert server.count == 4


def test_without_the_variable_nothing_is_kept(server, monkeypatch):
    monkeypatch.delenv(JOURNAL_VARIABLE)
    for _ in range(2):
        ask(model(server.url))
    assert (server.count, journals()) == (2, [])


FAILING = {
    "500": lambda server: server.status(500),
    "half a JSON": lambda server: server.reply("A", cut=True),
    "content null": lambda server: server.reply(None),
    "no choices": lambda server: server.reply("A", choices=0),
    "two choices": lambda server: server.reply("A", choices=2),
    **{
        finish: lambda server, finish=finish: server.reply("A", finish=finish)
        for finish in ("content_filter", "abort", "error")
    },
}


def text_of(answer):
    return answer and answer.choices[0].message.content


@each_row("fault", FAILING)
def test_a_failure_is_asked_again(monkeypatch, tmp_path, fault):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    with serving(Endpoint()) as server:
        failing = FAILING[fault](server)
        server.script = [failing, failing, server.reply("B")]
        ask(model(server.url))
        assert text_of(ask(model(server.url), REQUEST, REQUEST)[1]) == "B"
        assert server.count == 3, "in the next run, and within one"
        assert text_of(ask(model(server.url))[0]) == "B"
        assert server.count == 3


def test_cut_and_empty_replies_are_kept_where_they_count_as_replies(server):
    server.script = [server.reply("The ans", finish="length"), server.reply("")]
    for _ in range(2):
        (answer,) = ask(model(server.url))
        assert (answer.choices[0].finish_reason, text_of(answer)) == ("length", "The ans")
    for module, count in (("chat.openai", 2), ("simple.openai", 4)):
        for _ in range(2):
            ask(model(server.url, module), {**REQUEST, "seed": count})
        assert server.count == count


def test_whatever_is_asked_otherwise_is_asked(server):
    text = {"type": "text", "text": "?"}
    others = [
        {"temperature": 0.1},
        {"seed": 1},
        {"model": "other"},
        {"messages": [{"role": "user", "content": [IMAGE, text]}]},
        {"messages": [{"role": "user", "content": [{**IMAGE, "image_url": {"url": "data:image/png;base64,AAAB"}}]}]},
    ]
    requests = [REQUEST, *({**REQUEST, **other} for other in others)]
    ask(model(server.url), *requests)
    ask(model(server.url), *requests, {**REQUEST, "timeout": 500, "model": "other"})
    assert server.count == len(requests) + 1
    ask(model(server.url.replace("127.0.0.1", "localhost")))
    ask(model(server.url, name="tiny2"))
    assert server.count == len(requests) + 3


def test_other_weights_under_the_same_name_are_asked(server):
    weights = {"id": "tiny", "object": "model", "created": 1, "owned_by": "vllm", "root": "/a"}
    for count, told in enumerate([None, {}, {"root": "/b"}, {"parent": "/c"}], start=1):
        server.models = None if told is None else [{"id": "other", "owned_by": "x"}, {**weights, **told}]
        ask(model(server.url))
        server.models = told if told is None else [{**server.models[1], "created": 2}]
        ask(model(server.url, client=AsyncOpenAI))
        assert len(samples_asked(server)) == count


def samples_asked(server):
    """Bodies of requests, but for those by which a server tells its build."""
    return [body for body in server.bodies if body["messages"] != [{"role": "user", "content": "."}]]


def test_a_build_is_known_wherever_it_is_and_another_one_is_asked(server):
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "tiny"}
    body["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}]

    def become(server, build, root="org/a"):
        server.models = [{"id": "tiny", "object": "model", "created": 1, "owned_by": "vllm", "root": root}]
        server.script = [server.status(200, json.dumps({**body, "system_fingerprint": build}))]

    with serving(Endpoint()) as moved:
        become(server, "vllm-0.32.0-fp32")
        become(moved, "vllm-0.32.0-fp32")
        ask(model(server.url))
        ask(model(moved.url))
        assert (len(samples_asked(server)), len(samples_asked(moved))) == (1, 0)
        become(server, "vllm-0.32.0-bf16")
        ask(model(server.url))
        assert len(samples_asked(server)) == 2
        for root in ("/a", "./a", "a", ""):  # the files in a folder may be others on another machine
            become(server, "vllm-0.32.0-fp32", root)
            become(moved, "vllm-0.32.0-fp32", root)
            before = len(samples_asked(moved))
            ask(model(server.url))
            ask(model(moved.url))
            assert len(samples_asked(moved)) == before + 1, root


def test_a_server_that_is_not_there_is_said_before_the_first_request():
    with serving(Endpoint()) as gone:
        address = gone.url
    with pytest.raises(MedTasksError, match=r"the server at http://127\.0\.0\.1:\d+ does not answer .* start it"):
        ask(model(address))


def test_the_nth_equal_request_gets_the_nth_answer(server):
    server.script = [server.reply("1"), server.status(500), *(server.reply(text) for text in "234")]
    assert [text_of(answer) for answer in ask(model(server.url), *[REQUEST] * 4)] == ["1", None, "2", "3"]
    assert [text_of(answer) for answer in ask(model(server.url), *[REQUEST] * 4)] == ["1", "2", "3", "4"]
    assert server.count == 5


def test_equal_requests_at_once_get_an_answer_each(server):
    server.choose = lambda body: server.reply(str(server.count), delay=0.02)
    for _ in range(2):
        with journaled(lm := model(server.url)), ThreadPoolExecutor(8) as threads:
            answers = [threads.submit(lm.client.chat.completions.create, **REQUEST) for _ in range(8)]
            assert {text_of(answer.result()) for answer in answers} == set("01234567")
    assert server.count == 8


def test_a_model_without_a_client_is_warned_of(warnings):
    lm = model("http://127.0.0.1:1/v1")
    lm.client = None
    with journaled(lm):
        assert lm.client is None
    (line,) = warnings
    assert "no journal is kept" in line
