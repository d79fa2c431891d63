"""Addresses: which are this machine or the same server, and which no two libraries read alike; pauses; long answers."""

import asyncio
import gzip
import json

import pytest

from medtasks.net import servers
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient
from medtasks.net.servers import (
    RemoteTrouble,
    Server,
    host,
    is_loopback,
    origin,
    readable,
    retry_after_s,
)

from ..scripted_server import Endpoint, serving
from ..tables import each_row

HERE = (
    *(
        "http://localhost/v1",
        "HTTP://LOCALHOST:80/v1",
        "https://127.0.0.1:8/v1",
        "http://127.9.8.7",
        "127.0.0.1:8000",
    ),
    *("http://[::1]:8000/v1", "localhost", " http://127.0.0.1 "),
)
ELSEWHERE = (
    *(
        "http://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "http://evil.example/127.0.0.1",
        "http://127.1",
    ),
    *(
        "http://10.0.0.5/v1",
        "http://0.0.0.0/v1",
        "http://[2001:db8::1]/v1",
        "http://[::]/v1",
        "http://2130706433/v1",
    ),
    *("http://127.0.0.1.", "api.vendor.invalid", "HTTPS://API.OPENAI.COM"),
)
AMBIGUOUS = (
    *(
        "",
        "http://",
        "//evil.example",
        "http://127.0.0.1@evil.example",
        "http://127.0.0.1:80@evil.example/",
    ),
    *(
        "http://evil.example\\@127.0.0.1/",
        "http://127.0.0.1%2eevil.example",
        "http://127.0.0.1%40evil.example",
    ),
    *(
        "http%3A//evil.example",
        "http://127.0.0.1/%2e%2e",
        "http://127.0.0.1?x=http://evil.example",
    ),
    *(
        "http://127.0.0.1#@evil.example",
        "http://127.0.0.1\t.evil.example",
        "http://127.0.0.1 .evil.example",
    ),
    *(
        "http://127.0.0.1:99999",
        "http://[::1%25eth0]/",
        "http://١٢٧.0.0.1",
        "http://[127.0.0.1.evil.example]",
    ),
    *("ftp://127.0.0.1", "wss://127.0.0.1"),
)


def test_machines_and_origins():
    assert [address for address in HERE if not is_loopback(host(readable(address)))] == []
    assert [
        address
        for address in ELSEWHERE
        if not readable(address) or is_loopback(host(readable(address)))
    ] == []
    assert [address for address in AMBIGUOUS if readable(address) != ""] == []
    assert (
        origin("https://API.openai.com/v1")
        == origin("https://api.openai.com:443")
        == "https://api.openai.com:443"
    )
    assert origin("http://[::1]:8000/v1") == "http://[::1]:8000"
    different = {"http://a", "https://a", "http://a:81", "http://b", "http://a.b"}
    assert len({origin(url) for url in different}) == len(different)


def test_retry_after_is_read_in_all_its_forms():
    assert retry_after_s({"retry-after": "3"}, 0.0) == 3.0
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "3"}, 0.0) == 0.25
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 20.0) == 40.0
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 90.0) == 0.0
    assert retry_after_s({"retry-after": "-3"}, 0.0) == 0.0
    for nonsense in (
        {},
        {"retry-after": "soon"},
        {"retry-after": "nan"},
        {"retry-after": "inf"},
    ):
        assert retry_after_s(nonsense, 0.0) is None


def client_of(endpoint):
    server = Server(endpoint.url, "server", 10.0, "check the address", {})
    return ChatClient(server, AdaptiveLimit(1), 1, backoff_s=0, patience=1)


def bomb(handler):
    handler.reply(
        200,
        gzip.compress(b" " * 2**22),
        Content_Encoding="gzip",
        Content_Type="application/json",
    )


@each_row(
    "answer",
    [bomb, lambda handler: handler.reply(200, b" " * 2**22, Content_Type="application/json")],
)
def test_an_answer_without_end_is_given_up(monkeypatch, answer):
    """A whole one of 4 MiB, in which there is nothing, would be read before it is refused as no completion."""
    monkeypatch.setattr(servers, "LARGEST_ANSWER", 2**20)

    async def ask(endpoint):
        client = client_of(endpoint)
        try:
            await client.post(CHAT, {}, lambda _: asyncio.sleep(0))
        finally:
            await client.close()

    with (
        serving(Endpoint(lambda _: answer)) as endpoint,
        pytest.raises(RemoteTrouble) as trouble,
    ):
        asyncio.run(ask(endpoint))
    assert trouble.value.cause.endswith(
        f"{CHAT} answered with more than 1 MiB; check the address"
    )


def test_a_list_of_models_nested_without_end_is_malformed():
    deep = "[" * 100_000

    async def ask(endpoint):
        client = client_of(endpoint)
        try:
            await client.get("models")
        finally:
            await client.close()

    with serving(Endpoint()) as endpoint:
        endpoint.models = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json, "dumps", lambda content: deep)  # of the server
            with pytest.raises(ValueError, match="nested too deeply"):
                asyncio.run(ask(endpoint))
