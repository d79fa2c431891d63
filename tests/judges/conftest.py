"""A real HTTP endpoint that can be told to misbehave, and what the code under test writes to its logs."""

import json
import logging
import os
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from loguru import logger

KEY = "sk-secret-0123456789"


class Endpoint(ThreadingHTTPServer):
    """Plays ``script`` step by step, the last step for ever; records every request it sees."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = [self.reply("A: 9\nB: 2\nYour explanation: close to A.")]
        self.bodies, self.headers, self.times, self.paths = [], [], [], []
        self.active = self.peak = 0
        self.lock = threading.Lock()
        self.over = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def count(self):
        return len(self.bodies)

    def handle_error(self, request, client_address):
        pass

    def reply(self, text, delay=0.0):
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        return self.status(200, body=json.dumps(body), delay=delay)

    def status(self, code, body='{"error": {"message": "no"}}', content_type="application/json", delay=0.0, **headers):
        def step(handler):
            self.over.wait(delay)
            data = body.encode()
            handler.send_response(code)
            handler.send_header("Content-Type", content_type)
            handler.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                handler.send_header(name.replace("_", "-"), value)
            handler.end_headers()
            handler.leave()  # the client may ask again as soon as it has read the last byte
            handler.wfile.write(data)

        return step

    def hang(self):
        return lambda handler: self.over.wait(30)

    def reset(self):
        def step(handler):
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.rfile.close()
            handler.connection.close()

        return step


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            step = server.script[min(server.count, len(server.script) - 1)]
            server.bodies.append(body)
            server.headers.append({name.lower(): text for name, text in self.headers.items()})
            server.paths.append(self.path)
            server.times.append(time.monotonic())
            server.active += 1
            self.inside = True
            server.peak = max(server.peak, server.active)
        try:
            step(self)
        finally:
            self.leave()

    def leave(self):
        with self.server.lock:
            self.server.active -= self.inside
            self.inside = False

    def do_GET(self):
        self.send_error(405)

    def log_message(self, *args):
        pass


@pytest.fixture
def new_endpoint():
    servers = []

    def start():
        server = Endpoint()
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.over.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def endpoint(new_endpoint):
    return new_endpoint()


@pytest.fixture
def closed_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@pytest.fixture
def warnings():
    """The warnings written through loguru, as plain text lines."""
    lines = []
    sink = logger.add(lambda message: lines.append(str(message)), level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


@pytest.fixture
def everything_logged(caplog):
    """A function that returns all that any library logged at any level, with tracebacks and variables."""
    caplog.set_level(logging.DEBUG)
    lines = []
    sink = logger.add(lambda message: lines.append(str(message)), level="TRACE", diagnose=True, backtrace=True)
    yield lambda: "\n".join(lines) + caplog.text
    logger.remove(sink)


@pytest.fixture
def key():
    return KEY


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith(("MEDTASKS_JUDGE_", "MEDTASKS_TRUSTED_JUDGE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
