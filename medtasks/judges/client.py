"""Asks an OpenAI-compatible endpoint for verdicts, patiently but not for ever.

Every cause of trouble at the endpoint is one sentence without prompt text and without the key.
"""

import email.utils
import functools
import math
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from loguru import logger
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential_jitter,
)

from medtasks.data.own_datasets import access_of
from medtasks.errors import MedTasksError, warn_once
from medtasks.judges.cache import VerdictCache, default_cache_folder, verdict_key
from medtasks.judges.settings import (
    API_KEY,
    BASE_URL,
    MODEL,
    JudgeSettings,
    check_access,
    is_configured,
    settings_from_environment,
)

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI
    from openai.types.chat import ChatCompletionMessageParam

T = TypeVar("T")

BAD_FORMAT = "reply did not follow the format"
CORRECTION = (
    "Your reply did not follow the required format. "
    "Answer again in exactly the format requested above, starting with its first line."
)
_LONGEST_BACKOFF_S = 60.0
# An endpoint that asks for a longer pause than this is not waited for.
_LONGEST_WAIT_S = 120.0
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
_CODE = re.compile(r"[A-Za-z0-9_.\[\]-]{1,60}", re.ASCII)
_building = threading.Lock()


@dataclass(frozen=True)
class Verdict(Generic[T]):
    """What one ask came to."""

    value: T | None  # what ``parse`` read from the reply, or ``None`` when there is no verdict
    # why there is no verdict, as one sentence without sample text; ``None`` exactly when there is one
    failure: str | None
    cached: bool  # whether the verdict came from disk, without a request
    text: str  # the judge's last raw reply, empty when none came. May quote the sample: treat it like the data


@dataclass(eq=False)
class RemoteTrouble(Exception):
    """One try at the judge gave no reply."""

    cause: str  # one sentence for the user, the same for every sample that meets this trouble
    _: KW_ONLY
    retry: bool  # whether another try can help
    outage: bool  # whether it says something about the endpoint, so that it would meet the next sample as well
    wait_s: float | None = None  # seconds the endpoint asked to wait before the next try


class CircuitBreaker:
    """Opens after ``limit`` asks in a row that failed for the endpoint's sake, and then stays open.

    It does not close again within the process: the replies are kept, and judging them later is cheaper than letting
    every sample wait for the time-out of an endpoint that comes and goes. A thread that waits for its next try can wait
    for ``opened`` instead.
    """

    def __init__(self, limit: int = 3) -> None:
        self.limit = limit
        self.opened = threading.Event()
        self.cause: str | None = None  # why the breaker is open
        self._lock = threading.Lock()
        self._in_a_row = 0

    def answered(self) -> None:
        """Note that the endpoint gave an answer: the failures before it were no outage."""
        with self._lock:
            self._in_a_row = 0

    def failed(self, cause: str) -> bool:
        """Note that an ask failed for the endpoint's sake; true once, for the failure that opens the breaker."""
        with self._lock:
            self._in_a_row += 1
            if self.cause is not None or self._in_a_row < self.limit:
                return False
            self.cause = cause
            self.opened.set()
            return True


