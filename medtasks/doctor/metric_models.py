"""Checks of the models that metrics use: their weights, WordNet, the labeler of chest findings, and the LLM judge."""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from medtasks.data.privacy import access_of
from medtasks.doctor.check_results import JUDGE, CheckResult, Scope, State, of_error
from medtasks.doctor.check_results import WEIGHTS as AREA
from medtasks.errors import JudgeNotConfigured, JudgeRefused, MedTasksError, near_match
from medtasks.extract.labeler import VARIABLE as LABELER
from medtasks.families.family import Asks, needs_labeler
from medtasks.judges.judge_client import (
    API_KEY,
    BASE_URL,
    MODEL,
    JudgeSettings,
    check_access,
    is_configured,
    server_of,
    settings_from_environment,
)
from medtasks.metrics.missing_weights import weights_trouble
from medtasks.metrics.model_settings import TOKENIZER, WEIGHTS, WORDNET, ModelSettings
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.net.chat_client import AdaptiveLimit, ChatClient
from medtasks.net.servers import RemoteTrouble

# Seconds without a byte after which the endpoint is given up here; a shorter time the user has set goes before.
TIMEOUT_S = 5.0
_NAME = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)
_WRONG_ADDRESS = f"check {BASE_URL}; it often ends with /v1"
_CHECK_MODEL = f"check {MODEL} with the endpoint's own documentation"


def metric_weights(scope: Scope) -> Iterator[CheckResult]:
    """Check weights and settings of the chosen tasks' metrics; without tasks, summarise the weights that are here."""
    names = [*WEIGHTS, WORDNET, TOKENIZER]
    if scope.chosen:
        owners = {key: info for info in REPORT_METRICS.values() for key in info.keys}
        lists = [task.metric_list for task in scope.tasks]
        # Metrics of the user's own are not imported.
        ours = [entries.resolve() for entries in lists if entries is not None and entries.is_ours]
        metrics = [owners[entry["metric"]] for entries in ours for entry in entries if entry["metric"] in owners]
        labels_texts = any(task.has_family and task.family.labels_texts for task in scope.tasks)
        is_labelled = labels_texts or any(needs_labeler(row) for task in scope.tasks for row in task.rows.values())
        names = [name for metric in metrics for name in metric.weights]
        names += ["chexbert", "bert-base-uncased"] * (is_labelled and not os.environ.get(LABELER, "").strip())
        names = list(dict.fromkeys(names))
    missing = {name: error for name in names if (error := weights_trouble(name))}
    sentence = f"{len(names) - len(missing)} of {len(names)} sets of weights are here"
    if scope.chosen:
        for name in names:
            lacking = of_error(AREA, name, State.WARNING, missing[name]) if name in missing else None
            fix = _fix({name: missing[name]}) if name in missing else ""
            yield replace(lacking, fix=fix) if lacking else AREA.ok(name, f"{name} is here")
    elif missing:
        yield AREA.note("metrics", f"{sentence}; missing {', '.join(missing)}", _fix(missing))
    else:
        yield AREA.ok("metrics", sentence)
    try:
        if names:
            ModelSettings.from_environment()
    except MedTasksError as error:
        yield of_error(AREA, "settings", State.PROBLEM, error)


def _fix(missing: Mapping[str, MedTasksError]) -> str:
    names = [name for name in missing if name != TOKENIZER]
    return f"medtasks weights fetch {' '.join(names)}" if names else str(missing[TOKENIZER]).partition("; ")[2]


