"""Settings of the judge, and the guard on credentialed data."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from medtasks.data.catalogue import Access
from medtasks.errors import JudgeNotConfigured, JudgeRefused, unknown_name
from medtasks.net import endpoints

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

N = TypeVar("N", int, float)

_URL_RULE = "must look like http(s)://host[:port]/path, without user or query"
_EXAMPLE = f"{BASE_URL}=https://api.openai.com/v1 {MODEL}=gpt-4o {API_KEY}=<your key>"


@dataclass(frozen=True)
class JudgeSettings:
    """An OpenAI-compatible chat endpoint and its use.

    An impossible value is a ``JudgeNotConfigured``: one sentence that names the environment variable.
    """

    base_url: str  # ``http(s)://host[:port]/path`` up to, not including, ``/chat/completions``
    model: str  # the model's name as the endpoint knows it
    api_key: str = field(default="", repr=False)  # secret, hidden in ``repr``; empty for an endpoint that needs none
    temperature: float = 0.0  # sampling temperature in [0, 2]
    concurrency: int = 4  # most requests under way at once, over all threads of this process
    timeout_s: float = 60.0  # seconds without a byte from the endpoint before a try is given up
    attempts: int = 5  # most tries of a request that fails for a passing reason
    reasks: int = 2  # most further questions after a reply that breaks the format
    max_requests: int | None = None  # most requests that one process sends, further tries included; None is no limit

    def __post_init__(self) -> None:
        sendable = self.api_key.isascii() and self.api_key.isprintable() and " " not in self.api_key
        rules = (
            (endpoints.is_url(self.base_url), f"{BASE_URL} {_URL_RULE}"),
            (bool(self.model), f"{MODEL} must not be empty"),
            (sendable, f"{API_KEY} contains a character that no HTTP header may hold"),
            (0 <= self.temperature <= 2, f"{TEMPERATURE} is {self.temperature} but must lie between 0 and 2"),
            (self.concurrency >= 1, f"{CONCURRENCY} is {self.concurrency} but must be at least 1"),
            (0 < self.timeout_s < math.inf, f"{TIMEOUT} is {self.timeout_s} but must be a positive time in seconds"),
            (self.attempts >= 1, f"{ATTEMPTS} is {self.attempts} but must be at least 1"),
            (self.reasks >= 0, f"{REASKS} is {self.reasks} but must be at least 0"),
            (
                self.max_requests is None or self.max_requests >= 0,
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
    def origin(self) -> str:
        """Scheme, host and port of the endpoint, by which a user trusts it."""
        return endpoints.origin(self.base_url)

    @property
    def is_local(self) -> bool:
        """Whether the endpoint's host is this machine: ``localhost``, 127.0.0.0/8 or ``::1``."""
        return endpoints.is_loopback(endpoints.host(self.base_url))


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
    values = {name: text.strip() for name, text in environ.items() if name.startswith("MEDTASKS_JUDGE_")}
    missing = [name for name in (BASE_URL, MODEL) if not values.get(name)]
    if missing:
        raise JudgeNotConfigured(
            f"{what} and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set; "
            f"set for example {_EXAMPLE} (an endpoint on this machine, such as http://127.0.0.1:8000/v1, needs no key)"
        )
    settings = JudgeSettings(
        base_url=values[BASE_URL].rstrip("/"),
        model=values[MODEL],
        api_key=values.get(API_KEY, ""),
        temperature=_number(values, TEMPERATURE, float, JudgeSettings.temperature),
        concurrency=_number(values, CONCURRENCY, int, JudgeSettings.concurrency),
        timeout_s=_number(values, TIMEOUT, float, JudgeSettings.timeout_s),
        attempts=_number(values, ATTEMPTS, int, JudgeSettings.attempts),
        reasks=_number(values, REASKS, int, JudgeSettings.reasks),
        max_requests=_number(values, MAX_REQUESTS, int, 1000) if values.get(MAX_REQUESTS) else None,
    )
    if not settings.api_key and not settings.is_local:
        raise JudgeNotConfigured(
            f"the judge at {settings.base_url} is not on this machine and {API_KEY} is not set; set it, "
            f"to any text such as {API_KEY}=none if the endpoint asks for no key."
        )
    return settings


def check_access(settings: JudgeSettings, access: str, dataset: str, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to send credentialed text to another machine.

    Two variables open the guard, for users whose data use agreement covers the endpoint: ``MEDTASKS_TRUSTED_JUDGE``
    names one endpoint by its base URL, for all datasets, and ``MEDTASKS_JUDGE_ALLOW_REMOTE`` one dataset, for all
    endpoints. An endpoint is the trusted one if scheme, host and port are the same; a path may differ. Raises
    JudgeRefused otherwise, and UnknownName for an unknown ``access``, so that a misspelt one cannot open the guard.
    """
    if access not in list(Access):
        raise unknown_name("access level", access, Access)
    if access != Access.CREDENTIALED or settings.is_local or environ.get(ALLOW_REMOTE, "").strip() == dataset:
        return
    trusted = environ.get(TRUSTED, "").strip()
    if trusted and not endpoints.is_url(trusted):
        raise JudgeRefused(
            f"{TRUSTED} {_URL_RULE}, so no judge is trusted with '{dataset}'; "
            f"write for example {TRUSTED}={settings.origin}"
        )
    if trusted and endpoints.origin(trusted) == settings.origin:
        return
    raise JudgeRefused(
        f"'{dataset}' is credentialed and the judge at {settings.base_url} is not on this machine, so its text is not "
        f"sent there; set {BASE_URL} to an endpoint on this machine such as http://127.0.0.1:8000/v1, or, if your data "
        f"use agreement allows it, {TRUSTED}={settings.origin} for this judge or {ALLOW_REMOTE}={dataset} for this "
        f"dataset."
    )


def _number(values: Mapping[str, str], name: str, convert: Callable[[str], N], default: N) -> N:
    text = values.get(name)
    if not text:
        return default
    try:
        return convert(text)
    except ValueError:
        kind = "a whole number" if convert is int else "a number"
        raise JudgeNotConfigured(f"{name} is '{text}' but must be {kind}, for example {name}={default}.") from None
