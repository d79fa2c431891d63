"""Prompts of tasks whose replies a judge reads: the ordinary ones, after a check that there is a judge.

The harness builds a first prompt before it runs the model, so a judge that is missing, or may not see the data, stops
the task before anything is computed. Tasks of which only some metrics need a judge run without one, with a warning;
once there are replies, errors of a judge stop nothing: its metrics are NaN, and the replies can be judged later.

All raise ``JudgeRefused`` if the judge may not see the dataset, and ``JudgeNotConfigured`` without a judge (or, if the
task runs without one, if it is named in part or wrongly). Other errors are those of the ordinary hooks.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from medtasks.data.samples import Document
from medtasks.judges.judge_client import judge_for, judge_if_there
from medtasks.prompts import template
from medtasks.prompts.images import Settings

Built = TypeVar("Built")
_NEEDS_JUDGE: ContextVar[bool] = ContextVar("_NEEDS_JUDGE", default=True)


def _after(
    look_for_judge: Callable[[str | None], object],
    hook: Callable[[Document, Settings | None], Built],
    name: str,
) -> Callable[..., Built]:
    """Return a hook under a name of this module that looks for a judge first."""

    def check_and_build(
        doc: Document, lmms_eval_specific_kwargs: Settings | None = None
    ) -> Built:
        """Look for the judge, unless :func:`without_judge` is in force, and build what the hook builds."""
        if _NEEDS_JUDGE.get():
            look_for_judge(doc.get("dataset"))
        return hook(doc, lmms_eval_specific_kwargs)

    check_and_build.__name__ = check_and_build.__qualname__ = name
    return check_and_build


@contextlib.contextmanager
def without_judge() -> Iterator[None]:
    """Make prompts within the block without looking for a judge, to write them into files."""
    token = _NEEDS_JUDGE.set(False)
    try:
        yield
    finally:
        _NEEDS_JUDGE.reset(token)


paired_prompt = _after(judge_for, template.lettered_prompt, "paired_prompt")
prompt = _after(judge_for, template.prompt, "prompt")
messages = _after(judge_for, template.messages, "messages")
prompt_with_judge_or_without = _after(
    judge_if_there, template.prompt, "prompt_with_judge_or_without"
)
messages_with_judge_or_without = _after(
    judge_if_there, template.messages, "messages_with_judge_or_without"
)
