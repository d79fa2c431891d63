"""What the harness's models give in place of replies, marked as failed samples before anything reads it.

The models of lmms-eval 0.7.3 turn a failure into text: one of the harness's own, an empty one, or the words of a Python
exception. Only while a model runs can be told which; so its methods are watched for the requests of our tasks, and the
client of one that asks a server by the openai SDK is watched, too, because the harness drops what the server says
beside the text. Requests of other tasks are left as they are.
"""

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from lmms_eval.api.instance import GenerationResult, Instance

from medtasks.extract.failure import (
    NO_TEXT,
    cut_reply,
    failed_reply,
    failure_cause,
    reasoned_reply,
    without_cut_mark,
    without_reasoning,
)
from medtasks.home import packaged_facts
from medtasks.lmms.earlier_replies import KeptReplies
from medtasks.runs.reply_envelope import FAILED, parse_loglikelihood
from medtasks.tasks.task_files import variant_of
from medtasks.tasks.task_variants import THINKING

_MODELS = "lmms_eval.models."
_FACTS = packaged_facts(__package__, "harness_models")
EMPTY_AFTER_ERRORS = frozenset(
    f"{kind}.{name}" for kind, names in _FACTS["empty_after_errors"].items() for name in names
)
"""Modules whose ``generate_until`` gives an empty text after an exception, so that an empty reply says nothing."""

ERROR_TEXTS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {module: re.compile(text, re.DOTALL) for module, text in _FACTS["error_texts"].items()}
)
"""Texts that a model gives after an exception and another could give as a reply, by module."""

_BROKEN_OFF = ("abort", "error")  # what vLLM and others call a request that ended for a reason of the server's


@contextlib.contextmanager
def watched(lm: Any, tasks: Container[str], kept: KeptReplies) -> Iterator[None]:
    """Mark the failures of a model in its replies to some tasks within the block; for kept replies it is not asked."""
    module = replies_module(lm)
    calls = {
        "generate_until": _reply_checker(module),
        "loglikelihood": _checked_likelihood,
    }
    with contextlib.ExitStack() as stack:
        for name, check in calls.items():
            original = getattr(lm, name)
            stack.enter_context(replaced(lm, name, _marking(original, check, tasks, kept)))
        if (completions := chat_completions(lm)) is not None:
            stack.enter_context(replaced(completions, "create", _noting(completions.create)))
        yield


def replies_module(lm: Any) -> str:
    """Return the harness's module that gives a model's replies, such as ``chat.openai``."""
    return str(type(lm).generate_until.__module__).removeprefix(_MODELS)


def chat_completions(lm: Any) -> Any:
    """Return what has the ``create`` by which a model asks a server; None for a model without an openai client."""
    completions = getattr(getattr(getattr(lm, "client", None), "chat", None), "completions", None)
    return completions if callable(getattr(completions, "create", None)) else None


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute within the block."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            vars(owner).pop(name, None)
        else:
            setattr(owner, name, own)


# ---- replies ----


def _marking(
    original: Callable[[Sequence[Instance]], Sequence[Any]],
    check: Callable[[Any], Any],
    tasks: Container[str],
    kept: KeptReplies,
) -> Callable[[Sequence[Instance]], list[Any]]:
    def call(requests: Sequence[Instance]) -> list[Any]:
        known = [kept.of(request) for request in requests]
        asked = [request for request, reply in zip(requests, known, strict=True) if reply is None]
        replies = iter(_one_each(original(asked) if asked else (), len(asked)))
        return [
            earlier if earlier is not None else checked(next(replies), request)
            for earlier, request in zip(known, requests, strict=True)
        ]

    def checked(reply: Any, request: Instance) -> Any:
        if request.task_name not in tasks:
            return _without_marks(reply)
        return check(_cut_at_limit(reply, request) if _reasons(request.task_name) else reply)

    return call


@cache
def _reasons(task: str) -> bool:
    return (variant_of(task) or ("", ""))[1] in THINKING


