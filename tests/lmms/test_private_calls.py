"""A model on credentialed data, in this process: its messages, its errors, and redirects of its requests."""

import asyncio
import logging
import sys
import traceback
import warnings
from types import SimpleNamespace

import httpx
import openai
import pytest
import requests
from loguru import logger
from tqdm import tqdm

from medtasks.errors import MedTasksError
from medtasks.lmms.remote_models import private_calls

from ..scripted_server import Endpoint, serving
from ..tables import each_row

TEXT = "zyzzyva"  # of a record
PRIVATE, PUBLIC = ["multimedeval_mimic_cxr_report"], ["multimedeval_vqa_rad"]


def asked(datasets, call):
    """Have a model asked that makes a call."""
    lm = SimpleNamespace(generate_until=lambda requests: call(), loglikelihood=None)
    with private_calls(lm, datasets):
        return lm.generate_until([])


@pytest.fixture
def log():
    lines = []
    number = logger.add(lines.append, level=0, backtrace=True, diagnose=True)
    yield lines
    logger.remove(number)


def chatter():
    for _ in tqdm([1], desc="asking"):
        print(TEXT)  # noqa: T201
        sys.stderr.write(TEXT)
        tqdm.write(TEXT, file=sys.stderr)
        warnings.warn(TEXT, stacklevel=1)
        logging.getLogger("httpx").critical(TEXT)
        logger.debug(TEXT)
        try:
            raise ValueError(TEXT)
        except ValueError:
            logger.exception("failed")


def test_messages(log, capfd):
    asked(PRIVATE, chatter)
    printed = capfd.readouterr()
    assert TEXT not in printed.out + printed.err + "".join(log)
    assert "asking: 100%" in printed.err
    assert sum("message withheld" in line for line in log) == 2  # in place of the two
    assert any("what the model prints and logs is withheld" in line for line in log)
    with warnings.catch_warnings(record=True):
        asked(PUBLIC, chatter)
        chatter()
    printed = capfd.readouterr()
    assert (printed.out + printed.err).count(TEXT) >= 2 * 3
    assert sum(TEXT in line for line in log) == 4


def test_text_that_the_user_lets_logs_show(log, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", PRIVATE[0])
    asked(PRIVATE, lambda: logger.info(TEXT))
    assert TEXT in log[-1]


def failing(error):
    """Raise an error while another one is handled, as models do that try again."""

    def call():
        try:
            raise ValueError(TEXT)
        except ValueError:
            raise error  # noqa: B904

    return call


@each_row(
    ("error", "kind", "sentence"),
    [
        (TypeError(TEXT), RuntimeError, "TypeError at test_private_calls.py:"),
        (OSError(28, TEXT), RuntimeError, "OSError (No space left on device) at"),
        (ExceptionGroup(TEXT, [TypeError(TEXT)]), RuntimeError, "ExceptionGroup at"),
        (KeyboardInterrupt(TEXT), KeyboardInterrupt, ""),
        (SystemExit(TEXT), SystemExit, "1"),
        (MedTasksError("of ours"), MedTasksError, "of ours"),
    ],
)
def test_errors(error, kind, sentence):
    with pytest.raises(kind) as raised:
        asked(PRIVATE, failing(error))
    assert sentence in str(raised.value)
    # Source lines of this file are in the traceback, the values are not.
    assert TEXT not in "".join(traceback.format_exception(raised.value))


async def _posted(client, url):
    async with client:
        return (await client.post(url, json={"text": TEXT})).status_code


def _ask_openai(url):
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": TEXT}])


CLIENTS = {
    "openai": _ask_openai,
    "httpx": lambda url: httpx.post(url, json={"text": TEXT}, follow_redirects=True).status_code,
    "httpx, later": lambda url: asyncio.run(_posted(httpx.AsyncClient(follow_redirects=True), url)),
    "requests": lambda url: requests.post(url, json={"text": TEXT}, timeout=30).status_code,
}


@each_row("shown", ["", PRIVATE[0]])
@each_row("client", CLIENTS)
def test_redirects(client, shown, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", shown)
    with serving(Endpoint()) as elsewhere, serving(Endpoint()) as server:
        server.script = [server.status(307, Location=f"{elsewhere.url}/chat/completions")]

        def call():
            try:
                return CLIENTS[client](server.url)
            except openai.APIStatusError as error:
                return error.status_code

        assert asked(PRIVATE, call) == 307
        assert (server.count, elsewhere.count) == (1, 0)
        asked(PUBLIC, call)
        assert elsewhere.count == 1
