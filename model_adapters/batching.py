"""Grouping requests into batches and padding encoded prompts on the left."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .requests import Request


@dataclass(frozen=True)
class Encoded:
    """One prompt as model input.

    Attributes:
        ids: Token ids; every position of the language model counts, so the slots that image features will fill are
            already there as placeholder ids.
        pixels: Preprocessed images, shape (images, ...) as the model wants them; ``None`` without images.
    """

    ids: Sequence[int]
    pixels: torch.Tensor | None


@dataclass(frozen=True)
class PaddedBatch:
    """Prompts of different length as one rectangle, padded on the left.

    On the left, because the last real token of every row is then in the last column: that is where generation goes on,
    and where the few logits that scoring needs can be kept without the rest.

    Attributes:
        ids: Shape (batch, length).
        attention_mask: Shape (batch, length); 0 on padding.
        position_ids: Shape (batch, length); counts the real tokens of each row from 0. To be passed on, because a
            rotary embedding in float32 rounds differently at shifted positions.
        pixels: The images of each row.
    """

    ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor
    pixels: Sequence[torch.Tensor | None]


def pad_left(prompts: Sequence[Encoded], pad_id: int, device: torch.device) -> PaddedBatch:
    """Arrange prompts as one batch on ``device``."""
    length = max(len(prompt.ids) for prompt in prompts)
    ids = torch.full((len(prompts), length), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        start = length - len(prompt.ids)
        ids[row, start:] = torch.tensor(prompt.ids, dtype=torch.long)
        mask[row, start:] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return PaddedBatch(ids.to(device), mask.to(device), positions.to(device), [prompt.pixels for prompt in prompts])


def plan_batches(requests: Sequence[Request], size: int, group: Callable[[Request], Hashable]) -> list[list[int]]:
    """Return batches of positions in ``requests``: one group each, longest first, a document's requests together.

    Length is measured in characters of the context, so that no image has to be loaded in order to plan. The longest
    come first because what does not fit into memory should fail at once.

    Args:
        requests: All requests of the call.
        size: Requests in one batch.
        group: Requests with different values never share a batch.
    """
    groups: dict[Hashable, list[int]] = {}
    for position, request in enumerate(requests):
        groups.setdefault(group(request), []).append(position)

    def order(position: int) -> tuple[Any, ...]:
        request = requests[position]
        return -len(request.context), request.task, request.split, request.doc_id, request.index, position

    batches = []
    for positions in groups.values():
        ordered = sorted(positions, key=order)
        batches += [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return batches
