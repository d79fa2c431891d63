"""Scoring with shared passes: options share the pass over their question, and questions that over a common prefix.

``MedicalAdapter.score_batch`` calls it. It must never change a score by more than rounding, and equal cuts round alike.
A prefix is an image or few-shot examples that several prompts begin with. Prompts are cut after their images, each
prefix is read once, and the suffixes continue from copies of its keys and values.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
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
    group_positions,
    pad_left,
    pad_right,
    positions_of,
    row_likelihoods,
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
Options = Sequence[Sequence[Continuation]]
"""Options of each question."""


@dataclass(frozen=True)
class Cuts:
    """One prompt, and where it is cut."""

    prompt: Encoded
    words: Words  # of the prompt; its part before a cut names the prefix
    spans: Spans  # its images' columns
    # Length of each prefix in tokens; each continues the one before, and there is at least one.
    prefix_ends: tuple[int, ...]

    @classmethod
    def of(cls, prompt: Encoded, model: CausalModel) -> "Cuts | None":
        """Find out where a prompt is cut.

        It is cut by itself, whatever its batch or the cache hold: what is cut alike rounds alike.

        Args:
            prompt: Prompt of a question.
            model: The adapter, which says where images lie.

        Returns:
            ``None`` for a prompt that is better read whole.
        """
        spans = model.image_spans(prompt)
        words = None if spans is None else words_of(prompt, spans)
        if words is None:
            return None
        ends = prefix_ends(spans, len(words))
        return cls(prompt, words, spans, ends) if ends else None

    def part(self, start: int, stop: int) -> Encoded:
        """Return the prompt's tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
        images = slice(self._images_before(start), self._images_before(stop))
        return self.prompt.part(start, stop, images)

    def _images_before(self, column: int) -> int:
        # An image without columns belongs to the part that begins at 0.
        return sum(last <= column for _, last in self.spans) if column else 0


def words_of(prompt: Encoded, spans: Spans) -> Words | None:
    """Return the words of a prompt, which tell whether prompts begin alike.

    Args:
        prompt: Prompt of a question.
        spans: Columns of its images, see ``MedicalAdapter.image_spans``.

    Returns:
        ``None`` unless there is one span per image, in order and without overlap. Such a prompt shares no prefix.
    """
    keys = prompt.image_keys
    borders = [0, *itertools.chain.from_iterable(spans), len(prompt.ids)]
    if len(spans) != len(keys) or borders != sorted(borders):
        return None
    marks: dict[int, str] = {}
    for (start, _), key in zip(spans, keys, strict=True):
        marks[start] = marks.get(start, "") + key
    return tuple((token, marks.get(column, "")) for column, token in enumerate(prompt.ids))


