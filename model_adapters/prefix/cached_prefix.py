"""Cached prefixes: keys and values of what prompts begin with, read once, kept within bounds, laid side by side."""

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ..base.batching import Encoded, PaddedBatch, pad_left, positions_of
from ..base.caches import BoundedCache
from ..base.model import AdapterModel
from .cuts import Cuts, Words


@dataclass(frozen=True)
class CachedPrefix:
    """What a model has read of a prompt. Its layers never grow: what follows goes to copies that share the tensors."""

    length: int  # tokens
    shift: int  # by how much the positions of what follows exceed the number of tokens before, see ``position_shift``
    layers: Sequence[DynamicLayer]  # keys and values, shape (1, heads, length, width)

    @property
    def nbytes(self) -> int:
        """Size."""
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self.layers)


PrefixCache = BoundedCache[CachedPrefix]
"""Prefixes by their words."""


@dataclass(frozen=True)
class CutPrompt:
    """A prompt of which the model has read the prefix."""

    prompt: Encoded
    cuts: Cuts
    prefix: CachedPrefix


class _AllReadError(Exception):
    """The last layer's keys and values are there."""


class _Prefill(DynamicCache):  # type: ignore[misc]  # transformers is not analysed
    """Ends the pass once the last layer has its keys and values: the rest would be about the next token."""

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        updated = super().update(keys, values, layer_idx, *args, **kwargs)
        if layer_idx == len(self.layers) - 1:
            raise _AllReadError
        return updated


def grows_plainly(language_model: Any, length: int) -> bool:
    """Return whether every layer of a model keeps the keys and values of all positions of a text, as they are.

    A window does not matter as long as it takes in the whole text, and as much padding.
    """
    return all(
        type(layer) is DynamicLayer or (type(layer) is DynamicSlidingWindowLayer and 2 * length <= layer.sliding_window)
        for layer in DynamicCache(config=language_model.config).layers
    )


def cut_prompts(
    prompts: Sequence[Encoded], cuts: Mapping[int, Cuts], model: AdapterModel, kept: PrefixCache
) -> list[CutPrompt]:
    """Read what prompts begin with up to their last cut, each distinct prefix once; results in the order of ``cuts``.

    They are read one by one: in a batch, rounding would depend on which of them happened to be kept. ``kept`` grows.
    """
    known: dict[Words, CachedPrefix] = {}
    return [
        CutPrompt(prompts[place], cut, _prefix_of(prompts[place], cut, model, kept, known))
        for place, cut in cuts.items()
    ]


def suffixes_of(cut: Sequence[CutPrompt], model: AdapterModel) -> tuple[PaddedBatch, PaddedBatch]:
    """Return what follows the prefixes, and both side by side with padding before each."""
    # On the left too, so that every prompt's last token is in the last column.
    begun = [row.cuts.part(row.prompt, 0, row.prefix.length) for row in cut]
    rest = [row.cuts.part(row.prompt, row.prefix.length) for row in cut]
    prefix, suffix = (pad_left(parts, model.pad_id, model.device) for parts in (begun, rest))
    mask = torch.cat([prefix.attention_mask, suffix.attention_mask], dim=-1)
    ids = torch.cat([prefix.ids, suffix.ids], dim=-1)
    # Positions count real tokens only, across the padding in the middle.
    positions = positions_of(mask) + torch.tensor([[row.prefix.shift] for row in cut], device=mask.device)
    whole = PaddedBatch(ids, mask, positions, [row.prompt for row in cut])
    return replace(suffix, position_ids=positions[:, -suffix.ids.shape[1] :]), whole


def inputs_after(suffix: PaddedBatch, whole: PaddedBatch, model: AdapterModel) -> dict[str, Any]:
    """Return the model's inputs for what follows cached prefixes."""
    placed = model.suffix_inputs(suffix, whole)
    return {**placed, "attention_mask": whole.attention_mask, "position_ids": suffix.position_ids}


def side_by_side(prefixes: Sequence[CachedPrefix]) -> DynamicCache:
    """Return a cache with one row per prefix, shorter ones padded on the left."""
    cache = DynamicCache()
    cache.layers = [copy.copy(layer) for layer in prefixes[0].layers]
    if len(prefixes) > 1:
        longest = max(prefix.length for prefix in prefixes)
        for layer, *rows in zip(cache.layers, *(prefix.layers for prefix in prefixes), strict=True):
            for half in ("keys", "values"):
                values = [getattr(row, half) for row in rows]  # shape (1, heads, tokens, width)
                missing = [longest - one.shape[-2] for one in values]
                # Padding by nothing would copy them.
                padded = [
                    functional.pad(one, (0, 0, by, 0)) if by else one for one, by in zip(values, missing, strict=True)
                ]
                setattr(layer, half, torch.cat(padded))
    return cache


def _prefix_of(
    prompt: Encoded, cuts: Cuts, model: AdapterModel, kept: PrefixCache, known: dict[Words, CachedPrefix]
) -> CachedPrefix:
    """Read a prompt up to its last cut, from the last of its prefixes that is known; all of them are known then."""
    prefix: CachedPrefix | None = None
    begun = len(cuts.places)
    while begun and prefix is None:
        begun -= 1
        words = cuts.words[: cuts.places[begun]]
        prefix = known.get(words) or kept.get(words)
    if prefix is not None:
        known[words] = prefix
        begun += 1
    for place in cuts.places[begun:]:
        prefix = _extended(prompt, cuts, prefix, place, model)
        known[cuts.words[:place]] = prefix
        kept.keep(cuts.words[:place], prefix, prefix.nbytes)
    assert prefix is not None  # there is at least one cut
    return prefix


def _extended(
    prompt: Encoded, cuts: Cuts, before: CachedPrefix | None, place: int, model: AdapterModel
) -> CachedPrefix:
    """Run a model from one cut, or from the beginning, up to the last keys and values of another."""
    part, cache = cuts.part(prompt, 0, place), _Prefill(config=model.language_model.config)
    if before is None:
        whole = pad_left([part], model.pad_id, model.device)
        inputs, cache.layers = model.scoring_inputs(whole), [DynamicLayer() for _ in cache.layers]
    else:
        suffix, whole = suffixes_of([CutPrompt(part, cuts, before)], model)
        inputs, cache.layers = inputs_after(suffix, whole, model), side_by_side([before]).layers
    with contextlib.suppress(_AllReadError):
        model.language_model(**inputs, past_key_values=cache, logits_to_keep=1, use_cache=True)
    return CachedPrefix(place, before.shift if before else int(model.position_shift(whole)), cache.layers)
