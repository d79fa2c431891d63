"""A real HTTP endpoint that can be told to misbehave, and what the code under test writes to its logs."""

import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from medtasks.judges.judge_client import Judge, JudgeSettings, VerdictCache

from ..scripted_server import Endpoint, serving

KEY = "sk-secret-0123456789"


@pytest.fixture
def new_endpoint() -> Iterator[Callable[[], Endpoint]]:
    with contextlib.ExitStack() as running:
        yield lambda: running.enter_context(serving(Endpoint()))


@pytest.fixture
def endpoint(new_endpoint: Callable[[], Endpoint]) -> Endpoint:
    return new_endpoint()


@pytest.fixture
def judge_at(tmp_path: Path) -> Callable[..., Judge]:
    """Build judges over one cache, patient enough for a test; ``settings`` are those of JudgeSettings."""

    def build(url: str, backoff_s: float = 0.01, **settings: Any) -> Judge:
        usual: dict[str, Any] = {
            "model": "m",
            "api_key": KEY,
            "timeout_s": 300.0,
            "attempts": 3,
        }
        return Judge(
            JudgeSettings(url, **usual | settings),
            VerdictCache(tmp_path / "judge"),
            backoff_s=backoff_s,
        )

    return build


@pytest.fixture
def judge(endpoint: Endpoint, judge_at: Callable[..., Judge]) -> Judge:
    """A judge of the endpoint that tries once."""
    return judge_at(endpoint.url, attempts=1)


@pytest.fixture
def closed_url() -> Iterator[str]:
    with socket.socket() as unused:  # bound, so that nobody else listens there
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}/v1"


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """A function that returns all that any library logged at any level, with tracebacks and variables."""
    caplog.set_level(logging.DEBUG)
    lines: list[str] = []
    sink = logger.add(
        lambda message: lines.append(str(message)), level="TRACE", diagnose=True, backtrace=True
    )
    yield lambda: "\n".join(lines) + caplog.text
    logger.remove(sink)


@pytest.fixture
def key() -> str:
    return KEY
