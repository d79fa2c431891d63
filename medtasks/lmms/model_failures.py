"""Failures of the harness's models, marked as failed samples before anything reads them as replies.

The models of lmms-eval 0.7.3 turn a failure into text: a fixed one, an empty one, or the message of a Python exception.
They can be told from replies only while a model runs, so its methods are watched for the requests of our tasks, and the
openai client of a model, because the harness drops everything but the text of a server's answer.
"""

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from lmms_eval.api.instance import GenerationResult, Instance

from medtasks.errors import warn_once
from medtasks.extract.failure import (
    NO_TEXT,
    cut_reply,
    escaped_reply,
    failed_reply,
    failure_cause,
    reasoned_reply,
    without_cut_mark,
    without_reasoning,
)
from medtasks.home import packaged_facts
from medtasks.lmms import AnyFunction, replace_attribute
from medtasks.lmms.earlier_replies import KeptReplies, KeptReply
from medtasks.runs.redaction import redact
from medtasks.runs.reply_envelope import FAILED, parse_loglikelihood
from medtasks.runs.reply_origins import SampleOrigins, combined_origin
from medtasks.tasks.task_files import variant_of
from medtasks.tasks.task_variants import THINKING

_FACTS = packaged_facts(__package__, "harness_models")
EMPTY_AFTER_ERRORS = frozenset(_FACTS["empty_after_errors"])
"""Modules whose ``generate_until`` gives an empty text after an exception, so that an empty reply is ambiguous."""

ERROR_TEXTS: Mapping[str, re.Pattern[str]] = {
    module: re.compile(text, re.DOTALL) for module, text in _FACTS["error_texts"].items()
}
"""Texts that a model gives after an exception and another could give as a reply, by module."""


@dataclasses.dataclass(frozen=True)
class _Watch:
    """Replies of a model to the requests of a harness run."""

    module: str  # of the harness, that gives the replies
    marks_replies: bool  # whether the model's own text is escaped, see medtasks.extract.failure
    tasks: Collection[str]
    earlier: KeptReplies
    origins: SampleOrigins

    def answers(
        self,
        method: str,
        original: AnyFunction,
        requests: Sequence[Instance],
    ) -> list[Any]:
        """Return kept replies, and those of a method of the model to the remaining requests.

        Args:
            method: Name of the method.
            original: The method.
            requests: Requests of the harness.

        Returns:
            One reply per request, in their order.
        """
        earlier = [self.kept_reply(request) for request in requests]
        remaining = [
            request for request, reply in zip(requests, earlier, strict=True) if reply is None
        ]
        replies = list(original(remaining) if remaining else ())
        if len(replies) != len(remaining):
            # simple.claude adds one too many after an error, and every later reply belongs to another question.
            surplus = failed_reply(
                f"the model gave {len(replies)} replies to {len(remaining)} requests"
            )
            replies = [surplus] * len(remaining)
        new_replies = iter(replies)
        answers = []
        for request, reply in zip(requests, earlier, strict=True):
            if reply is None:
                answers.append(self.mark(next(new_replies), request, method))
            else:
                answers.append(reply.reply)
        return answers

    def kept_reply(self, request: Instance) -> KeptReply | None:
        """Return the earlier reply to a request, or None if it has to be asked."""
        reply = self.earlier.get((request.task_name, int(request.doc_id), request.idx))
        if reply is None or (request.repeats or 1) > 1:  # a repeated one is always asked
            return None
        if reply.prompt not in ("", request.args[0]):
            warn_once(
                f"{request.task_name} has other prompts than in the earlier run; their samples are asked again."
            )
            return None
        self.note_origin(request, reply.origin)
        return reply

    def note_origin(self, request: Instance, origin: str) -> None:
        """Add the origin of the reply to a request to that of its sample."""
        sample = (request.task_name, int(request.doc_id))
        self.origins[sample] = combined_origin(self.origins.get(sample, ""), origin)

    def mark(
        self,
        reply: Any,
        request: Instance,
        method: str,
    ) -> Any:
        """Return a reply, marked as failed or cut where it is. Tasks of others get none of our marks."""
        self.note_origin(request, "")
        if not self.marks_replies:
            reply = _with_text(reply, functools.partial(_escape, may_be_failure=True))
        if request.task_name not in self.tasks:
            return _with_text(reply, _without_marks)
        if method != "loglikelihood":
            is_full = _is_full(reply, request)
            change = functools.partial(_mark_failure, module=self.module, is_full=is_full)
            return _with_text(reply, change)
        likelihood = reply[0] if _has_counts(reply) else reply
        return FAILED if parse_loglikelihood(likelihood) is FAILED else reply


@contextlib.contextmanager
def watch_replies(
    lm: Any,
    tasks: Collection[str],
    earlier: KeptReplies,
    origins: SampleOrigins,
) -> Iterator[None]:
    """Mark the failures of a model in its replies to tasks within the block.

    Args:
        lm: Model of the harness.
        tasks: Names of our tasks.
        earlier: Replies that are not asked again.
        origins: Gets the origins of the replies.
    """
    completions: Any = getattr(
        getattr(getattr(lm, "client", None), "chat", None), "completions", None
    )
    has_client = callable(getattr(completions, "create", None))  # of openai
    marks_replies = has_client or getattr(lm, "marks_replies", False)
    module = type(lm).generate_until.__module__.removeprefix("lmms_eval.models.")
    watch = _Watch(module, marks_replies, tasks, earlier, origins)
    with contextlib.ExitStack() as stack:
        for method in ("generate_until", "loglikelihood"):
            answer = functools.partial(watch.answers, method, getattr(lm, method))
            stack.enter_context(replace_attribute(lm, method, answer))
        if has_client:
            create = _mark_replies(completions.create)
            stack.enter_context(replace_attribute(completions, "create", create))
        yield


