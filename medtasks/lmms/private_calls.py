"""Guards of runs on credentialed data: a model's output, logs and errors are withheld, and redirects refused.

The models of lmms-eval log prompts, replies and error bodies of servers, and some print them, so only medtasks' output
is shown while a model is asked.
"""

import contextlib
import functools
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from tqdm.std import tqdm

from medtasks.data.privacy import is_private
from medtasks.errors import MedTasksError, warn_once
from medtasks.lmms.model_failures import replaced
from medtasks.lmms.remote_models import credentialed

if TYPE_CHECKING:
    from loguru import Record

_CALLS = ("generate_until", "loglikelihood", "generate_until_multi_round")
_OURS = "medtasks."
_FOLLOWING = (  # newer versions of openai use httpx2
    *((name, client, "follow_redirects") for name in ("httpx", "httpx2") for client in ("Client", "AsyncClient")),
    ("requests", "Session", "allow_redirects"),
)
"""Classes whose ``send`` follows redirects unless an argument forbids it."""


@contextlib.contextmanager
def private_calls(lm: Any, datasets: Iterable[str]) -> Iterator[None]:
    """Guard an evaluation if a dataset is credentialed; ``MEDTASKS_LOG_TEXT`` lets text be shown, not redirected."""
    guarded = credentialed(datasets)
    silent = any(map(is_private, guarded))
    with contextlib.ExitStack() as stack:
        for name in _CALLS if guarded else ():
            if callable(call := getattr(lm, name, None)):
                stack.enter_context(replaced(lm, name, _guarded(call, silent=silent)))
        try:
            yield
        except BaseException as error:
            if not silent:
                raise
            raise _without_text(error) from None  # a traceback would show the text that led to the error


def _guarded(call: Callable[[Any], Any], *, silent: bool) -> Callable[[Any], Any]:
    def guarded(requests: Any) -> Any:
        with _without_redirects(), _silence() if silent else contextlib.nullcontext():
            return call(requests)

    return guarded


@contextlib.contextmanager
def _without_redirects() -> Iterator[None]:
    """Make a redirect an error of the client: it would carry the request to an unchecked address."""

    def not_following(send: Callable[..., Any], argument: str) -> Callable[..., Any]:
        def send_directly(self: Any, request: Any, **options: Any) -> Any:
            return send(self, request, **{**options, argument: False})

        return functools.wraps(send)(send_directly)

    with contextlib.ExitStack() as stack:
        for package, client, argument in _FOLLOWING:
            with contextlib.suppress(ImportError):
                owner = getattr(importlib.import_module(package), client)
                stack.enter_context(replaced(owner, "send", not_following(owner.send, argument)))
        yield


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Show only progress bars and our own log within the block."""

    def redact(record: "Record") -> None:
        if not (record["name"] or "").startswith(_OURS):
            record["message"], record["exception"], record["extra"] = "message withheld", None, {}

    warn_once("what the model prints and logs is withheld: it may repeat credentialed text", "INFO")
    disabled = logging.root.manager.disable
    bars = functools.partialmethod(tqdm.__init__, file=sys.stderr)
    try:
        logger.configure(patcher=redact)
        logging.disable(sys.maxsize)
        with (
            replaced(tqdm, "__init__", bars),
            open(os.devnull, "w") as sink,
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            yield
    finally:
        logging.disable(disabled)
        logger.configure(patcher=lambda record: None)


def _without_text(error: BaseException) -> BaseException:
    """Return an error of the same meaning without its text: type and location."""
    if isinstance(error, MedTasksError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt()
    if isinstance(error, SystemExit):
        return SystemExit(1 if isinstance(error.code, str) else error.code)
    location = traceback.extract_tb(error.__traceback__)[-1]
    cause = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
    return RuntimeError(
        f"{type(error).__name__}{cause} at {Path(location.filename).name}:{location.lineno} in {location.name}; its "
        f"message is withheld, as it may repeat credentialed text"
    ).with_traceback(error.__traceback__)