class Judge:
    """One judge, shared by all threads of a process.

    Before the second try it waits for ``backoff_s`` seconds, which double with each further one, plus jitter.
    """

    def __init__(self, settings: JudgeSettings, cache: VerdictCache, *, backoff_s: float = 2.0) -> None:
        self.settings = settings
        self._cache = cache
        self._backoff_s = backoff_s
        self._backoff = wait_exponential_jitter(initial=backoff_s, max=_LONGEST_BACKOFF_S, jitter=backoff_s)
        self._slots = threading.BoundedSemaphore(settings.concurrency)
        self._breaker = CircuitBreaker()
        self._client = open_client(settings)

    def ask(self, system: str, user: str, parse: Callable[[str], T | None], *, prompt_version: int = 1) -> Verdict[T]:
        """Return the judge's verdict, from disk if the same question was answered before.

        Trouble at the remote end is a ``failure`` of the verdict, never an exception. No system message is sent if it
        is empty. ``parse`` returns ``None`` for a reply that breaks the format, and must not raise; only a reply that
        parses is kept on disk. ``prompt_version`` is a part of the cache key, to be raised when verdicts under the same
        texts must not be reused.
        """
        settings = self.settings
        system, user = _sendable(system), _sendable(user)
        key = verdict_key(settings.model, settings.temperature, system, user, prompt_version)
        stored = self._cache.get(key)
        value = None if stored is None else parse(stored)
        if stored is not None and value is not None:
            return Verdict(value, None, True, stored)
        try:
            verdict = self._ask_endpoint(system, user, parse)
        except RemoteTrouble as trouble:
            return Verdict(None, self._note(trouble), False, "")
        if verdict.value is not None:
            self._cache.put(key, verdict.text, settings.model)
        return verdict

    def _ask_endpoint(self, system: str, user: str, parse: Callable[[str], T | None]) -> Verdict[T]:
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": user}]
        if system:
            messages.insert(0, {"role": "system", "content": system})
        text = ""
        for _ in range(self.settings.reasks + 1):
            text = self._complete(messages)
            value = parse(text)
            if value is not None:
                return Verdict(value, None, False, text)
            # At temperature 0 the same messages would bring the same reply, so the conversation must move on.
            quoted = _sendable(text[:_LONGEST_QUOTE]) or "(empty reply)"
            messages.append({"role": "assistant", "content": quoted})
            messages.append({"role": "user", "content": CORRECTION})
        _report_once(BAD_FORMAT)
        return Verdict(None, BAD_FORMAT, False, text)

    def _complete(self, messages: "list[ChatCompletionMessageParam]") -> str:
        retrying = Retrying(
            stop=stop_after_attempt(self.settings.attempts) | stop_when_event_set(self._breaker.opened),
            wait=self._wait_s,
            retry=retry_if_exception(lambda error: isinstance(error, RemoteTrouble) and error.retry),
            sleep=sleep_using_event(self._breaker.opened),
            reraise=True,
        )
        text = retrying(self._send, messages)
        self._breaker.answered()
        return text

    def _send(self, messages: "list[ChatCompletionMessageParam]") -> str:
        from openai import OpenAIError

        # A slot is held for the request alone: a thread that backs off must not keep the others from asking.
        with self._slots:
            if self._breaker.cause is not None:
                raise RemoteTrouble(self._breaker.cause, retry=False, outage=True)
            try:
                completion = self._client.chat.completions.create(
                    model=self.settings.model, temperature=self.settings.temperature, messages=messages
                )
            # ValueError: a body announced as JSON that is none escapes the SDK unwrapped.
            except (OpenAIError, ValueError) as error:
                raise trouble_of(error, self.settings) from None
        try:
            content = completion.choices[0].message.content
        except (AttributeError, IndexError, KeyError, TypeError):
            raise unreadable(self.settings) from None
        return content if isinstance(content, str) else ""

    def _wait_s(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, RemoteTrouble) and error.wait_s is not None:
            return error.wait_s + random.uniform(0.0, self._backoff_s)
        return self._backoff(state)

    def _note(self, trouble: RemoteTrouble) -> str:
        if not trouble.outage:
            self._breaker.answered()
            _report_once(trouble.cause)
        elif self._breaker.failed(trouble.cause):
            logger.warning(
                "No more replies are judged in this run because {} asks in a row failed: {}. "
                "The replies are kept and can be judged later with `medtasks score`.",
                self._breaker.limit,
                trouble.cause,
            )
        return trouble.cause


def _report_once(cause: str) -> None:
    warn_once(
        f"A sample got no verdict from the judge: {cause}. Such samples count as judge_failed; "
        f"further ones of this kind are not reported."
    )


def judge_for(dataset: str, access: str) -> Judge:
    """Return the judge that the environment configures, cleared for one dataset and its access level.

    Cheap enough to call per sample. Equal settings give the same judge, so that its limit on concurrent requests and
    its circuit breaker hold over all tasks and threads; every process (rank) has a judge of its own. Errors are those
    of :func:`settings_from_environment` and :func:`check_access`.
    """
    settings = settings_from_environment()
    check_access(settings, access, dataset)
    with _building:
        return _judge(settings, default_cache_folder())


def judge_if_there(dataset: str) -> Judge | None:
    """Return the judge for one dataset, or None with one warning where the environment names no judge at all.

    For tasks of which only some metrics need a judge. Errors are those of :func:`judge_for`: a judge that is named, but
    wrongly or one that may not see the dataset, is a mistake to mend and not a judge that is missing.
    """
    if is_configured():
        return judge_for(dataset, str(access_of(dataset)))
    warn_once(_MISSING)
    return None


def scoring_judge(dataset: str) -> Judge | None:
    """Return the same once replies are there: whatever is wrong with a judge is one warning per cause, and None."""
    try:
        return judge_if_there(dataset)
    except MedTasksError as error:
        warn_once(f"The judge cannot be asked, so the metrics that need it are NaN: {str(error).rstrip('.')}.")
        return None


