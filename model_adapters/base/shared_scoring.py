"""Scoring with shared passes: options share the pass over their question, and questions that over a common prefix.

A prefix is an image or few-shot examples that several prompts begin with. Prompts are cut after their images, each
prefix is read once, and the suffixes continue from copies of its keys and values.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional
from transformers import DynamicCache

from .batching import (
    KV_CACHE,
    BoundedCache,
    Continuation,
    Encoded,
    Likelihood,
    PaddedBatch,
    Spans,
    likelihood,
    pad_left,
    pad_right,
    positions_of,
    token_losses,
)

try:
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
except ImportError:  # transformers below 4.56
    DynamicLayer = DynamicSlidingWindowLayer = None

CAN_SHARE = DynamicLayer is not None
"""Whether the caches of transformers have layers, from which prefixes are copied."""
LEAST_LENGTH = 16  # tokens from which a further part of a prefix is worth a pass of its own
OWN_LENGTH = 64  # tokens from which a prefix is worth a pass
_LEAST_PART = 4  # a prefix is at least one in so many tokens of its prompt, because the suffix costs a pass too

CausalModel = Any
"""A ``MedicalAdapter``, whose module imports this one."""
Words = tuple[tuple[int, str], ...]
"""Token ids; each image's first one carries the image's key."""


@dataclass(frozen=True)
class Cuts:
    """Places where one prompt is cut."""

    prompt: Encoded
    words: Words  # of the prompt; its part before a cut names the prefix
    spans: Spans  # its images' columns
    places: tuple[
        int, ...
    ]  # ends of its prefixes, each of which continues the one before; at least one

    def part(self, start: int, stop: int) -> Encoded:
        """Return the prompt's tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
        first, end = (
            sum(last <= at for _, last in self.spans) if at else 0 for at in (start, stop)
        )
        return self.prompt.part(start, stop, slice(first, end))


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
    """Return the places where a prompt is cut: after its last image, because more questions may follow on that one.

    Images before the last one are few-shot examples as a rule: such a prompt is cut before its last image, too.

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
    """Keys and values of a prefix. Its layers never grow: suffixes go to copies that share the tensors."""

    length: int  # tokens
    shift: int  # by how much the positions after it exceed the number of tokens before, see ``position_shift``
    layers: Sequence[DynamicLayer]  # keys and values, shape (1, heads, length, width)


PrefixCache = BoundedCache[CachedPrefix]
"""Prefixes by their words."""


class _PrefixReadError(Exception):
    """The last layer's keys and values are computed."""


class _PrefillCache(DynamicCache):  # type: ignore[misc]  # transformers is not analysed
    """Ends the pass after the last layer's keys and values: nothing else of a prefix is needed."""

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        updated = super().update(keys, values, layer_idx, *args, **kwargs)
        if layer_idx == len(self.layers) - 1:
            raise _PrefixReadError
        return updated


def read_prefixes(
    cuts: Sequence[Cuts], model: CausalModel, cache: PrefixCache
) -> list[CachedPrefix]:
    """Read each distinct prefix once, one by one: in a batch, rounding would depend on the content of ``cache``."""
    by_words: dict[Words, CachedPrefix] = {}
    rows = []
    for cut in cuts:
        prefix: CachedPrefix | None = None
        unread: list[int] = []  # places after the last prefix that was read before
        for end in reversed(cut.places):
            prefix = by_words.get(cut.words[:end]) or cache.get(cut.words[:end])
            if prefix is not None:
                by_words[cut.words[:end]] = prefix
                break
            unread.insert(0, end)
        for end in unread:
            # From one cut, or from the beginning, up to the last keys and values before the next cut.
            prefill = _PrefillCache(config=model.language_model.config)
            if prefix is None:
                whole = pad_left([cut.part(0, end)], model.pad_id, model.device)
                inputs, prefill.layers = (
                    model.model_inputs(whole),
                    [DynamicLayer() for _ in prefill.layers],
                )
            else:
                suffix, whole = suffixes_of([cut], [prefix], model, end)
                inputs, prefill.layers = (
                    model.model_inputs(suffix, whole),
                    side_by_side([prefix]).layers,
                )
            with contextlib.suppress(_PrefixReadError):
                model.language_model(
                    **inputs, **{KV_CACHE: prefill}, logits_to_keep=1, use_cache=True
                )
            shift = prefix.shift if prefix else int(model.position_shift(whole))
            prefix = by_words[cut.words[:end]] = CachedPrefix(end, shift, prefill.layers)
            size = sum(layer.keys.nbytes + layer.values.nbytes for layer in prefix.layers)
            cache.keep(cut.words[:end], prefix, size)
        assert prefix is not None  # there is at least one cut
        rows.append(prefix)
    return rows


