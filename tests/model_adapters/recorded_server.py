"""A server that answers as real ones were recorded to; the recordings have a README of their own."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..local_server import LocalServer, QuietHandler
from .served_model import CHAT, pixels
from .toys import GOLDEN

RECORDINGS = GOLDEN.parent / "servers"
# What decides about a prompt besides its turns.
_OF_TEMPLATE = (
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "tools",
    "documents",
)
_SCORES = ("prompt_logprobs", "logprobs", "return_token_ids", "return_prompt_text")
_ASKED_BY = {
    "prompt_logprobs": "prompt_logprobs",
    "prompt_text": "return_prompt_text",
    "prompt_token_ids": "return_token_ids",
}

Body = dict[str, Any]


@dataclass(frozen=True)
class Exchange:
    id: str
    server: str  # how it was started
    role: str
    method: str
    path: str
    status: int
    request: Body = field(repr=False)  # empty where it is no object
    response: Any = field(repr=False)  # JSON, or text
    key: str | None  # of an API, if one was sent
    row: Body = field(repr=False)  # all that is recorded

    @property
    def is_chat(self) -> bool:
        return (
            self.path == CHAT
            and self.method == "POST"
            and isinstance(self.request.get("messages"), list)
        )

    def asked(self, **fields: Any) -> "Exchange":
        """The same with other fields in its request; ``None`` removes one."""
        changed = {
            name: value
            for name, value in {**self.request, **fields}.items()
            if value is not None
        }
        return replace(self, request=changed)


@dataclass(frozen=True)
class Recording:
    folder: Path
    exchanges: tuple[Exchange, ...] = field(repr=False)
    questions: tuple[Body, ...] = field(repr=False)
    expected: tuple[Body, ...] = field(repr=False)

    def of(self, server: str = "plain") -> list[Exchange]:
        return [one for one in self.exchanges if one.server == server]

    def get(self, name: str) -> Exchange | None:
        return next((one for one in self.exchanges if one.id == name), None)


def read_recording(folder: Path) -> Recording:
    def rows(name: str) -> list[Body]:
        return [
            json.loads(line)
            for line in (folder / name).read_text(encoding="utf-8").splitlines()
        ]

    exchanges = []
    for row in rows("exchanges.jsonl"):
        request, sent = row.get("request"), (row.get("headers") or {}).get("Authorization")
        exchanges.append(
            Exchange(
                **{
                    name: row[name]
                    for name in ("id", "server", "role", "method", "path", "status")
                },
                request=request if isinstance(request, dict) else {},
                response=row["response"] if "response" in row else row.get("response_text", ""),
                key=sent.removeprefix("Bearer ") if sent else None,
                row=row,
            )
        )
    return Recording(
        folder, tuple(exchanges), tuple(rows("questions.jsonl")), tuple(rows("expected.jsonl"))
    )


def turns(messages: Sequence[Body]) -> list[list[Any]]:
    """Role and parts of each turn: texts, and of images a digest of their pixels."""
    found = []
    for message in messages:
        content = message.get("content")
        parts: list[list[str]] = []
        given: list[Body] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        )
        for part in given:
            is_text = part.get("type") == "text"
            value = part["text"] if is_text else pixels(part["image_url"]["url"])
            if is_text and parts and parts[-1][0] == "text":
                parts[-1][1] += value
            elif value or not is_text:
                parts.append(["text" if is_text else "image", value])
        found.append([message.get("role"), parts])
    return found


def conversation(request: Body) -> str:
    """What decides about the prompt of a request."""
    is_open = bool(request.get("continue_final_message"))
    begins = not is_open and request.get("add_generation_prompt", True)
    others = {name: request.get(name) or None for name in _OF_TEMPLATE}
    return json.dumps([turns(request["messages"]), is_open, begins, others], sort_keys=True)


class RecordedServer(LocalServer):
    """Answers from exchanges; to be run by ``with serving(RecordedServer(exchanges)) as server``.

    What was recorded with scores answers without them where they are not asked for. What was not recorded is answered
    by 404 and stands in ``unknown``. ``always`` answers every request for a completion.
    """

    request_queue_size = 128

    def __init__(self, exchanges: Sequence[Exchange], always: Exchange | None = None) -> None:
        super().__init__(Handler)
        self.always = always
        self.used: list[str] = []
        self.unknown: list[tuple[str, Body]] = []
        self.asked: list[tuple[str, Body]] = []
        self.lock = threading.Lock()
        self._exchanges: dict[tuple[str, str, str], list[Exchange]] = {}
        for exchange in exchanges:
            self._exchanges.setdefault(
                _kind(exchange.method, exchange.path, exchange.request), []
            ).append(exchange)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def exchange_for(
        self, method: str, path: str, body: Body, key: str | None
    ) -> Exchange | None:
        if self.always is not None and method == "POST":
            return self.always
        exchanges = self._exchanges.get(_kind(method, path, body), [])
        locked = [exchange for exchange in exchanges if exchange.status == 401]
        open_to_key = [
            one
            for one in exchanges
            if one.key == key or (one.key is None and one not in locked)
        ]
        return max(
            open_to_key or locked,
            key=lambda exchange: _fit(exchange.request, body),
            default=None,
        )


def _kind(method: str, path: str, request: Body) -> tuple[str, str, str]:
    if path == CHAT and isinstance(request.get("messages"), list):
        return method, path, conversation(request)
    shown = {name: value for name, value in request.items() if name != "return_token_strs"}
    if "content_parts" in shown:
        shown["content_parts"] = [pixels(part["url"]) for part in shown["content_parts"]]
    return method, path, json.dumps(shown, sort_keys=True)


def _fit(old: Body, new: Body) -> tuple[Any, ...]:
    ids = new.get("logprob_token_ids")
    return (
        not ids or {*ids} <= {*(old.get("logprob_token_ids") or ())},
        all(_is_wanted(old, name) for name in _SCORES if _is_wanted(new, name)),
        sum(
            old.get(name) == new.get(name)
            for name in ("max_tokens", "stop", "temperature", "model")
        ),
    )


def _is_wanted(request: Body, name: str) -> bool:
    return request.get(name) is not None and request[name] is not False  # 0 is a wish, too


def _stripped(response: Any, request: Body) -> Any:
    """A recorded answer without what a request does not ask for."""
    if not isinstance(response, dict) or not response.get("choices"):
        return response
    answer: Body = {
        name: value if name not in _ASKED_BY or _is_wanted(request, _ASKED_BY[name]) else None
        for name, value in response.items()
    }
    if not request.get("logprobs"):
        answer["choices"] = [{**choice, "logprobs": None} for choice in response["choices"]]
    return answer


class Handler(QuietHandler):
    server: RecordedServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.path, body))
        self._answer("POST", body)

    def _answer(self, method: str, body: Body) -> None:
        key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        exchange = self.server.exchange_for(method, self.path, body, key)
        status, value = (
            (404, {"detail": "Not Found"})
            if exchange is None
            else (exchange.status, exchange.response)
        )
        with self.server.lock:
            if exchange is not None:
                self.server.used.append(exchange.id)
            elif method == "POST":
                self.server.unknown.append((self.path, body))
        if self.path == CHAT and method == "POST":
            value = _stripped(value, body)
        is_text = isinstance(value, str)
        data = str(value).encode() if is_text else json.dumps(value).encode()
        self.reply(status, data, Content_Type="text/plain" if is_text else "application/json")
