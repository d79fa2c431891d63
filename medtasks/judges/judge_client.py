"""Judges: their settings, the guard on credentialed data, and the client that asks an OpenAI-compatible endpoint.

Every failure at the endpoint is one sentence without prompt text and without the key.
"""

import asyncio
import functools
import hashlib
import json
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from loguru import logger

from medtasks.data.catalogue import Access
from medtasks.data.privacy import access_of
from medtasks.errors import JudgeNotConfigured, JudgeRefused, unknown_name, warn_once
from medtasks.home import home
from medtasks.net import servers
from medtasks.net.chat_client import CHAT, AdaptiveLimit, ChatClient, NotSent, background_loop
from medtasks.net.disk_cache import SqliteCache
from medtasks.net.servers import RemoteTrouble, Server, trouble_of, unreadable

T = TypeVar("T")

BASE_URL = "MEDTASKS_JUDGE_BASE_URL"
MODEL = "MEDTASKS_JUDGE_MODEL"
API_KEY = "MEDTASKS_JUDGE_API_KEY"
TEMPERATURE = "MEDTASKS_JUDGE_TEMPERATURE"
CONCURRENCY = "MEDTASKS_JUDGE_CONCURRENCY"
TIMEOUT = "MEDTASKS_JUDGE_TIMEOUT"
ATTEMPTS = "MEDTASKS_JUDGE_ATTEMPTS"
REASKS = "MEDTASKS_JUDGE_REASKS"
MAX_REQUESTS = "MEDTASKS_JUDGE_MAX_REQUESTS"
ALLOW_REMOTE = "MEDTASKS_JUDGE_ALLOW_REMOTE"
TRUSTED = "MEDTASKS_TRUSTED_JUDGE"

_URL_RULE = "must look like http(s)://host[:port]/path, without user or query"
_EXAMPLE = f"{BASE_URL}=https://api.openai.com/v1 {MODEL}=gpt-4o {API_KEY}=<your key>"
_CANNOT_KEEP = (
    "Judge verdicts cannot be kept in {path} ({error}); the run goes on, but a rerun will ask the judge again. Free "
    "some space, set MEDTASKS_HOME to another folder, or remove that file if it is damaged."
)
BAD_FORMAT = "reply did not follow the format"
CORRECTION = (
    "Your reply did not follow the required format. "
    "Answer again in exactly the format requested above, starting with its first line."
)
_IN_A_ROW = 3  # requests in a row that fail at the endpoint, after which none is sent
_LONGEST_QUOTE = 2000
_RAW_TOKENS = 1024  # of a reply to a raw prompt; servers' own default is 16
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
class JudgeSettings:
    """An OpenAI-compatible chat endpoint and its use.

    An impossible value is a JudgeNotConfigured that names the environment variable.
    """

    base_url: str  # ``http(s)://host[:port]/path`` up to, not including, ``/chat/completions``
    model: str  # the model's name as the endpoint knows it
    api_key: str = field(
        default="", repr=False
    )  # secret, hidden in ``repr``; empty for an endpoint that needs none
    temperature: float = 0.0  # sampling temperature in [0, 2]
    concurrency: int = 4  # most requests under way at once, over all threads of this process
    timeout_s: float = 60.0  # seconds without a byte from the endpoint before a try is given up
    attempts: int = 5  # most tries of a request that fails for a passing reason
    reasks: int = 2  # most further questions after a reply that breaks the format
    max_requests: int | None = (
        None  # most requests that one process sends, further tries included; None is no limit
    )

    def __post_init__(self) -> None:
        sendable = self.api_key.isascii() and self.api_key.isprintable() and " " not in self.api_key
        rules = (
            (servers.is_url(self.base_url), f"{BASE_URL} {_URL_RULE}"),
            (bool(self.model), f"{MODEL} must not be empty"),
            (sendable, f"{API_KEY} contains a character that no HTTP header may hold"),
            (
                0 <= self.temperature <= 2,
                f"{TEMPERATURE} is {self.temperature} but must lie between 0 and 2",
            ),
            (self.concurrency >= 1, f"{CONCURRENCY} is {self.concurrency} but must be at least 1"),
            (
                0 < self.timeout_s < math.inf,
                f"{TIMEOUT} is {self.timeout_s} but must be a positive time in seconds",
            ),
            (self.attempts >= 1, f"{ATTEMPTS} is {self.attempts} but must be at least 1"),
            (self.reasks >= 0, f"{REASKS} is {self.reasks} but must be at least 0"),
            (
                (self.max_requests or 0) >= 0,
                f"{MAX_REQUESTS} is {self.max_requests} but must be at least 0",
            ),
        )
        for holds, sentence in rules:
            if not holds:
                raise JudgeNotConfigured(f"{sentence}.")

    @property
    def label(self) -> str:
        """Model and temperature, as scores record them."""
        return f"{self.model}, temperature {self.temperature:g}"

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        return servers.is_loopback(servers.host(self.base_url))


