"""Client that asks an OpenAI-compatible endpoint for verdicts, with limits on patience and requests.

Every failure at the endpoint is one sentence without prompt text and without the key.
"""

import asyncio
import functools
import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from loguru import logger

from medtasks.data.privacy import access_of
from medtasks.errors import MedTasksError, warn_once
from medtasks.home import home
from medtasks.judges.settings import (
    API_KEY,
    BASE_URL,
    MAX_REQUESTS,
    MODEL,
    JudgeSettings,
    check_access,
    is_configured,
    settings_from_environment,
)
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient, NotSent, background_loop
from medtasks.net.disk_cache import SqliteCache
from medtasks.net.servers import RemoteTrouble, Server, trouble_of, unreadable

_CANNOT_KEEP = (
    "Judge verdicts cannot be kept in {path} ({error}); the run goes on, but a rerun will ask the judge again. Free "
    "some space, set MEDTASKS_HOME to another folder, or remove that file if it is damaged."
)


def default_cache_folder() -> Path:
    """Return ``judge`` below ``$MEDTASKS_HOME``."""
    return home() / "judge"


def verdict_key(base_url: str, model: str, temperature: float, system: str, user: str, prompt_version: int) -> str:
    """Return the key of a verdict: 64 hexadecimal digits that change with every argument.

    The endpoint's address is one of them, because another one may serve another model under the same name.
    """
    content = json.dumps([base_url.rstrip("/"), model, float(temperature), system, user, prompt_version])
    return hashlib.sha256(content.encode("ascii")).hexdigest()


