"""Scoring options with one prefill over the prompt of their question, and prompts with one over their prefix."""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .batching import (
    Continuation,
    Encoded,
    Likelihood,
    PaddedBatch,
    likelihood,
    pad_left,
    pad_right,
    token_losses,
)
from .prefixes import (
    CausalModel,
    Cuts,
    PrefixCache,
    find_cuts,
    grows_plainly,
    read_prefixes,
    side_by_side,
    suffixes_of,
)


@dataclass(frozen=True)
class Prefill:
    """Prompts that the model has read."""

    contexts: PaddedBatch  # the prompts, one row each; padding may also stand between a prefix and its suffix
    logits: torch.Tensor  # after the last token of each, shape (prompts, vocabulary)
    cache: Any  # their keys and values, one row per prompt and one place per column of ``contexts``


@dataclass(frozen=True)
class Questions:
    """A batch by question: the options that have their prompt in common."""

    places: Sequence[Sequence[int]]  # per question where its options stand in the batch
    options: Sequence[Sequence[Continuation]]
    prompts: Sequence[Encoded]
    cuts: Mapping[int, Cuts]  # by question; those that are better read whole are left out

    @classmethod
    def of(cls, items: Sequence[Continuation], model: CausalModel) -> "Questions":
        """Group a batch and find out where its prompts are cut."""
        places = group_by_prefix(items)
        options = [[items[place] for place in group] for group in places]
        prompts = [question[0].prompt for question in options]
        longest = max(len(item.sequence.ids) for item in items)
        cuts = find_cuts(prompts, model.image_spans) if grows_plainly(model.language_model, longest) else {}
        return cls(places, options, prompts, cuts)


def group_by_prefix(items: Sequence[Continuation]) -> list[list[int]]:
    """Return groups of places in ``items`` with the same images and the same tokens before the continuation.

    An option that a tokenizer merges with the end of its prompt has other tokens there, and hence a group of its own.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault((item.prompt.image_keys, tuple(item.prompt.ids)), []).append(place)
    return list(groups.values())


def score_by_question(
    questions: Questions,
    model: CausalModel,
    score_whole: Callable[[Sequence[Continuation]], list[Likelihood]],
    kept: PrefixCache,
) -> list[Likelihood]:
    """Score a batch; options share their prompt, prompts their prefix, and what stands alone is scored by itself."""
    prompts, options, cuts = questions.prompts, questions.options, questions.cuts
    uncut = [at for at in range(len(options)) if at not in cuts]
    alone = [at for at in uncut if len(options[at]) == 1]
    several = [at for at in uncut if len(options[at]) > 1]
    scores: dict[int, list[Likelihood]] = {}
    if alone:
        scored = score_whole([options[at][0] for at in alone])
        scores |= {at: [score] for at, score in zip(alone, scored, strict=True)}
    if several:
        contexts = pad_left([prompts[at] for at in several], model.pad_id, model.device)
        read = _read(contexts, model, model.model_inputs(contexts))
        shift = model.position_shift(contexts).to(contexts.position_ids.device)
        placed = replace(contexts, position_ids=contexts.position_ids + shift)
        scored_after = _score_options([options[at] for at in several], replace(read, contexts=placed), model)
        scores |= zip(several, scored_after, strict=True)
    if cuts:
        cut = read_prefixes(prompts, cuts, model, kept)
        suffix, whole = suffixes_of(cut, model)
        cache = side_by_side([row.prefix for row in cut])
        read = _read(whole, model, model.model_inputs(suffix, whole), past_key_values=cache)
        scores |= zip(cuts, _score_options([options[at] for at in cuts], read, model), strict=True)
    pairs = (zip(group, scores[at], strict=True) for at, group in enumerate(questions.places))
    by_place = dict(itertools.chain.from_iterable(pairs))
    return [by_place[place] for place in range(len(by_place))]


def _read(contexts: PaddedBatch, model: CausalModel, inputs: dict[str, Any], **cached: Any) -> Prefill:
    """Read prompts, all in one batch, or what follows their cached prefixes."""
    # use_cache is asked for in the call, because a checkpoint's configuration may have switched it off.
    output = model.language_model(**inputs, **cached, logits_to_keep=1, use_cache=True)
    return Prefill(contexts, output.logits[:, -1], output.past_key_values)


def _score_options(
    questions: Sequence[Sequence[Continuation]], read: Prefill, model: CausalModel
) -> list[list[Likelihood]]:
    """Score the options of several questions on the prefill of their prompts.

    The last logits of a prompt serve the first token of each of its options. The keys and values of the prompts are
    repeated per option, and the remaining tokens, padded on the right, are run on them. Logits exist for the last
    column of the prompts and for the options' tokens only. The cache of ``read`` is used up.
    """
    tokens = [option.targets for question in questions for option in question]
    owners = torch.tensor([row for row, question in enumerate(questions) for _ in question])
    lengths = torch.tensor([len(option) for option in tokens])
    ids = pad_right(tokens, model.pad_id, model.device)
    first = token_losses(read.logits[owners], ids[:, 0])
    losses, hits = (torch.zeros(ids.shape, dtype=values.dtype) for values in first)
    losses[:, 0], hits[:, 0] = first
    longer = lengths > 1
    if longer.any():
        later = _score_later(ids[longer], lengths[longer], owners[longer], read, model)
        losses[longer, 1:], hits[longer, 1:] = later
    scores = (likelihood(losses[row, :size], hits[row, :size]) for row, size in enumerate(lengths.tolist()))
    return [[next(scores) for _ in question] for question in questions]


def _score_later(
    ids: torch.Tensor, lengths: torch.Tensor, owners: torch.Tensor, read: Prefill, model: CausalModel
) -> tuple[torch.Tensor, torch.Tensor]:
    """Score the second and later tokens of options, shape (options, longest option - 1); ``read`` is used up."""
    read.cache.batch_select_indices(owners)  # on the CPU: a model with a device map lies on several devices
    own = read.contexts.select(owners)
    steps = torch.arange(ids.shape[1] - 1)
    # Where an option ends, its last token is not fed: it predicts nothing that is scored.
    real = (lengths[:, None] - 1 > steps).to(own.attention_mask)
    mask = torch.cat([own.attention_mask, real], dim=-1)
    positions = own.position_ids[:, -1:] + 1 + steps.to(model.device)
    fed = PaddedBatch(ids[:, :-1], mask, positions, [Encoded((), None)] * len(ids))
    inputs = model.model_inputs(fed, own)
    logits = model.language_model(**inputs, past_key_values=read.cache, use_cache=True).logits
    return token_losses(logits, ids[:, 1:])
