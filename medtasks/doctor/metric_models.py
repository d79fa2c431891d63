"""Checks of the models that metrics use: their weights, WordNet, the labeler of chest findings, and the LLM judge."""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.privacy import access_of
from medtasks.doctor.check_results import JUDGE, CheckResult, Findings, Scope, State
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
from medtasks.tasks.task_file import TaskFile

# Seconds without a byte after which the endpoint is given up here. A shorter time of the user's counts.
TIMEOUT_S = 5.0
_NAME = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)
_WRONG_ADDRESS = f"check {BASE_URL}; it often ends with /v1"
_CHECK_MODEL = f"check {MODEL} with the endpoint's own documentation"


def metric_weights(scope: Scope) -> Findings:
    """Check weights and settings of the chosen tasks' metrics, or summarise which weights are here.

    Args:
        scope: The tasks; without any that the user named, there is a summary.
    """
    names = _required_weights(scope) if scope.has_names else [*WEIGHTS, WORDNET, TOKENIZER]
    missing = {name: error for name in names if (error := weights_trouble(name))}
    sentence = f"{len(names) - len(missing)} of {len(names)} sets of weights are here"
    if scope.has_names:
        for name in names:
            if name in missing:
                lacking = AREA.result_of_error(name, missing[name], state=State.WARNING)
                yield replace(lacking, fix=_fix({name: missing[name]}))
            else:
                yield AREA.ok(name, f"{name} is here")
    elif missing:
        yield AREA.note("metrics", f"{sentence}; missing {', '.join(missing)}", _fix(missing))
    else:
        yield AREA.ok("metrics", sentence)
    try:
        if names:
            ModelSettings.from_environment()
    except MedTasksError as error:
        yield AREA.result_of_error("settings", error)


def _required_weights(scope: Scope) -> list[str]:
    """Return the weights that metrics and labeler of the chosen tasks need, each name once."""
    weights_by_metric: dict[str, Sequence[str]] = {}
    for info in REPORT_METRICS.values():
        weights_by_metric |= dict.fromkeys(info.keys, info.weights)
    names: dict[str, None] = {}
    for task in scope.tasks:
        # The user's own metrics are not imported.
        if task.metric_list is not None and task.metric_list.is_ours:
            for entry in task.metric_list.resolve():
                names |= dict.fromkeys(weights_by_metric.get(entry["metric"], ()))
    if any(map(_needs_labels, scope.tasks)) and not os.environ.get(LABELER, "").strip():
        names |= dict.fromkeys(["chexbert", "bert-base-uncased"])
    return list(names)


def _needs_labels(task: TaskFile) -> bool:
    """Return whether the metrics or rules of a task need the labeler of chest findings."""
    has_labels = task.has_family and task.family.labels_texts
    return has_labels or any(map(needs_labeler, task.rows.values()))


def _fix(missing: Mapping[str, MedTasksError]) -> str:
    """Return how to get missing weights, by name. The error of the PTB tokenizer has a fix of its own."""
    names = [name for name in missing if name != TOKENIZER]
    if names:
        return f"medtasks weights fetch {' '.join(names)}"
    return str(missing[TOKENIZER]).partition("; ")[2]


def judge(scope: Scope) -> Findings:
    """Check the judge that the environment names, of which only its list of models is requested.

    Args:
        scope: The tasks; if the user named some and none asks a judge, nothing is checked.
    """
    asking = _asking_tasks(scope)
    if scope.has_names and not asking:
        return
    if not is_configured():
        yield _without_judge(scope, asking)
        return
    try:
        settings = settings_from_environment()
    except JudgeNotConfigured as error:
        yield JUDGE.result_of_error(
            "settings", error, "set the variable it names to a value it takes, or unset it"
        )
        return
    machine = "this" if settings.is_local else "another"
    yield JUDGE.ok(
        "settings",
        f"the judge is {settings.model} at {settings.base_url}, on {machine} machine",
    )
    yield from _access(scope, settings, asking)


def _access(
    scope: Scope,
    settings: JudgeSettings,
    asking: Iterable[TaskFile],
) -> Findings:
    """Check that the data of the tasks may be sent to the judge, and if any may, that the judge answers.

    Args:
        scope: The tasks that the user named, or all.
        settings: The judge.
        asking: Those of the tasks that ask a judge.
    """
    datasets = dict.fromkeys(task.dataset for task in asking if task.dataset)
    refusals = {}
    for dataset in datasets:
        try:
            check_access(settings, str(access_of(dataset)), dataset, os.environ)
        except JudgeRefused as error:
            refusals[dataset] = error
    if refusals:
        yield _refused_data(scope, refusals)
    if len(refusals) < max(len(datasets), 1):  # also without any dataset
        yield _answer(replace(settings, timeout_s=min(settings.timeout_s, TIMEOUT_S)))


