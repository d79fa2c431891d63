"""The prefix cache: keys and values of what several prompts begin with (an image, few-shot examples), read once.

A prompt is cut after its images, a prefix is read with the model, and what follows goes on from copies of its cache.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from .batching import Encoded, PaddedBatch, Spans, pad_left, positions_of
from .caches import BoundedCache

LEAST_LENGTH = 16
"""Tokens from which a further part of a prefix is worth a prefill of its own."""
OWN_LENGTH = 64
"""Tokens from which a prefix is worth a prefill."""
_LEAST_PART = 4
"""A prefix has to be this part (one in ...) of the prompt at least, because the suffix is a pass too."""

Words = tuple[tuple[int, str], ...]
"""Token ids, of which each image's first one carries the image's key."""


class CausalModel(Protocol):
    """Members of an adapter that reading prefixes takes; see ``MedicalAdapter``."""

    pad_id: int
    device: torch.device

    @property
    def language_model(self) -> Any:
        """The transformers model."""

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return the model's inputs."""

    def image_spans(self, prompt: Encoded) -> Spans | None:
        """Return the columns of each image."""

    def position_shift(self, batch: PaddedBatch) -> torch.Tensor:
        """Return by how much positions exceed tokens."""


@dataclass(frozen=True)
class Cuts:
    """Places where one prompt is cut."""

    words: Words  # the prompt; its part before a cut names the prefix
    spans: Spans  # its images' columns
    places: tuple[int, ...]  # ends of its prefixes, each of which goes on from the one before; at least one

    def part(self, prompt: Encoded, start: int, stop: int | None = None) -> Encoded:
        """Return a prompt's tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
        stop = len(prompt.ids) if stop is None else stop
        first, end = (sum(last <= place for _, last in self.spans) if place else 0 for place in (start, stop))
        return prompt.part(start, stop, slice(first, end))


def find_cuts(prompts: Sequence[Encoded], spans_of: Callable[[Encoded], Spans | None]) -> dict[int, Cuts]:
    """Cut prompts; those that are better read whole are left out of the result, which goes by place.

    Each is cut by itself, whatever else is in its batch or was kept from others: what is cut alike rounds alike. A
    prompt is left out, too, if it has not one span per image, in order and apart from each other.
    """
    cuts = {}
    for place, prompt in enumerate(prompts):
        spans = spans_of(prompt)
        words = None if spans is None else words_of(prompt, spans)
        if spans is not None and words is not None and (places := cut_places(spans, len(words))):
            cuts[place] = Cuts(words, spans, places)
    return cuts


def words_of(prompt: Encoded, spans: Spans) -> Words | None:
    """Return the words of a prompt; None without one span per image, in order and apart from each other."""
    borders, keys = [0, *itertools.chain.from_iterable(spans), len(prompt.ids)], prompt.image_keys
    if len(spans) != len(keys) or borders != sorted(borders):
        return None
    marks: dict[int, str] = {}
    for (start, _), key in zip(spans, keys, strict=True):
        marks[start] = marks.get(start, "") + key
    return tuple((token, marks.get(column, "")) for column, token in enumerate(prompt.ids))


def cut_places(spans: Spans, length: int) -> tuple[int, ...]:
    """Return the places where a prompt is cut: after its last image, because further questions may follow on that one.

    With other images before the last one, which are examples as a rule, it is cut before the last one, too.

    Example:
        >>> cut_places([(1, 577)], 620), cut_places([(1, 101), (120, 220), (240, 340)], 400)
        ((577,), (240, 340))
    """
    start, end = spans[-1] if spans else (0, 0)
    if len(spans) == 1 and start >= LEAST_LENGTH:
        return ()  # after a text of its own, which no other question shares
    places = [start] if len(spans) > 1 and start >= OWN_LENGTH else []
    if end >= OWN_LENGTH and end - sum(places) >= LEAST_LENGTH:
        places.append(end)
    return tuple(places) if places and places[-1] < length <= places[-1] * _LEAST_PART else ()


@dataclass(frozen=True)
class CachedPrefix:
    """Keys and values of a prefix. Its layers never grow: what follows goes to copies that share the tensors."""

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


class _PrefillCache(DynamicCache):  # type: ignore[misc]  # transformers is not analysed
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


def read_prefixes(
    prompts: Sequence[Encoded], cuts: Mapping[int, Cuts], model: CausalModel, kept: PrefixCache
) -> list[CutPrompt]:
    """Read what prompts begin with up to their last cut, each distinct prefix once; results in the order of ``cuts``.

    They are read one by one: in a batch, rounding would depend on which of them happened to be kept. ``kept`` grows.
    """
    known: dict[Words, CachedPrefix] = {}
    rows = []
    for row, cut in cuts.items():
        prefix: CachedPrefix | None = None
        left: list[int] = []  # places after the last prefix that is known
        for place in reversed(cut.places):
            prefix = known.get(cut.words[:place]) or kept.get(cut.words[:place])
            if prefix is not None:
                known[cut.words[:place]] = prefix
                break
            left.insert(0, place)
        for place in left:
            prefix = known[cut.words[:place]] = _extended(prompts[row], cut, prefix, place, model)
            kept.keep(cut.words[:place], prefix, prefix.nbytes)
        assert prefix is not None  # there is at least one cut
        rows.append(CutPrompt(prompts[row], cut, prefix))
    return rows


def suffixes_of(cut: Sequence[CutPrompt], model: CausalModel) -> tuple[PaddedBatch, PaddedBatch]:
    """Return the suffixes after the prefixes, and the whole prompts with padding before prefix and suffix."""
    # On the left too, so that every prompt's last token is in the last column.
    begun = [row.cuts.part(row.prompt, 0, row.prefix.length) for row in cut]
    rest = [row.cuts.part(row.prompt, row.prefix.length) for row in cut]
    prefix, suffix = (pad_left(parts, model.pad_id, model.device) for parts in (begun, rest))
    mask = torch.cat([prefix.attention_mask, suffix.attention_mask], dim=-1)
    ids = torch.cat([prefix.ids, suffix.ids], dim=-1)
    # Positions count real tokens only, across the padding in the middle.
    positions = positions_of(mask) + torch.tensor([[row.prefix.shift] for row in cut], device=mask.device)
    whole = PaddedBatch(ids, mask, positions, [row.prompt for row in cut])
    return PaddedBatch(suffix.ids, mask, positions[:, -suffix.ids.shape[1] :], rest), whole


def side_by_side(prefixes: Sequence[CachedPrefix]) -> DynamicCache:
    """Return a cache with one row per prefix, shorter ones padded on the left."""
    cache = DynamicCache()
    cache.layers = [copy.copy(layer) for layer in prefixes[0].layers]
    if len(prefixes) > 1:
        longest = max(prefix.length for prefix in prefixes)
        for layer, *rows in zip(cache.layers, *(prefix.layers for prefix in prefixes), strict=True):
            for half in ("keys", "values"):
                values = [getattr(row, half) for row in rows]  # shape (1, heads, tokens, width)
                padded = [
                    functional.pad(value, (0, 0, longest - value.shape[-2], 0)) if value.shape[-2] < longest else value
                    for value in values
                ]
                setattr(layer, half, torch.cat(padded))
    return cache


def _extended(prompt: Encoded, cuts: Cuts, before: CachedPrefix | None, place: int, model: CausalModel) -> CachedPrefix:
    """Run a model from one cut, or from the beginning, up to the last keys and values of another."""
    part, cache = cuts.part(prompt, 0, place), _PrefillCache(config=model.language_model.config)
    if before is None:
        whole = pad_left([part], model.pad_id, model.device)
        inputs, cache.layers = model.model_inputs(whole), [DynamicLayer() for _ in cache.layers]
    else:
        suffix, whole = suffixes_of([CutPrompt(part, cuts, before)], model)
        inputs, cache.layers = model.model_inputs(suffix, whole), side_by_side([before]).layers
    with contextlib.suppress(_AllReadError):
        model.language_model(**inputs, past_key_values=cache, logits_to_keep=1, use_cache=True)
    return CachedPrefix(place, before.shift if before else int(model.position_shift(whole)), cache.layers)