def _is_full(reply: Any, request: Instance) -> bool:
    """Return whether a thinking task's reply has all tokens allowed: nothing else shows unfinished reasoning."""
    if (variant_of(request.task_name) or ("", ""))[1] not in THINKING:
        return False
    counts = reply.token_counts if isinstance(reply, GenerationResult) else reply
    # The position of the settings differs for chat models.
    settings = next((each for each in request.args if isinstance(each, Mapping)), {})
    tokens = getattr(counts, "output_tokens", None)
    limit = settings.get("max_new_tokens")
    return bool(tokens and limit and tokens >= int(limit))


# ---- replies ----


def _escape(text: Any, *, may_be_failure: bool = False) -> Any:
    """Return a text with its own marks escaped, see :func:`escaped_reply`. Anything else stays as it is."""
    return escaped_reply(text, may_be_failure=may_be_failure) if isinstance(text, str) else text


def _without_marks(text: Any) -> Any:
    """Return a text without our marks, empty for a failure's, for tasks of others."""
    if not isinstance(text, str):
        return text
    unmarked = without_reasoning(without_cut_mark(text)[0])[0]
    return (
        "" if isinstance(unmarked, str) and unmarked.startswith(failed_reply("")) else unmarked
    )


def _mark_failure(text: Any, module: str, *, is_full: bool) -> Any:
    """Return the text of a reply, or the mark of its failure or cut, by the module of the model that gave it."""
    if not isinstance(text, str):
        return NO_TEXT
    cause = failure_cause(text)
    if cause is not None:
        return failed_reply(redact(cause))
    if is_full and not without_cut_mark(text)[1]:
        text = cut_reply(text)
    if module in EMPTY_AFTER_ERRORS and not text.strip():
        return failed_reply(
            f"an empty text, which {module} of lmms-eval also gives after an error"
        )
    pattern = ERROR_TEXTS.get(module)
    if pattern and pattern.match(text.strip()):
        return failed_reply(redact(text))
    return text


def _with_text(reply: Any, change: Callable[[Any], Any]) -> Any:
    """Return a reply of the harness with its text changed, and its token counts, if it has any, as they are."""
    if isinstance(reply, GenerationResult):
        return dataclasses.replace(reply, text=change(reply.text))
    if _has_counts(reply):
        return change(reply[0]), reply[1]
    changed = change(reply)
    # a reply of our own adapters is a str that carries token counts
    return reply if changed == reply else changed


def _has_counts(reply: Any) -> bool:
    """Return whether a reply is a pair of its text and token counts."""
    return isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[0], str)


# ---- answers of a server ----


def _mark_replies(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``create`` that marks failed and cut replies, and adds the reasoning that the server split off.

    Without a single choice the harness tries again.
    """

    async def mark_later(answer: Awaitable[Any], uses_tools: bool) -> Any:
        return _mark_reply(await answer, uses_tools)

    def create_marked(*args: Any, **kwargs: Any) -> Any:
        """Ask the server, and mark its answer at once or, from an asynchronous client, once it is there."""
        answer = create(*args, **kwargs)
        mark = mark_later if inspect.isawaitable(answer) else _mark_reply
        return mark(answer, "tools" in kwargs)

    return create_marked


def _mark_reply(completion: Any, uses_tools: bool) -> Any:
    """Write a failure's mark, or the escaped reply with its reasoning and the mark of a cut, into a server's answer.

    A reply that ended normally and is empty stays empty, without its reasoning.

    Replies of a model that may call tools are only escaped and get no mark: they are parts of a conversation.

    Raises:
        ValueError: The answer has no choice, or several.
    """
    cause = failure_of(completion)
    choice = completion.choices[0]
    message = choice.message
    text = message.content if isinstance(message.content, str) else ""
    is_cut = choice.finish_reason == "length"
    if uses_tools:
        message.content = "" if message.content is None else _escape(message.content)
    elif cause:
        message.content = failed_reply(cause)
    elif is_cut or text:
        reply = escaped_reply(text)
        reasoning = _reasoning_of(message)
        if reasoning:
            reply = reasoned_reply(reasoning, reply)
        message.content = cut_reply(reply) if is_cut else reply
    return completion


def _reasoning_of(message: Any) -> str:
    """Return the reasoning that the server split off. Empty if it split off nothing."""
    for name in ("reasoning", "reasoning_content"):
        text = getattr(message, name, None)
        if isinstance(text, str) and text:
            return text
    return ""


def failure_of(completion: Any) -> str:
    """Return why a server's answer holds no reply, empty if it holds one, even one cut to nothing.

    Args:
        completion: Answer of an openai client.

    Raises:
        ValueError: It has no choice, or several.
    """
    choices: Sequence[Any] = getattr(completion, "choices", None) or ()
    if len(choices) != 1:
        raise ValueError(f"the server's answer holds {len(choices)} choices instead of one")
    end = choices[0].finish_reason
    if end == "content_filter":
        return "the server's content filter stopped the reply"
    if end in ("abort", "error"):  # of vLLM and others, for a failure of the server
        return f"the server broke the reply off (finish_reason: {end})"
    if end != "length" and choices[0].message.content is None:
        return f"the server's answer has no content (finish_reason: {end})"
    return ""