def is_configured(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user has named a judge, if only in part."""
    return any(environ.get(name, "").strip() for name in (BASE_URL, MODEL))


def settings_from_environment(
    environ: Mapping[str, str] = os.environ, what: str = "this task needs an LLM judge"
) -> JudgeSettings:
    """Read the judge's settings from ``MEDTASKS_JUDGE_*``; unset and blank variables count as missing.

    ``what`` begins the sentence on missing ones. JudgeNotConfigured: base URL, model or a remote endpoint's key is
    missing, or a value is wrong.
    """
    values = {
        name: text.strip() for name, text in environ.items() if name.startswith("MEDTASKS_JUDGE_")
    }
    missing = [name for name in (BASE_URL, MODEL) if not values.get(name)]
    if missing:
        raise JudgeNotConfigured(
            f"{what} and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; "
            f"set for example {_EXAMPLE} (an endpoint on this machine, such as http://127.0.0.1:8000/v1, needs no key)"
        )

    def number(name: str, convert: Callable[[str], Any], default: float) -> Any:
        text = values.get(name)
        try:
            return convert(text) if text else default
        except ValueError:
            kind = "a whole number" if convert is int else "a number"
            message = f"{name} is '{text}' but must be {kind}, for example {name}={default}."
            raise JudgeNotConfigured(message) from None

    settings = JudgeSettings(
        base_url=values[BASE_URL].rstrip("/"),
        model=values[MODEL],
        api_key=values.get(API_KEY, ""),
        temperature=number(TEMPERATURE, float, JudgeSettings.temperature),
        concurrency=number(CONCURRENCY, int, JudgeSettings.concurrency),
        timeout_s=number(TIMEOUT, float, JudgeSettings.timeout_s),
        attempts=number(ATTEMPTS, int, JudgeSettings.attempts),
        reasks=number(REASKS, int, JudgeSettings.reasks),
        max_requests=number(MAX_REQUESTS, int, 1000) if values.get(MAX_REQUESTS) else None,
    )
    if not settings.api_key and not settings.is_local:
        raise JudgeNotConfigured(
            f"the judge at {settings.base_url} is not on this machine and {API_KEY} is not set; set it, "
            f"to any text such as {API_KEY}=none if the endpoint asks for no key."
        )
    return settings


def check_access(
    settings: JudgeSettings, access: str, dataset: str, environ: Mapping[str, str] = os.environ
) -> None:
    """Refuse to send credentialed text to another machine.

    Two variables open the guard, for users whose data use agreement covers the endpoint: ``MEDTASKS_TRUSTED_JUDGE``
    names one endpoint, with any path, for all datasets, and ``MEDTASKS_JUDGE_ALLOW_REMOTE`` one dataset, for all
    endpoints. Raises JudgeRefused otherwise, and UnknownName for an ``access`` that is misspelt.
    """
    if access not in list(Access):
        raise unknown_name("access level", access, Access)
    if (
        access != Access.CREDENTIALED
        or settings.is_local
        or environ.get(ALLOW_REMOTE, "").strip() == dataset
    ):
        return
    trusted, origin = environ.get(TRUSTED, "").strip(), servers.origin(settings.base_url)
    if trusted and not servers.is_url(trusted):
        raise JudgeRefused(
            f"{TRUSTED} {_URL_RULE}, so no judge is trusted with '{dataset}'; write for example {TRUSTED}={origin}"
        )
    if trusted and servers.origin(trusted) == origin:
        return
    raise JudgeRefused(
        f"'{dataset}' is credentialed and the judge at {settings.base_url} is not on this machine, so its text is not "
        f"sent there; set {BASE_URL} to an endpoint on this machine such as http://127.0.0.1:8000/v1, or, if your data "
        f"use agreement allows it, {TRUSTED}={origin} for this judge or {ALLOW_REMOTE}={dataset} for this dataset."
    )


def default_cache_folder() -> Path:
    """Return ``judge`` below ``$MEDTASKS_HOME``."""
    return home() / "judge"


class VerdictCache(SqliteCache):
    """Judge replies by the key of their verdict. The prompt, which may be credentialed, is not stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "verdicts.sqlite", ("verdicts", "reply"), _CANNOT_KEEP)


