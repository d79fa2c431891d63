"""Decoding settings of a task, and stopping, cutting and counting replies."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteria

from medtasks.errors import MedTasksError

Decode = Callable[[Sequence[int]], str]
KNOWN_SETTINGS = frozenset({"until", "max_new_tokens", "do_sample", "temperature", "top_p", "top_k", "num_beams"})


@dataclass(frozen=True)
class GenerationSettings:
    """Decoding of a reply; requests with equal settings can share a batch."""

    max_new_tokens: int  # length limit in tokens
    until: tuple[str, ...] = ()  # stop strings; the reply ends before the first that occurs
    temperature: float = 0.0  # 0 for greedy decoding or beam search, else the sampling temperature
    top_p: float = 1.0  # probability mass to sample from
    top_k: int = 0  # number of most likely tokens to sample from; 0 for all
    num_beams: int = 1  # width of the beam search; 1 for none


class CountedReply(str):
    """Reply to one prompt with its numbers of tokens; ``None`` where they are unknown.

    Input tokens include image slots, output tokens the one that ended the reply.
    """

    input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None

    def __new__(cls, text: str, *tokens: int | None) -> "CountedReply":
        """Build the text with its numbers of input, output and reasoning tokens, as far as they are given."""
        reply = super().__new__(cls, text)
        numbers = [*tokens, None, None, None]
        reply.input_tokens, reply.output_tokens, reply.reasoning_tokens = numbers[:3]
        return reply


def read_settings(gen_kwargs: Mapping[str, Any], max_new_tokens: int) -> GenerationSettings:
    """Read a task's ``gen_kwargs``; ``None`` counts as not given, unknown keys are ignored, impossible values refused.

    Sampling takes a positive ``temperature`` (1 where only ``do_sample`` is given) and no ``do_sample: false``.
    """
    settled = {key: value for key, value in gen_kwargs.items() if value is not None}
    until = settled.get("until", ())
    try:
        until = (until,) if isinstance(until, str) else tuple(until)
        sampled = settled.get("do_sample", float(settled.get("temperature", 0)) > 0)
        settings = GenerationSettings(
            max_new_tokens=int(settled.get("max_new_tokens", max_new_tokens)),
            until=tuple(stop for stop in until if stop),
            temperature=float(settled.get("temperature", 1.0)) if sampled else 0.0,
            top_p=float(settled.get("top_p", 1.0)),
            top_k=int(settled.get("top_k", 0)),
            num_beams=int(settled.get("num_beams", 1)),
        )
    except (TypeError, ValueError) as error:
        raise MedTasksError(f"the task's generation_kwargs cannot be read: {error}") from error
    if settings.max_new_tokens < 1 or settings.num_beams < 1 or not 0 < settings.top_p <= 1 or settings.temperature < 0:
        raise MedTasksError(f"the task's generation_kwargs hold an impossible value: {settings}")
    return settings


def decoding_config(settings: GenerationSettings, stop_ids: Sequence[int], pad_id: int) -> GenerationConfig:
    """Build the configuration; transformers adds other settings, such as penalties, from the model's own."""
    sampling = {"temperature": settings.temperature, "top_p": settings.top_p, "top_k": settings.top_k}
    return GenerationConfig(
        max_new_tokens=settings.max_new_tokens,
        num_beams=settings.num_beams,
        do_sample=settings.temperature > 0,
        eos_token_id=list(stop_ids),
        pad_token_id=pad_id,
        **(sampling if settings.temperature > 0 else {}),
    )


def cut_reply(ids: Sequence[int], decode: Decode, stop_ids: Collection[int], until: Sequence[str]) -> str:
    """Decode up to the first stop id, cut before the first stop string and strip white space."""
    end = next((position for position, token in enumerate(ids) if token in stop_ids), len(ids))
    text = decode(ids[:end])
    return before_stops(text, until).strip()


def before_stops(text: str, until: Sequence[str]) -> str:
    """Return the text before the first stop string."""
    return text[: min((at for stop in until if (at := text.find(stop)) >= 0), default=len(text))]


def count_reply(ids: Sequence[int], stop_ids: Collection[int], pad_id: int) -> int:
    """Count the tokens decoded for one row of a batch, the one that ended it included, without its padding."""
    ends = (position + 1 for position, token in enumerate(ids) if token in stop_ids)
    return next(ends, max((position + 1 for position, token in enumerate(ids) if token != pad_id), default=0))


class StopStrings(StoppingCriteria):  # type: ignore[misc]  # transformers is not analysed
    """Ends a row once its text after ``skip`` columns holds a stop string, which :func:`cut_reply` cuts off."""

    def __init__(self, until: Sequence[str], decode: Decode, skip: int) -> None:
        self.until, self.decode, self.skip = until, decode, skip
        # A token may be less than a character, hence the margin.
        self.window = 4 * max(map(len, until)) + 8

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        """Return one flag per row, shape (batch,)."""
        texts = [self.decode(row) for row in input_ids[:, self.skip :][:, -self.window :].tolist()]
        done = [any(stop in text for stop in self.until) for text in texts]
        return torch.tensor(done, device=input_ids.device)
