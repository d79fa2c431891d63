"""Requests to one or several servers: some at once, tried again, journalled, and stopped where a server is gone."""

import asyncio
import math
import random
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openai import DEFAULT_CONNECTION_LIMITS, APIStatusError, AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from medtasks.data.journal import AsyncJournal, Entry, digest_of
from medtasks.data.remote import CircuitBreaker, RemoteTrouble, Server, build_of, trouble_of, unreadable
from medtasks.errors import MedTasksError

from .prompts import ImageUrls, ServedPrompt

CHAT = "chat/completions"
_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 30.0
_IN_A_ROW = 5  # requests that failed at last for the server's sake, after which it counts as gone
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
        self._urls = ImageUrls()
        self._backoff = wait_exponential_jitter(initial=_BACKOFF_S, max=_LONGEST_BACKOFF_S, jitter=_BACKOFF_S)

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
            try:
                return await self._tried(at, path, body(urls), read, what)
            except RemoteTrouble as trouble:
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
        except APIStatusError as error:
            is_beside = (
                path.startswith("/") and error.status_code in _STOPPING
            )  # of a gateway that closes what it lacks
            if error.status_code in (404, 405, 501) or is_beside:
                return None
            raise ServerGone(trouble_of(error, self.servers[at]).cause) from None
        except (OpenAIError, ValueError) as error:
            raise ServerGone(trouble_of(error, self.servers[at]).cause) from None

    async def close(self) -> None:
        """Close the connections."""
        for client in self.clients:
            await client.close()

    def _client(self, at: int) -> AsyncOpenAI:
        return self.clients[at * self._lanes + self.sent % self._lanes]

    def _address(self, at: int, path: str) -> str:
        if not path.startswith("/"):
            return path
        parts = urlsplit(self.servers[at].base_url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path.removesuffix("/v1") + path, "", ""))

    def _server_for(self, place: str, asked: Collection[int]) -> int:
        """Return the server of what belongs together, or the next one where those already asked could not answer."""
        standing = [at for at, breaker in enumerate(self._breakers) if breaker.cause is None and at not in asked]
        if not standing:
            raise ServerGone(self._breakers[0].cause or "")
        return max(standing, key=lambda at: digest_of(place, self.servers[at].base_url))

    def _note(self, at: int, place: str, trouble: RemoteTrouble, asked: Collection[int]) -> None:
        """Raise what one request's trouble comes to, unless another server may be asked.

        What belongs together counts once: one question that a server cannot bear does not make it gone.
        """
        breaker = self._breakers[at]
        if not trouble.retry and (trouble.outage or trouble.wait_s is not None):
            breaker.trip(trouble.cause)
        elif trouble.retry and place not in self._lost[at]:
            self._lost[at].add(place)
            breaker.failed(trouble.cause)
        causes = [breaker.cause for breaker in self._breakers]
        if None not in causes:
            raise ServerGone(breaker.cause or "")
        if all(at in asked for at, cause in enumerate(causes) if cause is None):
            raise BadAnswer(trouble.cause)

    async def _tried(self, at: int, path: str, body: Record, read: Read, what: tuple[str, Record]) -> Record:
        retrying = AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=self._wait_s,
            retry=retry_if_exception(lambda error: isinstance(error, RemoteTrouble) and error.retry),
            reraise=True,
        )
        record: Record = await retrying(self._send, at, path, body, read, what)
        return record

    async def _send(self, at: int, path: str, body: Record, read: Read, what: tuple[str, Record]) -> Record:
        # A slot is held until the answer is on the disk: a kill costs no more answers than there are slots.
        async with self._limit:
            breaker, begun = self._breakers[at], time.monotonic()
            if breaker.cause is not None:
                raise RemoteTrouble(breaker.cause, retry=False, outage=True)
            self.sent += 1
            try:
                answer = await self._client(at).post(self._address(at, path), cast_to=object, body=body)
            except APIStatusError as error:
                if error.status_code in (429, 503):
                    self._limit.overloaded(begun)
                raise _of_status(error, self.servers[at], path) from None
            except (OpenAIError, ValueError) as error:
                raise trouble_of(error, self.servers[at]) from None
            if not isinstance(answer, dict) or answer.get("error"):
                server = self.servers[at]
                raise Refused(f"{server.name} has no {path}") if path in _MAY_LACK else unreadable(server)
            self._limit.answered()
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

    def _wait_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, RemoteTrouble) and error.wait_s is not None:
            return error.wait_s + random.uniform(0.0, _BACKOFF_S)
        return self._backoff(state)


def _of_status(error: APIStatusError, server: Server, path: str) -> Exception:
    """Return the trouble of a status; the server's words only choose between sentences of ours."""
    status, said = error.status_code, _words(error)
    if status == 403 and path != CHAT:  # which the key does not mend: vLLM has such routes closed
        return Refused(f"{server.name} has {path} closed (HTTP {status})")
    if status in _STOPPING or 300 <= status < 400 or (status == 404 and _is_about_model(error)):
        return trouble_of(error, server)
    if status not in (408, 429) and status < 500:
        return _refusal(server.name, status, said)
    return trouble_of(error, server)


def _words(error: APIStatusError) -> str:
    body = error.body
    return str(body.get("message") or "") if isinstance(body, dict) else str(body or "")


def _is_about_model(error: APIStatusError) -> bool:
    return error.param == "model" or error.code == "model_not_found" or "model" in _words(error).lower()


def _refusal(server: str, status: int, said: str) -> BadAnswer:
    if _TOO_LONG.search(said):
        mend = "serve it with a larger --max-model-len"
        return BadAnswer(f"{server} has no room for the prompt in its context (HTTP {status}); {mend}")
    if limit := _TOO_MANY_IMAGES.search(said):
        mend = "serve it with a larger --limit-mm-per-prompt"
        return BadAnswer(f"{server} takes fewer images per prompt, at most {limit[1]} (HTTP {status}); {mend}")
    if status == 413:
        return BadAnswer(f"{server} takes no request of this size (HTTP {status})")
    if _BAD_IMAGE.search(said):
        return BadAnswer(f"{server} cannot read an image (HTTP {status})")
    return Refused(f"{server} refused the request (HTTP {status})")
