"""Requests to one or several servers: some at once, tried again, journalled, and stopped where a server is gone."""

import asyncio
import math
import random
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from loguru import logger
from openai import DEFAULT_CONNECTION_LIMITS, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

from medtasks.data.journal import AsyncJournal, Entry, digest_of
from medtasks.data.remote import CircuitBreaker, RemoteTrouble, Server, build_of, trouble_of, unreadable
from medtasks.errors import MedTasksError

from .prompts import ImageUrls, ServedPrompt

CHAT = "chat/completions"
_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 30.0
_IN_A_ROW = 5  # requests that failed at last for the server's sake, after which it counts as gone
_QUOTED = 200  # characters
_CONNECTIONS = 32  # of a client: with each request it looks at all of them
_STOPPING = (401, 403)
_MAY_LACK = ("/tokenize", "/detokenize")  # some servers answer such requests with an error and status 200
_TOO_LONG = re.compile(r"maximum context length|max_tokens must be at least 1, got 0", re.IGNORECASE)
_TOO_MANY_IMAGES = re.compile(r"At most (\d{1,6}) \w{1,10}\(s\) may be provided")
_BAD_IMAGE = re.compile(r"Failed to load image|Non-base64 digit|cannot identify image", re.IGNORECASE)

Record = dict[str, Any]
OpenJournal = Callable[[str | None], tuple[str, AsyncJournal]]
"""Opens the journal of servers of one build; returns a digest of all that decides beside a request, too."""
Read = Callable[[Mapping[str, Any]], Record]
"""Turns an answer into what the journal keeps of it; a BadAnswer where that is no valid answer to the request."""


class BadAnswer(MedTasksError):
    """A request got no valid answer; the sample it belongs to failed."""


class Refused(BadAnswer):
    """The server takes no such request, for no reason that lies in its sample."""


class ServerGone(MedTasksError):
    """No request can be answered any more: the run stops."""


class AdaptiveLimit:
    """How many requests are under way: halved where the server says it has too many, one more with each full round."""

    def __init__(self, most: int) -> None:
        self.most, self.allowed, self.busy = most, float(most), 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._halved = 0.0

    async def __aenter__(self) -> None:
        while self.busy >= self.allowed:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()
                raise
        self.busy += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.busy -= 1
        self._wake()

    def _wake(self) -> None:
        free = math.ceil(self.allowed - self.busy)
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def answered(self) -> None:
        """Note an answer."""
        self.allowed = min(self.allowed + 1 / self.allowed, self.most)

    def overloaded(self, begun: float) -> None:
        """Note that a request which was sent at ``begun`` was one too many; those sent together count as one."""
        if begun > self._halved:
            self._halved, self.allowed = time.monotonic(), max(self.allowed / 2, 1.0)


