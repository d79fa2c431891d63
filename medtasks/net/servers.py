"""OpenAI-compatible servers: their addresses, their errors, and whether a retry can help.

Every cause is one sentence without prompt text and without the key: a server's own message may repeat both.
"""

import email.utils
import errno
import ipaddress
import logging
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from urllib.parse import urlsplit

# Bytes after decoding; an answer with many log-probabilities has a few million.
LARGEST_ANSWER = 64 * 2**20
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST_WAIT_S = 120.0  # longest pause that a server may ask for
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_CODE = re.compile(r"[A-Za-z0-9_.\[\]-]{1,60}", re.ASCII)
# Deliberately narrower than RFC 3986: a user name, a query or a backslash could carry a secret into a message, or make
# the host checked here differ from the host the HTTP library connects to.
_URL = re.compile(
    r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[A-Za-z0-9._~%/-]*)?",
    re.ASCII,
)
# Errors of the HTTP library after the connection was made.
_BROKEN = ("ReadError", "WriteError", "CloseError", "RemoteProtocolError")


def keep_prompts_out_of_logs() -> None:
    """Silence the lines of level DEBUG in which openai below 3.5 repeats whole requests."""
    logging.getLogger("openai._base_client").setLevel(logging.INFO)


def is_url(text: str) -> bool:
    """Return whether a text is ``http(s)://host[:port]/path`` and nothing else.

    Example:
        >>> is_url("http://127.0.0.1:8000/v1"), is_url("https://user@host/v1?key=1")
        (True, False)
    """
    if _URL.fullmatch(text) is None:
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def origin(url: str) -> str:
    """Return scheme, host and port, by which users trust an endpoint.

    Example:
        >>> origin("https://api.openai.com/v1")
        'https://api.openai.com:443'
    """
    parts = urlsplit(url)
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{name}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"


def host(url: str) -> str:
    """Return the host name or address of a URL, lower case, without port and brackets.

    Example:
        >>> host("http://[::1]:8000/v1")
        '::1'
    """
    return urlsplit(url).hostname or ""


def is_loopback(name: str) -> bool:
    """Return whether a host is this machine: ``localhost``, 127.0.0.0/8 or ``::1``.

    A tunnel from a loopback address is the user's own responsibility.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("10.0.0.1")
        (True, False)
    """
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def readable(address: str) -> str:
    """Return an address as a URL, or an empty text if libraries would read it differently.

    Only some of them decode percent signs before they look for the host, so an address with one is refused.

    Example:
        >>> readable("judge:8000"), readable("http://judge%2f@host")
        ('http://judge:8000', '')
    """
    scheme, mark, path = address.strip().partition("://")
    url = f"{scheme.lower()}://{path}" if mark else f"http://{scheme}"
    return url if "%" not in url and is_url(url) else ""


@dataclass(frozen=True)
class Server:
    """A server, with the words that messages need about it."""

    base_url: str  # ``http(s)://host[:port]/path`` up to, not including, ``/chat/completions``
    role: str  # its role for the user, such as ``judge``
    timeout_s: float  # seconds to wait for a byte from the server
    fix_address: str  # what to check if something else answers
    refusals: Mapping[int, str]  # what to check, by the HTTP status of a refusal
    api_key: str = field(default="", repr=False)  # secret; empty for a server that needs none

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"the {self.role} at {self.base_url}"

    @property
    def transport_options(self) -> dict[str, Any]:
        """Options of the SDK's HTTP clients.

        Text for this machine, or for one that the user trusts, must not be diverted by a proxy variable or a redirect;
        a proxy cannot read requests to an https server.
        """
        trusts_proxy = not is_loopback(host(self.base_url)) and self.base_url.startswith(
            "https:"
        )
        hooks = {"response": [read_whole_answer]}
        return {"trust_env": trusts_proxy, "follow_redirects": False, "event_hooks": hooks}


@dataclass(eq=False)
class RemoteTrouble(Exception):
    """A request that got no reply."""

    # One sentence for the user, the same for every sample; after "; " it may say how to fix it.
    cause: str
    _: KW_ONLY
    retry: bool  # whether another try can help
    # Whether the cause is the endpoint, so that it would affect the next sample, too
    outage: bool
    wait_s: float | None = None  # seconds the endpoint asked to wait before the next try
    status: int | None = None  # of HTTP; None without an answer
    reached: bool = True  # whether there was a connection


class AnswerTooLong(ValueError):
    """An answer has more bytes than any real one."""


async def read_whole_answer(response: Any) -> None:
    """Read the body of an answer of the SDK's HTTP library, decoded as it comes.

    Raises:
        AnswerTooLong: It has more than ``LARGEST_ANSWER`` bytes.
    """
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > LARGEST_ANSWER:
            raise AnswerTooLong
    response._content = bytes(content)  # where the library puts it, too


