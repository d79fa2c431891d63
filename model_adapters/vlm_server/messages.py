"""Conversations as a server gets and answers them; an answer that is not certainly one to the request is refused."""

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
    """A request got no valid answer; its sample failed."""


class MissingField(BadAnswer):
    """An answer lacks a field: servers ignore request fields that they do not know."""


class Refused(BadAnswer):
    """The server does not take such requests, whatever the sample."""


@dataclass(frozen=True)
class ServedPrompt:
    """A system turn and a user turn; ``None`` among the parts is the next image."""

    system: str | None
    parts: tuple[str | None, ...]
    images: tuple[Image.Image, ...]
    digests: tuple[str, ...]  # of the images' pixels

    @property
    def texts(self) -> list[str]:
        """The user's texts."""
        return [part for part in self.parts if part is not None]

    def messages(self, urls: Sequence[str], continued: str | None = None) -> list[dict[str, Any]]:
        """Return the conversation with one URL per image, and ``continued`` as an open assistant turn."""
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        turns = chat_messages(self.parts, images, self.system)
        if not self.images:  # which templates without image parts take as well
            turns[-1]["content"] = "".join(self.texts)
        if continued is not None:
            turns.append({"role": "assistant", "content": continued})
        return turns

    def check_places(self, answer: ServerAnswer) -> None:
        """Raise a BadAnswer if the server moved an image, as it does where a chat template takes texts only."""
        rendered, end = answer.get("prompt_text"), None
        if not isinstance(rendered, str):
            return
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
    """Return the only choice of an answer by ``model``, or by a dated snapshot of it."""
    name = answer.get("model")
    if isinstance(name, str) and name and name != model and not name.startswith(f"{model}-"):
        raise BadAnswer("the server answered with another model than the one that was asked")
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer("the server's answer holds no choice, or several of them")
    return choices[0]


def reply_record(answer: ServerAnswer, model: str) -> JsonObject:
    """Return text, whether it was cut at its length limit, reasoning, and numbers of tokens of a reply."""
    choice = choice_of(answer, model)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise BadAnswer("the server's answer holds no message")
    end, text = choice.get("finish_reason"), message.get("content")
    cut = end in ("length", "repetition")
    if end not in ("stop", "length", "repetition", None):
        reason = end if end in _OTHER_ENDS else "unknown here"
        raise BadAnswer(
            f"the server ended the reply for another reason than its end or length ({reason})"
        )
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
    # vLLM since 0.12 uses the first name, older versions and SGLang the second.
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return {
        "text": text or "",
        "cut": cut,
        "reasoning": reasoning if isinstance(reasoning, str) else "",
        "tokens": [number(usage, "prompt_tokens"), number(usage, "completion_tokens"), thought],
    }


def prompt_ids(answer: ServerAnswer) -> list[int]:
    """Return the ids of the prompt; a BadAnswer if they are missing, or their number differs from the count."""
    ids = answer.get("prompt_token_ids")
    if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
        raise MissingField("the server's answer lacks prompt_token_ids")
    usage = answer.get("usage")
    if not isinstance(usage, dict) or usage.get("prompt_tokens") != len(ids):
        raise BadAnswer("the server counts other prompt tokens than it names")
    return ids


def next_token_record(answer: ServerAnswer, model: str, tokens: Sequence[int]) -> JsonObject:
    """Return the log-probabilities of tokens at the first generated position, and the likeliest token."""
    content = (choice_of(answer, model).get("logprobs") or {}).get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        by_token: dict[int, object] = {}
        for entry in content[0].get("top_logprobs") or ():
            if isinstance(entry, dict):
                value = entry.get("logprob")
                if by_token.setdefault(_token_id(entry), value) != value:
                    raise BadAnswer("the server gave two log-probabilities for one token")
        if set(tokens) <= by_token.keys():
            logprobs = {str(token): checked_logprob(by_token[token]) for token in tokens}
            return {"logprobs": logprobs, "greedy": _token_id(content[0])}
    raise MissingField("the server's answer lacks the log-probabilities of logprob_token_ids")


def _token_id(entry: ServerAnswer) -> int:
    if type(entry.get("token_id")) is int:
        return int(entry["token_id"])
    number = re.fullmatch(r"token_id:(\d+)", str(entry.get("token")))
    if number is None:
        raise MissingField("the server does not name tokens by their ids")
    return int(number[1])


def prompt_scores(answer: ServerAnswer, model: str, start: int) -> JsonObject:
    """Return the log-probability of each prompt token from ``start`` on, and whether all are the likeliest."""
    choice_of(answer, model)
    ids, logprobs = prompt_ids(answer), answer.get("prompt_logprobs")
    if not isinstance(logprobs, list) or len(logprobs) != len(ids):
        raise MissingField(
            "the server's answer lacks prompt_logprobs, or has not one per prompt token"
        )
    pairs = zip(logprobs[start:], ids[start:], strict=True)
    entries = [entry.get(str(token)) if isinstance(entry, dict) else None for entry, token in pairs]
    scored = [entry for entry in entries if isinstance(entry, dict)]
    if len(scored) < len(entries):
        raise BadAnswer("the server's prompt_logprobs are of other tokens than the prompt's")
    values = [checked_logprob(entry.get("logprob")) for entry in scored]
    return {"values": values, "greedy": all(entry.get("rank") == 1 for entry in scored)}


def checked_logprob(value: object) -> float:
    """Return a log-probability; a BadAnswer if it is not a number, or means minus infinity."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not _MINUS_INFINITY < float(value) <= _ROUNDING:  # type: ignore[arg-type]  # a number
        content = json.dumps(value) if is_number else "no number"
        raise BadAnswer(f"the server gave {content} as a log-probability")
    return min(float(value), 0.0)  # type: ignore[arg-type]  # a number
