"""How the side that runs a model says what became of one sample, through a harness that only carries text.

lmms-eval has texts of its own for replies that it did not get. The ones below cannot be anything else and are known
wherever replies are read, so also in files that were recorded without this package. What only its sender can tell from
a reply, such as an empty text that stands for an exception, :mod:`medtasks.harness.models` marks while the model runs.
"""

import json
import re

_FAILED = "[[medtasks:adapter_failed]]"
_CUT = "[[medtasks:cut]]"
_REASONING = re.compile(r"\[\[medtasks:reasoning (\"(?:[^\"\\]|\\.)*\")\]\] ")
_OF_THE_HARNESS = re.compile(
    r"\[LMMS_EVAL_(?:REQUEST_FAILED after \S+ retries|BUDGET_EXCEEDED)\]"  # openai, async_openai, litellm, gemini
    r"|\[SAFETY_BLOCKED:[^\]]*\]"  # gemini
    r"|\[GENERATION_FAILED\]"  # models that make images or video
    r'|Error: can only concatenate str \(not "\w+"\) to str'  # async_openai, for a reply whose content is no text
)


def failed_reply(cause: str) -> str:
    """Return the reply to hand to the harness for a sample the adapter could not run."""
    return f"{_FAILED} {' '.join(cause.split())}"


NO_TEXT = failed_reply("the model gave no text")


def failure_cause(reply: str | None) -> str | None:
    """Return the cause if ``reply`` stands for a failed sample, else ``None``, as for no reply at all.

    Example:
        >>> failure_cause("[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error.")
        '[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error.'
        >>> failure_cause("The request failed.") is None
        True
    """
    stripped = (reply or "").strip()
    if stripped.startswith(_FAILED):
        return stripped.removeprefix(_FAILED).lstrip()
    return stripped if _OF_THE_HARNESS.match(stripped) else None


def cut_reply(text: str) -> str:
    """Return the reply to hand to the harness for a text that the server cut at its length limit."""
    return f"{_CUT} {text}"


def without_cut_mark(reply: str) -> tuple[str, bool]:
    """Return the model's own text, and whether it was cut at a length limit.

    Example:
        >>> without_cut_mark(cut_reply(" The answer"))
        (' The answer', True)
    """
    return (reply.removeprefix(f"{_CUT} "), True) if reply.startswith(f"{_CUT} ") else (reply, False)


def reasoned_reply(reasoning: str, text: str) -> str:
    """Return the reply to hand to the harness for a text before which the model reasoned; see :func:`cut_reply`, too.

    The reasoning holds no ``<``: the harness would cut marks of thoughts out of it.
    """
    written = json.dumps(reasoning, ensure_ascii=False).replace("<", "\\u003c")
    return f"[[medtasks:reasoning {written}]] {text}"


def without_reasoning(reply: str) -> tuple[str, str]:
    """Return the text of a reply without mark of a cut, and the reasoning before it.

    Example:
        >>> without_reasoning(reasoned_reply('"A"? <no>', "B"))
        ('B', '"A"? <no>')
        >>> without_reasoning("B")
        ('B', '')
    """
    found = _REASONING.match(reply)
    return (reply[found.end() :], json.loads(found[1])) if found else (reply, "")