def trouble_of(error: Exception, server: Server, words: str = "") -> RemoteTrouble:
    """Classify an exception of the ``openai`` SDK.

    Time-outs, lost connections, 408 and 5xx are retried and are outages; 429 is retried and no outage, because waiting
    helps, unless the quota is used up; 401, 403, 404 and redirects are outages without a retry; every other status
    concerns this request alone.

    Args:
        error: What the SDK raised.
        server: The server, for the message.
        words: The server's own message, if the caller has checked it. It may repeat the prompt or the key, so otherwise
            only its short error code is quoted.
    """
    import openai

    name = server.name
    transport = type(error.__cause__).__name__  # the error of the HTTP library
    if transport == "ConnectTimeout":
        cause = f"{name} could not be reached (no connection in time)"
        return RemoteTrouble(cause, retry=True, outage=True, reached=False)
    if isinstance(error, openai.APITimeoutError):
        cause = f"{name} did not answer within {server.timeout_s:g} s"
        return RemoteTrouble(cause, retry=True, outage=True)
    # Some versions wrap it.
    if isinstance(error, AnswerTooLong) or isinstance(error.__cause__, AnswerTooLong):
        cause = f"{name} answered with more than {LARGEST_ANSWER // 2**20} MiB; {server.fix_address}"
        return RemoteTrouble(cause, retry=False, outage=True)
    if isinstance(error, openai.APIConnectionError):
        reached = transport in _BROKEN
        event = "could not be reached"
        if reached:
            event = "closed the connection without a complete answer"
        cause = f"{name} {event}{_system_message(error)}"
        return RemoteTrouble(cause, retry=True, outage=True, reached=reached)
    if isinstance(error, openai.APIStatusError):
        return _status_trouble(error, server, words)
    return unreadable(server)


def _system_message(error: BaseException) -> str:
    """Return the operating system's message: the HTTP library's may quote a header, and with it the key."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, OSError) and link.strerror:
            # asyncio puts the address in place of the system's message
            is_refused = link.errno == errno.ECONNREFUSED
            return f" ({os.strerror(errno.ECONNREFUSED) if is_refused else link.strerror})"
        link = link.__cause__ or link.__context__
    return ""


def _status_trouble(error: Any, server: Server, words: str) -> RemoteTrouble:
    """Classify an answer with an HTTP status that is no success."""
    name = server.name
    status = error.status_code
    label = _status_label(error, words)
    outage = ""  # cause that affects every request
    if status in server.refusals:
        outage = f"{name} refused the request ({label}); {server.refusals[status]}"
    elif 300 <= status < 400:
        outage = f"{name} redirects elsewhere ({label}); {server.fix_address}"
    elif error.code == "insufficient_quota":
        outage = f"{name} has no quota left ({label})"
    if outage:
        return RemoteTrouble(outage, retry=False, outage=True, status=status)
    if status not in (408, 429) and status < 500:
        cause = f"{name} rejected the request ({label})"
        return RemoteTrouble(cause, retry=False, outage=False, status=status)
    wait_s = retry_after_s(error.response.headers, time.time())
    if wait_s is not None and wait_s > _LONGEST_WAIT_S:
        cause = f"{name} asks to wait {wait_s:.0f} s ({label})"
        return RemoteTrouble(cause, retry=False, outage=False, wait_s=wait_s, status=status)
    cause = f"{name} failed ({label})"
    if status == 429:
        cause = f"{name} limits the rate of requests ({label})"
    return RemoteTrouble(cause, retry=True, outage=status != 429, wait_s=wait_s, status=status)


def _status_label(error: Any, words: str) -> str:
    """Return an answer's status for messages, with its short code and ``words`` if there are any."""
    label = f"HTTP {error.status_code}"
    code = str(error.code or "")
    if _CODE.fullmatch(code) and code != str(error.status_code):
        label += f", {code}"
    if words:
        label += f": {words}"
    return label


def unreadable(server: Server) -> RemoteTrouble:
    """Build the error for an answer that is no chat completion, such as a proxy's HTML page."""
    cause = f"{server.name} answered with something that is no chat completion; {server.fix_address}"
    return RemoteTrouble(cause, retry=True, outage=True)


def build_of(system_fingerprint: object) -> str | None:
    """Return a completion's ``system_fingerprint`` if it identifies the model, as vLLM's does, or else None.

    vLLM's is a digest of version, weights' name, precision, quantisation and backend; others change from day to day.

    Example:
        >>> build_of("vllm-0.12.0-1a2b3c"), build_of("fp_44709d6fcb")
        ('vllm-0.12.0-1a2b3c', None)
    """
    is_build = isinstance(system_fingerprint, str) and system_fingerprint.startswith("vllm-")
    return str(system_fingerprint) if is_build else None


def proven_build(build: str | None, root: object) -> str | None:
    """Return a server's build if it identifies the weights wherever the server listens, or else None.

    Args:
        build: Result of :func:`build_of`, which covers the name of the weights.
        root: Name of the weights in the server's list of models. A name on the Hub means certain files, whereas a
            folder may hold others on another machine.
    """
    return build if isinstance(root, str) and _HUB_NAME.fullmatch(root) else None


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause that an endpoint asks for, in seconds.

    It is ``retry-after-ms`` (OpenAI, Azure), else ``Retry-After`` as seconds or as a date (RFC 9110, 10.2.3).

    Args:
        headers: Names are in lower case, or looked up without regard to case.
        now: Seconds since the epoch, to which a date is relative.

    Returns:
        Never negative; None if missing or malformed.

    Example:
        >>> retry_after_s({"retry-after-ms": "1500"}, 0)
        1.5
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(date.timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None
