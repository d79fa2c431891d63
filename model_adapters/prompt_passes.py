"""Running prompts so that more can follow them: each as a whole, or common beginnings once and then what differs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from .batching import Encoded, PaddedBatch, pad_left
from .shared_beginnings import Family, Spans


class CachingModel(Protocol):
    """The part of an adapter that is needed to go on from keys and values, see ``MedicalAdapter``."""

    device: torch.device

    @property
    def language_model(self) -> Any:
        """The causal language model."""

    @property
    def pad_id(self) -> int:
        """Token id to fill up with."""

    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return the inputs for prompts."""

    def continuation_inputs(self, ids: torch.Tensor, contexts: PaddedBatch) -> dict[str, Any]:
        """Return the inputs for text after cached prompts."""

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return which columns depend on which image."""

    def rest_inputs(self, rest: PaddedBatch, whole: PaddedBatch) -> dict[str, Any]:
        """Return the inputs for what follows cached beginnings."""


@dataclass(frozen=True)
class PromptPass:
    """Prompts that the model has read.

    Attributes:
        contexts: The prompts, one row each; padding may also stand between a beginning and its rest.
        logits: After the last token of each, shape (prompts, vocabulary).
        cache: Their keys and values, one row per prompt and one place per column of ``contexts``.
    """

    contexts: PaddedBatch
    logits: torch.Tensor
    cache: Any


def pass_whole(prompts: Sequence[Encoded], model: CachingModel) -> PromptPass:
    """Run every prompt by itself, all in one batch."""
    contexts = pad_left(prompts, model.pad_id, model.device)
    # use_cache is asked for in the call, because a checkpoint's configuration may have switched it off.
    passed = model.language_model(**model.model_inputs(contexts), logits_to_keep=1, use_cache=True)
    return PromptPass(contexts, passed.logits[:, -1], passed.past_key_values)


def pass_by_families(prompts: Sequence[Encoded], families: Sequence[Family], model: CachingModel) -> PromptPass:
    """Run the beginning of every family once, and then what is left of its members on the repeated keys and values.

    Args:
        prompts: Prompts.
        families: Some families among them.
        model: The adapter.

    Returns:
        One row per member, family by family.
    """
    members = [(row, family, prompts[place]) for row, family in enumerate(families) for place in family.members]
    beginnings = pad_left(
        [_part(prompts[family.members[0]], slice(family.length), slice(family.images)) for family in families],
        model.pad_id,
        model.device,
    )
    cache = model.language_model(
        **model.model_inputs(beginnings), logits_to_keep=1, use_cache=True
    ).past_key_values  # the logits are of no use, and one column is the least that can be kept
    rows = torch.tensor([row for row, _, _ in members], device=model.device)
    cache.batch_select_indices(rows.cpu())  # the layers of a spread model lie on several devices
    # On the left too, so that every prompt's last token is in the last column.
    rest = pad_left(
        [_part(prompt, slice(family.length, None), slice(family.images, None)) for _, family, prompt in members],
        model.pad_id,
        model.device,
    )
    mask = torch.cat([beginnings.attention_mask[rows], rest.attention_mask], dim=-1)
    whole = PaddedBatch(
        torch.cat([beginnings.ids[rows], rest.ids], dim=-1),
        mask,
        (mask.cumsum(-1) - 1).clamp(min=0),  # counts real tokens only, across the padding in the middle
        [prompt.pixels for _, _, prompt in members],
    )
    rest = replace(rest, position_ids=whole.position_ids[:, beginnings.ids.shape[1] :])
    inputs = model.rest_inputs(rest, whole) | {"attention_mask": mask, "position_ids": rest.position_ids}
    passed = model.language_model(**inputs, past_key_values=cache, logits_to_keep=1, use_cache=True)
    return PromptPass(whole, passed.logits[:, -1], passed.past_key_values)


def _part(prompt: Encoded, columns: slice, images: slice) -> Encoded:
    pixels = None if prompt.pixels is None else prompt.pixels[images]
    return Encoded(prompt.ids[columns], None if pixels is None or len(pixels) == 0 else pixels)