def suffixes_of(
    cuts: Sequence[Cuts],
    prefixes: Sequence[CachedPrefix],
    model: CausalModel,
    stop: int | None = None,
) -> tuple[PaddedBatch, PaddedBatch]:
    """Return the suffixes after the prefixes and the whole prompts, up to ``stop``, padded before prefix and suffix."""
    # Padding is on the left of suffixes too, so that every prompt's last token is in the last column.
    rows = [
        (cut, prefix.length, stop or len(cut.prompt.ids))
        for cut, prefix in zip(cuts, prefixes, strict=True)
    ]
    suffixes = [cut.part(length, end) for cut, length, end in rows]
    before = pad_left([cut.part(0, length) for cut, length, _ in rows], model.pad_id, model.device)
    suffix = pad_left(suffixes, model.pad_id, model.device)
    mask = torch.cat([before.attention_mask, suffix.attention_mask], dim=-1)
    ids = torch.cat([before.ids, suffix.ids], dim=-1)
    # Positions count real tokens only, across the padding in the middle.
    positions = positions_of(mask) + torch.tensor(
        [[prefix.shift] for prefix in prefixes], device=mask.device
    )
    whole = PaddedBatch(
        ids, mask, positions, [cut.part(0, end) if stop else cut.prompt for cut, _, end in rows]
    )
    return PaddedBatch(suffix.ids, mask, positions[:, -suffix.ids.shape[1] :], suffixes), whole


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
                    functional.pad(value, (0, 0, longest - value.shape[-2], 0)) for value in values
                ]
                setattr(layer, half, torch.cat(padded))
    return cache


@dataclass(frozen=True)
class Questions:
    """A batch by question: options that share their prompt."""

    places: Sequence[Sequence[int]]  # per question the positions of its options in the batch
    options: Sequence[Sequence[Continuation]]
    cuts: Mapping[int, Cuts]  # by question, without those that are better read whole

    @classmethod
    def of(cls, items: Sequence[Continuation], model: CausalModel) -> "Questions":
        """Group a batch by images and tokens before the continuation, and find out where its prompts are cut."""
        groups: dict[Hashable, list[int]] = {}
        for position, item in enumerate(items):
            groups.setdefault((item.prompt.image_keys, tuple(item.prompt.ids)), []).append(position)
        places = list(groups.values())
        options = [[items[position] for position in group] for group in places]
        # Cutting needs layers that keep the keys and values of all positions; a window has to hold the longest text
        # and as much padding.
        longest = max(len(item.sequence.ids) for item in items)
        can_cut = all(
            type(layer) is DynamicLayer
            or (type(layer) is DynamicSlidingWindowLayer and 2 * longest <= layer.sliding_window)
            for layer in DynamicCache(config=model.language_model.config).layers
        )
        cuts = {}
        # Each is cut by itself, whatever its batch or the cache hold: what is cut alike rounds alike.
        for question, (option, *_) in enumerate(options if can_cut else ()):
            prompt = option.prompt
            spans = model.image_spans(prompt)
            words = None if spans is None else words_of(prompt, spans)
            if words is not None and (ends := cut_places(spans, len(words))):
                cuts[question] = Cuts(prompt, words, spans, ends)
        return cls(places, options, cuts)