def judge(scope: Scope) -> Iterator[CheckResult]:
    """Check the judge that the environment names, if a task asks one; only its list of models is requested."""
    keys = {key for info in REPORT_METRICS.values() if info.asks_judge for key in (*info.keys, *info.further)}
    asking = [
        task
        for task in scope.tasks
        if task.has_family and (task.family.asks is not Asks.NOBODY or keys & {metric.name for metric in task.metrics})
    ]
    if scope.chosen and not asking:
        return
    if not is_configured():
        fix = f"export {BASE_URL}=http://127.0.0.1:8000/v1 {MODEL}=<its model>, for another machine also {API_KEY}"
        required = ", ".join(task.name for task in asking if task.family.asks is Asks.JUDGE)
        state, effect = State.WARNING, "so that the metrics that need one will have no value"
        if not scope.chosen:
            state, effect = State.NOTE, "without which some tasks lack metrics and some do not run"
        elif required:
            state, effect = State.PROBLEM, f"and {required} cannot run without one"
        yield CheckResult(JUDGE, "settings", state, f"no judge is set up, {effect}", fix)
        return
    try:
        settings = settings_from_environment()
    except JudgeNotConfigured as error:
        fix = "set the variable it names to a value it takes, or unset it"
        yield of_error(JUDGE, "settings", State.PROBLEM, error, fix)
        return
    where = "this machine" if settings.is_local else "another machine"
    yield JUDGE.ok("settings", f"the judge is {settings.model} at {settings.base_url}, on {where}")
    datasets = dict.fromkeys(task.dataset for task in asking if task.dataset)
    refused = {}
    for dataset in datasets:
        try:
            check_access(settings, str(access_of(dataset)), dataset, os.environ)
        except JudgeRefused as error:
            refused[dataset] = error
    if refused:
        first, *others = refused
        finding = of_error(JUDGE, "access", State.PROBLEM if scope.chosen else State.NOTE, refused[first])
        yield replace(finding, found=f"{finding.found}; nor that of {', '.join(others)}") if others else finding
    if len(refused) < len(datasets) or not datasets:
        yield _answer(replace(settings, timeout_s=min(settings.timeout_s, TIMEOUT_S)))


def _answer(settings: JudgeSettings) -> CheckResult:
    """Ask for the list of models; the endpoint's own words are never quoted, as they may repeat the key."""

    async def answer() -> Any:
        # The client of later questions, so that nothing goes where they would not.
        client = ChatClient(server_of(settings), AdaptiveLimit(1), 1, backoff_s=0, patience=1)
        try:
            return await client.get("models")
        finally:
            await client.close()

    answers = f"the judge at {settings.base_url} answers and"
    unchecked = f"so that {settings.model} is not checked"
    try:
        listed = [model["id"] for model in asyncio.run(answer())["data"]]
    except RemoteTrouble as trouble:
        status = trouble.status
        sentence, _, fix = trouble.cause.partition("; ")
        if status in (404, 405, 501):
            lack = f"{answers} has no list of models (HTTP {status}), {unchecked}"
            return JUDGE.warning("model", lack, _WRONG_ADDRESS)
        if status == 403:  # it may let the key judge all the same
            lack = f"{answers} does not let this key list models (HTTP 403), {unchecked}"
            return JUDGE.warning("model", lack, fix or _CHECK_MODEL)
        state = State.WARNING if status == 429 and trouble.retry else State.PROBLEM
        later = "check that it runs and {} is right, or give it more time" if status is None else "try again later"
        return CheckResult(JUDGE, "reply", state, sentence, fix or later.format(BASE_URL))
    except (KeyError, TypeError, ValueError):  # another JSON, and a body announced as JSON that is none
        sentence = f"what answers at {settings.base_url} is no list of models, so that it may be no judge"
        return JUDGE.problem("reply", sentence, _WRONG_ADDRESS)
    names = [name for name in listed if isinstance(name, str)]
    # Gemini lists a folder, Ollama a tag.
    if any(settings.model in (name, name.removeprefix("models/"), name.removesuffix(":latest")) for name in names):
        return JUDGE.ok("reply", f"{answers} has {settings.model}")
    if not names:
        return JUDGE.warning("model", f"{answers} lists no models, {unchecked}", _CHECK_MODEL)
    hint = near_match(settings.model, filter(_NAME.fullmatch, names))
    sentence = f"{answers} has no model '{settings.model}' among its {len(names)}{hint}"
    return JUDGE.problem("model", sentence, f"set {MODEL} to a name the endpoint lists")