def prefix_ends(spans: Spans, length: int) -> tuple[int, ...]:
    """Return the ends of a prompt's prefixes: its last image, because more questions may follow on that one.

    Images before the last one are few-shot examples as a rule: such a prompt has a prefix before its last image, too.

    Args:
        spans: Columns of the prompt's images.
        length: Number of the prompt's tokens.

    Example:
        >>> prefix_ends([(1, 577)], 620), prefix_ends([(1, 101), (120, 220), (240, 340)], 400)
        ((577,), (240, 340))
    """
    if not spans:
        return ()
    start, end = spans[-1]
    ends = []
    if len(spans) == 1:
        if start >= LEAST_LENGTH:
            return ()  # after a text of its own, which no other question shares
    elif start >= OWN_LENGTH:
        ends.append(start)
    if end >= OWN_LENGTH and end - sum(ends) >= LEAST_LENGTH:
        ends.append(end)
    if ends and ends[-1] < length <= ends[-1] * _LEAST_PART:
        return tuple(ends)
    return ()


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
        self,
        keys: Tensor,
        values: Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Store keys and values of a layer.

        Raises:
            _PrefixReadError: They are those of the last layer.
        """
        updated = super().update(keys, values, layer_idx, *args, **kwargs)
        if layer_idx == len(self.layers) - 1:
            raise _PrefixReadError
        return updated


def read_prefixes(
    cuts: Sequence[Cuts],
    model: CausalModel,
    cache: PrefixCache,
) -> list[CachedPrefix]:
    """Read each distinct prefix once, one by one: in a batch, rounding would depend on the content of ``cache``.

    Args:
        cuts: Prompts with the ends of their prefixes.
        model: The adapter.
        cache: Prefixes of earlier batches, to which new ones are added.

    Returns:
        The longest prefix of each prompt.
    """
    by_words: dict[Words, CachedPrefix] = {}
    rows = []
    for cut in cuts:
        prefix: CachedPrefix | None = None
        unread: list[int] = []  # ends of the prefixes after the last one that was read before
        for end in reversed(cut.prefix_ends):
            words = cut.words[:end]
            prefix = by_words.get(words) or cache.get(words)
            if prefix is not None:
                by_words[words] = prefix
                break
            unread.insert(0, end)
        for end in unread:
            # Read the prompt up to ``end``, after the prefix before if there is one.
            prefill = _PrefillCache(config=model.language_model.config)
            if prefix is None:
                whole = pad_left([cut.part(0, end)], model.pad_id, model.device)
                inputs = model.model_inputs(whole)
                prefill.layers = [DynamicLayer() for _ in prefill.layers]
            else:
                suffix, whole = suffixes_of([cut], [prefix], model, end)
                inputs = model.model_inputs(suffix, whole)
                prefill.layers = side_by_side([prefix]).layers
            with contextlib.suppress(_PrefixReadError):
                model.language_model(
                    **inputs, **{KV_CACHE: prefill}, logits_to_keep=1, use_cache=True
                )
            shift = prefix.shift if prefix else int(model.position_shift(whole))
            prefix = CachedPrefix(end, shift, prefill.layers)
            words = cut.words[:end]
            by_words[words] = prefix
            size = sum(layer.keys.nbytes + layer.values.nbytes for layer in prefix.layers)
            cache.keep(words, prefix, size)
        assert prefix is not None  # there is at least one cut
        rows.append(prefix)
    return rows


def suffixes_of(
    cuts: Sequence[Cuts],
    prefixes: Sequence[CachedPrefix],
    model: CausalModel,
    stop: int | None = None,
) -> tuple[PaddedBatch, PaddedBatch]:
    """Split each prompt after its prefix.

    Args:
        cuts: One prompt per row.
        prefixes: Prefix of each row, already read.
        model: The adapter.
        stop: Token after the last of every row; ``None`` for the whole prompts.

    Returns:
        The suffixes, and the prompts as a whole, with padding before prefix and suffix.
    """
    befores = []
    suffixes = []
    wholes = []
    for cut, prefix in zip(cuts, prefixes, strict=True):
        befores.append(cut.part(0, prefix.length))
        suffixes.append(cut.part(prefix.length, stop or len(cut.prompt.ids)))
        wholes.append(cut.part(0, stop) if stop else cut.prompt)
    # Padding is on the left of suffixes too, so that every prompt's last token is in the last column.
    before = pad_left(befores, model.pad_id, model.device)
    suffix = pad_left(suffixes, model.pad_id, model.device)
    mask = torch.cat([before.attention_mask, suffix.attention_mask], dim=-1)
    ids = torch.cat([before.ids, suffix.ids], dim=-1)
    # Positions count real tokens only, across the padding in the middle.
    shifts = torch.tensor([[prefix.shift] for prefix in prefixes], device=mask.device)
    positions = positions_of(mask) + shifts
    return (
        PaddedBatch(suffix.ids, mask, positions[:, -suffix.ids.shape[1] :], suffixes),
        PaddedBatch(ids, mask, positions, wholes),
    )


def side_by_side(prefixes: Sequence[CachedPrefix]) -> DynamicCache:
    """Return a cache with one row per prefix, shorter ones padded on the left."""
    cache = DynamicCache()
    cache.layers = [copy.copy(layer) for layer in prefixes[0].layers]
    if len(prefixes) == 1:
        return cache
    longest = max(prefix.length for prefix in prefixes)

    def pad_and_join(values: Sequence[Tensor]) -> Tensor:
        # Each has the shape (1, heads, tokens, width).
        return torch.cat(
            [functional.pad(value, (0, 0, longest - value.shape[-2], 0)) for value in values]
        )

    for number, layer in enumerate(cache.layers):
        rows = [prefix.layers[number] for prefix in prefixes]
        layer.keys = pad_and_join([row.keys for row in rows])
        layer.values = pad_and_join([row.values for row in rows])
    return cache


def _can_cut(cache: DynamicCache, longest: int) -> bool:
    """Return whether every layer of a model's cache keeps the keys and values of all positions."""
    for layer in cache.layers:
        if type(layer) is DynamicLayer:
            continue
        if type(layer) is not DynamicSlidingWindowLayer:
            return False
        # A window has to hold the longest text and as much padding.
        if 2 * longest > layer.sliding_window:
            return False
    return True


