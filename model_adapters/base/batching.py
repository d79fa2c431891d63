"""Prompts as model input, and several of them as one rectangle that is padded on the left."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Encoded:
    """One prompt as model input."""

    # token ids; every position of the language model counts, so the slots that image features will fill are already
    # there as placeholder ids
    ids: Sequence[int]
    # preprocessed images, shape (images, ...) as the model wants them; ``None`` without images
    pixels: torch.Tensor | None


@dataclass(frozen=True)
class PaddedBatch:
    """Prompts of different length as one rectangle, padded on the left.

    On the left, because the last real token of every row is then in the last column: that is where generation goes on,
    and where the few logits that scoring needs can be kept without the rest.
    """

    ids: torch.Tensor  # shape (batch, length)
    attention_mask: torch.Tensor  # shape (batch, length); 0 on padding
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
    length = max(len(prompt.ids) for prompt in prompts)
    ids = torch.full((len(prompts), length), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        start = length - len(prompt.ids)
        ids[row, start:] = torch.tensor(prompt.ids, dtype=torch.long)
        mask[row, start:] = 1
    return PaddedBatch(ids.to(device), mask.to(device), positions_of(mask).to(device), prompts)


def pad_right(rows: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> torch.Tensor:
    """Return ids as one rectangle on ``device``, shape (rows, longest row)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows], dtype=torch.long, device=device)
