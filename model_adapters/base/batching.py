"""Prompts and the texts to score after them: as model input, as batches padded on the left, and their likelihoods."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from medtasks.errors import MedTasksError

from .caches import image_keys

Spans = Sequence[tuple[int, int]]
"""Per image of a prompt, in order, the columns that depend on it: (first, after the last)."""


@dataclass(frozen=True)
class Encoded:
    """One prompt as model input."""

    # token ids; every position of the language model counts, so the slots that image features will fill are already
    # there as placeholder ids
    ids: Sequence[int]
    # preprocessed images, shape (images, ...) as the model wants them; ``None`` without images
    pixels: torch.Tensor | None

    @property
    def image_keys(self) -> tuple[str, ...]:
        """Digests of each image's content."""
        return image_keys(self.pixels)

    def part(self, start: int, stop: int, images: slice = slice(None)) -> "Encoded":
        """Return the tokens from ``start`` to before ``stop``, with some of the images."""
        if self.pixels is None:
            return Encoded(self.ids[start:stop], None)
        chosen = range(len(self.pixels))[images]
        # The tensor itself where all of it is meant: its images have their keys already.
        pixels = self.pixels if len(chosen) == len(self.pixels) else self.pixels[images]
        return Encoded(self.ids[start:stop], pixels if chosen else None)


@dataclass(frozen=True)
class PaddedBatch:
    """Prompts of different length as one rectangle, padded on the left.

    On the left, because the last real token of every row is then in the last column: that is where generation goes on,
    and where the few logits that scoring needs can be kept without the rest.
    """

    ids: torch.Tensor  # shape (batch, length)
    attention_mask: torch.Tensor  # shape (batch, cached columns + length); 0 on padding
    # shape (batch, length); counts the real tokens of each row from 0. To be passed on, because a rotary embedding in
    # float32 rounds differently at shifted positions
    position_ids: torch.Tensor
    prompts: Sequence[Encoded]  # what the rows hold

    @property
    def pixels(self) -> list[torch.Tensor | None]:
        """The images of each row."""
        return [prompt.pixels for prompt in self.prompts]

    def inputs(self, **fed: Any) -> dict[str, Any]:
        """Return a language model's inputs: what it is fed, with mask and positions."""
        return {**fed, "attention_mask": self.attention_mask, "position_ids": self.position_ids}

    def select(self, rows: torch.Tensor) -> "PaddedBatch":
        """Return some of the rows, each as often as ``rows`` names it."""
        chosen = [self.prompts[row] for row in rows.tolist()]
        return PaddedBatch(self.ids[rows], self.attention_mask[rows], self.position_ids[rows], chosen)


def positions_of(mask: torch.Tensor) -> torch.Tensor:
    """Return positions that count the real tokens of each row from 0."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def pad_left(prompts: Sequence[Encoded], pad_id: int, device: torch.device) -> PaddedBatch:
    """Arrange prompts as one batch on ``device``."""
    rows = [torch.tensor(prompt.ids, dtype=torch.long) for prompt in prompts]
    ids = pad_sequence(rows, batch_first=True, padding_value=pad_id, padding_side="left")
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    return PaddedBatch(ids.to(device), mask.to(device), positions_of(mask).to(device), prompts)


def pad_right(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> torch.Tensor:
    """Return ids as one rectangle on ``device``, shape (rows, longest row)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows], dtype=torch.long, device=device)


LogitsOf = Callable[[PaddedBatch, int], torch.Tensor]
"""From a batch and k to the logits of the last k positions, shape (batch, k, vocabulary)."""


@dataclass(frozen=True)
class Continuation:
    """A prompt followed by the text to score."""

    sequence: Encoded  # context and continuation, encoded together
    tokens: int  # how many tokens at the end belong to the continuation, at least 1

    @property
    def prompt(self) -> Encoded:
        """Prompt before the text to score."""
        return self.sequence.part(0, len(self.sequence.ids) - self.tokens)

    @property
    def targets(self) -> list[int]:
        """Ids of the text to score."""
        return list(self.sequence.ids[-self.tokens :])


@dataclass(frozen=True)
class Likelihood:
    """Score of one continuation."""

    total: float  # negative log-likelihood summed over the continuation's tokens, in nats
    tokens: int  # number of those tokens
    greedy: bool  # whether every token is the most likely one, so that greedy decoding would have produced them

    @property
    def mean(self) -> float:
        """Negative log-likelihood per token, in nats; smaller is better."""
        return self.total / self.tokens

    @property
    def json(self) -> str:
        """All of it as text; ``medtasks.hooks.loglikelihood.parse_loglikelihood`` reads it."""
        return json.dumps({"mean": self.mean, "greedy": self.greedy, "sum": self.total, "tokens": self.tokens})


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the longest common prefix of two sequences.

    Example:
        >>> common_length("left lung", "left arm")
        5
    """
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def split_continuation(context: Encoded, whole: Encoded) -> Continuation:
    """Find the continuation's tokens: those of the whole after its longest common prefix with the context.

    The common prefix, because a tokenizer may merge the context's last characters with the continuation's first. A
    continuation that adds no token, or follows none, is a ``ValueError``.
    """
    common = common_length(context.ids, whole.ids)
    if common == len(whole.ids):
        raise ValueError("the continuation adds no token")
    if common == 0:
        raise ValueError("no token precedes the continuation")
    return Continuation(whole, len(whole.ids) - common)


def score(items: Sequence[Continuation], logits_of: LogitsOf, pad_id: int, device: torch.device) -> list[Likelihood]:
    """Score continuations in one forward pass.

    With padding on the left, everything that is scored lies in the last columns: memory for logits grows with the
    longest continuation, not with the prompt. A score that is not finite is a ``MedTasksError``.
    """
    batch = pad_left([item.sequence for item in items], pad_id, device)
    longest = max(item.tokens for item in items)
    # The logits at one position are about the next token, hence one more column, of which the last predicts nothing.
    losses, hits = token_losses(logits_of(batch, longest + 1)[:, :-1], batch.ids[:, -longest:])
    return [likelihood(losses[row, -item.tokens :], hits[row, -item.tokens :]) for row, item in enumerate(items)]


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return losses in nats and whether the target is the most likely token, both of the shape of ``targets``.

    Logits have the shape (..., vocabulary). The image slots of a short prompt may be among the targets: ids that the
    model cannot say and that are never scored.
    """
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    sayable = targets.clamp(max=logits.shape[-1] - 1)
    losses = logits.logsumexp(-1) - logits.gather(-1, sayable[..., None])[..., 0]
    return losses.cpu(), (logits.argmax(-1) == targets).cpu()


def likelihood(losses: torch.Tensor, hits: torch.Tensor) -> Likelihood:
    """Sum up what :func:`token_losses` says about the tokens of one continuation; the sum has to be finite."""
    total = losses.sum().item()
    if not math.isfinite(total):
        raise MedTasksError("the model's likelihood is not finite, as after an overflow in half precision")
    return Likelihood(total, len(losses), bool(hits.all()))