@dataclass(frozen=True)
class Questions:
    """A batch by question: options that share their prompt."""

    positions: Sequence[Sequence[int]]  # per question those of its options in the batch
    options: Options
    cuts: Mapping[int, Cuts]  # by question, without those that are better read whole

    @classmethod
    def of(cls, items: Sequence[Continuation], model: CausalModel) -> "Questions":
        """Group a batch by images and tokens before the continuation, and find out where its prompts are cut.

        Args:
            items: Continuations of one batch, in any order.
            model: The adapter, which says where images lie and what its cache is like.
        """
        prompts = [item.prompt for item in items]
        groups = group_positions((prompt.image_keys, tuple(prompt.ids)) for prompt in prompts)
        positions = list(groups.values())
        options = [[items[position] for position in group] for group in positions]
        longest = max(len(item.sequence.ids) for item in items)
        if not _can_cut(DynamicCache(config=model.language_model.config), longest):
            return cls(positions, options, {})
        cuts = {}
        for question, (option, *_) in enumerate(options):
            cut = Cuts.of(option.prompt, model)
            if cut is not None:
                cuts[question] = cut
        return cls(positions, options, cuts)

    @property
    def several(self) -> list[int]:
        """Numbers of the questions with several options."""
        return [number for number, options in enumerate(self.options) if len(options) > 1]

    def positions_of(self, questions: Iterable[int]) -> list[int]:
        """Return the positions of the options of some questions in the batch.

        Args:
            questions: Numbers of the questions.
        """
        return [*itertools.chain.from_iterable(self.positions[number] for number in questions)]


def score_by_question(
    questions: Questions,
    model: CausalModel,
    score_whole: Callable[[Sequence[Continuation]], list[Likelihood]],
    cache: PrefixCache,
) -> list[Likelihood]:
    """Score a batch: options share their prompt, prompts their prefix, and single options are scored whole.

    Args:
        questions: The batch.
        model: The adapter.
        score_whole: Scores continuations without sharing anything.
        cache: Prefixes of earlier batches.

    Returns:
        One score per continuation, in the order of the batch.
    """
    options = questions.options
    cuts = questions.cuts
    several = [number for number in questions.several if number not in cuts]
    single = sorted(set(range(len(options))) - {*several, *cuts})

    def score_single(groups: Options) -> list[Likelihood]:
        return score_whole([option for (option,) in groups])

    ways = (
        (single, score_single),
        (several, partial(_score_after_prompts, model=model)),
        (
            [*cuts],
            partial(_score_after_prefixes, cuts=[*cuts.values()], model=model, cache=cache),
        ),
    )
    scores: dict[int, Likelihood] = {}  # by position in the batch
    for numbers, score_options in ways:
        if not numbers:
            continue
        by_option = score_options([options[number] for number in numbers])
        scores.update(zip(questions.positions_of(numbers), by_option, strict=True))
    return [scores[position] for position in range(len(scores))]