class VerdictCache(SqliteCache):
    """Judge replies by the key of their verdict. The prompt, which may be credentialed, is not stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "verdicts.sqlite", ("verdicts", "reply"), _CANNOT_KEEP)

    def reply(self, key: str) -> str | None:
        """Return the raw judge reply stored under ``key``, or None."""
        replies = self.get([bytes.fromhex(key)])
        return next((reply.decode("utf-8", "surrogatepass") for reply in replies.values()), None)

    def keep(self, key: str, reply: str) -> None:
        """Store a raw judge reply under ``key``."""
        self.put({bytes.fromhex(key): reply.encode("utf-8", "surrogatepass")})


T = TypeVar("T")

BAD_FORMAT = "reply did not follow the format"
CORRECTION = (
    "Your reply did not follow the required format. "
    "Answer again in exactly the format requested above, starting with its first line."
)
_IN_A_ROW = 3  # requests in a row that fail at the endpoint, after which none is sent
_LONGEST_QUOTE = 2000
_MISSING = (
    f"No judge is configured, so the metrics that need one are NaN; set {BASE_URL} and {MODEL}, for credentialed data "
    "to an endpoint on this machine, and judge the replies later with 'medtasks score'."
)
_REFUSALS = {
    401: f"check {API_KEY}",
    403: f"check {API_KEY} and that it may use this model",
    404: f"check {BASE_URL} and {MODEL}",
}
_building = threading.Lock()


@dataclass(frozen=True)
class JudgeVerdict(Generic[T]):
    """Result of one request for a verdict."""

    value: T | None  # result of ``parse``, or ``None`` without a verdict
    failure: str | None  # why there is no verdict, as one sentence without sample text; ``None`` with a verdict
    cached: bool  # whether the verdict came from disk, without a request
    text: str  # the judge's last raw reply, or empty. May quote the sample: treat it like the data
    sent: bool = True  # False if the limit of requests, or an earlier outage, kept it from being sent


@dataclass(frozen=True)
class JudgeRole:
    """Role of an LLM, in the words of warnings about it."""

    name: str
    no_reply: str  # with a place for the cause
    given_up: str  # with places for the number of failures in a row, and for the cause
    limit: str = MAX_REQUESTS  # setting of its limit of requests


JUDGING = JudgeRole(
    "judge",
    "A sample got no verdict from the judge: {}. Such samples count as judge_failed; further ones of this kind are not "
    "reported.",
    "No more replies are judged in this run because {} asks in a row failed: {}. "
    "The replies are kept and can be judged later with `medtasks score`.",
)


class Judge:
    """One judge, or an LLM with another ``role``, shared by all threads of a process.

    Before the second try it waits for ``backoff_s`` seconds, which double with each further one, plus jitter.
    """

    def __init__(
        self, settings: JudgeSettings, cache: VerdictCache, *, backoff_s: float = 2.0, role: JudgeRole = JUDGING
    ) -> None:
        self.settings = settings
        self._role = role
        self._cache = cache
        self._server = server_of(settings, role.name)
        self._sent = 0
        self._client = ChatClient(
            self._server,
            AdaptiveLimit(settings.concurrency),
            settings.attempts,
            backoff_s=backoff_s,
            patience=_IN_A_ROW,
            trouble=lambda error, *_: trouble_of(error, self._server),
            before_each=self._count,
        )

    def ask(
        self, system: str, user: str, parse: Callable[[str], T | None], *, prompt_version: int = 1
    ) -> JudgeVerdict[T]:
        """Return the judge's verdict, from disk if the same question was answered before.

        Trouble at the endpoint is a ``failure`` of the verdict, never an exception. An empty system message is not
        sent. ``parse`` returns ``None`` for a reply that breaks the format, and must not raise; only a reply that
        parses is stored. ``prompt_version`` is part of the cache key, to be raised when verdicts under the same texts
        must not be reused.
        """
        settings = self.settings
        system, user = _sendable(system), _sendable(user)
        key = verdict_key(settings.base_url, settings.model, settings.temperature, system, user, prompt_version)
        stored = self._cache.reply(key)
        value = None if stored is None else parse(stored)
        if stored is not None and value is not None:
            return JudgeVerdict(value, None, True, stored)
        # All requests are sent by one thread: nothing below needs a lock.
        asking = self._ask_endpoint(system, user, parse, key)
        verdict = asyncio.run_coroutine_threadsafe(asking, background_loop()).result()
        if verdict.value is not None:
            self._cache.keep(key, verdict.text)
        return verdict

    async def _ask_endpoint(
        self, system: str, user: str, parse: Callable[[str], T | None], key: str
    ) -> JudgeVerdict[T]:
        messages = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": user}]
        text = ""
        for number in range(self.settings.reasks + 1):
            try:
                text = await self._complete(messages)
            except RemoteTrouble as trouble:
                is_sent = number > 0 or not isinstance(trouble, NotSent)
                cause = (
                    f"{BAD_FORMAT}, and {trouble.cause}" if number and isinstance(trouble, NotSent) else trouble.cause
                )
                if not trouble.outage:
                    self._client.answered()
                    self._report_once(cause)
                elif self._client.lose(cause, key):
                    logger.warning(self._role.given_up, self._client.patience, cause)
                return JudgeVerdict(None, cause, False, "", sent=is_sent)
            value = parse(text)
            if value is not None:
                return JudgeVerdict(value, None, False, text)
            # At temperature 0 the same messages would bring the same reply.
            quoted = _sendable(text[:_LONGEST_QUOTE]) or "(empty reply)"
            messages.append({"role": "assistant", "content": quoted})
            messages.append({"role": "user", "content": CORRECTION})
        self._report_once(BAD_FORMAT)
        return JudgeVerdict(None, BAD_FORMAT, False, text)

    async def _complete(self, messages: list[dict[str, str]]) -> str:
        async def content(answer: dict[str, Any]) -> str:
            try:
                text = answer["choices"][0]["message"]["content"]
            except (IndexError, KeyError, TypeError):
                raise unreadable(self._server) from None
            return text if isinstance(text, str) else ""

        settings = self.settings
        body = {"model": settings.model, "temperature": settings.temperature, "messages": messages}
        return await self._client.post(CHAT, body, content)

    def _count(self) -> None:
        """Count a request before it is sent; NotSent if it exceeds the limit."""
        limit = self.settings.max_requests
        if limit is not None and self._sent >= limit:
            cause = f"the limit of {limit} requests is used up; raise {self._role.limit} and run it again"
            raise NotSent(cause, retry=False, outage=False)
        self._sent += 1

    def _report_once(self, cause: str) -> None:
        warn_once(self._role.no_reply.format(cause))


def judge_for(dataset: str | None) -> Judge:
    """Return the judge that the environment configures, cleared for one dataset.

    Cheap enough to call per sample. Equal settings give the same judge, so that its limit on concurrent requests and
    its circuit breaker hold over all tasks and threads of a process (rank). Errors are those of
    :func:`settings_from_environment` and :func:`check_access`.
    """
    settings = settings_from_environment()
    check_access(settings, str(access_of(dataset)), str(dataset))
    with _building:
        return _judge(settings, default_cache_folder())


def judge_if_there(dataset: str | None) -> Judge | None:
    """Return the judge for one dataset, or None with one warning if the environment names none.

    For tasks of which only some metrics need a judge. Errors are those of :func:`judge_for`.
    """
    if is_configured():
        return judge_for(dataset)
    warn_once(_MISSING)
    return None


def scoring_judge(dataset: str | None) -> Judge | None:
    """Return the judge for one dataset once there are replies: every error is one warning per cause, and None."""
    try:
        return judge_if_there(dataset)
    except MedTasksError as error:
        warn_once(f"The judge cannot be asked, so the metrics that need it are NaN: {str(error).rstrip('.')}.")
        return None


@functools.cache
def _judge(settings: JudgeSettings, folder: Path) -> Judge:
    return Judge(settings, VerdictCache(folder))


def server_of(settings: JudgeSettings, role: str = JUDGING.name) -> Server:
    """Return a judge's server, whose messages name the variables that fix it."""
    return Server(settings.base_url, role, settings.timeout_s, f"check {BASE_URL}", _REFUSALS, settings.api_key)


def _sendable(text: str) -> str:
    # A model's reply may hold half a surrogate pair, which no request can carry.
    return text.encode("utf-8", errors="replace").decode("utf-8")
