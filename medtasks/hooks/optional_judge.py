"""Tasks of which some metrics need a judge: they run without one, and say so.

A judge that is named but cannot be used stops the task before the model runs. Once there are replies, nothing about a
judge stops anything: its metrics are NaN, and the replies can be judged later.
"""

from collections.abc import Mapping
from typing import Any

from medtasks.data.own_datasets import access_of
from medtasks.errors import MedTasksError, warn_once
from medtasks.hooks import multimedeval_prompts
from medtasks.judges.client import Judge, judge_if_configured
from medtasks.judges.settings import BASE_URL, MODEL

Settings = Mapping[str, Any]

_MISSING = (
    f"No judge is configured, so the metrics that need one are NaN; set {BASE_URL} and {MODEL}, for credentialed data "
    "to an endpoint on this machine, and judge the replies later with 'medtasks score'."
)


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model, see :func:`medtasks.hooks.multimedeval_prompts.prompt`.

    Raises:
        JudgeNotConfigured: A judge is named, but in part or wrongly. The harness asks for a first prompt before it runs
            the model, so nothing is computed in vain.
        JudgeRefused: The named judge may not see this dataset.
        MedTasksError: The template cannot be filled in.
    """
    _check(doc)
    return multimedeval_prompts.prompt(doc, lmms_eval_specific_kwargs)


def messages(
    doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None
) -> list[multimedeval_prompts.Message]:
    """Return the conversation of a chat model.

    Raises:
        JudgeNotConfigured: See :func:`prompt`.
        JudgeRefused: See :func:`prompt`.
        MedTasksError: The template cannot be filled in, or an image is broken.
    """
    _check(doc)
    return multimedeval_prompts.messages(doc, lmms_eval_specific_kwargs)


def scoring_judge(doc: Mapping[str, Any]) -> Judge | None:
    """Return the judge for one document, or ``None`` with one warning per cause and process; never raises."""
    try:
        judge = _judge(doc)
    except MedTasksError as error:
        warn_once(f"The judge cannot be asked, so the metrics that need it are NaN: {str(error).rstrip('.')}.")
        return None
    if judge is None:
        warn_once(_MISSING)
    return judge


def _check(doc: Mapping[str, Any]) -> None:
    if _judge(doc) is None:
        warn_once(_MISSING)


def _judge(doc: Mapping[str, Any]) -> Judge | None:
    dataset = str(doc["dataset"])
    return judge_if_configured(dataset, str(access_of(dataset)))