@functools.cache
def _judge(settings: JudgeSettings, folder: Path) -> Judge:
    return Judge(settings, VerdictCache(folder))


def open_client(settings: JudgeSettings) -> "OpenAI":
    """Return the client by which a judge is asked, with this package's rules on retries and proxies."""
    # Imported here because it takes a second that a run without a judge should not pay.
    from openai import DefaultHttpxClient, OpenAI

    # Text bound for this machine, or for one the user trusts, must go nowhere else by way of a proxy variable or a
    # redirect; a proxy cannot read what goes through it to an https endpoint.
    proxies = not settings.is_local and settings.base_url.startswith("https:")
    http_client = DefaultHttpxClient(trust_env=proxies, follow_redirects=False)
    return OpenAI(
        base_url=settings.base_url,
        # Never None: the SDK would then send the user's OPENAI_API_KEY to this endpoint.
        api_key=settings.api_key or "none",
        timeout=settings.timeout_s,
        max_retries=0,
        http_client=http_client,
    )


def _sendable(text: str) -> str:
    # A model's reply may hold half a surrogate pair, which no request can carry.
    return text.encode("utf-8", errors="replace").decode("utf-8")


def trouble_of(error: Exception, settings: JudgeSettings) -> RemoteTrouble:
    """Classify an exception of the ``openai`` SDK.

    The server's own message is never quoted, for it may repeat the prompt or the key; only its short error code is.
    Time-outs, lost connections, 408 and 5xx are retried and are outages; 429 is retried, and is no outage because
    waiting mends it, unless the quota is used up; 401, 403, 404 and redirects are outages that no retry mends; every
    other status is a fault of this one request.
    """
    import openai

    where = f"the judge at {settings.base_url}"
    if isinstance(error, openai.APITimeoutError):
        return RemoteTrouble(f"{where} did not answer within {settings.timeout_s:g} s", retry=True, outage=True)
    if isinstance(error, openai.APIConnectionError):
        return RemoteTrouble(f"{where} could not be reached{_system_reason(error)}", retry=True, outage=True)
    if isinstance(error, openai.APIStatusError):
        return _status_trouble(error, where)
    return unreadable(settings)


def unreadable(settings: JudgeSettings) -> RemoteTrouble:
    """Return the trouble of an answer that is no chat completion, such as a proxy's HTML page."""
    cause = f"the judge at {settings.base_url} answered with something that is no chat completion; check {BASE_URL}"
    return RemoteTrouble(cause, retry=True, outage=True)


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause an endpoint asks for, in seconds, or ``None`` when that is missing or malformed.

    It is ``retry-after-ms`` (OpenAI, Azure), else ``Retry-After`` as seconds or as a date (RFC 9110, 10.2.3), which is
    read against ``now``, in seconds since the epoch; never negative. Headers have case-insensitive lookup or lower-case
    names.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        return max(email.utils.parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


def _status_trouble(error: "APIStatusError", where: str) -> RemoteTrouble:
    status = error.status_code
    code = error.code if error.code and _CODE.fullmatch(error.code) else None
    label = f"HTTP {status}, {code}" if code else f"HTTP {status}"
    if status in _REFUSALS:
        return RemoteTrouble(f"{where} refused the request ({label}); {_REFUSALS[status]}", retry=False, outage=True)
    if 300 <= status < 400:
        return RemoteTrouble(f"{where} redirects elsewhere ({label}); check {BASE_URL}", retry=False, outage=True)
    if code == "insufficient_quota":
        return RemoteTrouble(f"{where} has no quota left ({label})", retry=False, outage=True)
    if status not in (408, 429) and status < 500:
        return RemoteTrouble(f"{where} rejected the request ({label})", retry=False, outage=False)
    wait_s = retry_after_s(error.response.headers, time.time())
    if wait_s is not None and wait_s > _LONGEST_WAIT_S:
        return RemoteTrouble(f"{where} asks to wait {wait_s:.0f} s ({label})", retry=False, outage=False)
    cause = f"{where} limits the rate of requests" if status == 429 else f"{where} failed"
    return RemoteTrouble(f"{cause} ({label})", retry=True, outage=status != 429, wait_s=wait_s)


def _system_reason(error: BaseException) -> str:
    # Only the operating system's words: the HTTP library's may quote a header, and with it the key.
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.strerror:
            return f" ({link.strerror})"
        link = link.__cause__ or link.__context__
    return ""
