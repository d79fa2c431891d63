"""Prompts of tasks whose replies a judge reads: the same as elsewhere, once it is clear that there is a judge.

The harness asks for a first prompt before it runs the model, so a judge that is missing, or may not see the data, stops
the task before anything is computed in vain. Tasks of which only some metrics need a judge run without one, and say so;
once there are replies, nothing about a judge stops anything: its metrics are NaN, and the replies can be judged later.

All raise ``JudgeRefused`` where the judge may not see the dataset, and ``JudgeNotConfigured`` where there is none; or,
if the task runs without, where one is named in part or wrongly. Other errors are those of the same hooks elsewhere.
"""

from collections.abc import Mapping
from typing import Any

from medtasks.data.own_datasets import access_of
from medtasks.judges.client import judge_for, judge_if_there
from medtasks.prompts import lettered, template
from medtasks.prompts.template import Message, Settings

Document = Mapping[str, Any]


def paired_prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a paired question, see :func:`medtasks.prompts.lettered.prompt`."""
    _need_judge(doc)
    return lettered.prompt(doc, lmms_eval_specific_kwargs)


def prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model."""
    _need_judge(doc)
    return template.prompt(doc, lmms_eval_specific_kwargs)


def messages(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model."""
    _need_judge(doc)
    return template.messages(doc, lmms_eval_specific_kwargs)


def prompt_with_judge_or_without(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model."""
    judge_if_there(str(doc["dataset"]))
    return template.prompt(doc, lmms_eval_specific_kwargs)


def messages_with_judge_or_without(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model."""
    judge_if_there(str(doc["dataset"]))
    return template.messages(doc, lmms_eval_specific_kwargs)


def _need_judge(doc: Document) -> None:
    judge_for(str(doc["dataset"]), str(access_of(str(doc["dataset"]))))