def score_by_question(
    questions: Questions,
    model: CausalModel,
    score_whole: Callable[[Sequence[Continuation]], list[Likelihood]],
    cache: PrefixCache,
) -> list[Likelihood]:
    """Score a batch; options share their prompt, prompts their prefix, and single options are scored whole."""
    options, cuts = questions.options, questions.cuts
    uncut = [at for at in range(len(options)) if at not in cuts]
    single = [at for at in uncut if len(options[at]) == 1]
    several = [at for at in uncut if len(options[at]) > 1]
    scores: dict[int, list[Likelihood]] = {}
    if single:
        whole_scores = score_whole([options[at][0] for at in single])
        scores |= {at: [score] for at, score in zip(single, whole_scores, strict=True)}
    if several:
        contexts = pad_left([options[at][0].prompt for at in several], model.pad_id, model.device)
        # use_cache is set in the call, because a checkpoint's configuration may have switched it off.
        output = model.language_model(
            **model.model_inputs(contexts), logits_to_keep=1, use_cache=True
        )
        shift = model.position_shift(contexts).to(contexts.position_ids.device)
        contexts = replace(contexts, position_ids=contexts.position_ids + shift)
        scores |= zip(
            several,
            _score_options([options[at] for at in several], contexts, output, model),
            strict=True,
        )
    if cuts:
        prefixes = read_prefixes(list(cuts.values()), model, cache)
        suffix, whole = suffixes_of(list(cuts.values()), prefixes, model)
        inputs = model.model_inputs(suffix, whole) | {KV_CACHE: side_by_side(prefixes)}
        output = model.language_model(**inputs, logits_to_keep=1, use_cache=True)
        scores |= zip(
            cuts, _score_options([options[at] for at in cuts], whole, output, model), strict=True
        )
    pairs = (zip(group, scores[at], strict=True) for at, group in enumerate(questions.places))
    by_place = dict(itertools.chain.from_iterable(pairs))
    return [by_place[position] for position in range(len(by_place))]


def _score_options(
    questions: Sequence[Sequence[Continuation]],
    contexts: PaddedBatch,
    output: Any,
    model: CausalModel,
) -> list[list[Likelihood]]:
    """Score the options of several questions after the pass over their prompts, whose ``output`` is used up.

    The last logits of a prompt serve the first token of each of its options. The keys and values of the prompts are
    repeated per option, and the remaining tokens, padded on the right, are run on them. Prompts have one row each;
    padding may also be between a prefix and its suffix.
    """
    tokens = [option.targets for question in questions for option in question]
    owners = torch.tensor([row for row, question in enumerate(questions) for _ in question])
    lengths = torch.tensor([len(option) for option in tokens])
    ids = pad_right(tokens, model.pad_id, model.device)
    first = token_losses(output.logits[:, -1][owners], ids[:, 0])
    losses, hits = (torch.zeros(ids.shape, dtype=values.dtype) for values in first)
    losses[:, 0], hits[:, 0] = first
    longer = lengths > 1
    if longer.any():
        ids, owners = ids[longer], owners[longer]
        # The indices are on the CPU: a model with a device map lies on several devices.
        output[KV_CACHE].batch_select_indices(owners)
        prompts = [contexts.prompts[row] for row in owners.tolist()]
        contexts = PaddedBatch(
            contexts.ids[owners],
            contexts.attention_mask[owners],
            contexts.position_ids[owners],
            prompts,
        )
        steps = torch.arange(ids.shape[1] - 1)
        # The last token of an option is not an input: it predicts nothing that is scored.
        real = (lengths[longer][:, None] - 1 > steps).to(contexts.attention_mask)
        mask = torch.cat([contexts.attention_mask, real], dim=-1)
        positions = contexts.position_ids[:, -1:] + 1 + steps.to(model.device)
        batch = PaddedBatch(ids[:, :-1], mask, positions, [Encoded((), None)] * len(ids))
        inputs = model.model_inputs(batch, contexts) | {KV_CACHE: output[KV_CACHE]}
        logits = model.language_model(**inputs, use_cache=True).logits
        losses[longer, 1:], hits[longer, 1:] = token_losses(logits, ids[:, 1:])
    scores = (
        likelihood(losses[row, :size], hits[row, :size])
        for row, size in enumerate(lengths.tolist())
    )
    return [[next(scores) for _ in question] for question in questions]
