"""Redaction of secrets and of the data folder in records of a run, and of secrets in all it prints."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from medtasks.data.privacy import PHYSIONET_VARIABLES
from medtasks.errors import plain
from medtasks.home import HOME_VARIABLE, home
from medtasks.net.servers import keep_prompts_out_of_logs

if TYPE_CHECKING:
    from loguru import Record

HIDDEN = "***"
# The last word of a name decides: "hf_token" is one, "max_new_tokens" and "tokenizer" are none.
_SECRET = (
    r"(?:(?:key|token|pwd|auth|authorization|cookie)(?:[_-]?\d{1,3})?"
    r"|(?:secret|password|passwd|passphrase|credential)[\w-]{0,40}+)"
)
_SECRET_NAME = re.compile(_SECRET + "$", re.IGNORECASE)
# What a message tells the user to write in place of a secret.
_PLACEHOLDER = r"(?-i:<[a-z ]{1,40}>|none)(?![^\s,;&])"
_ASSIGNED = re.compile(
    rf"(?<![\w-])([\w-]*{_SECRET}[\"']?\s*[=:]\s*)(?!{_PLACEHOLDER})"
    r"(?:\"[^\"]*\"|'[^']*'|(?:(?:bearer|basic|token)\s+)?[^,;&\s\"'{}\[\]]+)",
    re.IGNORECASE,
)
_SHAPES = re.compile(
    r"\b(?:sk-(?=[\w-]{0,200}\d)[\w-]{16,}|hf_\w{8,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|xox[abprs]-[\w-]{8,}"
    r"|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|glpat-[\w-]{12,}|nvapi-[\w-]{12,}"
    # Only near the beginning of a word: each later start would read the same word again, in quadratic time.
    r"|(?<![\w-]{40})eyJ[\w-]{8,}+\.[\w-]+\.[\w-]*)"
    r"|(?i:(?<=bearer )\S+)"
    r"|(?<![\w-])[\w-]{2,80}\*{3,}[\w-]{2,}"  # masked by a server, which shows the ends
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")


_PATH_STARTS = ("/", "~", "./", "../", "\\")


def is_secret_name(name: str) -> bool:
    """Return whether a variable or argument of this name holds a secret.

    Example:
        >>> is_secret_name("hf_token"), is_secret_name("max_new_tokens")
        (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def redact(text: str) -> str:
    """Replace likely secrets in a text by ``***``: values of secret names, keys of known shapes, users in addresses.

    Values of secret names are those in the text, and those in the environment now, wherever they are in the text.

    Example:
        >>> redact("--model_args api_key=k1,model=m at https://me@host")
        '--model_args api_key=***,model=m at https://***@host'
    """
    values = set()
    # "pwd" is short for a password, too. A short value would hide ordinary words.
    for name, value in os.environ.items():
        if name not in ("PWD", "OLDPWD") and is_secret_name(name) and len(value) >= 6:
            values.add(value)
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    text = _ASSIGNED.sub(rf"\g<1>{HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    return _IN_ADDRESS.sub(f"{HIDDEN}@", text)


def redacted_values(value: Any) -> Any:
    """Redact the texts in a value as JSON has them, those under the name of a secret as a whole.

    Example:
        >>> redacted_values({"token": 7, "model": "m"})
        {'token': '***', 'model': 'm'}
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return list(map(redacted_values, value))
    if not isinstance(value, Mapping):
        return value
    public = {}
    for name, item in value.items():
        is_secret = is_secret_name(str(name)) and not isinstance(item, bool | None)
        public[name] = HIDDEN if is_secret else redacted_values(item)
    return public


def redact_record(record: "Record") -> None:
    """Redact one line of the log, without control characters that a terminal would act on."""
    record["message"] = plain(redact(record["message"]))


def redact_log() -> None:
    """Redact all that this process logs through loguru, and keep prompts out of the log of openai's client."""
    from loguru import logger

    keep_prompts_out_of_logs()
    logger.configure(patcher=redact_record)


class _RedactedStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        written: int = self._stream.write(redact(text))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def redacted_streams() -> Iterator[None]:
    """Redact all that Python code prints within the block."""
    out: Any = _RedactedStream(sys.stdout)
    err: Any = _RedactedStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def without_home(text: str) -> str:
    """Replace the data folder by ``$MEDTASKS_HOME``: its path reveals where patients' data are."""
    return text.replace(str(home()), f"${HOME_VARIABLE}")


def redacted_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Redact a command line. A secret may also be an argument of its own.

    Example:
        >>> redacted_arguments(["--token", "t1", "--limit", "8"])
        ('--token', '***', '--limit', '8')
    """
    public = []
    for before, argument in zip(["", *arguments], arguments, strict=False):
        follows = before.startswith("-") and "=" not in before and is_secret_name(before)
        public.append(HIDDEN if follows else without_home(redact(argument)))
    return tuple(public)


def redacted_options(options: Mapping[str, object]) -> dict[str, str]:
    """Redact options, by name.

    Example:
        >>> redacted_options({"api_key": "k1", "limit": 8})
        {'api_key': '***', 'limit': '8'}
    """
    public = {}
    for name, value in options.items():
        public[name] = HIDDEN if is_secret_name(name) else without_home(redact(str(value)))
    return public


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the ``MEDTASKS_*`` variables without secrets, and without paths, which may name patients.

    Example:
        >>> settings({"MEDTASKS_JUDGE_API_KEY": "k1", "MEDTASKS_LOG_TEXT": "1", "HOME": "/home/me"})
        {'MEDTASKS_JUDGE_API_KEY': '***', 'MEDTASKS_LOG_TEXT': '1'}
    """
    ours = {}
    for name, value in sorted(environment.items()):
        if not name.startswith("MEDTASKS_"):
            continue
        is_path = value.startswith(_PATH_STARTS) or os.path.exists(value)
        is_hidden = is_path or name in PHYSIONET_VARIABLES or is_secret_name(name)
        ours[name] = HIDDEN if is_hidden else redact(value)
    return ours
