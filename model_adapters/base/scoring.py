"""Log-likelihood of continuations."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from medtasks.errors import MedTasksError

from .batching import Encoded, PaddedBatch, pad_left

LogitsOf = Callable[[PaddedBatch, int], torch.Tensor]
"""From a batch and k to the logits of the last k positions, shape (batch, k, vocabulary)."""


@dataclass(frozen=True)
class Continuation:
    """A prompt followed by the text to score."""

    sequence: Encoded  # context and continuation, encoded together
    tokens: int  # how many tokens at the end belong to the continuation, at least 1

    @property
    def prompt(self) -> Encoded:
        """What comes before the text to score."""
        return Encoded(self.sequence.ids[: -self.tokens], self.sequence.pixels)

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


FAILED = Likelihood(math.nan, 1, False)
"""Stands for a sample that could not be scored."""


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Return how many elements two sequences have in common from their beginning.

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
