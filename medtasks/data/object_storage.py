"""Reading a public S3 bucket over HTTPS, patiently: retries, back-off, and bodies checked against length and MD5."""

import functools
import hashlib
import re
import threading
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote
from xml.etree import ElementTree

import requests
import tenacity
from requests.adapters import HTTPAdapter
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

_PLAIN_MD5 = re.compile(r'"([0-9a-f]{32})"')  # "<hex>-<parts>" of a multi-part upload is no digest of the body
_CONNECT_TIMEOUT_S = 10.0
_LONGEST_BACKOFF_S = 60.0
_LONGEST_RETRY_AFTER_S = 300.0
_WORTH_ANOTHER_TRY = {408, 429}

_Result = TypeVar("_Result")


class Failure(Exception):
    """A request failed for good."""


class Transient(Failure):
    """Another try may succeed, though not before ``retry_after_s`` seconds."""

    def __init__(self, cause: str, retry_after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.retry_after_s = retry_after_s


class Unreachable(Transient):
    """No answer at all."""


class ObjectStorage:
    """An S3 bucket read without credentials, patiently."""

    def __init__(self, base_url: str, workers: int, attempts: int, backoff_s: float, timeout_s: float) -> None:
        self.stop = threading.Event()
        self.base_url = base_url
        self._attempts = attempts
        self._backoff = tenacity.wait_exponential(multiplier=backoff_s, max=_LONGEST_BACKOFF_S)
        self._timeout = (min(timeout_s, _CONNECT_TIMEOUT_S), timeout_s)
        self._session = requests.Session()
        self._session.headers["Accept-Encoding"] = "identity"  # a length and an ETag speak of the bytes as sent
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=workers))

    def listing(self, prefix: str) -> list[str]:
        """Return all keys that begin with ``prefix``.

        Raises:
            Failure: The listing cannot be had.
        """
        keys: list[str] = []
        query = {"list-type": "2", "prefix": prefix}
        while True:
            page = self._patiently(functools.partial(self._page, query))
            keys += [key.text or "" for key in page.iterfind("{*}Contents/{*}Key")]
            token = page.findtext("{*}NextContinuationToken")
            if not token or token == query.get("continuation-token"):
                return keys
            query = query | {"continuation-token": token}

    def body(self, key: str, fault: Callable[[bytes], str | None]) -> bytes:
        """Return the body of an object.

        Args:
            key: The object.
            fault: Says what is wrong with a body, or None; a faulty one is fetched again.

        Raises:
            Failure: The object cannot be had whole.
        """
        return self._patiently(functools.partial(self._faultless, key, fault))

    def _patiently(self, request: Callable[[], _Result]) -> _Result:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            stop=tenacity.stop_after_attempt(self._attempts) | tenacity.stop_when_event_set(self.stop),
            wait=self._wait_s,
            sleep=tenacity.sleep_using_event(self.stop),
            reraise=True,
        )
        return retrying(request)

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.retry_after_s if isinstance(failure, Transient) else 0.0
        return max(self._backoff(state), min(asked, _LONGEST_RETRY_AFTER_S))

    def _page(self, query: dict[str, str]) -> ElementTree.Element:
        try:
            return ElementTree.fromstring(self._get("", query))
        except ElementTree.ParseError as error:
            raise Transient("the storage's listing is no XML") from error

    def _faultless(self, key: str, fault: Callable[[bytes], str | None]) -> bytes:
        body = self._get(quote(key))
        cause = fault(body)
        if cause:
            raise Transient(f"{key} {cause}")
        return body

    def _get(self, path: str, query: dict[str, str] | None = None) -> bytes:
        what = path or "the listing"
        if self.stop.is_set():
            raise Failure("interrupted")
        try:
            answer = self._session.get(f"{self.base_url}/{path}", params=query, timeout=self._timeout, stream=True)
        except requests.RequestException as error:
            raise Unreachable(f"no answer: {_root_cause(error)}") from error
        with answer:
            if answer.status_code in _WORTH_ANOTHER_TRY or answer.status_code >= 500:
                raise Transient(f"HTTP {answer.status_code} for {what}", _retry_after_s(answer))
            if answer.status_code != requests.codes.ok:
                raise Failure(f"HTTP {answer.status_code} for {what}")
            try:
                body = answer.content
            except requests.RequestException as error:  # urllib3 compares with Content-Length
                raise Transient(f"{what} broke off: {_root_cause(error)}") from error
        digest = _PLAIN_MD5.fullmatch(answer.headers.get("ETag", ""))
        if digest and hashlib.md5(body, usedforsecurity=False).hexdigest() != digest[1]:
            raise Transient(f"{what} arrived damaged (its MD5 differs)")
        return body


def _retry_after_s(answer: requests.Response) -> float:
    try:
        return Retry().parse_retry_after(answer.headers.get("Retry-After", "0"))
    except InvalidHeader:
        return 0.0


def _root_cause(error: BaseException) -> BaseException:
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error
