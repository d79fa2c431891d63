"""A real HTTP endpoint that can be told to misbehave, and what the code under test writes to its logs."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loguru import logger

from ..scripted_server import Endpoint

KEY = "sk-secret-0123456789"


@pytest.fixture
def new_endpoint() -> Iterator[Callable[[], Endpoint]]:
    servers: list[Endpoint] = []

    def start() -> Endpoint:
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
def endpoint(new_endpoint: Callable[[], Endpoint]) -> Endpoint:
    return new_endpoint()


@pytest.fixture
def closed_url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The warnings written through loguru, as plain text lines."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="WARNING", format="{message}")
    yield lines
    logger.remove(sink)


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """A function that returns all that any library logged at any level, with tracebacks and variables."""
    caplog.set_level(logging.DEBUG)
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(str(message)), level="TRACE", diagnose=True, backtrace=True)
    yield lambda: "\n".join(lines) + caplog.text
    logger.remove(sink)


@pytest.fixture
def key() -> str:
    return KEY


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("MEDTASKS_JUDGE_", "MEDTASKS_TRUSTED_JUDGE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
