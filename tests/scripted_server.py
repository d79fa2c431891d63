"""A chat endpoint on the loopback that plays a script, faults included."""

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import local_server

Step = Callable[["Handler"], object]


class Endpoint(local_server.LocalServer):
    """Plays ``script`` step by step, the last step for ever, or what ``choose(body)`` says; records every request."""

    request_queue_size = 128

    def __init__(self, choose: Callable[[dict[str, Any]], Step] | None = None) -> None:
        super().__init__(Handler)
        self.choose = choose
        self.script = [self.reply("A: 9\nB: 2\nYour explanation: close to A.")]
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.models: list[dict[str, Any]] | None = None  # what it says it serves, if anything
        self.active = self.peak = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"{super().url}/v1"

    @property
    def count(self) -> int:
        return len(self.bodies)

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def reply(
        self,
        text: str | None,
        delay: float = 0.0,
        finish: str = "stop",
        choices: int = 1,
        cut: bool = False,
    ) -> Step:
        choice = {
            "index": 0,
            "finish_reason": finish,
            "message": {"role": "assistant", "content": text},
        }
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice] * choices,
        }
        text = json.dumps(body)
        return self.status(200, body=text[: len(text) // 2] if cut else text, delay=delay)

    def status(
        self,
        code: int,
        body: str = '{"error": {"message": "no"}}',
        content_type: str = "application/json",
        delay: float = 0.0,
        **headers: str,
    ) -> Step:
        def step(handler: Handler) -> None:
            self.over.wait(delay)
            handler.leave()  # the client may ask again as soon as it has read the last byte
            handler.reply(code, body.encode(), Content_Type=content_type, **headers)

        return step

    def hang(self) -> Step:
        return lambda handler: self.over.wait()

    def reset(self) -> Step:
        def step(handler: Handler) -> None:
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            handler.rfile.close()
            handler.connection.close()

        return step


@contextlib.contextmanager
def serving(server: Endpoint) -> Iterator[Endpoint]:
    """Serve until the block ends."""
    with local_server.serving(server):
        try:
            yield server
        finally:
            server.over.set()


class Handler(local_server.QuietHandler):
    server: Endpoint

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            step = (
                server.choose(body)
                if server.choose
                else server.script[min(server.count, len(server.script) - 1)]
            )
            server.bodies.append(body)
            server.headers.append({name.lower(): text for name, text in self.headers.items()})
            server.paths.append(self.path)
            server.active += 1
            self.inside = True
            server.peak = max(server.peak, server.active)
        try:
            step(self)
        finally:
            self.leave()

    def leave(self) -> None:
        with self.server.lock:
            self.server.active -= self.inside
            self.inside = False

    def do_GET(self) -> None:
        if self.server.models is None or self.path != "/v1/models":
            self.send_error(405)
        else:
            self.inside = False
            self.server.status(200, json.dumps({"object": "list", "data": self.server.models}))(
                self
            )
