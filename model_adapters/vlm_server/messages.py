"""Conversations as a server gets and answers them.

An answer that is not certainly one to the request is refused.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.prompts.messages import chat_messages

POSSIBLY_SPECIAL = re.compile(r"<[^<>\n]{1,60}>|\[/?[A-Z][A-Z_ ]{1,30}\]")
"""Parts of texts that may be special tokens of some model, such as ``<image>`` and ``<|end|>``."""
SURELY_SPECIAL = re.compile(
    r"<\|.*\|>|</?s>|<image>|<(?:bos|eos|pad|unk|img|IMG_CONTEXT|image_soft_token)>|<(?:start|end)_of_\w+>|</?think>"
    r"|\[(?:/?INST|IMG\w*)\]"
)
"""Special tokens of well-known models."""
_MINUS_INFINITY = -9999.0
_ROUNDING = 1e-3
_OTHER_ENDS = ("content_filter", "tool_calls", "function_call", "abort", "error")

JsonObject = dict[str, Any]
"""The part of an answer that the journal keeps."""
ServerAnswer = Mapping[str, Any]
"""A JSON object in an answer."""


class BadAnswer(MedTasksError):
    """A request got no valid answer, and its sample failed."""


class MissingField(BadAnswer):
    """An answer lacks a field: servers ignore request fields that they do not know."""


class Refused(BadAnswer):
    """The server does not take such requests, whatever the sample."""


@dataclass(frozen=True)
class ServedPrompt:
    """A system turn and a user turn, where ``None`` among the parts is the next image."""

    system: str | None
    parts: tuple[str | None, ...]
    images: tuple[Image.Image, ...]
    digests: tuple[str, ...]  # of the images' pixels

    @property
    def texts(self) -> list[str]:
        """The user's texts."""
        return [part for part in self.parts if part is not None]

    def messages(
        self, urls: Sequence[str], continued: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the conversation.

        Args:
            urls: One per image; for the journal, the images' digests.
            continued: Text of an open assistant turn; ``None`` for none.

        Example:
            >>> prompt = ServedPrompt(None, ("Is the heart enlarged?",), (), ())
            >>> prompt.messages([])
            [{'role': 'user', 'content': 'Is the heart enlarged?'}]
        """
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        turns = chat_messages(self.parts, images, self.system)
        if not self.images:  # which templates without image parts take as well
            turns[-1]["content"] = "".join(self.texts)
        if continued is not None:
            turns.append({"role": "assistant", "content": continued})
        return turns

    def check_places(self, answer: ServerAnswer) -> None:
        """Check that the server left the images where they are, unlike where a chat template takes texts only.

        Args:
            answer: Answer of the server, which may hold the rendered prompt.

        Raises:
            BadAnswer: It moved an image.
        """
        rendered = answer.get("prompt_text")
        if not isinstance(rendered, str):
            return
        end = None
        for text in filter(None, map(str.strip, self.texts)):  # templates may cut blanks off
            begin = rendered.find(text, end or 0)
            if begin < 0:
                return
            if end is not None and not rendered[end:begin].strip():
                raise BadAnswer(
                    "the served model's chat template moves images away from their place in the text; serve it with "
                    "--chat-template-content-format openai"
                )
            end = begin + len(text)


# ---- answers ----


def choice_of(answer: ServerAnswer, model: str) -> ServerAnswer:
    """Return the only choice of an answer.

    Args:
        answer: Answer of a server.
        model: Model that was asked, of which the server may name a dated snapshot.

    Raises:
        BadAnswer: Another model answered, or there is not exactly one choice.
    """
    name = answer.get("model")
    if isinstance(name, str) and name and name != model and not name.startswith(f"{model}-"):
        raise BadAnswer("the server answered with another model than the one that was asked")
    choice = _only_object(answer.get("choices"))
    if choice is None:
        raise BadAnswer("the server's answer holds no choice, or several of them")
    return choice


def _only_object(entries: object) -> ServerAnswer | None:
    """Return the entry of a list that holds one object and nothing else, or None of anything else."""
    if isinstance(entries, list) and len(entries) == 1 and isinstance(entries[0], dict):
        return entries[0]
    return None


def reply_record(answer: ServerAnswer, model: str) -> JsonObject:
    """Return the parts of a chat completion that decide about a score.

    Args:
        answer: Answer of a server.
        model: Model that was asked.

    Returns:
        ``text``, ``cut`` (whether it reached its length limit), ``reasoning`` (possibly empty) and
        ``tokens`` (numbers of input, output and reasoning tokens, None if unknown).

    Raises:
        BadAnswer: There is no text, or it ended for another reason than its end or length.
    """
    choice = choice_of(answer, model)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadAnswer("the server's answer holds no message")
    end = choice.get("finish_reason")
    text = message.get("content")
    cut = end in ("length", "repetition")
    if not cut and end not in ("stop", None):
        reason = end if end in _OTHER_ENDS else "unknown here"
        raise BadAnswer(
            f"the server ended the reply for another reason than its end or length ({reason})"
        )
    if text is None and not cut:
        raise BadAnswer("the server's answer has no content")
    if not isinstance(text, str | None):
        raise BadAnswer("the content of the server's answer is no text")
    # vLLM since 0.12 uses the first name, older versions and SGLang the second.
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return {
        "text": text or "",
        "cut": cut,
        "reasoning": reasoning if isinstance(reasoning, str) else "",
        "tokens": _token_counts(answer.get("usage")),
    }


def _token_counts(usage: Any) -> list[int | None]:
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("completion_tokens_details")
    thoughts = details.get("reasoning_tokens") if isinstance(details, dict) else None
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), thoughts)
    return [count if isinstance(count, int) else None for count in counts]


def prompt_ids(answer: ServerAnswer) -> list[int]:
    """Return the ids of the prompt.

    Args:
        answer: Answer to a request with ``return_token_ids``.

    Raises:
        MissingField: They are missing.
        BadAnswer: Their number differs from the server's count.
    """
    ids = answer.get("prompt_token_ids")
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise MissingField("the server's answer lacks prompt_token_ids")
    usage = answer.get("usage")
    if not isinstance(usage, dict) or usage.get("prompt_tokens") != len(ids):
        raise BadAnswer("the server counts other prompt tokens than it names")
    return ids


def next_token_record(
    answer: ServerAnswer,
    model: str,
    tokens: Sequence[int],
) -> JsonObject:
    """Return the log-probabilities of tokens at the first generated position.

    Args:
        answer: Answer to a request with ``logprob_token_ids``.
        model: Model that was asked.
        tokens: Ids that were asked for.

    Returns:
        ``logprobs`` by id as text, and ``greedy``, the likeliest id.

    Raises:
        BadAnswer: A log-probability is missing, ambiguous or no number.
    """
    missing = MissingField(
        "the server's answer lacks the log-probabilities of logprob_token_ids"
    )
    content = (choice_of(answer, model).get("logprobs") or {}).get("content")
    position = _only_object(content)
    if position is None:
        raise missing
    by_token: dict[int, object] = {}
    for entry in position.get("top_logprobs") or ():
        if isinstance(entry, dict):
            value = entry.get("logprob")
            if by_token.setdefault(_token_id(entry), value) != value:
                raise BadAnswer("the server gave two log-probabilities for one token")
    if not set(tokens) <= by_token.keys():
        raise missing
    return {
        "logprobs": {str(token): read_logprob(by_token[token]) for token in tokens},
        "greedy": _token_id(position),
    }


def _token_id(entry: ServerAnswer) -> int:
    """Return the id of a token in an answer.

    Raises:
        MissingField: The answer names the token by its text alone.
    """
    if type(entry.get("token_id")) is int:
        return int(entry["token_id"])
    number = re.fullmatch(r"token_id:(\d+)", str(entry.get("token")))
    if number is None:
        raise MissingField("the server does not name tokens by their ids")
    return int(number[1])


def prompt_scores(answer: ServerAnswer, model: str, start: int) -> JsonObject:
    """Return the log-probabilities of the prompt's last tokens.

    Args:
        answer: Answer to a request with ``prompt_logprobs``.
        model: Model that was asked.
        start: Position of the first token to score.

    Returns:
        ``values``, one per token, and ``greedy``, whether all are the likeliest.

    Raises:
        MissingField: The answer has no log-probabilities, or not one entry per token.
        BadAnswer: A log-probability is no number, or of another token.
    """
    choice_of(answer, model)
    ids = prompt_ids(answer)
    logprobs = answer.get("prompt_logprobs")
    if not isinstance(logprobs, list) or len(logprobs) != len(ids):
        raise MissingField(
            "the server's answer lacks prompt_logprobs, or has not one per prompt token"
        )
    entries = []
    for candidates, token in zip(logprobs[start:], ids[start:], strict=True):
        entry = candidates.get(str(token)) if isinstance(candidates, dict) else None
        if not isinstance(entry, dict):
            raise BadAnswer(
                "the server's prompt_logprobs are of other tokens than the prompt's"
            )
        entries.append(entry)
    values = [read_logprob(entry.get("logprob")) for entry in entries]
    return {"values": values, "greedy": all(entry.get("rank") == 1 for entry in entries)}


def read_logprob(value: object) -> float:
    """Return a log-probability of an answer.

    Raises:
        BadAnswer: It is not a number, or means minus infinity.

    Example:
        >>> read_logprob(-1), read_logprob(0.0005)
        (-1.0, 0.0)
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not _MINUS_INFINITY < float(value) <= _ROUNDING:  # type: ignore[arg-type]  # a number
        content = json.dumps(value) if is_number else "no number"
        raise BadAnswer(f"the server gave {content} as a log-probability")
    return min(float(value), 0.0)  # type: ignore[arg-type]  # a number