def _score_after_prompts(options: Options, model: CausalModel) -> list[Likelihood]:
    """Score the options of questions in one pass over the whole prompts."""
    contexts = pad_left([group[0].prompt for group in options], model.pad_id, model.device)
    # use_cache is set in the call, because a checkpoint's configuration may have switched it off.
    output = model.language_model(
        **model.model_inputs(contexts), logits_to_keep=1, use_cache=True
    )
    shift = model.position_shift(contexts).to(contexts.position_ids.device)
    contexts = replace(contexts, position_ids=contexts.position_ids + shift)
    return _score_options(options, contexts, output, model)


def _score_after_prefixes(
    options: Options,
    cuts: Sequence[Cuts],
    model: CausalModel,
    cache: PrefixCache,
) -> list[Likelihood]:
    """Score the options of questions whose prompts continue prefixes."""
    prefixes = read_prefixes(cuts, model, cache)
    suffix, whole = suffixes_of(cuts, prefixes, model)
    inputs = model.model_inputs(suffix, whole) | {KV_CACHE: side_by_side(prefixes)}
    output = model.language_model(**inputs, logits_to_keep=1, use_cache=True)
    return _score_options(options, whole, output, model)


def _score_options(
    questions: Options,
    contexts: PaddedBatch,
    output: Any,
    model: CausalModel,
) -> list[Likelihood]:
    """Score the options of several questions after the pass over their prompts, whose ``output`` is used up.

    The last logits of a prompt serve the first token of each of its options. The keys and values of the prompts are
    repeated per option, and the remaining tokens, padded on the right, are run on them. Prompts have one row each;
    padding may also be between a prefix and its suffix.
    """
    tokens: list[list[int]] = []
    rows: list[int] = []  # of the option's prompt
    for row, question in enumerate(questions):
        tokens += [option.targets for option in question]
        rows += [row] * len(question)
    owners = torch.tensor(rows)
    lengths = torch.tensor([len(option) for option in tokens])
    ids = pad_right(tokens, model.pad_id, model.device)
    first_losses, first_hits = token_losses(output.logits[:, -1][owners], ids[:, 0])
    losses = torch.zeros(ids.shape, dtype=first_losses.dtype)
    hits = torch.zeros(ids.shape, dtype=first_hits.dtype)
    losses[:, 0] = first_losses
    hits[:, 0] = first_hits
    longer = lengths > 1
    if longer.any():
        owners = owners[longer]
        ids = ids[longer]
        # The indices are on the CPU: a model with a device map lies on several devices.
        cache = output[KV_CACHE]
        cache.batch_select_indices(owners)
        contexts = PaddedBatch(
            contexts.ids[owners],
            contexts.attention_mask[owners],
            contexts.position_ids[owners],
            [contexts.prompts[row] for row in owners.tolist()],
        )
        steps = torch.arange(ids.shape[1] - 1)
        # The last token of an option is not an input: it predicts nothing that is scored.
        real = (lengths[longer, None] - 1 > steps).to(contexts.attention_mask)
        mask = torch.cat([contexts.attention_mask, real], dim=-1)
        positions = contexts.position_ids[:, -1:] + 1 + steps.to(model.device)
        without_images = [Encoded((), None)] * len(ids)
        batch = PaddedBatch(ids[:, :-1], mask, positions, without_images)
        inputs = model.model_inputs(batch, contexts) | {KV_CACHE: cache}
        logits = model.language_model(**inputs, use_cache=True).logits
        losses[longer, 1:], hits[longer, 1:] = token_losses(logits, ids[:, 1:])
    return row_likelihoods(losses, hits, lengths.tolist())