class ServerPool:
    """The servers of a run, which serve the same model.

    What belongs together goes to one of them, as long as it is there, because only that one has its prefix cached.
    """

    def __init__(self, servers: Sequence[Server], concurrency: int, attempts: int) -> None:
        self.servers = list(servers)
        limits = type(DEFAULT_CONNECTION_LIMITS)  # of whichever HTTP library the SDK stands on
        connections = limits(max_connections=None, max_keepalive_connections=concurrency)
        self._lanes = math.ceil(concurrency / _CONNECTIONS)
        self.clients = [
            AsyncOpenAI(
                **one.client_options, http_client=DefaultAsyncHttpxClient(**one.transport_options, limits=connections)
            )
            for one in servers
            for _ in range(self._lanes)
        ]
        self.build: str | None = None  # the servers' build and configuration, once the first of them has answered
        self.open_journal: OpenJournal | None = None
        self.journal: AsyncJournal | None = None
        self._fingerprint = ""
        self._is_told, self._telling = False, asyncio.Lock()
        self.replayed = self.sent = 0
        self._limit, self._attempts = AdaptiveLimit(concurrency), attempts
        self._breakers = [CircuitBreaker(_IN_A_ROW) for _ in servers]
        self._lost: list[set[str]] = [set() for _ in servers]  # what failed since a server's last answer
        self._answered: list[set[str]] = [set() for _ in servers]  # paths
        self._lacking: set[tuple[int, str]] = set()  # servers and paths that never answered
        self._waiting = self._retries = 0  # requests that wait for another try; tries of the run after a first one
        self.quotes = False  # whether messages may hold what a server says of an error, which can repeat the prompt
        self._urls = ImageUrls()

    async def chat(
        self, prompt: ServedPrompt, fields: Mapping[str, Any], read: Read, continued: str | None = None
    ) -> Record:
        """Ask for a chat completion of a conversation, see :meth:`ask`."""

        def body(urls: Sequence[str]) -> Record:
            return {**fields, "messages": prompt.messages(urls, continued)}

        return await self.ask(CHAT, prompt, body, read)

    async def ask(
        self, path: str, prompt: ServedPrompt | None, body: Callable[[Sequence[str]], Record], read: Read
    ) -> Record:
        """Return what ``read`` makes of the answer, from the journal where an earlier run was given it.

        ``body`` builds the request from one text per image. Raises BadAnswer where the request itself cannot be
        answered, and ServerGone where none can.
        """
        if self.open_journal is not None and not self._is_told:
            async with self._telling:
                if not self._is_told:
                    return await self._asked(path, prompt, body, read)
        return await self._asked(path, prompt, body, read)

    async def _asked(
        self, path: str, prompt: ServedPrompt | None, body: Callable[[Sequence[str]], Record], read: Read
    ) -> Record:
        digests = () if prompt is None else prompt.digests
        what = path, body(digests)
        if (known := self._replayed(what)) is not None:
            return known
        urls = [] if prompt is None else await self._urls.of(prompt)
        place = digest_of(digests or (None if prompt is None else prompt.texts))
        asked: set[int] = set()
        while True:
            at = self._server_for(place, asked)
            if (at, path) in self._lacking:
                raise Refused(f"{self._named(at, path).name} gives no answers")
            try:
                return await self._tried(at, path, body(urls), read, what)
            except RemoteTrouble as trouble:
                if path in _MAY_LACK and trouble.reached and trouble.retry and path not in self._answered[at]:
                    self._lacking.add((at, path))
                    raise Refused(trouble.cause) from None
                asked.add(at)
                self._note(at, place, trouble, asked)

    def _replayed(self, what: tuple[str, Record]) -> Record | None:
        """Return what an earlier run was answered to a request, by path and body with digests of images."""
        entry = None if self.journal is None else self.journal.replay(digest_of(self._fingerprint, *what))
        if entry is None:
            return None
        self.replayed += 1
        return dict(entry.answer)

    async def get(self, at: int, path: str) -> Any:
        """Return the JSON behind an address of one server, beside or (with a slash) above its base URL.

        None where it has nothing there; the first of several servers is at 0.
        """
        try:
            return await self._client(at).get(self._address(at, path), cast_to=object)
        except (OpenAIError, ValueError) as error:
            status = error.status_code if isinstance(error, APIStatusError) else None
            # A gateway closes what it lacks.
            if status in (404, 405, 501) or (path.startswith("/") and status in _STOPPING):
                return None
            raise ServerGone(trouble_of(error, self._named(at, path)).cause) from None

    async def models(self, at: int) -> dict[str, Mapping[str, Any]] | None:
        """Return the models that one server lists, by name; None without a list; MedTasksError for no such server."""
        listed, server = await self.get(at, "models"), self.servers[at]
        if listed is None:
            return None
        cards = listed.get("data", []) if isinstance(listed, dict) else None
        if not isinstance(cards, list):
            fix = f"{server.mend_address}, which often ends with /v1"
            raise MedTasksError(f"what answers at {server.base_url} is no server of models; {fix}")
        return {str(card["id"]): card for card in cards if isinstance(card, dict) and card.get("id")}

    async def close(self) -> None:
        """Close the connections."""
        for client in self.clients:
            await client.close()

    def _client(self, at: int) -> AsyncOpenAI:
        return self.clients[at * self._lanes + self.sent % self._lanes]

    def _address(self, at: int, path: str) -> str:
        base = self.servers[at].base_url
        above = base.removesuffix("/v1") if urlsplit(base).path else base
        return f"{above}{path}" if path.startswith("/") else f"{base}/{path}"

    def _named(self, at: int, path: str) -> Server:
        """Return a server as sentences about one of its paths name it."""
        return replace(self.servers[at], base_url=self._address(at, path))

    def _server_for(self, place: str, asked: Collection[int]) -> int:
        """Return the server of what belongs together, or the next one where those already asked could not answer."""
        standing = [at for at, breaker in enumerate(self._breakers) if breaker.cause is None and at not in asked]
        if not standing:
            raise ServerGone(self._breakers[0].cause or "")
        return max(standing, key=lambda at: digest_of(place, self.servers[at].base_url))

    def _note(self, at: int, place: str, trouble: RemoteTrouble, asked: Collection[int]) -> None:
        """Raise what one request's trouble comes to, unless another server may be asked.

        What belongs together counts once: one question that a server cannot bear does not make it gone. HTTP 500 of a
        server that has answered does not count at all; gateways say 502 to 504 of one that is gone.
        """
        breaker = self._breakers[at]
        is_request_to_blame = trouble.status == 500 and CHAT in self._answered[at]
        if not trouble.retry and (trouble.outage or trouble.wait_s is not None):
            breaker.trip(trouble.cause)
        elif trouble.retry and not is_request_to_blame and place not in self._lost[at]:
            self._lost[at].add(place)
            breaker.failed(trouble.cause)
        causes = [breaker.cause for breaker in self._breakers]
        if None not in causes:
            raise ServerGone(breaker.cause or "")
        if all(at in asked for at, cause in enumerate(causes) if cause is None):
            raise BadAnswer(trouble.cause)

    async def _tried(self, at: int, path: str, body: Record, read: Read, what: tuple[str, Record]) -> Record:
        for tries in range(1, self._attempts):
            try:
                return await self._send(at, path, body, read, what)
            except RemoteTrouble as trouble:
                if not trouble.retry:
                    raise
                backoff_s = min(_BACKOFF_S * 2 ** (tries - 1), _LONGEST_BACKOFF_S)
                pause_s = (backoff_s if trouble.wait_s is None else trouble.wait_s) + random.uniform(0.0, _BACKOFF_S)
                cause = trouble.cause
            self._waiting += 1
            self._retries += 1
            if self._retries & (self._retries - 1) == 0:  # the 1st, 2nd, 4th, 8th ... of the run
                logger.info("retrying {} request{}: {}", self._waiting, "s" * (self._waiting > 1), cause)
            try:
                await asyncio.sleep(pause_s)
            finally:
                self._waiting -= 1
        return await self._send(at, path, body, read, what)

    async def _send(self, at: int, path: str, body: Record, read: Read, what: tuple[str, Record]) -> Record:
        # A slot is held until the answer is on the disk: a kill costs no more answers than there are slots.
        async with self._limit:
            breaker, begun, server = self._breakers[at], time.monotonic(), self._named(at, path)
            if breaker.cause is not None:
                raise RemoteTrouble(breaker.cause, retry=False, outage=True)
            self.sent += 1
            try:
                answer = await self._client(at).post(self._address(at, path), cast_to=object, body=body)
            except APIStatusError as error:
                if error.status_code in (429, 503):
                    self._limit.overloaded(begun)
                raise _of_status(error, server, path, quotes=self.quotes) from None
            except (OpenAIError, ValueError) as error:
                raise trouble_of(error, server) from None
            if not isinstance(answer, dict) or answer.get("error"):
                raise Refused(f"{server.name} has no {path}") if path in _MAY_LACK else unreadable(server)
            self._limit.answered()
            self._answered[at].add(path)
            breaker.answered()
            self._lost[at].clear()
            if path == CHAT:
                self._tell(at, answer.get("system_fingerprint"))
            if (known := self._replayed(what)) is not None:  # of an earlier run, which the answer that told made known
                return known
            record = read(answer)
            if self.journal is not None:
                await self.journal.add({digest_of(self._fingerprint, *what): Entry(record, 0)})
            return record

    def _tell(self, at: int, build: object) -> None:
        """Note what a server says of its build; with the first answer the journal is opened."""
        known = build_of(build)
        if not self._is_told:
            self._is_told, self.build = True, known
            if self.open_journal is not None:
                self._fingerprint, self.journal = self.open_journal(known)
        elif known != self.build:
            raise ServerGone(
                f"{self.servers[at].name} is another build or configuration ({known}) than the one that answered first "
                f"({self.build}), and its answers may be others"
            )


