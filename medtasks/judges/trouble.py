"""What can go wrong at a remote judge, and when to stop asking it.

Every cause is one sentence without prompt text and without the key.
"""

import email.utils
import math
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from medtasks.judges.settings import API_KEY, BASE_URL, MODEL, JudgeSettings

if TYPE_CHECKING:
    import openai

LONGEST_WAIT_S = 120.0
"""An endpoint that asks for a longer pause than this many seconds is not waited for."""

_REFUSALS = {
    401: f"check {API_KEY}",
    403: f"check {API_KEY} and that it may use this model",
    404: f"check {BASE_URL} and {MODEL}",
}
_CODE = re.compile(r"[A-Za-z0-9_.\[\]-]{1,60}", re.ASCII)


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


def _status_trouble(error: "openai.APIStatusError", where: str) -> RemoteTrouble:
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
    if wait_s is not None and wait_s > LONGEST_WAIT_S:
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