@dataclass(frozen=True)
class JudgeVerdict(Generic[T]):
    """Result of one request for a verdict."""

    value: T | None  # result of ``parse``, or ``None`` without a verdict
    failure: (
        str | None
    )  # why there is no verdict, as one sentence without sample text; ``None`` with a verdict
    cached: bool  # whether the verdict came from disk, without a request
    text: str  # the judge's last raw reply, or empty. May quote the sample: treat it like the data
    sent: bool = (
        True  # False if the limit of requests, or an earlier outage, kept it from being sent
    )


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
        self,
        settings: JudgeSettings,
        cache: VerdictCache,
        *,
        backoff_s: float = 2.0,
        role: JudgeRole = JUDGING,
    ) -> None:
        self.settings = settings
        self._role = role
        self._cache = cache
        folder = cache.path.parent if cache.path else default_cache_folder()
        self.checks = SqliteCache(folder / "checks.sqlite", ("checks", "result"), _CANNOT_KEEP)
        identity = json.dumps(
            [settings.base_url.rstrip("/"), settings.model, float(settings.temperature)]
        )
        self.check_key = hashlib.sha256(identity.encode("ascii")).digest()
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
        self,
        system: str,
        user: str,
        parse: Callable[[str], T | None],
        *,
        prompt_version: int = 1,
        is_raw: bool = False,
    ) -> JudgeVerdict[T]:
        """Return the judge's verdict, from disk if the same question was answered before; never raises.

        An empty system message is not sent. A raw ``user`` is a string to complete, without the server's chat template.
        ``parse`` returns ``None`` for a reply that breaks the format, and must not raise; only a reply that parses is
        stored. ``prompt_version`` is raised when stored verdicts must not be reused.
        """
        system, user = _sendable(system), _sendable(user)
        key = self._key(system, user, prompt_version).hex()
        replies = self._cache.get([bytes.fromhex(key)])
        stored = next((reply.decode("utf-8", "surrogatepass") for reply in replies.values()), None)
        value = None if stored is None else parse(stored)
        if stored is not None and value is not None:
            return JudgeVerdict(value, None, True, stored)
        # All requests are sent by one thread: nothing below needs a lock.
        asking = self._ask_endpoint(system, user, parse, key, is_raw)
        verdict = asyncio.run_coroutine_threadsafe(asking, background_loop()).result()
        if verdict.value is not None:
            self._cache.put({bytes.fromhex(key): verdict.text.encode("utf-8", "surrogatepass")})
        return verdict

    def stored(self, names: Sequence[str]) -> list[str | None]:
        """Return the values that :meth:`store` kept of this judge under names, shape (names,)."""
        keys = [self._key(name) for name in names]
        values = self._cache.get(keys)
        return [values[key].decode() if key in values else None for key in keys]

    def store(self, texts: Mapping[str, str]) -> None:
        """Keep texts on this judge's verdicts by name, all or none."""
        self._cache.put({self._key(name): text.encode() for name, text in texts.items()})

    def _key(self, *content: Any) -> bytes:
        # Another endpoint may serve another model under the same name.
        chosen = self.settings
        origin = [chosen.base_url.rstrip("/"), chosen.model, float(chosen.temperature)]
        return hashlib.sha256(json.dumps([*origin, *content]).encode("ascii")).digest()

    async def _ask_endpoint(
        self, system: str, user: str, parse: Callable[[str], T | None], key: str, is_raw: bool
    ) -> JudgeVerdict[T]:
        async def content(answer: dict[str, Any]) -> str:
            try:
                choice = answer["choices"][0]
                reply = choice["text"] if is_raw else choice["message"]["content"]
            except (IndexError, KeyError, TypeError):
                raise unreadable(self._server) from None
            return reply if isinstance(reply, str) else ""

        messages = [{"role": "system", "content": system}] * bool(system) + [
            {"role": "user", "content": user}
        ]
        body: dict[str, Any] = {
            "model": self.settings.model,
            "temperature": self.settings.temperature,
        }
        body |= {"prompt": user, "max_tokens": _RAW_TOKENS} if is_raw else {"messages": messages}
        text = ""
        for number in range(self.settings.reasks + 1):
            try:
                text = await self._client.post("completions" if is_raw else CHAT, body, content)
            except RemoteTrouble as trouble:
                was_sent = not isinstance(trouble, NotSent)
                cause = (
                    trouble.cause
                    if was_sent or number == 0
                    else f"{BAD_FORMAT}, and {trouble.cause}"
                )
                if not trouble.outage:
                    self._client.answered()
                    warn_once(self._role.no_reply.format(cause))
                elif self._client.lose(cause, key):
                    logger.warning(self._role.given_up, self._client.patience, cause)
                return JudgeVerdict(None, cause, False, "", sent=number > 0 or was_sent)
            value = parse(text)
            if value is not None:
                return JudgeVerdict(value, None, False, text)
            # At temperature 0 the same messages would bring the same reply.
            quoted = _sendable(text[:_LONGEST_QUOTE]) or "(empty reply)"
            messages.append({"role": "assistant", "content": quoted})
            messages.append({"role": "user", "content": CORRECTION})
        warn_once(self._role.no_reply.format(BAD_FORMAT))
        return JudgeVerdict(None, BAD_FORMAT, False, text)

    @property
    def label(self) -> str:
        """Model, temperature and the result of ``medtasks judge check``, as scores show them."""
        results = self.checks.get([self.check_key])
        checks = [str(json.loads(result)["sentence"]) for result in results.values()]
        return ", ".join(
            [self.settings.label, *(checks or ["not checked by 'medtasks judge check'"])]
        )

    def _count(self) -> None:
        """Count a request before it is sent; NotSent if it exceeds the limit."""
        limit = self.settings.max_requests
        if limit is not None and self._sent >= limit:
            cause = f"the limit of {limit} requests is used up; raise {self._role.limit} and run it again"
            raise NotSent(cause, retry=False, outage=False)
        self._sent += 1


