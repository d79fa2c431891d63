"""Content of a server's answer, checked: an answer that is not certainly one to the request is a ``BadAnswer``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .prompts import ServedPrompt
from .server_client import BadAnswer, Record

_MINUS_INFINITY = -9999.0
_ROUNDING = 1e-3
_TOKEN_NAME = "token_id:"
_OTHER_ENDS = ("content_filter", "tool_calls", "function_call", "abort", "error")


class MissingField(BadAnswer):
    """An answer lacks what was asked for: servers ignore what they do not know."""


@dataclass(frozen=True)
class Conversation:
    """A conversation as the server rendered it."""

    ids: tuple[int, ...]  # with every position of its images
    text: str | None  # with one placeholder per image; None where the server does not tell

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Conversation":
        """Read what :func:`conversation_record` keeps."""
        return cls(tuple(record["ids"]), record["text"])


@dataclass(frozen=True)
class NextToken:
    """Log-probabilities of some tokens after a conversation."""

    logprobs: Mapping[int, float]
    greedy: int  # the likeliest token of all


def choice_of(answer: Mapping[str, Any], model: str) -> Mapping[str, Any]:
    """Return the one choice of an answer by the model that was asked, or by a dated snapshot of it."""
    name = answer.get("model")
    if isinstance(name, str) and name and name != model and not name.startswith(f"{model}-"):
        raise BadAnswer("the server answered with another model than the one that was asked")
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer("the server's answer holds no choice, or several of them")
    return choices[0]


def reply_record(answer: Mapping[str, Any], model: str) -> Record:
    """Return text, whether it was cut at its length limit, reasoning, and numbers of tokens of a reply."""
    choice = choice_of(answer, model)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadAnswer("the server's answer holds no message")
    end, text = choice.get("finish_reason"), message.get("content")
    cut = end in ("length", "repetition")
    if end not in ("stop", "length", "repetition", None):
        known = end if end in _OTHER_ENDS else "one it alone knows"
        raise BadAnswer(f"the server ended the reply for another reason than its end or length ({known})")
    if text is None and not cut:
        raise BadAnswer("the server's answer has no content")
    if not isinstance(text, str | None):
        raise BadAnswer("the content of the server's answer is no text")

    def number(values: Any, name: str) -> int | None:
        value = values.get(name) if isinstance(values, dict) else None
        return value if isinstance(value, int) else None

    usage = answer.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    thought = number(details, "reasoning_tokens")
    # vLLM names the field one way since 0.12, older versions and SGLang the other.
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return {
        "text": text or "",
        "cut": cut,
        "reasoning": reasoning if isinstance(reasoning, str) else "",
        "tokens": [number(usage, "prompt_tokens"), number(usage, "completion_tokens"), thought],
    }


def check_places(answer: Mapping[str, Any], prompt: ServedPrompt) -> None:
    """Raise a BadAnswer where the server tells that it moved an image away from its place in the text."""
    rendered = answer.get("prompt_text")
    if isinstance(rendered, str) and prompt.is_moved(rendered):
        raise BadAnswer(
            "the served model's chat template moves images away from their place in the text; serve it with "
            "--chat-template-content-format openai"
        )


def conversation_record(answer: Mapping[str, Any]) -> Record:
    """Return ids and text of the conversation an answer is about."""
    text = answer.get("prompt_text")
    return {"ids": prompt_ids(answer), "text": text if isinstance(text, str) else None}


def prompt_ids(answer: Mapping[str, Any]) -> list[int]:
    """Return the ids of the prompt; a BadAnswer where they are missing, or not as many as were counted."""
    ids = answer.get("prompt_token_ids")
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise MissingField("the server's answer lacks prompt_token_ids")
    usage = answer.get("usage")
    if not isinstance(usage, dict) or usage.get("prompt_tokens") != len(ids):
        raise BadAnswer("the server counts other prompt tokens than it names")
    return ids


def next_token_record(answer: Mapping[str, Any], model: str, wanted: Sequence[int]) -> Record:
    """Return the log-probabilities of tokens at the first generated place, and the token that stands there."""
    content = (choice_of(answer, model).get("logprobs") or {}).get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        entries = [one for one in content[0].get("top_logprobs") or () if isinstance(one, dict)]
        found = {_token_id(one): one.get("logprob") for one in entries}
        if set(wanted) <= found.keys():
            logprobs = {str(token): checked_logprob(found[token]) for token in wanted}
            return {"logprobs": logprobs, "greedy": _token_id(content[0])}
    raise MissingField("the server's answer lacks the log-probabilities of logprob_token_ids")


def next_token(record: Mapping[str, Any]) -> NextToken:
    """Read what :func:`next_token_record` keeps."""
    return NextToken({int(token): value for token, value in record["logprobs"].items()}, record["greedy"])


def _token_id(entry: Mapping[str, Any]) -> int:
    """Return the id of a token, by which chat routes call it if they are asked to."""
    if type(entry.get("token_id")) is int:
        return int(entry["token_id"])
    name = entry.get("token")
    number = name.removeprefix(_TOKEN_NAME) if isinstance(name, str) and name.startswith(_TOKEN_NAME) else ""
    if not number.isdecimal():
        raise MissingField("the server does not name tokens by their ids")
    return int(number)


def prompt_scores(answer: Mapping[str, Any], model: str, start: int) -> tuple[list[float], list[bool]]:
    """Return log-probability of each prompt token from one on, and whether it is the likeliest."""
    choice_of(answer, model)
    ids, given = prompt_ids(answer), answer.get("prompt_logprobs")
    if not isinstance(given, list) or len(given) != len(ids):
        raise MissingField("the server's answer lacks prompt_logprobs, or has not one per prompt token")
    entries = [one.get(str(token)) if isinstance(one, dict) else None for one, token in zip(given, ids, strict=True)]
    scored = entries[start:]
    if not all(isinstance(one, dict) for one in scored):
        raise BadAnswer("the server's prompt_logprobs are of other tokens than the prompt's")
    values = [checked_logprob(one.get("logprob")) for one in scored if one is not None]
    return values, [one.get("rank") == 1 for one in scored if one is not None]


def checked_logprob(value: object) -> float:
    """Return a log-probability; a BadAnswer where it is none, or stands for minus infinity."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not _MINUS_INFINITY < float(value) <= _ROUNDING:  # type: ignore[arg-type]  # a number
        given = json.dumps(value) if is_number else "no number"
        raise BadAnswer(f"the server gave {given} as a log-probability")
    return min(float(value), 0.0)  # type: ignore[arg-type]  # a number
