"""Prompts of tasks whose replies a judge reads: the same as elsewhere, once it is clear that there is a judge.

The harness asks for a first prompt before it runs the model, so a judge that is missing, or may not see the data, stops
the task before anything is computed in vain. Tasks of which only some metrics need a judge run without one, and say so;
once there are replies, nothing about a judge stops anything: its metrics are NaN, and the replies can be judged later.

All raise ``JudgeRefused`` where the judge may not see the dataset, and ``JudgeNotConfigured`` where there is none; or,
if the task runs without, where one is named in part or wrongly. Other errors are those of the same hooks elsewhere.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from medtasks.judges.judge_client import judge_for, judge_if_there
from medtasks.prompts import lettered, template
from medtasks.prompts.template import Settings

Document = Mapping[str, Any]
Asked = TypeVar("Asked")


def _after(
    look_for_judge: Callable[[str | None], object], hook: Callable[[Document, Settings | None], Asked], name: str
) -> Callable[..., Asked]:
    """Return the hook of this module under a name, which looks for a judge first."""

    def asked(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> Asked:
        look_for_judge(doc.get("dataset"))
        return hook(doc, lmms_eval_specific_kwargs)

    asked.__name__ = asked.__qualname__ = name
    return asked


paired_prompt = _after(judge_for, lettered.prompt, "paired_prompt")
prompt = _after(judge_for, template.prompt, "prompt")
messages = _after(judge_for, template.messages, "messages")
prompt_with_judge_or_without = _after(judge_if_there, template.prompt, "prompt_with_judge_or_without")
messages_with_judge_or_without = _after(judge_if_there, template.messages, "messages_with_judge_or_without")
