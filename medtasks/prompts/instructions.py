"""Instructions in a prompt, as opposed to data: a mark such as ``</think>`` is meant in the former alone."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

HIDDEN_MARK: ContextVar[str] = ContextVar("HIDDEN_MARK", default="")
"""Mark that hooks leave out of solved examples; empty for none."""

# Texts on either side of a mark must not join into another one.
_PLACEHOLDER = "\N{REPLACEMENT CHARACTER}"


def without_mark(value: Any, mark: str) -> Any:
    """Return data, such as a document, with a placeholder for a mark in all of its texts.

    Example:
        >>> without_mark({"question": "Is </think> there?"}, "</think>")
        {'question': 'Is � there?'}
    """
    if isinstance(value, str):
        return value.replace(mark, _PLACEHOLDER) if mark else value
    if isinstance(value, Mapping):
        return {key: without_mark(item, mark) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_mark(item, mark) for item in value]
    return value


def is_instruction(
    mark: str,
    prompt: str,
    task: Any,
    row: int,
) -> bool:
    """Return whether a mark in a prompt is of the task's own words each time, or False if that cannot be told.

    Args:
        mark: Text that occurs in the prompt.
        prompt: Prompt that the harness made of a document, after a system instruction or solved examples, if any.
        task: The harness's task, which makes the prompt once more without the mark in its data; None if unknown.
        row: Row of the document.
    """
    token = HIDDEN_MARK.set(mark)
    try:
        document = task.eval_docs_no_media[row]
        masked = without_mark(document, mark)
        task_prompt = str(task.doc_to_text(masked))
        examples = task.config.num_fewshot or 0
        if not examples and masked == document and prompt.endswith(task_prompt):
            return True
        return prompt.count(mark) <= task_prompt.count(mark) * (examples + 1)
    except Exception:  # noqa: BLE001  # task code can fail in any way
        return False
    finally:
        HIDDEN_MARK.reset(token)
