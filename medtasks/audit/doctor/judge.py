"""The LLM judge: whether one is set up, may see the data, can be reached, and knows the model."""

import difflib
import os
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from medtasks.audit.doctor.findings import JUDGE, Finding, State, of_error
from medtasks.audit.doctor.scope import Scope, asked_by
from medtasks.data.own_datasets import access_of
from medtasks.errors import JudgeNotConfigured, JudgeRefused
from medtasks.families.family import Asks
from medtasks.harness.task_file import TaskFile
from medtasks.judges.client import open_client, trouble_of  # the same, so that nothing goes where it would not
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
    import openai

# Seconds without a byte after which the endpoint is given up here; a shorter time the user has set goes before.
TIMEOUT_S = 5.0
_NAME = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)


def judge(scope: Scope) -> Iterator[Finding]:
    """Look at the judge that the environment names, if a task asks one.

    Nothing but the list of models is asked for, and no sample is sent.
    """
    asking = [(task, asks) for task in scope.tasks if (asks := asked_by(task)) is not Asks.NOBODY]
    if scope.chosen and not asking:
        return
    if not is_configured():
        yield _not_configured(scope, [task for task, asks in asking if asks is Asks.JUDGE])
        return
    try:
        settings = settings_from_environment()
    except JudgeNotConfigured as error:
        fix = "set the variable it names to a value it takes, or unset it"
        yield of_error(JUDGE, "settings", State.PROBLEM, error, fix)
        return
    where = "this machine" if settings.is_local else "another machine"
    yield JUDGE.ok("settings", f"the judge is {settings.model} at {settings.base_url}, on {where}")
    datasets = list(dict.fromkeys(task.dataset for task, _ in asking if task.dataset))
    refused = {}
    for dataset in datasets:
        try:
            check_access(settings, str(access_of(dataset)), dataset, os.environ)
        except JudgeRefused as error:
            refused[dataset] = error
    if refused:
        yield _access(scope, refused)
    if len(refused) < len(datasets) or not datasets:
        yield _answer(replace(settings, timeout_s=min(settings.timeout_s, TIMEOUT_S)))


def _not_configured(scope: Scope, required: Sequence[TaskFile]) -> Finding:
    fix = f"export {BASE_URL}=http://127.0.0.1:8000/v1 {MODEL}=<its model>, for another machine also {API_KEY}"
    if not scope.chosen:
        found = "no judge is set up, without which some tasks lack metrics and some do not run"
        return JUDGE.note("settings", found, fix)
    if required:
        found = f"no judge is set up, and {', '.join(task.name for task in required)} cannot run without one"
        return JUDGE.problem("settings", found, fix)
    found = "no judge is set up, so that the metrics that need one will have no value"
    return JUDGE.warning("settings", found, fix)


def _access(scope: Scope, refused: dict[str, JudgeRefused]) -> Finding:
    first = next(iter(refused.values()))
    finding = of_error(JUDGE, "access", State.PROBLEM if scope.chosen else State.NOTE, first)
    others = list(refused)[1:]
    return replace(finding, found=f"{finding.found}; nor that of {', '.join(others)}") if others else finding


def _answer(settings: JudgeSettings) -> Finding:
    from openai import OpenAIError

    client = open_client(settings)
    try:
        known = [model.id for model in client.models.list().data]
    except OpenAIError as error:
        return _without_list(client, settings) if _status(error) in (404, 405, 501) else _trouble(error, settings)
    except (AttributeError, TypeError, ValueError):  # another JSON, and a body announced as JSON that is none
        found = f"what answers at {settings.base_url} is no list of models, so that it may be no judge"
        return JUDGE.problem("reply", found, f"check {BASE_URL}; it often ends with /v1")
    finally:
        client.close()
    return _known_model(settings, [name for name in known if isinstance(name, str)])


def _known_model(settings: JudgeSettings, known: Sequence[str]) -> Finding:
    # Gemini lists a folder, Ollama a tag.
    if any(settings.model in (name, name.removeprefix("models/"), name.removesuffix(":latest")) for name in known):
        return JUDGE.ok("reply", f"the judge at {settings.base_url} answers and has {settings.model}")
    if not known:
        return _unchecked(settings, "lists no models")
    near = difflib.get_close_matches(settings.model, [name for name in known if _NAME.fullmatch(name)], n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    found = f"the judge at {settings.base_url} answers and has no model '{settings.model}' among its {len(known)}{hint}"
    return JUDGE.problem("model", found, f"set {MODEL} to a name the endpoint lists")


def _without_list(client: "openai.OpenAI", settings: JudgeSettings) -> Finding:
    """Tell an endpoint that has no list of models from a wrong address: where chats are, a GET is not unknown."""
    try:
        client.get("/chat/completions", cast_to=object)
    except Exception as error:  # noqa: BLE001 - whatever it is, only its status counts
        if _status(error) in (404, None):
            found = f"{settings.base_url} has neither a list of models nor chats (HTTP 404)"
            return JUDGE.problem("address", found, f"check {BASE_URL}; it often ends with /v1")
    return _unchecked(settings, "has no list of models")


def _unchecked(settings: JudgeSettings, what: str) -> Finding:
    found = f"the judge at {settings.base_url} answers and {what}, so that {settings.model} is not checked"
    return JUDGE.note("model", found, f"check {MODEL} with the endpoint's own documentation")


def _trouble(error: Exception, settings: JudgeSettings) -> Finding:
    """Say what kept the endpoint from answering; its own words are never quoted, for they may repeat the key."""
    where = f"the judge at {settings.base_url}"
    status = _status(error)
    if status == 401:
        found = f"{where} does not accept the key (HTTP 401)"
        return JUDGE.problem("key", found, f"set {API_KEY} to a key of this endpoint")
    if status == 403:
        found = f"{where} does not let this key list models (HTTP 403), so that {settings.model} is not checked"
        return JUDGE.warning("key", found, f"check that {API_KEY} may use {settings.model}")
    if status is not None:
        said = trouble_of(error, settings)
        state = State.WARNING if status == 429 and said.retry else State.PROBLEM
        found, _, fix = said.cause.partition("; ")
        return Finding(JUDGE, "reply", state, found, fix or "try again later, or ask who runs it")
    return _no_connection(error, settings, where)


def _no_connection(error: Exception, settings: JudgeSettings, where: str) -> Finding:
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    if any(isinstance(one, ssl.SSLError) for one in causes):
        reason = next((one.reason for one in causes if isinstance(one, ssl.SSLError) and one.reason), "TLS")
        found = f"no secure connection to {where} comes about ({reason})"
        fix = f"check that {BASE_URL} begins as the endpoint speaks (http or https), and set SSL_CERT_FILE to its CA"
        return JUDGE.problem("TLS", found, fix)
    if any(isinstance(one, socket.gaierror) for one in causes):
        found = f"there is no host '{settings.host}', or this machine cannot look it up"
        return JUDGE.problem("address", found, f"check {BASE_URL} and the network")
    if any(isinstance(one, ConnectionRefusedError) for one in causes):
        found = f"nothing listens at {settings.base_url} (connection refused)"
        return JUDGE.problem("connection", found, f"start the judge, or check {BASE_URL}")
    said = trouble_of(error, settings)
    fix = f"check that it runs and {BASE_URL} is right, or give it more time"
    return JUDGE.problem("connection", said.cause.partition("; ")[0], fix)


def _status(error: Exception) -> int | None:
    status: Any = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