def settings_for(dataset: str | None, what: str = "this task needs an LLM judge") -> JudgeSettings:
    """Return the settings of the environment's judge, which may see one dataset.

    Errors are those of :func:`settings_from_environment` and :func:`check_access`.
    """
    settings = settings_from_environment(what=what)
    check_access(settings, str(access_of(dataset)), str(dataset))
    return settings


def judge_for(dataset: str | None, what: str = "this task needs an LLM judge") -> Judge:
    """Return the judge that the environment configures, cleared for one dataset; ``what`` begins errors.

    Equal settings give the same judge, so that its limits hold over all tasks and threads of a process. Errors are
    those of :func:`settings_for`.
    """
    settings = settings_for(dataset, what)
    with _building:
        return _judge(settings, default_cache_folder())


def judge_if_there(dataset: str | None) -> Judge | None:
    """Return the judge for one dataset, or None with one warning if the environment names none."""
    if is_configured():
        return judge_for(dataset)
    warn_once(_MISSING)
    return None


@functools.cache
def _judge(settings: JudgeSettings, folder: Path) -> Judge:
    return Judge(settings, VerdictCache(folder))


def server_of(settings: JudgeSettings, role: str = JUDGING.name) -> Server:
    """Return a judge's server, whose messages name the variables that fix it."""
    return Server(
        settings.base_url,
        role,
        settings.timeout_s,
        f"check {BASE_URL}",
        _REFUSALS,
        settings.api_key,
    )


def _sendable(text: str) -> str:
    # A model's reply may hold half a surrogate pair, which no request can carry.
    return text.encode("utf-8", errors="replace").decode("utf-8")
