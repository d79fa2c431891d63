"""Cached prefixes: keys and values of what prompts begin with, read once, kept within bounds, laid side by side.

A prefill of a prefix does no work behind its last keys and values, and what follows it is written behind it without a
copy.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from ..base.batching import Encoded, PaddedBatch, pad_left, positions_of
from ..base.caches import BoundedCache
from ..base.model import AdapterModel
from .cuts import KEPT_LENGTH, Cuts, Words

Halves = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of a layer, shape (rows, heads, columns, width)."""

ROOM = 128
"""Columns behind a kept prefix, in which a question and its options find place as a rule."""


@dataclass(frozen=True)
class CachedPrefix:
    """What a model has read of a prompt."""

    length: int  # tokens
    # per layer keys and values, shape (1, heads, columns, width); columns from ``length`` on may be overwritten
    layers: Sequence[Halves]

    @property
    def nbytes(self) -> int:
        """Size."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


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


class _LastLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not analysed
    """Ends the pass once it has its keys and values: what the model would still compute is about the next token."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Halves:
        super().update(key_states, value_states, *args, **kwargs)
        raise _AllReadError


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """Writes what follows behind its prefix, where there is room, instead of copying both into one tensor."""

    def __init__(self, room: Halves, length: int) -> None:
        super().__init__()
        self.lazy_initialization(*room)
        self._room: Halves | None = room
        self.keys, self.values = (half[:, :, :length] for half in room)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Halves:
        start = self.keys.shape[-2]
        stop = start + key_states.shape[-2]
        if self._room is None or stop > self._room[0].shape[-2]:
            updated: Halves = super().update(key_states, value_states, *args, **kwargs)
            return updated
        for half, states in zip(self._room, (key_states, value_states), strict=True):
            half[:, :, start:stop] = states
        self.keys, self.values = (half[:, :, :stop] for half in self._room)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        super().batch_select_indices(indices)
        self._room = None


def grows_plainly(language_model: Any) -> bool:
    """Return whether every layer of a model keeps the keys and values of all positions, as they are."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=language_model.config).layers)


def cut_prompts(
    prompts: Sequence[Encoded], cuts: Mapping[int, Cuts], model: AdapterModel, kept: PrefixCache
) -> list[CutPrompt]:
    """Read what prompts begin with up to their last cut, each distinct prefix once; results in the order of ``cuts``.

    Long ones are read one by one: in a batch, rounding would depend on which of them happened to be kept. Short ones
    are read together, and not kept; ``kept`` grows.
    """
    known: dict[Words, CachedPrefix] = {}
    short: dict[Words, Encoded] = {}
    for place, cut in cuts.items():
        if cut.places[-1] < KEPT_LENGTH:
            short.setdefault(cut.prefix, _part(prompts[place], cut, 0, cut.places[-1]))
        else:
            _read_one(prompts[place], cut, model, kept, known)
    if short:
        batch = pad_left(list(short.values()), model.pad_id, model.device)
        layers = _prefill(model, model.model_inputs(batch))
        for row, words in enumerate(short):
            own = [(keys[row : row + 1], values[row : row + 1]) for keys, values in layers]
            known[words] = CachedPrefix(len(words), [_with_room(halves, len(words), 0) for halves in own])
    return [CutPrompt(prompts[place], cut, known[cut.prefix]) for place, cut in cuts.items()]


def suffixes_of(cut: Sequence[CutPrompt], model: AdapterModel) -> tuple[PaddedBatch, PaddedBatch]:
    """Return what follows the prefixes, and both side by side with padding before each."""
    # On the left too, so that every prompt's last token is in the last column.
    begun = [_part(row.prompt, row.cuts, 0, row.prefix.length) for row in cut]
    rest = [_part(row.prompt, row.cuts, row.prefix.length, len(row.prompt.ids)) for row in cut]
    prefix, suffix = (pad_left(parts, model.pad_id, model.device) for parts in (begun, rest))
    mask = torch.cat([prefix.attention_mask, suffix.attention_mask], dim=-1)
    ids = torch.cat([prefix.ids, suffix.ids], dim=-1)
    # Positions count real tokens only, across the padding in the middle.
    return suffix, PaddedBatch(ids, mask, positions_of(mask), [row.prompt for row in cut])


def inputs_after(suffix: PaddedBatch, whole: PaddedBatch, model: AdapterModel) -> dict[str, Any]:
    """Return the model's inputs for what follows cached prefixes."""
    positions = whole.position_ids[:, -suffix.ids.shape[1] :]
    placed = model.suffix_inputs(replace(suffix, position_ids=positions), whole)
    return {**placed, "attention_mask": whole.attention_mask, "position_ids": positions}


