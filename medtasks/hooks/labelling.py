"""Labelling all replies of a task at once, before they are read one by one.

A labeler such as CheXbert is many times slower on single texts, and is loaded for every call. The harness's filters are
the place: they see all replies of their rank, after the evaluated model is gone and before anything is scored, so that
records and samples hold what was read, on every rank.
"""

from collections.abc import Sequence
from typing import Any

from medtasks.extract import chexbert_labels
from medtasks.hooks.reading import tagged, untagged


def tagged_replies(
    replies: Sequence[Any], rule: str | None, option: str | None = None, *, fenced: bool = False
) -> list[str]:
    """Attach a rule to replies, and what a labeler says of each if the rule asks one.

    Args:
        replies: As the model gave them, shape (replies,).
        rule: Name of the rule that shall read them.
        option: How options are written for the rule, see :func:`medtasks.hooks.reading.written_options`.
        fenced: Whether a judge shall get them between marks.

    Returns:
        What :func:`medtasks.hooks.reading.untagged` understands, shape (replies,).
    """
    if rule != chexbert_labels.NAME:
        noted = {"fenced": True} if fenced else {}
        return [tagged(reply, rule, option, **noted) for reply in replies]
    found = chexbert_labels.label_replies([untagged(reply).reply for reply in replies])
    return [tagged(reply, rule, option, labels=labels) for reply, labels in zip(replies, found, strict=True)]
