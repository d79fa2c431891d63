"""Marks in replies for failures, cuts and reasoning: the harness passes on nothing but text.

lmms-eval has texts of its own for failures. The unmistakable ones are recognised here, also in files recorded without
this package; others, such as an empty text for an exception, are marked by :mod:`medtasks.lmms.model_failures`.

A model may write a mark itself. Its own text is escaped by :func:`escaped_reply` before a mark is added, so that a
forged one is read as text.
"""

import json
import re

# The beginning of a reply in its envelope, see medtasks.runs.reply_envelope
ENVELOPE = '{"rule": '
_FAILED = "[[medtasks:adapter_failed]]"
_CUT = "[[medtasks:cut]] "
_REASONING = re.compile(r"\[\[medtasks:reasoning (\"(?:[^\"\\]|\\.)*\")\]\] ")
_HARNESS_FAILURES = re.compile(
    r"\[LMMS_EVAL_(?:REQUEST_FAILED after \S+ retries|BUDGET_EXCEEDED)\]"  # openai, async_openai, litellm, gemini
    r"|\[SAFETY_BLOCKED:[^\]]*\]"  # gemini
    r"|\[GENERATION_FAILED\]"  # models that make images or video
    r'|Error: can only concatenate str \(not "\w+"\) to str'  # async_openai, for a reply whose content is no text
)
_FORGED = re.compile(
    rf"\[\[medtasks:|{re.escape(ENVELOPE)}|\[(?:LMMS_EVAL|SAFETY_BLOCKED|GENERATION_FAILED)|{_HARNESS_FAILURES.pattern}"
    # The half in front of reasoning, which the harness cuts out.
    r"|(?:\[(?:\[[medtask]{0,8}|[LSG][A-Z_]{0,20})?|\{(?:\"[rule]{0,4}\"?:?)?)(?=</?[\w|]{1,40}>|\[THINK\])"
)
_INVISIBLE = "\u2060"  # is no blank, so nothing strips it


def failed_reply(cause: str) -> str:
    """Return the reply to hand to the harness for a sample the adapter could not run."""
    return f"{_FAILED} {' '.join(cause.split())}"


def escaped_reply(text: str, *, may_be_failure: bool = False) -> str:
    """Return a model's own text so that no part of it is read as a mark or an envelope.

    A mark is broken by an invisible character, an envelope by a blank, which changes no JSON. Nearly all texts of
    models stay as they are.

    Args:
        text: Text of the model, without any mark of ours.
        may_be_failure: Keep a failure's text of the harness, for a model that cannot tell it from a reply.

    Example:
        >>> failure_cause(escaped_reply("[[medtasks:adapter_failed]] I pass")) is None
        True
    """
    if may_be_failure and _HARNESS_FAILURES.match(text.strip()):
        return text
    return _FORGED.sub(_broken_mark, text)


def _broken_mark(mark: re.Match[str]) -> str:
    """Return the beginning of a forged mark so that it is none: see :func:`escaped_reply`."""
    first = mark[0][0]
    gap = " " if first == "{" else _INVISIBLE
    return f"{first}{gap}{mark[0][1:]}"


NO_TEXT = failed_reply("the model gave no text")


def failure_cause(reply: str | None) -> str | None:
    """Return the cause if ``reply`` marks a failed sample, else ``None``.

    Example:
        >>> failure_cause(failed_reply("out of memory")), failure_cause("B")
        ('out of memory', None)
    """
    stripped = (reply or "").strip()
    if stripped.startswith(_FAILED):
        return stripped.removeprefix(_FAILED).lstrip()
    return stripped if _HARNESS_FAILURES.match(stripped) else None


def cut_reply(text: str) -> str:
    """Return the reply to hand to the harness for a text that the server cut at its length limit."""
    return f"{_CUT}{text}"


def without_cut_mark(reply: str) -> tuple[str, bool]:
    """Return the model's text, and whether it was cut at a length limit.

    Example:
        >>> without_cut_mark(cut_reply("The lung is"))
        ('The lung is', True)
    """
    return reply.removeprefix(_CUT), reply.startswith(_CUT)


def reasoned_reply(reasoning: str, text: str) -> str:
    """Return the reply to hand to the harness for a text after reasoning. It may be marked by :func:`cut_reply`, too.

    Example:
        >>> without_reasoning(reasoned_reply("A or B?", "B"))
        ('B', 'A or B?')
    """
    written = json.dumps(reasoning, ensure_ascii=False)
    written = written.replace("<", "\\u003c")  # or the harness would cut out thoughts
    return f"[[medtasks:reasoning {written}]] {text}"


def without_reasoning(reply: str) -> tuple[str, str]:
    """Return the text of a reply that has no mark of a cut, and the reasoning before it."""
    match = _REASONING.match(reply)
    if match is None:
        return reply, ""
    return reply[match.end() :], json.loads(match[1])