def _cut_at_limit(reply: Any, request: Instance) -> Any:
    """Mark a reply whose tokens reach the limit: a model in this process says nothing else of reasoning without end."""
    counted = reply.token_counts if isinstance(reply, GenerationResult) else reply
    how = next((one for one in request.args if isinstance(one, Mapping)), {})  # its place is another for chat models
    tokens, limit = getattr(counted, "output_tokens", None), how.get("max_new_tokens")
    if not tokens or not limit or tokens < int(limit):
        return reply

    def mark(text: Any) -> Any:
        known = not isinstance(text, str) or failure_cause(text) is not None or without_cut_mark(text)[1]
        return text if known else cut_reply(text)

    return _with_text(reply, mark)


def _checked_likelihood(result: Any) -> Any:
    with_counts = isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str)
    return FAILED if parse_loglikelihood(result[0] if with_counts else result) is FAILED else result


def _one_each(replies: Iterable[Any], requests: int) -> list[Any]:
    found = list(replies)
    if len(found) == requests:
        return found
    # simple.claude adds one too many after an error, and every later reply stands at another question.
    return [failed_reply(f"the model gave {len(found)} replies to {requests} requests")] * requests


def _reply_checker(module: str) -> Callable[[Any], Any]:
    pattern = ERROR_TEXTS.get(module)

    def mark(text: Any) -> Any:
        if not isinstance(text, str):
            return NO_TEXT
        if (cause := failure_cause(text)) is not None:
            return failed_reply(cause)
        if module in EMPTY_AFTER_ERRORS and not text.strip():
            return failed_reply(f"an empty text, which {module} of lmms-eval also gives after an error")
        return failed_reply(text) if pattern and pattern.match(text.strip()) else text

    return lambda reply: _with_text(reply, mark)


def _without_marks(reply: Any) -> Any:
    def unmarked(text: Any) -> Any:
        own = without_reasoning(without_cut_mark(text)[0])[0] if isinstance(text, str) else text
        return "" if isinstance(own, str) and own.startswith(failed_reply("")) else own

    return _with_text(reply, unmarked)


def _with_text(reply: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(reply, GenerationResult):
        return dataclasses.replace(reply, text=change(reply.text))
    if isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[0], str):
        return change(reply[0]), reply[1]
    changed = change(reply)
    return reply if changed == reply else changed  # a reply of our own adapters is a str that carries counts of tokens


# ---- answers of a server ----


def _noting(create: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        answer = create(*args, **kwargs)
        tools = "tools" in kwargs
        return _noted_later(answer, tools) if inspect.isawaitable(answer) else _noted(answer, tools)

    return noting


async def _noted_later(answer: Awaitable[Any], tools: bool) -> Any:
    return _noted(await answer, tools)


def _noted(completion: Any, tools: bool) -> Any:
    """Return a completion whose text tells a failed and a cut reply, and what the server's parser took for reasoning.

    Without a single choice the harness tries again. Where the model may call tools, replies are parts of a conversation
    and are left as they are.
    """
    message = _only_choice(completion).message
    content = message.content
    if tools:
        message.content = "" if content is None else content
    elif cause := failure_of(completion):
        message.content = failed_reply(cause)
    elif completion.choices[0].finish_reason == "length":
        message.content = cut_reply(_with_reasoning(message, content if isinstance(content, str) else ""))
    elif isinstance(content, str) and content:
        message.content = _with_reasoning(message, content)
    return completion


def _with_reasoning(message: Any, content: str) -> str:
    told = (getattr(message, name, None) for name in ("reasoning", "reasoning_content"))
    reasoning = next((one for one in told if isinstance(one, str) and one), "")
    return reasoned_reply(reasoning, content) if reasoning else content


def failure_of(completion: Any) -> str:
    """Return why an answer of a server holds no reply, empty if it holds one.

    A reply may be cut, even to nothing. Raises ValueError without a single choice.
    """
    choice = _only_choice(completion)
    end = choice.finish_reason
    if end == "content_filter":
        return "the server's content filter stopped the reply"
    if end in _BROKEN_OFF:
        return f"the server broke the reply off (finish_reason: {end})"
    if end != "length" and choice.message.content is None:
        return f"the server's answer has no content (finish_reason: {end})"
    return ""


def _only_choice(completion: Any) -> Any:
    choices: Sequence[Any] = getattr(completion, "choices", None) or ()
    if len(choices) != 1:
        raise ValueError(f"the server's answer holds {len(choices)} choices instead of one")
    return choices[0]
