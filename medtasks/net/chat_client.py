"""Client of one OpenAI-compatible server: concurrency, retries, pauses, and giving up.

Judges and ``vlm_server`` ask through it. It must never repeat a prompt or a key in a message or a log.
"""

import asyncio
import contextlib
import itertools
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from loguru import logger

from medtasks.net.servers import (
    AnswerTooLong,
    RemoteTrouble,
    Server,
    keep_prompts_out_of_logs,
    trouble_of,
)

T = TypeVar("T")
CHAT = "chat/completions"
_LONGEST_BACKOFF_S = 30.0
_LONGEST_CONNECTING_S = 15.0
_CONNECTIONS = 32  # per HTTP client, which searches all of them for each request
_loops: list[asyncio.AbstractEventLoop] = []
_starting = threading.Lock()


class NotSent(RemoteTrouble):
    """A request was not sent: the server is gone, or no more requests may be sent."""


class AdaptiveLimit:
    """Limit on requests under way: halved when a server has too many, raised by one with each full round of answers."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.allowed = float(most)
        self.busy = 0
        self._free = asyncio.Condition()
        self._halved = 0.0

    async def __aenter__(self) -> None:
        async with self._free:
            await self._free.wait_for(lambda: self.busy < self.allowed)
            self.busy += 1

    async def __aexit__(self, *error: object) -> None:
        async with self._free:
            self.busy -= 1
            self._free.notify(max(math.ceil(self.allowed - self.busy), 0))

    def raise_limit(self) -> None:
        """Note an answer."""
        self.allowed = min(self.allowed + 1 / self.allowed, self.most)

    def halve(self, begun: float) -> None:
        """Note that a request was one too many.

        Args:
            begun: When it was sent, of ``time.monotonic``. Requests sent together count once.
        """
        if begun > self._halved:
            self._halved = time.monotonic()
            self.allowed = max(self.allowed / 2, 1.0)


class ChatClient:
    """Requests to one server, all from one event loop.

    Args:
        server: The server.
        limit: Limit on requests under way, which several clients may share.
        attempts: Maximum number of tries of a request after temporary errors.
        backoff_s: Pause before the second try, which doubles with each further one, plus as much jitter.
        patience: Number of requests in a row that failed because of the server, after which it counts as gone for good:
            later requests fail at once.
        trouble: Maps an error, the server as messages name it and the path to the exception to raise. A RemoteTrouble
            may be retried. By default :func:`trouble_of`.
        before_each: Called before each try; may raise.
    """

    def __init__(
        self,
        server: Server,
        limit: AdaptiveLimit,
        attempts: int,
        *,
        backoff_s: float,
        patience: int,
        trouble: Callable[[Exception, Server, str], Exception] = lambda error, server, _: (
            trouble_of(error, server)
        ),
        before_each: Callable[[], None] = lambda: None,
    ) -> None:
        # Imported here because it takes a second that a run without a server should not pay.
        from openai import (
            DEFAULT_CONNECTION_LIMITS,
            AsyncOpenAI,
            DefaultAsyncHttpxClient,
            Timeout,
        )

        keep_prompts_out_of_logs()
        limits = type(DEFAULT_CONNECTION_LIMITS)  # of the SDK's HTTP library
        connections = limits(max_connections=None, max_keepalive_connections=limit.most)
        connecting_s = min(server.timeout_s, _LONGEST_CONNECTING_S)
        self.clients = []
        for _ in range(math.ceil(limit.most / _CONNECTIONS)):
            client = AsyncOpenAI(
                base_url=server.base_url,
                # Never None: the SDK would then send the user's OPENAI_API_KEY to this server.
                api_key=server.api_key or "none",
                timeout=Timeout(server.timeout_s, connect=connecting_s),
                max_retries=0,  # retries are ours
                http_client=DefaultAsyncHttpxClient(
                    **server.transport_options, limits=connections
                ),
            )
            self.clients.append(client)
        self.server = server
        self.patience = patience
        self.gone: str | None = None  # why no more requests are sent
        self.answered_paths: set[str] = set()
        self._limit = limit
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._trouble = trouble
        self._before_each = before_each
        self._opened = asyncio.Event()
        self._lost: set[str] = set()  # failed requests since the last answer
        self._in_a_row = 0
        self._sent = 0
        self._waiting = 0  # requests waiting for another try
        self._retries = 0  # so far

    async def get(self, path: str) -> Any:
        """Return the JSON at an address, asked for once, outside all limits.

        Args:
            path: Route below the address, or from the root if it begins with a slash.

        Raises:
            RemoteTrouble: There is no answer.
            ValueError: The answer is malformed JSON.
        """
        from openai import OpenAIError

        try:
            return await self.clients[0].get(self._address(path), cast_to=object)
        except (OpenAIError, AnswerTooLong) as error:
            raise trouble_of(error, self.server_at(path)) from None
        except RecursionError:
            raise ValueError("JSON is nested too deeply") from None

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        take: Callable[[dict[str, Any]], Awaitable[T]],
    ) -> T:
        """Return the result of ``take`` on the answer, during which the request still counts as under way.

        Args:
            path: Route below the address, or from the root if it begins with a slash.
            body: JSON of the request.
            take: Reads an answer. If it raises RemoteTrouble, there was no answer.

        Raises:
            RemoteTrouble: That of the last try; NotSent if there was none.
        """
        for tries in itertools.count(1):
            try:
                # Other requests may be sent during a pause.
                async with self._limit:
                    return await self._send(path, body, take)
            except RemoteTrouble as trouble:
                if not trouble.retry or tries >= self._attempts:
                    raise
                pause_s = trouble.wait_s
                if pause_s is None:
                    pause_s = min(self._backoff_s * 2 ** (tries - 1), _LONGEST_BACKOFF_S)
                pause_s += random.uniform(0, self._backoff_s)
                cause = trouble.cause
            self._waiting += 1
            self._retries += 1
            # The 1st, 2nd, 4th, 8th ... of the run
            if self._retries & (self._retries - 1) == 0:
                plural = "s" if self._waiting > 1 else ""
                logger.info("retrying {} request{}: {}", self._waiting, plural, cause)
            try:
                # A server that is gone ends the pause.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._opened.wait(), pause_s)
            finally:
                self._waiting -= 1
        raise AssertionError

    async def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        take: Callable[[dict[str, Any]], Awaitable[T]],
    ) -> T:
        """Send a request once, and return the result of ``take`` on its answer.

        Raises:
            NotSent: The server is gone. ``before_each`` may raise other errors.
            RemoteTrouble: ``take`` finds no answer.
            Exception: That of ``trouble``, for an error of the SDK or for JSON that is no answer.
        """
        from openai import APIStatusError, OpenAIError

        if self.gone is not None:
            raise NotSent(self.gone, retry=False, outage=True)
        self._before_each()
        self._sent += 1
        begun = time.monotonic()
        client = self.clients[self._sent % len(self.clients)]
        try:
            answer = await client.post(self._address(path), cast_to=object, body=body)
            if not isinstance(answer, dict) or answer.get("error"):
                raise ValueError("no completion")
        # Malformed JSON, or one that is nested too deeply, escapes the SDK unwrapped.
        except (OpenAIError, ValueError, RecursionError) as error:
            if isinstance(error, APIStatusError) and error.status_code in (429, 503):
                self._limit.halve(begun)
            raise self._trouble(error, self.server_at(path), path) from None
        is_answer = True
        try:
            return await take(answer)
        except RemoteTrouble:
            is_answer = False
            raise
        finally:
            if is_answer:
                self._limit.raise_limit()
                self.answered_paths.add(path)
                self.note_answer()

    def note_answer(self) -> None:
        """Note an answer of the server: the failures before it were no outage."""
        self._lost.clear()
        self._in_a_row = 0

    def lose(self, cause: str, sample: str) -> bool:
        """Note a request that failed because of the server.

        Args:
            cause: Why the server counts as gone, should this be one failure too many.
            sample: What was asked about, of which several failures count once.

        Returns:
            Whether this failure made the server gone: True once.
        """
        self._in_a_row += sample not in self._lost
        self._lost.add(sample)
        if self.gone is not None or self._in_a_row < self.patience:
            return False
        self.give_up(cause)
        return True

    def give_up(self, cause: str) -> None:
        """Count the server as gone for a cause that would affect every request."""
        self.gone = self.gone or cause
        self._opened.set()

    async def close(self) -> None:
        """Close the connections."""
        for client in self.clients:
            await client.close()

    def server_at(self, path: str) -> Server:
        """Return the server with the address of one of its paths, for messages."""
        return replace(self.server, base_url=self._address(path))

    def _address(self, path: str) -> str:
        """Return the address of a path: below the base URL, or with a slash in front above its ``/v1``."""
        # a path is below the base URL, or with a slash above it
        base = self.server.base_url
        above = base.removesuffix("/v1") if urlsplit(base).path else base
        return f"{above}{path}" if path.startswith("/") else f"{base}/{path}"


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop in a thread of its own, through which waiting threads share a client."""
    with _starting:  # two threads that ask at once must not get a loop each
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="net", daemon=True).start()
            _loops.append(loop)
        return _loops[0]