def _of_status(error: APIStatusError, server: Server, path: str, *, quotes: bool) -> Exception:
    """Return the trouble of a status; the server's words choose between sentences of ours, and may be quoted."""
    status, words = error.status_code, _words(error)
    quoted = _quotation(words, server) if quotes else ""
    if status == 403 and path != CHAT:  # which the key does not mend: vLLM has such routes closed
        return Refused(f"{server.name} is closed (HTTP {status})")
    if status in _STOPPING or 300 <= status < 400 or (status == 404 and _is_about_model(error)):
        return trouble_of(error, server, quoted)
    if status not in (408, 429) and status < 500:
        return _refusal(server.name, status, words, f"HTTP {status}: {quoted}" if quoted else f"HTTP {status}")
    return trouble_of(error, server, quoted)


def _words(error: APIStatusError) -> str:
    body = error.body
    return str(body.get("message") or body.get("detail") or "") if isinstance(body, dict) else str(body or "")


def _quotation(words: str, server: Server) -> str:
    """Return the beginning of a server's words on one line, without the key; nothing of a web page."""
    words = words.replace(server.api_key, "***") if server.api_key else words
    plain = " ".join("".join(one if one.isprintable() else " " for one in words[: 4 * _QUOTED]).split())
    return "" if plain.startswith("<") else plain[:_QUOTED]


def _is_about_model(error: APIStatusError) -> bool:
    return error.param == "model" or error.code == "model_not_found" or "model" in _words(error).lower()


def _refusal(server: str, status: int, words: str, label: str) -> BadAnswer:
    if _TOO_LONG.search(words):
        return BadAnswer(f"{server} has no room for the prompt ({label}); serve it with a larger --max-model-len")
    if limit := _TOO_MANY_IMAGES.search(words):
        fix = "serve it with a larger --limit-mm-per-prompt"
        return BadAnswer(f"{server} takes fewer images per prompt, at most {limit[1]} ({label}); {fix}")
    if status == 413:
        return BadAnswer(f"{server} takes no request of this size ({label})")
    if _BAD_IMAGE.search(words):
        return BadAnswer(f"{server} cannot read an image ({label})")
    return Refused(f"{server} refused the request ({label})")