def _refused_data(scope: Scope, refusals: Mapping[str, JudgeRefused]) -> CheckResult:
    """Return the datasets whose texts the judge may not see, with the cause for the first of them."""
    first, *others = refusals
    state = State.PROBLEM if scope.has_names else State.NOTE
    finding = JUDGE.result_of_error("access", refusals[first], state=state)
    if not others:
        return finding
    return replace(finding, found=f"{finding.found}; nor that of {', '.join(others)}")


def _asking_tasks(scope: Scope) -> list[TaskFile]:
    """Return the tasks that ask a judge, or have a metric that does."""
    keys = set[str]()
    for info in REPORT_METRICS.values():
        if info.asks_judge:
            keys.update(info.keys, info.further)
    asking = []
    for task in scope.tasks:
        if task.has_family and (
            task.family.asks is not Asks.NOBODY
            or keys & {metric.name for metric in task.metrics}
        ):
            asking.append(task)
    return asking


def _without_judge(scope: Scope, asking: Sequence[TaskFile]) -> CheckResult:
    """Describe the scores that tasks lose without a judge."""
    required = ", ".join(task.name for task in asking if task.family.asks is Asks.JUDGE)
    state = State.WARNING
    effect = "so that the metrics that need one will have no value"
    if not scope.has_names:
        state = State.NOTE
        effect = "without which some tasks lack metrics and some do not run"
    elif required:
        state = State.PROBLEM
        effect = f"and {required} cannot run without one"
    fix = f"export {BASE_URL}=http://127.0.0.1:8000/v1 {MODEL}=<its model>, for another machine also {API_KEY}"
    return CheckResult(JUDGE, "settings", state, f"no judge is set up, {effect}", fix)


def _answer(settings: JudgeSettings) -> CheckResult:
    """Check that the endpoint lists the judge's model. Its own words are not quoted: they may repeat the key."""

    async def answer() -> Any:
        """Return the content of the endpoint's answer, whatever JSON that is."""
        # It is the client of later questions, so that nothing is sent where those would not go.
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
        return _refused_list(trouble, answers, unchecked)
    except (KeyError, TypeError, ValueError):
        # The body is other JSON, or announced as JSON and none.
        return JUDGE.problem(
            "reply",
            f"what answers at {settings.base_url} is no list of models, so that it may be no judge",
            _WRONG_ADDRESS,
        )
    names = [name for name in listed if isinstance(name, str)]
    # Gemini lists a folder, Ollama a tag.
    for name in names:
        if settings.model in (name, name.removeprefix("models/"), name.removesuffix(":latest")):
            return JUDGE.ok("reply", f"{answers} has {settings.model}")
    if not names:
        return JUDGE.warning("model", f"{answers} lists no models, {unchecked}", _CHECK_MODEL)
    hint = near_match(settings.model, filter(_NAME.fullmatch, names))
    return JUDGE.problem(
        "model",
        f"{answers} has no model '{settings.model}' among its {len(names)}{hint}",
        f"set {MODEL} to a name the endpoint lists",
    )


def _refused_list(trouble: RemoteTrouble, answers: str, unchecked: str) -> CheckResult:
    """Report that the list of models could not be fetched, and whether the endpoint may judge all the same.

    Args:
        trouble: Refusal of the endpoint, or that it did not answer.
        answers: First words of a sentence on an endpoint that answers.
        unchecked: Last words of a sentence on an endpoint whose models are unknown.
    """
    status = trouble.status
    sentence, _, fix = trouble.cause.partition("; ")
    if status in (404, 405, 501):
        lack = f"{answers} has no list of models (HTTP {status}), {unchecked}"
        return JUDGE.warning("model", lack, _WRONG_ADDRESS)
    if status == 403:  # it may let the key judge all the same
        lack = f"{answers} does not let this key list models (HTTP 403), {unchecked}"
        return JUDGE.warning("model", lack, fix or _CHECK_MODEL)
    # Without another try the quota is used up.
    state = State.WARNING if status == 429 and trouble.retry else State.PROBLEM
    later = "try again later"
    if status is None:
        later = f"check that it runs and {BASE_URL} is right, or give it more time"
    return CheckResult(JUDGE, "reply", state, sentence, fix or later)
