"""Judges: their settings, the guard on credentialed data, and the client that asks an OpenAI-compatible endpoint.

Question types and metrics with an LLM judge ask through it. Every failure at the endpoint is one sentence without
prompt text and without the key, and credentialed text must never go to an endpoint that the user has not cleared.
"""

import asyncio
import functools
import hashlib
import itertools
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
ReplyParser = Callable[[str], T | None]
"""Reads the verdict in a judge's reply. It returns ``None`` for a reply in another form, and must not raise."""

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
    # Secret, hidden in ``repr``; empty for an endpoint that needs none.
    api_key: str = field(default="", repr=False)
    temperature: float = 0.0  # sampling temperature in [0, 2]
    concurrency: int = 4  # most requests under way at once, over all threads of this process
    timeout_s: float = 60.0  # seconds without a byte from the endpoint before a try is given up
    attempts: int = 5  # most tries of a request that fails for a passing reason
    reasks: int = 2  # most further questions after a reply that breaks the format
    # Most requests that one process sends, further tries included; None is no limit.
    max_requests: int | None = None

    def __post_init__(self) -> None:
        sendable = (
            self.api_key.isascii() and self.api_key.isprintable() and " " not in self.api_key
        )
        rules = (
            (servers.is_url(self.base_url), f"{BASE_URL} {_URL_RULE}"),
            (bool(self.model), f"{MODEL} must not be empty"),
            (sendable, f"{API_KEY} contains a character that no HTTP header may hold"),
            (
                0 <= self.temperature <= 2,
                f"{TEMPERATURE} is {self.temperature} but must lie between 0 and 2",
            ),
            (
                self.concurrency >= 1,
                f"{CONCURRENCY} is {self.concurrency} but must be at least 1",
            ),
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


def is_configured() -> bool:
    """Return whether the environment names a judge, if only its base URL or its model."""
    return any(os.environ.get(name, "").strip() for name in (BASE_URL, MODEL))


def settings_from_environment(
    environ: Mapping[str, str] = os.environ, what: str = "this task needs an LLM judge"
) -> JudgeSettings:
    """Read the judge's settings from ``MEDTASKS_JUDGE_*``.

    Args:
        environ: Variables with their texts. A blank one counts as missing.
        what: Beginning of the sentence on missing variables.

    Raises:
        JudgeNotConfigured: Base URL, model or a remote endpoint's key is missing, or a value is wrong.
    """
    values = {name: text.strip() for name, text in environ.items()}
    missing = list(itertools.filterfalse(values.get, (BASE_URL, MODEL)))
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise JudgeNotConfigured(
            f"{what} and {' and '.join(missing)} {verb} not set; "
            f"set for example {_EXAMPLE} (an endpoint on this machine, such as http://127.0.0.1:8000/v1, needs no key)"
        )
    limit = None
    if values.get(MAX_REQUESTS):
        limit = _read_number(values, MAX_REQUESTS, int, 1000)
    settings = JudgeSettings(
        base_url=values[BASE_URL].rstrip("/"),
        model=values[MODEL],
        api_key=values.get(API_KEY, ""),
        temperature=_read_number(values, TEMPERATURE, float, JudgeSettings.temperature),
        concurrency=_read_number(values, CONCURRENCY, int, JudgeSettings.concurrency),
        timeout_s=_read_number(values, TIMEOUT, float, JudgeSettings.timeout_s),
        attempts=_read_number(values, ATTEMPTS, int, JudgeSettings.attempts),
        reasks=_read_number(values, REASKS, int, JudgeSettings.reasks),
        max_requests=limit,
    )
    if not settings.api_key and not settings.is_local:
        raise JudgeNotConfigured(
            f"the judge at {settings.base_url} is not on this machine and {API_KEY} is not set; set it, "
            f"to any text such as {API_KEY}=none if the endpoint asks for no key."
        )
    return settings


def _read_number(
    values: Mapping[str, str],
    name: str,
    convert: Callable[[str], Any],
    default: float,
) -> Any:
    """Return the number in a variable, or the default if the variable is missing or empty.

    Args:
        values: Texts by variable.
        name: The variable.
        convert: ``int`` or ``float``.
        default: Also the example in the message.

    Raises:
        JudgeNotConfigured: The text is no such number.
    """
    text = values.get(name)
    try:
        return convert(text) if text else default
    except ValueError:
        kind = "a whole number" if convert is int else "a number"
        message = f"{name} is '{text}' but must be {kind}, for example {name}={default}."
        raise JudgeNotConfigured(message) from None


def check_access(
    settings: JudgeSettings,
    access: str,
    dataset: str,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Refuse to send credentialed text to another machine.

    Two variables open the guard, for users whose data use agreement covers the endpoint: ``MEDTASKS_TRUSTED_JUDGE``
    names one endpoint, with any path, for all datasets, and ``MEDTASKS_JUDGE_ALLOW_REMOTE`` one dataset, for all
    endpoints.

    Args:
        settings: The judge.
        access: Access level of the data, of :class:`Access`.
        dataset: Name of the data.
        environ: Variables with the user's permissions.

    Raises:
        JudgeRefused: The data are credentialed, the judge is on another machine, and no variable permits it.
        UnknownName: ``access`` is misspelt.
    """
    if access not in list(Access):
        raise unknown_name("access level", access, Access)
    if access != Access.CREDENTIALED or settings.is_local:
        return
    if environ.get(ALLOW_REMOTE, "").strip() == dataset:
        return
    trusted = environ.get(TRUSTED, "").strip()
    origin = servers.origin(settings.base_url)
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
    # Why there is no verdict, as one sentence without sample text; ``None`` with a verdict.
    failure: str | None
    cached: bool  # whether the verdict came from disk, without a request
    text: str  # the judge's last raw reply, or empty. May quote the sample: treat it like the data
    # False if the limit of requests, or an earlier outage, kept it from being sent.
    sent: bool = True


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

    Before the second try of a request the judge waits for ``backoff_s`` seconds, and twice as long before each further
    try, plus jitter.
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
        self.check_key = self._key()
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
        parse: ReplyParser[T],
        *,
        prompt_version: int = 1,
        is_raw: bool = False,
    ) -> JudgeVerdict[T]:
        """Return the judge's verdict, from disk if the same question was answered before. Never raises.

        Args:
            system: System message; an empty one is not sent.
            user: User message, or with ``is_raw`` a string to complete, without the server's chat template.
            parse: Reads a reply. One that breaks the format is not stored.
            prompt_version: Raised when stored verdicts must not be reused.
            is_raw: Whether ``user`` is a string to complete.
        """
        system = _sendable(system)
        user = _sendable(user)
        key = self._key(system, user, prompt_version)
        for reply in self._cache.get([key]).values():
            text = reply.decode("utf-8", "surrogatepass")
            value = parse(text)
            if value is not None:
                return JudgeVerdict(value, None, True, text)
        # All requests are sent by one thread: nothing below needs a lock.
        asking = self._ask_endpoint(system, user, parse, key.hex(), is_raw)
        verdict = asyncio.run_coroutine_threadsafe(asking, background_loop()).result()
        if verdict.value is not None:
            self._cache.put({key: verdict.text.encode("utf-8", "surrogatepass")})
        return verdict

    def read_texts(self, names: Sequence[str]) -> list[str | None]:
        """Return the texts that :meth:`store` kept of this judge.

        Args:
            names: Names of texts.

        Returns:
            One text per name, in the same order; ``None`` for a name without a text.
        """
        keys = [self._key(name) for name in names]
        values = self._cache.get(keys)
        return [values[key].decode() if key in values else None for key in keys]

    def store(self, texts: Mapping[str, str]) -> None:
        """Keep texts on this judge's verdicts, all or none.

        Args:
            texts: Texts by the name under which :meth:`read_texts` finds them.
        """
        self._cache.put({self._key(name): text.encode() for name, text in texts.items()})

    def _key(self, *content: Any) -> bytes:
        """Return the cache key of a request or a text to this judge, of the judge itself without any content."""
        # Another endpoint may serve another model under the same name.
        chosen = self.settings
        origin = [chosen.base_url.rstrip("/"), chosen.model, float(chosen.temperature)]
        return hashlib.sha256(json.dumps([*origin, *content]).encode("ascii")).digest()

    async def _content(self, is_raw: bool, answer: dict[str, Any]) -> str:
        """Return the text in an endpoint's answer, empty if that text is null.

        Raises:
            RemoteTrouble: The answer has no place for a text.
        """
        try:
            choice = answer["choices"][0]
            reply = choice["text"] if is_raw else choice["message"]["content"]
        except (IndexError, KeyError, TypeError):
            raise unreadable(self._server) from None
        return reply if isinstance(reply, str) else ""

    async def _ask_endpoint(
        self,
        system: str,
        user: str,
        parse: ReplyParser[T],
        key: str,
        is_raw: bool,
    ) -> JudgeVerdict[T]:
        """Ask the endpoint, again after replies that break the format, and return its verdict.

        Args:
            system: System message; an empty one is not sent.
            user: User message, or with ``is_raw`` a string to complete.
            parse: Reads a reply.
            key: Name of the request, for counting failures in a row.
            is_raw: Whether ``user`` is a string to complete.
        """
        messages = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        body: dict[str, Any] = {
            "model": self.settings.model,
            "temperature": self.settings.temperature,
        }
        route = CHAT
        if is_raw:
            route = "completions"
            body |= {"prompt": user, "max_tokens": _RAW_TOKENS}
        else:
            body["messages"] = messages
        content = functools.partial(self._content, is_raw)
        text = ""
        for number in range(self.settings.reasks + 1):
            try:
                text = await self._client.post(route, body, content)
            except RemoteTrouble as trouble:
                return self._without_verdict(trouble, key, number)
            value = parse(text)
            if value is not None:
                return JudgeVerdict(value, None, False, text)
            # At temperature 0 the same messages would bring the same reply.
            quoted = _sendable(text[:_LONGEST_QUOTE]) or "(empty reply)"
            messages.append({"role": "assistant", "content": quoted})
            messages.append({"role": "user", "content": CORRECTION})
        warn_once(self._role.no_reply.format(BAD_FORMAT))
        return JudgeVerdict(None, BAD_FORMAT, False, text)

    def _without_verdict(
        self, trouble: RemoteTrouble, key: str, earlier: int
    ) -> JudgeVerdict[Any]:
        """Count and warn of a request that got no reply, and give the judge up after too many in a row.

        Args:
            trouble: Why there is no reply.
            key: Name of the request, by which failures in a row are counted.
            earlier: Number of its replies that broke the format before.
        """
        was_sent = not isinstance(trouble, NotSent)
        cause = trouble.cause
        if earlier and not was_sent:
            cause = f"{BAD_FORMAT}, and {cause}"
        # No sign of an outage: the endpoint answered, or the limit of requests is used up.
        if not trouble.outage:
            self._client.note_answer()
            warn_once(self._role.no_reply.format(cause))
        elif self._client.lose(cause, key):
            logger.warning(self._role.given_up, self._client.patience, cause)
        return JudgeVerdict(None, cause, False, "", sent=earlier > 0 or was_sent)

    @property
    def label(self) -> str:
        """Model, temperature and the result of ``medtasks judge check``, as scores show them."""
        results = self.checks.get([self.check_key])
        parts = [self.settings.label]
        parts += [str(json.loads(result)["sentence"]) for result in results.values()]
        if not results:
            parts.append("not checked by 'medtasks judge check'")
        return ", ".join(parts)

    def _count(self) -> None:
        """Count a request before it is sent, and raise NotSent if it exceeds the limit."""
        limit = self.settings.max_requests
        if limit is not None and self._sent >= limit:
            cause = f"the limit of {limit} requests is used up; raise {self._role.limit} and run it again"
            raise NotSent(cause, retry=False, outage=False)
        self._sent += 1


def settings_for(dataset: str | None, what: str) -> JudgeSettings:
    """Return the settings of the environment's judge, which may see one dataset.

    Args:
        dataset: Name of the data; ``None`` for data without a name.
        what: Beginning of the sentence on missing variables.

    Raises:
        JudgeNotConfigured: As of :func:`settings_from_environment`.
        JudgeRefused: As of :func:`check_access`.
    """
    settings = settings_from_environment(what=what)
    check_access(settings, str(access_of(dataset)), str(dataset))
    return settings


def judge_for(dataset: str | None, what: str = "this task needs an LLM judge") -> Judge:
    """Return the judge that the environment configures, cleared for one dataset.

    Equal settings give the same judge, so that its limits hold over all tasks and threads of a process. It does not
    remember for which dataset it was cleared: each call checks.

    Args:
        dataset: Name of the data, as documents name it. ``None`` is a user's own file, which counts as public. An
            unknown name counts as credentialed.
        what: Beginning of the sentence on missing variables.

    Raises:
        JudgeNotConfigured: As of :func:`settings_from_environment`.
        JudgeRefused: The data are credentialed, the judge is on another machine, and the user did not permit it.
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
    """Return a text that a request can carry."""
    # A model's reply may hold half a surrogate pair, which no request can carry.
    return text.encode("utf-8", errors="replace").decode("utf-8")