def side_by_side(prefixes: Sequence[CachedPrefix], room: int) -> DynamicCache:
    """Return a cache with one row per prefix, shorter ones padded on the left, and ``room`` for columns that follow.

    The columns behind a prefix may be overwritten.
    """
    longest = max(prefix.length for prefix in prefixes)
    layers = prefixes[0].layers
    if len(prefixes) > 1 or layers[0][0].shape[-2] < longest + room:
        layers = [_joined(prefixes, number, longest, room) for number in range(len(layers))]
    cache = DynamicCache()
    cache.layers = [_RoomyLayer(halves, longest) for halves in layers]
    return cache


def _joined(prefixes: Sequence[CachedPrefix], number: int, longest: int, room: int) -> Halves:
    keys, values = (_empty(half, len(prefixes), longest + room) for half in prefixes[0].layers[number])
    for row, prefix in enumerate(prefixes):
        start = longest - prefix.length
        for half, own in zip((keys, values), prefix.layers[number], strict=True):
            half[row, :, :start] = 0  # not seen, but nothing that is no number either
            half[row, :, start:longest] = own[0, :, : prefix.length]
    return keys, values


def _part(prompt: Encoded, cuts: Cuts, start: int, stop: int) -> Encoded:
    """Return the tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
    first, end = cuts.images(start) if start else 0, cuts.images(stop)
    if prompt.pixels is None or first == end:
        return Encoded(prompt.ids[start:stop], None)
    # The tensor itself where all of it is meant: its images have their keys already.
    whole = (first, end) == (0, len(prompt.pixels))
    return Encoded(prompt.ids[start:stop], prompt.pixels if whole else prompt.pixels[first:end])


def _empty(like: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    return like.new_empty(rows, like.shape[1], columns, like.shape[3])


def _with_room(halves: Halves, length: int, room: int) -> Halves:
    """Return the last ``length`` columns, and room behind them, in memory of their own."""
    keys, values = (_empty(half, 1, length + room) for half in halves)
    for half, own in zip((keys, values), halves, strict=True):
        half[:, :, :length] = own[:, :, -length:]
    return keys, values


def _read_one(
    prompt: Encoded, cuts: Cuts, model: AdapterModel, kept: PrefixCache, known: dict[Words, CachedPrefix]
) -> None:
    """Read a prompt up to its last cut, from the last of its prefixes that is known; all of them are known then."""
    missing: list[int] = []
    last: CachedPrefix | None = None
    for place in reversed(cuts.places):
        words = cuts.words[:place]
        last = known.get(words) or kept.get(words)
        if last is not None:
            known[words] = last
            break
        missing.insert(0, place)
    for place in missing:
        last = _extended(prompt, cuts, last, place, model)
        known[cuts.words[:place]] = last
        kept.keep(cuts.words[:place], last, last.nbytes)


def _extended(
    prompt: Encoded, cuts: Cuts, before: CachedPrefix | None, place: int, model: AdapterModel
) -> CachedPrefix:
    whole = pad_left([_part(prompt, cuts, 0, place)], model.pad_id, model.device)
    if before is None:
        layers = _prefill(model, model.model_inputs(whole))
    else:
        suffix = pad_left([_part(prompt, cuts, before.length, place)], model.pad_id, model.device)
        begun = [(keys[:, :, : before.length], values[:, :, : before.length]) for keys, values in before.layers]
        layers = _prefill(model, inputs_after(suffix, whole, model), begun)
    return CachedPrefix(place, [_with_room(halves, place, ROOM) for halves in layers])


def _prefill(model: AdapterModel, inputs: dict[str, Any], before: Sequence[Halves] = ()) -> list[Halves]:
    """Run a model up to its last keys and values, and return those of every layer; ``before`` stays as it is."""
    cache = DynamicCache()
    layers = len(DynamicCache(config=model.language_model.config).layers)
    cache.layers = [DynamicLayer() for _ in range(layers - 1)] + [_LastLayer()]
    for layer, halves in zip(cache.layers, before, strict=False):
        layer.lazy_initialization(*halves)
        layer.keys, layer.values = halves
    with contextlib.suppress(_AllReadError):
        model.language_model(**inputs, past_key_values=cache, logits_to_keep=1, use_cache=True)
    return [(layer.keys, layer.values) for layer in cache.layers]
